"""The option --schema-file: what etcd gets of the file, and how a wrong one is answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.metadata.records import ChangefeedInfo
from streaming.changefeed import preflight
from streaming.changefeed.settings_in_etcd import changefeed_settings
from streaming.cli.main import main
from tests.streaming.cli.test_cluster import SOURCE, read_stored

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(
    etcd: EmbeddedEtcd, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The program, in this process, on a cluster of the test's own; no broker is asked."""
    monkeypatch.setattr(preflight, "findings", lambda _changefeed, *, is_new: [])  # noqa: ARG005
    monkeypatch.setenv("TIDELAKE_ETCD", etcd.endpoint)
    monkeypatch.setenv("TIDELAKE_CLUSTER_ID", f"c-{uuid4().hex[:8]}")

    def run(*arguments: str) -> tuple[int, str]:
        code = 0
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, capfd.readouterr().err

    return run


def stored(etcd: EmbeddedEtcd) -> ChangefeedInfo:
    (found,) = read_stored(etcd)
    return found


def create(folder: Path, name: str = "shop") -> tuple[str, ...]:
    sink = f"delta://{folder}/warehouse"
    return ("create", "-c", name, "--source-uri", SOURCE, "--sink-uri", sink)


def test_the_text_is_stored_and_kept(command: Command, etcd: EmbeddedEtcd, tmp_path: Path) -> None:
    """Captures are elsewhere: a path would mean nothing to them."""
    dump, other = tmp_path / "shop.sql", tmp_path / "other.sql"
    dump.write_text(
        "USE shop; -- a comment\nCREATE TABLE a (id int PRIMARY KEY, d decimal(9,2));\n"
        "CREATE TABLE left_out (id int);"
    )
    file = tmp_path / "changefeed.toml"
    file.write_text(f'schema-file = "{dump}"\n[filter]\nrules = ["shop.a"]')
    assert command("changefeed", *create(tmp_path), "--config", str(file)) == (0, "")
    made = stored(etcd)
    text = "USE `shop`;\nCREATE TABLE a (id int PRIMARY KEY, d decimal(9,2));\n"
    assert (made.config or {})["schema-text"] == text
    assert "schema-file" not in (made.config or {})
    assert changefeed_settings(made).schema_text == text

    assert command("changefeed", "pause", "-c", "shop")[0] == 0
    update = ("changefeed", "update", "-c", "shop")
    assert command(*update, "--target-ts", "900") == (0, "")
    assert stored(etcd).config == made.config
    other.write_text("CREATE TABLE shop.a (id bigint PRIMARY KEY)")
    assert command(*update, "--schema-file", str(other)) == (0, "")
    assert "bigint" in changefeed_settings(stored(etcd)).schema_text
    other.write_text("")
    assert command(*update, "--schema-file", str(other)) == (0, "")
    assert changefeed_settings(stored(etcd)).schema_text == ""


def test_a_wrong_file_is_one_line(command: Command, tmp_path: Path) -> None:
    assert command("changefeed", *create(tmp_path))[0] == 0
    assert command("changefeed", "pause", "-c", "shop")[0] == 0
    wrong = tmp_path / "wrong.sql"
    for content, says in [
        (b"CREATE TABLE shop.a (id xmltype)", "schema-file: table shop.a: it cannot be read"),
        (b"CREATE TABLE shop.a (id int COMMENT '%s')" % (b"x" * 1_100_000), "etcd holds 1048576"),
        (b"\xff", "is not UTF-8"),
        (None, "wrong.sql cannot be read (No such file or directory)"),
    ]:
        wrong.unlink(missing_ok=True)
        if content is not None:
            wrong.write_bytes(content)
        for asked in (("update", "-c", "shop"), create(tmp_path, "new")):
            code, err = command("changefeed", *asked, "--schema-file", str(wrong))
            assert (code, len(err.splitlines())) == (2, 1), err
            assert says in err


def test_a_run_says_so_too(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    wrong = tmp_path / "wrong.sql"
    wrong.write_text("CREATE TABLE a (id int)")
    sink = f"delta://{tmp_path}/warehouse"
    options = ("--sink-uri", sink, "--schema-file", str(wrong), "--log-format", "json")
    code, err = command("run", "--source-uri", SOURCE, *options)
    assert code == 2
    assert "schema-file: table a: no database is named" in err
