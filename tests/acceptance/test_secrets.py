"""One marked secret in every place that takes one, and nowhere in what the program writes.

A broker and an etcd that both ask for it, storage options that have it, and the real program: what
it prints and logs, what lies in its warehouse and its temporary folder, and what ``ps`` shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from conf.settings import EtcdSettings
from coordination.etcd.embedded import EmbeddedEtcd, find_binary
from coordination.etcd.etcd3_client import connect
from streaming.cli.main import main
from tests.acceptance.processes import Life, await_, environment
from tests.services.broker_settings import SASL_PASSWORD, SASL_USER
from tests.services.kafka_broker import REPOSITORY, KafkaBroker
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]

SECRET = SASL_PASSWORD
CLI_WITHIN_S = 120.0
# However it is written: as it is, in a URI, in JSON.
SPELLINGS = {
    text.encode() for text in (SECRET, quote(SECRET, safe=""), quote(SECRET), quote_plus(SECRET))
} | {SECRET[:13].encode()}
TOPIC = "secrets"


@pytest.fixture
def locked() -> Iterator[EmbeddedEtcd]:
    """An etcd whose root has the secret for a password."""
    etcdctl = find_binary().with_name("etcdctl")
    with EmbeddedEtcd() as etcd:
        for command in (f"user add root:{SECRET}", "user grant-role root root", "auth enable"):
            subprocess.run(
                [str(etcdctl), f"--endpoints={etcd.endpoint}", *command.split()],
                check=True,
                capture_output=True,
                env={"ETCDCTL_API": "3"},
            )
        yield etcd


def has_secret(data: bytes) -> bool:
    return any(spelling in data for spelling in SPELLINGS)


def written_with_it(folder: Path, *, but: Iterable[Path]) -> list[Path]:
    """Files that hold the secret; ``but``: those that were given to the program."""
    files = (path for path in folder.rglob("*") if path.is_file() and path not in but)
    return [path for path in files if has_secret(path.read_bytes())]


def shown_with_it(life: Life) -> list[bytes]:
    """Command lines of the process and of all that it has started."""
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in life.processes()]
    assert any(b"java" in line for line in lines), "there was no JVM to look at"
    return [line for line in lines if has_secret(line)]


class Operator:
    """The real commands, in this process but for ``run``; all that they print is kept."""

    def __init__(self, env: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
        self.environment = env
        self.said = b""
        self._capfd = capfd

    def __call__(self, *arguments: str, code: int = 0) -> str:
        ended = 0
        try:
            main(arguments)
        except SystemExit as end:
            ended = int(end.code or 0)
        out, err = self._capfd.readouterr()
        assert ended == code, f"{arguments}: {out}{err}"
        self.said += f"{out}{err}".encode()
        return out

    def run(self, *arguments: str, code: int, **more: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "streaming.cli.main", "run", *arguments],
            cwd=REPOSITORY,
            env={**self.environment, **more},
            capture_output=True,
            timeout=CLI_WITHIN_S,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout!r}{done.stderr!r}"
        self.said += done.stdout + done.stderr


def source_uri(broker: KafkaBroker, password: str) -> str:
    return (
        f"kafka://{broker.sasl_bootstrap}/{TOPIC}?protocol=canal-json&enable-tidb-extension=true"
        f"&sasl-mechanism=PLAIN&sasl-user={SASL_USER}&sasl-password={password}"
    )


def test_a_secret_is_in_nothing_that_the_program_writes(
    broker: KafkaBroker,
    locked: EmbeddedEtcd,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = list(history(HistorySettings(seed=3, transactions=20)))
    broker.create_topic(TOPIC)
    broker.produce(TOPIC, messages(events, FeedSettings(seed=3)))
    clear = source_uri(broker, quote(SECRET, safe=""))
    wrong = source_uri(broker, quote(f"{SECRET}-not", safe=""))
    config, file = tmp_path / "changefeed.toml", tmp_path / "a-secret"
    file.write_text(f"{SECRET}\n")
    config.write_text(
        f'[storage-options]\naws_secret_access_key = "{SECRET}"\n'
        f'[sink.kafka-config]\nsasl-password = "{SECRET}"\n'
    )
    sink = ("--sink-uri", f"delta://{tmp_path}/warehouse")
    end = ("--target-ts", str(events[-1].commit_ts))
    login = {"etcd": locked.endpoint, "etcd_user": "root", "etcd_password": SECRET}
    tidelake = Operator(environment(tmp_path, **login), capfd)
    for name, value in login.items():
        monkeypatch.setenv(f"TIDELAKE_{name.upper()}", value)

    # As a user mistypes it, and where a peer refuses it.
    tidelake("changefeed", "create", clear, code=2)
    tidelake("changefeed", "list", "--etcd", f"http://r:{SECRET}@h:1", code=2)
    tidelake.run("--source-uri", wrong, *sink, code=1)
    tidelake.run("--source-uri", clear, *sink, code=2, TIDELAKE_ETCD_PASSWORD=f"{SECRET}-not")

    # A changefeed of a cluster, before anybody serves it.
    create = ("changefeed", "create", "--config", str(config), *sink, "-c")
    tidelake(*create, "clear", "--source-uri", clear)
    for output in ("table", "json"):
        shown = tidelake("changefeed", "query", "-c", "clear", "--format", output)
        assert "sasl-password=***" in shown
        tidelake("changefeed", "list", "--format", output)
    tidelake("changefeed", "pause", "-c", "clear")
    tidelake("changefeed", "update", "-c", "clear", "--source-uri", wrong, "--no-check")
    tidelake("changefeed", "remove", "-c", "clear")

    # One that a capture serves: neither etcd nor the operator has the secret.
    config.write_text(f'[storage-options]\naws_secret_access_key = "${{file:{file}}}"\n')
    reference = source_uri(broker, "${env:SHOP_PASSWORD}")
    tidelake(*create, "shop", "--source-uri", reference, *end, code=2)  # who checks must have it
    tidelake(*create, "shop", "--source-uri", reference, *end, "--no-check")
    lives = [serve(tidelake, tmp_path)]
    await_finished(tidelake, lives[0])
    assert shown_with_it(lives[0]) == []
    lives[0].end()
    assert "${env:SHOP_PASSWORD}" in tidelake("changefeed", "query", "-c", "shop")
    assert keys_with_it(locked) == []
    tidelake("changefeed", "remove", "-c", "shop")

    # The same with `run`, which was given it in clear.
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-m", "streaming.cli.main", "run", "--source-uri", clear, *end]
    command += ["--sink-uri", f"delta://{tmp_path}/of-run", "-c", "alone"]
    config.write_text(f'[storage-options]\naws_secret_access_key = "{SECRET}"\n')
    given = {**tidelake.environment, **environment(folder), "TIDELAKE_CONFIG": str(config)}
    lives.append(Life("run", folder, command, given))
    lives[1].await_line("spark is up")
    assert shown_with_it(lives[1]) == []
    assert lives[1].await_exit() == 0, lives[1].tail()

    assert not has_secret(tidelake.said), tidelake.said.decode()
    assert written_with_it(tmp_path, but={config, file}) == []


def serve(tidelake: Operator, folder: Path) -> Life:
    folder = folder / "server"
    folder.mkdir()
    command = [sys.executable, "-m", "streaming.cli.main", "server", "--addr", "127.0.0.1:0"]
    given = {**tidelake.environment, **environment(folder), "SHOP_PASSWORD": SECRET}
    return Life("server", folder, command, given)


def await_finished(tidelake: Operator, life: Life) -> None:
    def is_so() -> bool:
        assert not life.is_over, life.tail()
        rows = json.loads(tidelake("changefeed", "list", "--format", "json"))["rows"]
        return bool(rows[0]["state"] == "finished")

    await_("the changefeed's end", is_so, every_s=1.0)


def keys_with_it(etcd: EmbeddedEtcd) -> list[str]:
    client = connect(
        EtcdSettings(endpoints=(etcd.endpoint,), embedded=False, user="root", password=SECRET)
    )
    try:
        return [kv.key for kv in client.range("/", prefix=True).kvs if has_secret(kv.value)]
    finally:
        client.close()
