"""What `tidelake server` says before it serves; Spark never starts here."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

import pytest

from conf.settings import EtcdSettings
from coordination.errors import TidelakeError
from coordination.etcd import keys
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.model import CaptureID, CaptureInfo
from streaming.cli.main import main
from streaming.process import server as serve

SPARK_STARTS = "here Spark would start"


@pytest.fixture
def server(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """The command, in this process, up to Spark's start; its exit code, and what it said."""

    def start(_self: object) -> None:
        raise TidelakeError(SPARK_STARTS)

    monkeypatch.setattr(serve.SparkOnDemand, "__call__", start)

    def run(*arguments: str) -> tuple[int, str]:
        code = 0
        try:
            main(("server", *arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("addr", "says"),
    [
        (None, "in use, perhaps by another `tidelake server`: give --addr another port"),
        ("203.0.113.1:8300", "no address of this machine"),
        ("no-such-host.invalid:8300", "not known"),
    ],
)
def test_where_it_cannot_listen_it_says_so_in_one_line_before_anything_starts(
    server: Callable[..., tuple[int, str]], addr: str | None, says: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = addr or f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = server("--addr", where)
    assert code == 2
    (line,) = said.splitlines()
    assert f" ERROR tidelake: cannot listen at addr {where!r}: " in line
    assert says in line


def test_a_server_without_an_etcd_says_how_its_own_is_reached(
    server: Callable[..., tuple[int, str]],
) -> None:
    code, said = server("--addr", "127.0.0.1:0")
    assert code == 1
    assert f" ERROR tidelake: {SPARK_STARTS}" in said.splitlines()[-1]
    (told,) = [line for line in said.splitlines() if "--etcd http" in line]
    assert re.search(r"--etcd http://127\.0\.0\.1:\d+ .*this machine", told)
    assert "forgotten" in told


@pytest.mark.etcd
def test_a_server_of_another_version_than_the_others_ends_with_one_line(
    server: Callable[..., tuple[int, str]], etcd: EmbeddedEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.SparkOnDemand, "__call__", lambda _self: None)
    first = CaptureInfo(id=CaptureID("c1"), address="b:8300", version="7.0.0", start_timestamp=0)
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    client.put(keys.capture_key("versions", first.id), keys.dump_capture_info(first))
    client.close()
    at = ("--etcd", etcd.endpoint, "--cluster-id", "versions", "--addr", "127.0.0.1:0")
    code, said = server(*at)
    assert code == 2
    assert "capture c1 at b:8300 has version 7.0.0" in said.splitlines()[-1]
