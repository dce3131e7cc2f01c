"""Captures on a real etcd that is frozen, killed and compacted under them, and that are killed."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conf.settings import EtcdSettings
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import Etcd3Client, connect
from coordination.model import ChangefeedID
from tests.coordination.running_capture import CALM, SHORT, RunningCapture

pytestmark = pytest.mark.etcd

PROGRAM = """
import logging, signal, sys
from conf.settings import EtcdSettings
from coordination.etcd.etcd3_client import connect
from tests.coordination.running_capture import RunningCapture
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
one = RunningCapture(connect(EtcdSettings(endpoints=(sys.argv[1],), embedded=False)),
                     cluster_id=sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: one.capture.request_stop())
one.capture.run()
print("gone", flush=True)
"""


class CaptureProcess:
    """A capture in a process of its own; its log lines are read as they come."""

    def __init__(self, endpoint: str, cluster_id: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM, endpoint, cluster_id],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._child.pid, number)

    def await_line(self, start: str, timeout_s: float = 15.0) -> str:
        while not (line := self._lines.get(timeout=timeout_s)).startswith(start):
            pass
        return line

    def await_exit(self) -> int:
        return self._child.wait(15)

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        self._reader.join(5)
        assert self._child.stdout is not None
        self._child.stdout.close()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line.rstrip())


@contextmanager
def client_of(etcd: EmbeddedEtcd) -> Iterator[Etcd3Client]:
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    assert isinstance(client, Etcd3Client)
    yield client
    client.close()


@pytest.fixture
def cluster_id() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def process(etcd: EmbeddedEtcd, cluster_id: str) -> Iterator[CaptureProcess]:
    running = CaptureProcess(etcd.endpoint, cluster_id)
    yield running
    running.end()


def await_candidates(client: EtcdClient, cluster_id: str, count: int) -> None:
    prefix = keys.owner_prefix(cluster_id, ChangefeedID("shop"))
    deadline = time.monotonic() + 10
    while len(client.range(prefix, prefix=True).kvs) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def field(line: str, name: str) -> str:
    return line.split(f"{name}=")[1].split()[0]


class TestTwoProcesses:
    def test_a_clean_stop_hands_over_at_once(
        self, real_client: EtcdClient, process: CaptureProcess, cluster_id: str
    ) -> None:
        process.await_line("capture won the election")
        with RunningCapture(real_client, cluster_id=cluster_id) as standby:
            await_candidates(real_client, cluster_id, 2)
            assert standby.replication.owners == []
            process.signal(signal.SIGTERM)
            standby.replication.await_owner(timeout_s=SHORT.ttl_s / 2)
            assert process.await_exit() == 0

    def test_a_kill_hands_over_after_the_ttl(
        self, real_client: EtcdClient, process: CaptureProcess, cluster_id: str
    ) -> None:
        process.await_line("capture won the election")
        with RunningCapture(real_client, cluster_id=cluster_id) as standby:
            await_candidates(real_client, cluster_id, 2)
            killed = time.monotonic()
            process.signal(signal.SIGKILL)
            standby.replication.await_owner()
            assert SHORT.ttl_s / 2 < time.monotonic() - killed < SHORT.ttl_s + 2

    def test_a_stopped_process_wakes_up_fenced_and_comes_back_as_another(
        self, real_client: EtcdClient, process: CaptureProcess, cluster_id: str
    ) -> None:
        before = process.await_line("capture won the election")
        with RunningCapture(real_client, cluster_id=cluster_id) as standby:
            await_candidates(real_client, cluster_id, 2)
            process.signal(signal.SIGSTOP)
            standby.replication.await_owner()
            process.signal(signal.SIGCONT)
            died = process.await_line("capture dies by suicide")
            back = process.await_line("capture is back as a new one")
            assert field(died, "epoch") == field(before, "epoch")
            assert field(back, "epoch") != field(before, "epoch")
            assert field(back, "capture_id") != field(before, "capture_id")
            await_candidates(real_client, cluster_id, 2)
            assert len(standby.replication.owners) == 1
        process.await_line("capture won the election")


class TestBrokenEtcd:
    def test_frozen_for_less_than_the_lease(self, own_etcd: EmbeddedEtcd) -> None:
        with client_of(own_etcd) as client, RunningCapture(client, session=CALM) as one:
            owner = one.replication.await_owner()
            os.kill(own_etcd.pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(own_etcd.pid, signal.SIGCONT)
            one.await_renewal()
            assert one.fence.check() == owner
            assert one.replication.stops == []

    def test_frozen_for_longer_than_the_lease(self, own_etcd: EmbeddedEtcd) -> None:
        with client_of(own_etcd) as client, RunningCapture(client) as one:
            before = one.replication.await_owner()
            frozen = time.monotonic()
            os.kill(own_etcd.pid, signal.SIGSTOP)
            one.replication.await_shut()
            assert time.monotonic() - frozen < SHORT.ttl_s
            one.replication.await_stop()
            os.kill(own_etcd.pid, signal.SIGCONT)
            after = one.replication.await_owner(2)
            assert after.epoch != before.epoch

    def test_killed_and_restarted_within_the_lease(self, own_etcd: EmbeddedEtcd) -> None:
        with client_of(own_etcd) as client, RunningCapture(client, session=CALM) as one:
            owner = one.replication.await_owner()
            own_etcd.kill()
            own_etcd.start()
            one.await_renewal()
            assert one.fence.check() == owner
            assert one.replication.stops == []

    def test_killed_for_longer_than_the_lease_and_restarted(self, own_etcd: EmbeddedEtcd) -> None:
        with client_of(own_etcd) as client, RunningCapture(client) as one:
            before = one.replication.await_owner()
            own_etcd.kill()
            one.replication.await_stop()
            time.sleep(1.0)
            own_etcd.start()
            after = one.replication.await_owner(2)
            assert after.epoch != before.epoch
            assert after.etcd_cluster_id == before.etcd_cluster_id
            assert after.owner_revision > before.owner_revision

    def test_compacted_while_leading_and_standing_by(self, own_etcd: EmbeddedEtcd) -> None:
        with (
            client_of(own_etcd) as client,
            RunningCapture(client) as one,
            RunningCapture(client) as two,
        ):
            running, waiting = leader_first(one, two)
            await_candidates(client, "test", 2)
            client.compact(client.put("/some/key", b"1"))
            own_etcd.kill()  # watches must begin again, in the compacted past
            own_etcd.start()
            time.sleep(1.0)
            leader, standby = leader_first(running, waiting)
            leader.stop()
            standby.replication.await_owner(len(standby.replication.owners) or 1)
            assert running.error is waiting.error is None


def leader_first(one: RunningCapture, two: RunningCapture) -> tuple[RunningCapture, RunningCapture]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for leader, other in ((one, two), (two, one)):
            if leader.replication.is_running:
                return leader, other
        time.sleep(0.02)
    raise AssertionError("nobody leads")
