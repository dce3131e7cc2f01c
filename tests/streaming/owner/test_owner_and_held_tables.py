"""The owner of a table that waits: real control tables and targets, and a stream fed by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from conf.settings import BatchSettings, Changefeed, DeltaSink
from conf.sources.kafka_uri import KafkaSettings
from coordination.model import (
    CaptureID,
    Ownership,
    ProcessorEpoch,
    Revision,
    TableName,
    Ts,
)
from coordination.ports import Advance
from coordination.scheduler.barrier import PendingDdl
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import Checkpoint
from coordination.scheduler.replication_set import ReplicationState
from coordination.trust.clock import SystemClock
from coordination.trust.fence import CaptureIdentity
from coordination.trust.watchdog import Watchdog
from sinks.control.progress import Progress
from streaming.owner import control_writer
from streaming.owner.control_writer import DeltaControlWriter
from streaming.owner.ddl.refusal import DdlNotSupported
from streaming.protocols.contract import DDL_BODY, Block, Kind, ipc
from streaming.source.contract import SourceShape
from streaming.source.positions import counted
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream import role_context
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.read import Read
from streaming.stream.role_context import RoleContext

P = "shop/0"
T, U = TableName("shop", "t"), TableName("shop", "u")
PATIENCE_S = 15.0


def ddl(ts: int, query: str, name: TableName, kind: str = "ALTER") -> Block:
    fields = {"commit_ts": ts, "position": ts, "index": 0, "schema_name": name.schema}
    event = {**fields, "table_name": name.table, "ddl_type": kind, "query": query}
    body = ipc(pa.Table.from_pylist([event], DDL_BODY))
    return Block(kind=Kind.DDL, part="shop/0", name=name, rows=1, body=body)


class Stream:
    """One partition; what comes is given to the owner's reader at once."""

    def __init__(self, folder: Path, **batch: int) -> None:
        source = KafkaSettings(
            brokers=("h:1",), topic="shop", topics=("shop",), protocol="canal-json", partition_num=1
        )
        self.name = "stream"
        self.busy = threading.Lock()
        self.position = {P: 0}
        self.watermarks = Watermarks(parts=frozenset({P}))
        self._resolved = 0
        self._reader: Any = None
        self.context: Any = SimpleNamespace(
            changefeed=Changefeed(id="shop", source=source, sink=DeltaSink(warehouse=str(folder))),
            batch=BatchSettings(**batch),
            trust=SimpleNamespace(check=lambda: None, silent_s=0.0, refused_write=None),
            concerns=LastingWarnings(),
            check_jvm=lambda: None,
            engine=SimpleNamespace(cancel=lambda _: None),
        )
        self.backlog = SimpleNamespace(look=lambda: SimpleNamespace(ends={}))

    def join(self, reader: Any, low_water: Any, _marks: Any, _identities: Any) -> Any:
        reader.submit(low_water)
        self._reader = reader
        return low_water

    def leave(self, reader: Any) -> None: ...

    def stored(self, marks: Any, low_water: Any) -> None: ...

    def marks(self, _reader: Any) -> Any:
        return self.watermarks.to_record()

    def wake(self) -> None:
        threading.Thread(target=self._apply, daemon=True).start()

    def _apply(self) -> None:
        with self.busy:
            if self._reader is not None:
                self._reader.apply_due()

    def resolved_ts(self) -> Ts:
        return Ts(self._resolved)

    def read_between(self, *_: Any) -> Iterator[Read]:
        return iter(())

    def send(self, resolved: int, *blocks: Block) -> None:
        begin, end = self.position, {P: self.position[P] + 10}
        read = Read(
            begin=begin,
            end=end,
            position=end,
            watermarks=self.watermarks,
            blocks=blocks,
            messages=1,
            rows_wait=False,
            job_ms=0.0,
        )
        with self.busy:
            self._reader.take(read)
            self.position, self._resolved = end, resolved
        self._apply()


class Owner:
    """Tells the control writer what a term would."""

    def __init__(self, stream: Stream, revision: int = 1) -> None:
        epoch = ProcessorEpoch(f"e{revision}")
        identity = CaptureIdentity(capture_id=CaptureID("a"), epoch=epoch, address="a")
        stream.context.trust.identity = identity
        context = RoleContext(
            role="owner",
            stream=stream,  # type: ignore[arg-type]
            ttl_s=10,
            start_epoch=None,
            wake=lambda: None,
            watch=lambda what: Watchdog(SystemClock()).watch(what, 600.0),
        )
        ownership = Ownership(
            capture_id=identity.capture_id,
            epoch=epoch,
            etcd_cluster_id="etcd",
            election_revision=Revision(revision),
        )
        self.stream = stream
        self.control = DeltaControlWriter(context, ownership)
        self.until(self.control.claimed)
        self.until(lambda: stream._reader is not None and stream._reader._is_caught_up)
        self.spans: dict[TableName, Any] = {}

    def until(self, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := holds()):
            assert time.monotonic() < deadline, self.control._error
            time.sleep(0.02)
        return found

    def pending(self, *wanted: tuple[int, bool]) -> tuple[PendingDdl, ...]:
        """Until these wait, each with whether an operator is waited for."""

        def found() -> tuple[PendingDdl, ...] | None:
            for table in self.control.take_changes().added:
                self.spans[table.span.name] = table.span
            scan = self.control.ddl_scan().pending
            kinds = tuple((each.commit_ts, each.is_held) for each in scan)
            return (*scan, PendingDdl(commit_ts=Ts(0), table_ids=())) if kinds == wanted else None

        return self.until(found)[:-1]

    def record(self, checkpoint: int, **reached: int) -> None:
        spans = [
            SpanProgress(
                span=span,
                state=ReplicationState.REPLICATING,
                capture_id=CaptureID("a"),
                epoch=ProcessorEpoch("e"),
                checkpoint=Checkpoint(Ts(ts), Ts(ts)),
                delta_version=0,
                status=None,
            )
            for name, span in self.spans.items()
            for ts in (reached[name.table],)
        ]
        offsets = {str(P): self.stream.position[P]}
        self.control.record(
            Advance(
                checkpoint_ts=Ts(checkpoint),
                resolved_ts=Ts(checkpoint),
                spans=spans,
                source_positions=offsets,
                read_positions=offsets,
            )
        )


@pytest.fixture
def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Owner]]:
    shape = SourceShape({P: "id"})
    source: Any = SimpleNamespace(
        shape=lambda: shape,
        beginnings=lambda parts: dict.fromkeys(parts, 0),
        check=lambda *_: None,
        keep_to=lambda _: None,
        goes_on=lambda place, *_: place,
        refuse_a_hole=lambda *_, **__: None,
        kept=lambda _: None,
        unlogged=lambda: (),
        held_back=lambda _: None,
        distance=counted,
        place="{} position {}".format,
        close=lambda: None,
    )
    monkeypatch.setattr(role_context, "open_source", lambda _: source)
    monkeypatch.setattr(control_writer, "RECORD_EVERY_S", 0.05)
    monkeypatch.setattr("streaming.owner.blocked_tables.ASK_EVERY_S", 0.05)
    with ExitStack() as stack:

        def make(revision: int = 1, **batch: int) -> Owner:
            owner = Owner(Stream(tmp_path, **batch), revision)
            stack.callback(owner.control.close, drop=True)
            return owner

        yield make


def create(ts: int, name: TableName) -> Block:
    return ddl(ts, f"CREATE TABLE `{name.table}` (`id` BIGINT PRIMARY KEY)", name, "CREATE")


UNKNOWN = ddl(30, "ALTER TABLE `t` FROBNICATE", T)
ADD = ddl(40, "ALTER TABLE `t` ADD COLUMN `c` INT", T)


def test_it_is_noted_shown_and_goes_on_at_a_word(
    owners: Callable[..., Owner], tmp_path: Path
) -> None:
    owner = owners()
    stored, progress = owner.control._context.tables, Progress(str(tmp_path))
    owner.stream.send(20, create(10, T), create(11, U))
    owner.pending()
    owner.stream.send(50, UNKNOWN, ADD)
    owner.stream.send(90)
    (held,) = owner.pending((29, True))
    assert list(held.table_ids or ()) == [owner.spans[T].table_id]
    owner.record(29, t=29, u=90)
    owner.until(lambda: progress.read("shop")[T].state == "blocked")
    assert (progress.read("shop")[U].state, progress.read("shop")[U].checkpoint_ts) == (
        "replicating",
        90,
    )
    row = owner.until(
        lambda: (row := stored.changefeeds.read("shop")) and row.state == "warning" and row
    )
    assert "tidelake ddl skip -c shop --table shop.t --commit-ts 30" in row.error
    owner.until(lambda: stored.changefeeds.read("shop").checkpoint_ts == 29)
    assert stored.changefeeds.read("shop").source_positions == {str(P): 10}, "it is read again"

    owner.control.close(drop=True)  # and its process is gone
    heir = owners(2)
    heir.stream.position = {P: 10}
    heir.spans = owner.spans
    heir.stream.send(90, UNKNOWN, ADD)
    heir.pending((29, True))
    stored.blocked_ddls.order("shop", (T, Ts(30)), "skip")
    runs, _ = heir.pending((29, False), (39, False))
    heir.control.run_ddl(runs)
    runs, _ = heir.pending((39, False), (90, False))
    heir.control.run_ddl(runs)
    heir.pending()
    assert "c" in {each.name for each in heir.control._term.rows.spans.schemas()[T].columns}  # type: ignore[union-attr]
    heir.record(90, t=90, u=90)
    heir.until(lambda: progress.read("shop")[T].state == "replicating")
    heir.until(lambda: stored.changefeeds.read("shop").checkpoint_ts == 90)
    row = heir.until(lambda: (row := stored.changefeeds.read("shop")).state == "running" and row)
    assert row.error is None


def test_where_too_much_is_read_meanwhile_the_changefeed_stops(
    owners: Callable[..., Owner],
) -> None:
    owner = owners(held_messages=25)
    owner.stream.send(20, create(10, T), create(11, U))
    owner.pending()
    owner.stream.send(50, UNKNOWN)
    owner.pending((29, True))
    for resolved in (60, 70):
        owner.stream.send(resolved)
    owner.record(29, t=29, u=70)
    with pytest.raises(DdlNotSupported, match=r"30 messages lie .* held-messages.*ddl skip"):
        owner.until(lambda: owner.control.take_changes() and None)


def test_where_nothing_goes_on_it_stops(owners: Callable[..., Owner]) -> None:
    owner = owners()
    owner.stream.send(20, create(10, T), create(11, U))
    owner.pending()
    owner.stream.send(50, UNKNOWN)
    (held,) = owner.pending((29, True))
    owner.control.run_ddl(replace(held, commit_ts=Ts(28)))  # of an older plan
    owner.record(29, t=29, u=50)
    owner.pending((29, True))
    owner.control.run_ddl(held)
    owner.record(29, t=29, u=50)
    with pytest.raises(DdlNotSupported, match=r"FROBNICATE.*ddl skip"):
        owner.until(lambda: owner.control.take_changes() and None)
