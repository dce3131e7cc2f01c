"""Captures in one process and an owner by hand: no etcd, no scheduler, real Kafka, Spark and Delta.

The test is the scheduler: it adds, moves and removes spans. ``tick`` is one heartbeat: it hands out
the barrier, takes the statuses, and tells the control writer how far all is. What must hold at
every tick is looked at there: checkpoints never fall, no span is above its barrier, one writer per
span."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from conf.settings import BatchSettings, SessionSettings
from coordination.capture.owner.term import lowest
from coordination.metadata.records import ChangefeedInfo
from coordination.model import (
    CaptureID,
    ChangefeedID,
    Ownership,
    ProcessorEpoch,
    Revision,
    Ts,
    fence_number,
)
from coordination.ports import Advance, Claim, RegisteredTable, ShownState
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.replication_set import ReplicationState
from coordination.scheduler.table_status import TableState
from coordination.trust.clock import SystemClock
from coordination.trust.fence import CaptureIdentity, Fence, Trust
from coordination.trust.watchdog import Watchdog
from streaming.jobs.on_spark import SparkOfProcess
from streaming.owner.control_writer import DeltaControlWriter
from streaming.process.data_plane import SparkDataPlane
from streaming.spans.replica import StreamReplica
from streaming.spark.session import SparkOnDemand
from tests.looks import looks
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import Message

CHANGEFEED = "shop"
PATIENCE_S = 120.0  # seconds on a quiet machine
TICK_S = 0.03


class Stage:
    """One changefeed on one topic and one warehouse, and the captures of this process."""

    def __init__(
        self, spark: SparkSession, broker: KafkaBroker, folder: Path, topic: str, **config: Any
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.warehouse = folder / "warehouse"
        self.plane = SparkDataPlane(
            SparkOfProcess(SparkOnDemand(lambda: spark)),
            batch=BatchSettings(max_messages=200, first_messages=5),
            session=SessionSettings(),
            watchdog=Watchdog(SystemClock()),
            jvm_ended=lambda: None,
        )
        self.info = ChangefeedInfo(
            id=ChangefeedID(CHANGEFEED),
            sink_uri=f"kafka://{broker.bootstrap}/{topic}?protocol=canal-json"
            "&partition-num=3&enable-tidb-extension=true",
            config={**config, "sink": {"delta-uri": f"delta://{self.warehouse}"}},
            start_ts=Ts(1),
        )
        self.replicas: dict[str, StreamReplica] = {}
        self.fences: dict[str, Fence] = {}
        self.controls: list[DeltaControlWriter] = []
        self.woken = threading.Event()
        self._revision = 0

    def produce(self, outgoing: Iterable[Message]) -> None:
        self.broker.produce(self.topic, outgoing)

    def capture(self, name: str) -> StreamReplica:
        self.fences[name] = opened_fence(self._ownership(name))
        trust = self._trust(name, self.fences[name])
        self.replicas[name] = self.plane.open_replica(self.info, trust, self.woken.set)
        return self.replicas[name]

    def _ownership(self, name: str) -> Ownership:
        return Ownership(
            capture_id=CaptureID(name),
            epoch=ProcessorEpoch(f"epoch-{name}"),
            etcd_cluster_id="by-hand",
            election_revision=Revision(self._revision),
        )

    def _trust(self, name: str, fence: Fence) -> Trust:
        epoch = ProcessorEpoch(f"epoch-{name}")
        return Trust(fence, CaptureIdentity(capture_id=CaptureID(name), epoch=epoch, address=name))

    def control(self, name: str = "owner") -> DeltaControlWriter:
        """A new owner, elected later than all before it."""
        self._revision += 1
        ownership = self._ownership(name)
        trust = self._trust(name, opened_fence(ownership))
        control = self.plane.open_control_writer(self.info, trust, ownership, self.woken.set)
        self.controls.append(control)
        return control

    def show(self, shown: ShownState, name: str = "owner") -> None:
        """As the owner does when nothing runs."""
        ownership = self._ownership(name)
        trust = self._trust(name, opened_fence(ownership))
        self.plane.show(self.info, trust, ownership, shown, self.woken.set)

    def close(self) -> None:
        for part in (*self.replicas.values(), *self.controls):
            part.close(drop=True)
        deadline = time.monotonic() + PATIENCE_S
        for part in (*self.replicas.values(), *self.controls):
            while not part.is_closed():
                assert time.monotonic() < deadline, f"{part} does not end"
                time.sleep(TICK_S)

    def commits(self, table: str) -> list[dict[str, Any]]:
        """The metadata of each commit of rows, in the order of versions."""
        history = DeltaTable(str(self.warehouse / "shop" / table)).history()
        found = [json.loads(each.get("userMetadata") or "{}") for each in reversed(history)]
        return [each for each in found if "fence" in each]

    def row_messages(self) -> dict[str, int]:
        """Of each table in the topic."""
        counts: dict[str, int] = {}
        for message in self.broker.read(self.topic):
            event = json.loads(message.value or b"{}")
            if event["type"] in ("INSERT", "UPDATE", "DELETE"):
                counts[event["table"]] = counts.get(event["table"], 0) + 1
        return counts


def opened_fence(ownership: Ownership) -> Fence:
    fence = Fence(SystemClock())
    fence.open(ownership, time.monotonic() + 3600)
    return fence


class HandOwner:
    """The term of one owner. ``cap_ts`` is a barrier of the test's own."""

    def __init__(self, stage: Stage, name: str = "owner") -> None:
        self.stage = stage
        self.control = stage.control(name)
        self.claim: Claim = until(self.control.claimed)
        self.tables: dict[str, RegisteredTable] = {}
        self.homes: dict[str, str] = {}
        self.cap_ts: int | None = None
        self.sync_point_ts: int | None = None
        self.published_ts = 0
        self.warnings: list[str] = []
        self.checkpoint_ts = self.claim.checkpoint_ts
        self.outbox: list[Message] = []  # sent a few at each tick
        self._assignments = 0
        self._reached: dict[str, int] = {}
        self._told: dict[str, SpanProgress] = {}
        self._register(self.claim.tables)

    def _register(self, tables: Sequence[RegisteredTable]) -> None:
        for table in tables:
            self.tables[table.span.table] = table
            self._reached[table.span.table] = table.start_ts

    def tick(self) -> None:
        if self.outbox:
            now, self.outbox = self.outbox[:40], self.outbox[40:]
            self.stage.produce(now)
        scan = self.control.ddl_scan()
        changes = self.control.take_changes()
        self._register(changes.added)
        self.published_ts = max(self.published_ts, changes.published_ts or 0)
        bounds = [scan.position_ts, *(ddl.commit_ts for ddl in scan.pending)]
        if self.cap_ts is not None:
            bounds.append(Ts(self.cap_ts))
        barrier = Barrier(Ts(max(min(bounds), self.checkpoint_ts)))
        for name, replica in self.stage.replicas.items():
            replica.set_barrier(barrier)
            trouble = replica.take_trouble()
            assert not trouble.errors, (name, trouble)
            self.warnings += [each.message for each in trouble.warnings]
        self._look(barrier)
        self._record()
        self._last_scan = scan

    def _look(self, barrier: Barrier) -> None:
        for replica in self.stage.replicas.values():
            replica.take_changed()
        for table, home in self.homes.items():
            span = self.tables[table].span
            status = self.stage.replicas[home].get_table_span_status(span.table_id)
            assert status.checkpoint_ts >= self._reached[table], f"{table} fell"
            assert status.checkpoint_ts <= max(barrier.global_barrier_ts, self._reached[table])
            self._reached[table] = status.checkpoint_ts
            self._told[table] = SpanProgress(
                span=span,
                state=ReplicationState.REPLICATING,
                capture_id=CaptureID(home),
                epoch=ProcessorEpoch(f"epoch-{home}"),
                checkpoint=Checkpoint(status.checkpoint_ts, status.resolved_ts),
                delta_version=status.delta_version,
                status=status,
            )
        reached = min(self._reached.values(), default=self.checkpoint_ts)
        self.checkpoint_ts = Ts(max(self.checkpoint_ts, reached))

    def _record(self) -> None:
        homes = set(self.homes.values())
        offsets = [at for home in homes if (at := self.stage.replicas[home].get_read_positions())]
        read = lowest(offsets)
        own = [told.status.source_positions for told in self._told.values() if told.status]
        is_settled = len(offsets) == len(homes) > 0 and len(self.homes) == len(self.tables)
        low = lowest((*offsets, *filter(None, own))) if is_settled else {}
        at_point = self.checkpoint_ts == self.sync_point_ts
        self.control.record(
            Advance(
                checkpoint_ts=self.checkpoint_ts,
                resolved_ts=self.checkpoint_ts,
                spans=tuple(self._told.values()),
                source_positions=low,
                read_positions=read,
                sync_point_ts=Ts(self.sync_point_ts or 0) if at_point else None,
            )
        )

    def until(self, holds: Callable[[], Any], *, patience_s: float = PATIENCE_S) -> Any:
        """Ticks until it holds; what it gave."""

        def ticked() -> Any:
            self.tick()
            return holds()

        return until(ticked, patience_s=patience_s)

    # What a scheduler would do.

    def await_tables(self, *names: str) -> None:
        self.until(lambda: all(name in self.tables for name in names))

    def fence(self) -> int:
        self._assignments += 1
        return fence_number(self.claim.term, self._assignments)

    def add(self, **homes: str) -> None:
        """Tables to captures, side by side."""
        for table, capture in homes.items():
            self._ask(table, capture, is_prepare=True)
        for table, capture in homes.items():
            self._await(table, capture, is_prepare=True)
        for table, capture in homes.items():
            self._ask(table, capture, is_prepare=False)
        for table, capture in homes.items():
            self._await(table, capture, is_prepare=False)
            self.homes[table] = capture

    def _ask(self, table: str, capture: str, *, is_prepare: bool) -> None:
        replica, span = self.stage.replicas[capture], self.tables[table].span
        at = Checkpoint(Ts(self._reached[table]), Ts(self._reached[table]))
        fence = self.fence()

        def is_begun() -> bool:
            replica.add_table_span(span, at, fence, is_prepare=is_prepare)
            return not is_prepare or state(replica, span) is not TableState.ABSENT

        self.until(is_begun)

    def _await(self, table: str, capture: str, *, is_prepare: bool) -> None:
        replica, span = self.stage.replicas[capture], self.tables[table].span
        awaited = TableState.PREPARED if is_prepare else TableState.REPLICATING
        self.until(lambda: state(replica, span) is awaited)

    def prepare(self, table: str, capture: str) -> None:
        self._ask(table, capture, is_prepare=True)
        self._await(table, capture, is_prepare=True)

    def write(self, table: str, capture: str) -> None:
        self._ask(table, capture, is_prepare=False)
        self._await(table, capture, is_prepare=False)
        self.homes[table] = capture

    def remove(self, table: str) -> int:
        """Where it stopped. It is nobody's then."""
        home, span = self.homes.pop(table), self.tables[table].span
        replica = self.stage.replicas[home]
        replica.remove_table_span(span.table_id)
        last = self.until(lambda: replica.take_stopped(span.table_id))
        stopped = last.checkpoint_ts
        assert stopped >= self._reached[table]
        self._reached[table] = stopped
        assert state(replica, span) is TableState.ABSENT
        return int(stopped)

    def move(self, table: str, capture: str) -> None:
        self.prepare(table, capture)
        self.remove(table)
        self.write(table, capture)

    def reached(self, ts: int) -> None:
        """Until the whole changefeed is there."""
        self.until(lambda: self.checkpoint_ts >= ts)

    def where(self, table: str) -> int:
        return self._reached[table]


def state(replica: StreamReplica, span: Span) -> TableState:
    return replica.get_table_span_status(span.table_id).state


def until(holds: Callable[[], Any], *, patience_s: float = PATIENCE_S) -> Any:
    for _ in looks(patience_s, every_s=TICK_S):
        found = holds()
        if found is not None and found is not False:
            return found
    raise AssertionError("it does not come to pass")


def assert_one_writer_at_a_time(stage: Stage, tables: Iterable[str], *, late: int = 0) -> None:
    """I2 in the metadata of the commits: fences rise, limits rise, each write begins where it may.

    ``late``: so many commits have an older fence than the one before: of writes under way."""
    found = 0
    for table in tables:
        commits = stage.commits(table)
        for before, after in itertools.pairwise(commits):
            assert after["limit"] > before["limit"], (table, before, after)
            assert after["checkpoint"] < after["limit"]
            found += after["fence"] < before["fence"]
        for fence in {each["fence"] for each in commits}:
            captures = {each["capture"] for each in commits if each["fence"] == fence}
            assert len(captures) == 1, (table, fence, captures)
    assert found == late
