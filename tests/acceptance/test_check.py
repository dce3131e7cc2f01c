"""`tidelake check` tells all that a start would meet, at once; what it names mends it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from conf.settings import Changefeed, DeltaSink, FilterSettings
from conf.sources.binlog_uri import BinlogSettings
from sinks.control.progress import ProgressRow
from sinks.control.warehouse import ControlTables
from streaming.cli.main import main
from streaming.operations.before_start.database import refused
from streaming.operations.before_start.planned import planned_tables
from streaming.owner.start_point import first_row
from streaming.source.binlog.source import PART
from tests.acceptance.copied_database import ACCOUNT, make_account
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer, needs
from tests.services.second_editions import first_of

pytestmark = pytest.mark.mariadb

Check = Callable[..., tuple[int, list[tuple[str, str, str]]]]


@pytest.fixture(
    scope="module",
    params=first_of((MARIADB_10_11, MARIADB_11_8, MYSQL_9_7), [MARIADB_10_11]),
    ids=lambda each: each.name,
)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    needs(request.param)
    with DatabaseServer(request.param) as started:
        make_account(started)
        yield started


@pytest.fixture
def database(server: DatabaseServer) -> Iterator[DatabaseServer]:
    with server.database("c"):
        yield server


@pytest.fixture
def check(database: DatabaseServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Check:
    """Exit code, and (verdict, about, what) of each finding."""

    def run(*arguments: str, user: str = ACCOUNT) -> tuple[int, list[tuple[str, str, str]]]:
        config = tmp_path / "changefeed.toml"
        config.write_text('[filter]\nrules = ["c.*"]\n')
        code = 0
        uri = f"mysql://{user}@{database.host}:{database.port}/"
        try:
            main(
                [
                    *("check", "--source-uri", uri, "--sink-uri", f"delta://{tmp_path}/lake"),
                    *("--config", str(config), "--format", "json", *arguments),
                ]
            )
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capfd.readouterr()
        assert err == ""
        told: dict[str, Any] = json.loads(out)
        assert told["starts"] == (code == 0)
        return code, [(each["verdict"], each["about"], each["what"]) for each in told["notes"]]

    return run


def of(notes: list[tuple[str, str, str]], verdict: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for told, about, what in notes:
        if told == verdict:
            found.setdefault(about, []).append(what)
    return found


def test_a_database_that_is_fit(database: DatabaseServer, check: Check, tmp_path: Path) -> None:
    database.execute("CREATE TABLE c.t (id INT PRIMARY KEY)", "INSERT INTO c.t VALUES (1)")
    code, notes = check()
    assert code == 0
    assert {told for told, _, _ in notes} == {"ok"}
    told = {about for _, about, _ in notes}
    assert told == {"Java", "jars", "etcd", "settings", "warehouse", "changefeed", "source"} | {
        *("rights", "server", "tables")
    }
    assert not (tmp_path / "lake").exists()  # nothing is kept


def test_all_that_is_wrong_is_told_at_once(
    database: DatabaseServer, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = "few_rights"
    database.execute(
        f"DROP USER IF EXISTS {few}",
        f"CREATE USER {few}",
        f"GRANT REPLICATION CLIENT ON *.* TO {few}",
        f"GRANT SELECT ON c.* TO {few}",
        "CREATE TABLE c.no_key (id INT)",
        "CREATE TABLE c.parent (id INT PRIMARY KEY)",
        "CREATE TABLE c.child (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES c.parent (id) ON DELETE CASCADE)",
        "CREATE TABLE c.made (id INT PRIMARY KEY, g INT AS (id + 1) STORED)",
        "CREATE TABLE c.taken (id INT PRIMARY KEY)",
        "SET GLOBAL binlog_row_image = 'MINIMAL'",
        "SET GLOBAL binlog_expire_logs_seconds = 600",
    )
    write_deltalake(str(tmp_path / "lake" / "c" / "taken"), pa.table({"id": [1]}))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TIDELAKE_JARS", str(tmp_path))
    try:
        code, notes = check(user=few)
    finally:
        database.execute(
            "SET GLOBAL binlog_row_image = 'FULL'",
            "SET GLOBAL binlog_expire_logs_seconds = DEFAULT",
        )
    assert code == 2
    refused = of(notes, "refused")
    assert "has no bin/java" in refused["Java"][0]
    assert "holds no jars" in refused["jars"][0]
    assert "SET GLOBAL binlog_row_image = 'FULL'" in refused["source"][0]
    assert "REPLICATION SLAVE" in refused["database"][0]
    keyless, taken = refused["tables"]
    assert "none is copied: c.no_key" in keyless
    assert "table c.taken at" in taken
    known = of(notes, "note")
    assert "keeps its binlog for 600 s" in known["server"][0]
    if database.edition.is_mariadb:  # MySQL 9.7 writes these rows
        assert "CASCADE" in known["c.child"][0]
    omits = database.edition is MARIADB_11_8
    assert ("c.made" in known) == omits


def test_what_waits_alone_is_no_refusal(database: DatabaseServer, check: Check) -> None:
    database.execute(
        "CREATE TABLE c.t (id INT PRIMARY KEY, a INT)",
        "DROP USER IF EXISTS one_column",
        "CREATE USER one_column",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO one_column",
        "GRANT SELECT (id) ON c.t TO one_column",
    )
    code, notes = check(user="one_column")
    assert code == 0
    (why,) = of(notes, "waits")["c.t"]
    granted = re.search(r"GRANT SELECT ON \S+ TO '\w+'@'%'", why)
    assert granted is not None
    database.execute(granted[0])
    code, notes = check(user="one_column")
    assert (code, of(notes, "waits")) == (0, {})


def test_a_changefeed_that_has_begun_is_asked_for_no_copy(
    database: DatabaseServer, tmp_path: Path
) -> None:
    """One that is created again goes on where its tables are."""
    database.execute("CREATE TABLE c.no_key (id INT)")
    feed = Changefeed(
        id="shop",
        source=BinlogSettings(host=database.host, port=database.port, user=ACCOUNT),
        sink=DeltaSink(warehouse=str(tmp_path)),
        filter=FilterSettings(rules=("c.*",)),
    )
    (why,) = refused(feed)
    assert "none is copied: c.no_key" in str(why)
    begun = replace(first_row(feed), source_positions={PART: 4})
    ControlTables.of(feed.sink).changefeeds.begin(begun)
    assert refused(feed) == []


def test_the_tables_that_would_be_made(
    database: DatabaseServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By `task check`, and by a dry run of a changefeed that copies nothing."""
    database.execute(
        *("CREATE TABLE c.no_key (id INT)", "CREATE TABLE c.t (a INT, b INT, PRIMARY KEY (b, a))"),
        "CREATE TABLE c.bag (id INT)",
    )
    file, config, lake = tmp_path / "task.yaml", tmp_path / "feed.toml", tmp_path / "lake"
    file.write_text(
        "name: shop\ntask-mode: all\nmysql-instances: [{source-id: one, block-allow-list: c}]\n"
        "block-allow-list: {c: {do-dbs: [c]}}\n"
    )
    config.write_text('[[sink.tables]]\nmatcher = ["c.bag"]\nkey = "rows"\n')
    uri = f"mysql://{ACCOUNT}@{database.host}:{database.port}/"
    arguments = ("--source-uri", uri, "--sink-uri", f"delta://{lake}", "--config", str(config))
    with pytest.raises(SystemExit):  # of c.no_key, which is refused
        main(["task", "check", str(file), *arguments, "--format", "json"])
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    how = [re.sub(r"about \d+", "N", each) for each in row["tables"]]
    assert how == [
        f"c.bag → {lake}/c/bag: write-mode = 'upsert', key = 'rows', no primary key, "
        "N rows are copied",
        f"c.no_key → {lake}/c/no_key: write-mode = 'upsert', no primary key, cannot be copied",
        f"c.t → {lake}/c/t: write-mode = 'upsert', primary key b, a, N rows are copied",
    ]
    assert not lake.exists()
    source = BinlogSettings(
        host=database.host, port=database.port, user=ACCOUNT, task_mode="incremental"
    )
    feed = Changefeed(
        id="shop",
        source=source,
        sink=DeltaSink(warehouse=str(lake)),
        filter=FilterSettings(rules=("c.t",)),
    )
    (told,) = planned_tables(feed)
    assert told.endswith("primary key b, a, not copied")
    tables = ControlTables.of(feed.sink)
    tables.progress.claim(feed.id, 0)
    there = ProgressRow(
        changefeed_id=feed.id,
        incarnation=1,
        schema_name="c",
        table_name="t",
        generation=1,
        state="replicating",
        checkpoint_ts=4,
        resolved_ts=4,
        source_positions={PART: 4},
        capture_id="c",
        epoch="e",
        fence=0,
    )
    tables.progress.advance([there], 0)
    (told,) = planned_tables(replace(feed, source=replace(source, task_mode="all")))
    assert told.endswith("primary key b, a, replicated already")


def test_what_does_not_answer(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else is told nevertheless."""
    code, notes = check(user="nobody")
    assert code == 2
    assert "refuses the login" in of(notes, "refused")["source"][0]
    code, notes = check("--source-uri", "mysql://reader@127.0.0.1:1/?connect-timeout-s=1")
    assert code == 1
    assert "does not answer" in of(notes, "refused")["source"][0]
    assert of(notes, "ok").keys() == {"Java", "jars", "etcd", "settings", "warehouse", "changefeed"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    code, notes = check("--sink-uri", "delta+s3://bucket/lake")
    assert code == 1
    assert "cannot write to s3://bucket/lake: " in of(notes, "refused")["warehouse"][0]
    (tmp_path / "lake").write_text("")
    code, notes = check()
    assert code == 2
    assert "is no folder" in of(notes, "refused")["warehouse"][0]


def test_a_changefeed_file_that_is_wrong_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(
            ["check", "--sink-uri", f"delta://{tmp_path}", "--source-uri", "mysql://u@h:3306/?x=1"]
        )
    out, err = capfd.readouterr()
    assert (ended.value.code, out, len(err.splitlines())) == (2, "", 1)


def test_people_read_it_at_80_columns(
    database: DatabaseServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    database.execute("CREATE TABLE c.no_key (id INT)")
    uri = f"mysql://{ACCOUNT}@{database.host}:{database.port}/"
    with pytest.raises(SystemExit):
        main(["check", "--source-uri", uri, "--sink-uri", f"delta://{tmp_path}/lake"])
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "a start would be refused: one thing found wrong"
    assert lines[-2].startswith("refused") or lines[-3].startswith("refused")
