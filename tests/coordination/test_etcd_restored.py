"""etcd is restored from a backup under captures: a real etcd, terms in a real Delta table.

Each landing in the fake warehouse is looked at: no row is lost, and none is there twice.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conf.settings import EtcdSettings, SessionSettings
from coordination.capture.context import CaptureContext
from coordination.capture.reset_limit import ResetLimit
from coordination.capture.server import CaptureServer
from coordination.errors import TryAgain
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, delete
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.metadata.changefeed_writes import create_writes
from coordination.metadata.records import ChangefeedInfo
from coordination.model import Ownership, TermNumber, Ts
from coordination.orchestrator.commit_once import commit_once
from coordination.ports import Claim
from coordination.scheduler.schedulers import SchedulerSettings
from coordination.trust.clock import SystemClock
from coordination.trust.fence import Fence
from coordination.trust.watchdog import Watchdog
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from tests.fakes.fake_data_plane import FakeDataPlane, Pace
from tests.fakes.fake_source import FakeSource, ts_at
from tests.fakes.fake_transport import FakeNetwork, FakeTransport
from tests.fakes.fake_warehouse import FakeWarehouse, Start
from tests.own_lines import own_lines
from tests.services import etcd_backup
from tests.simulation.world import CLUSTER, NAME

pytestmark = pytest.mark.etcd

CLOCK = SystemClock()
SESSION = SessionSettings(ttl_s=3, safety_margin_s=1.0)
PATIENCE_S = 120.0


class DeltaTerms(FakeWarehouse):
    """Terms are claimed as they are: in the changefeed's row, by a real compare-and-set."""

    def __init__(self, source: FakeSource, warehouse: Path) -> None:
        super().__init__(source, None, 1000.0)  # the machine decides how long a commit takes
        self.changefeeds = Changefeeds(str(warehouse))

    def claim(self, ownership: Ownership, start: Start, now_s: float) -> Claim:
        first = ChangefeedRow(
            changefeed_id=NAME.id, start_ts=0, checkpoint_ts=0, resolved_ts=0, state="running"
        )
        row = self.changefeeds.claim(first, ownership, ttl_s=SESSION.ttl_s, stop=threading.Event())
        self.owner_revision = 0  # what the fake would compare
        claim = super().claim(ownership, start, now_s)
        assert claim.term == row.term == TermNumber(self.term)
        return claim


class Captures:
    """Servers on threads of their own; a thread moves the data planes and the network."""

    def __init__(self, etcd: EmbeddedEtcd, warehouse: Path) -> None:
        self._etcd = etcd
        self._rng = random.Random(1)
        self._network = FakeNetwork(self._rng)
        begin = CLOCK.monotonic()
        source = FakeSource(begin)
        for number in (1, 2, 3):
            source.fill(source.add_table(number), self._rng, begin, begin + 1200.0)
        self.warehouse = DeltaTerms(source, warehouse)
        self.planes: dict[str, FakeDataPlane] = {}
        self.servers: dict[str, tuple[CaptureServer, threading.Thread]] = {}
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._mover = threading.Thread(target=self._move, daemon=True)
        self.client = self._connect()
        info = ChangefeedInfo(id=NAME.id, start_ts=Ts(source.start_ts))
        counter = keys.delete_counter_key(CLUSTER)
        commit_once(self.client, [create_writes(CLUSTER, info)], counter)
        self._mover.start()

    def _connect(self) -> EtcdClient:
        return connect(EtcdSettings(endpoints=(self._etcd.endpoint,), embedded=False))

    def start(self, node: str) -> None:
        woken, fence = threading.Event(), Fence(CLOCK)
        plane = FakeDataPlane(
            lambda _: self.warehouse,
            rng=self._rng,
            now=CLOCK.monotonic,
            pace=Pace(slow_s=0.2, commit_s=0.3),
        )
        context = CaptureContext(
            client=self._connect(),
            cluster_id=CLUSTER,
            session=SESSION,
            clock=CLOCK,
            fence=fence,
            transport=FakeTransport(self._network, node, woken.set),
            data_plane=plane,
            address=node,
            version="1.0.0",
            rng=random.Random(node),
            scheduler=SchedulerSettings(),
            woken=woken,
            watchdog=Watchdog(CLOCK),
        )
        server = CaptureServer(context, reset_limit=ResetLimit(interval_s=0.5), drain_s=1.0)
        thread = threading.Thread(target=server.run, daemon=True)
        self.planes[node], self.servers[node] = plane, (server, thread)
        thread.start()

    def stop(self, node: str) -> None:
        server, thread = self.servers.pop(node)
        server.request_stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        del self.planes[node]

    def close(self) -> None:
        for node in list(self.servers):
            self.stop(node)
        self._stopping.set()
        self._mover.join(PATIENCE_S)
        self.client.close()

    def _move(self) -> None:
        try:
            while not self._stopping.wait(0.02):
                self._network.advance_to(CLOCK.monotonic())
                for plane in list(self.planes.values()):
                    plane.step()
        except BaseException as error:  # noqa: BLE001 - of an invariant: the test's
            self.error = error

    @property
    def revision(self) -> int:
        """Of etcd, as soon as it answers."""
        while True:
            try:
                return self.client.range("/").revision
            except TryAgain:
                time.sleep(0.1)

    @property
    def candidates(self) -> list[str]:
        """The election's keys: who leads comes first."""
        found = self.client.range(keys.election_prefix(CLUSTER), prefix=True).kvs
        return [kv.key for kv in sorted(found, key=lambda kv: kv.create_revision)]

    @property
    def row(self) -> ChangefeedRow:
        row = self.warehouse.changefeeds.read(NAME.id)
        assert row is not None
        return row

    def until(self, reached: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if self.error is not None:
                raise self.error
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def await_progress(self) -> None:
        """Everything that the source has by now is in the tables."""
        now_ts = ts_at(CLOCK.monotonic())
        self.until(lambda: self.warehouse.checkpoint_ts >= now_ts)


@contextmanager
def captures_on(etcd: EmbeddedEtcd, folder: Path) -> Iterator[Captures]:
    captures = Captures(etcd, folder)
    yield captures
    captures.close()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["living captures", "restarted ones"])
def test_captures_go_on_when_etcd_was_restored_from_a_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_restarted: bool
) -> None:
    with EmbeddedEtcd() as etcd, captures_on(etcd, tmp_path / "warehouse") as captures:
        captures.start("a")
        captures.await_progress()
        etcd_backup.save(etcd, tmp_path / "backup")
        saved_at = captures.revision
        for _ in range(300):  # revisions do not come up to where they were
            captures.client.put("/elsewhere", b"")
        captures.start("b")
        captures.until(lambda: len(captures.candidates) == 2)
        delete(captures.client, captures.candidates[0])  # "a" lives on, and its lease is saved
        captures.until(lambda: captures.row.owner_revision > saved_at)
        captures.await_progress()
        before = captures.row
        assert before.owner_revision > saved_at
        if is_restarted:
            captures.stop("a")
            captures.stop("b")
        etcd_backup.restore(etcd, tmp_path / "backup")
        assert captures.revision < before.owner_revision
        if is_restarted:
            captures.start("a")
            captures.start("b")
        caplog.set_level(logging.WARNING)
        captures.await_progress()
        after = captures.row
        assert after.term > before.term
        assert after.owner_revision < before.owner_revision
        assert after.etcd_cluster_id == before.etcd_cluster_id
        lines = own_lines(caplog)
        assert [each for each in lines if "etcd was restored from a backup" in each]
