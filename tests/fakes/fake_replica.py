"""One capture's replica over a source and a warehouse in memory: the real `AssignedSpans`, and
writes that take virtual time.

    new ─► prepared, a while later ─► opened, as its table has it then ─► written up to its limit

A write is checked (fence, state, barrier), then is under way, and lands without another look, even
if its capture is frozen or dead by then: a commit that has been sent cannot be called back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from coordination.errors import Fenced
from coordination.metadata.records import ChangefeedInfo, RunningError
from coordination.model import Ts, lowest
from coordination.ports import Wake
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.replica import Trouble
from coordination.scheduler.table_status import TableState, TableStatus
from coordination.trust.fence import Trust
from streaming.apply.commit_guard import CommitWithdrawn
from streaming.apply.row_block import RowBlock
from streaming.apply.table_blocks import TableBlocks
from streaming.source.positions import Positions
from streaming.spans.assigned_spans import AppliedSpan, AssignedSpans, Assignment
from streaming.spans.joining_spans import stored_low_water
from tests.fakes.fake_source import ts_at
from tests.fakes.fake_topic import Reading, Row
from tests.fakes.fake_warehouse import FakeWarehouse, Landed, Landing, Start

if TYPE_CHECKING:
    from tests.fakes.fake_data_plane import FakeDataPlane

Sent = tuple[float, FakeWarehouse, int, Landing]  # when it lands, in which table
NO_BODY = pa.py_buffer(b"")
LATE_S = 5.0  # after which a write without an answer is done, at most
PLAYED = ("CDC:ErrKafkaSend",)  # codes of the errors that it makes up


@dataclass(frozen=True)
class _Write:
    landing: Landing
    lands_at: float
    is_gone: bool = False  # somebody else sees to its landing


@dataclass
class _Joined:
    """One assignment of a span."""

    assignment: Assignment
    due_at: float
    version: int | None  # of its table when it came here
    carry: TableBlocks  # its rows that are read and not applied
    at: Landed | None = None  # its table, once it was opened
    write: _Write | None = None

    @property
    def table_id(self) -> int:
        return self.assignment.span.table_id


class FakeReplica:
    """See `coordination.scheduler.replica.Replica`."""

    def __init__(
        self, plane: FakeDataPlane, info: ChangefeedInfo, trust: Trust, wake: Wake
    ) -> None:
        self.changefeed_id = info.id
        self.start = Start(info.start_epoch, info.start_ts)
        self._plane = plane
        self._warehouse = plane.warehouse_of(info.id)
        self._source = self._warehouse.source
        self._trust = trust
        self._wake = wake
        self._held = AssignedSpans()
        self._joined: dict[int, _Joined] = {}  # by assignment
        self._is_closing = False
        self._reading = self._begun(self._warehouse.row.source_positions)
        self.warnings: list[RunningError] = []  # to be told at the next look
        self._trouble: list[RunningError] = []

    # The port.

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> None:
        self._held.add(span, checkpoint, fence, is_prepare=is_prepare)

    def remove_table_span(self, table_id: int) -> None:
        self._held.remove(table_id)

    def take_stopped(self, table_id: int) -> TableStatus | None:
        return self._held.take_stopped(table_id)

    def get_table_span_count(self) -> int:
        return self._held.count()

    def get_table_span_status(self, table_id: int) -> TableStatus:
        return self._held.status(table_id)

    def take_changed(self) -> Collection[int]:
        return self._held.take_changed()

    def get_read_positions(self) -> Mapping[str, int] | None:
        return self._held.read_positions()

    def set_barrier(self, barrier: Barrier | None) -> None:
        self._held.set_barrier(barrier)

    def take_trouble(self) -> Trouble:
        trouble, self._trouble = self._trouble, []
        warnings, self.warnings = self.warnings, []
        return Trouble(errors=tuple(trouble), warnings=tuple(warnings))

    def close(self, *, drop: bool) -> None:
        self._is_closing = True
        if drop:
            for joined in self._joined.values():
                if joined.write is not None and self._plane.rng.random() < 0.3:
                    joined.write = None  # it was not sent yet

    def is_closed(self) -> bool:
        return self._is_closing and not self.is_writing and not self._plane.hangs

    # What is seen from outside.

    @property
    def is_trusted(self) -> bool:
        try:
            self._trust.check()
        except Fenced:
            return False
        return True

    @property
    def is_writing(self) -> bool:
        return any(joined.write for joined in self._joined.values())

    def writers(self) -> set[int]:
        """The tables that it writes, or may begin to write now."""
        writing = {joined.table_id for joined in self._joined.values() if joined.write}
        may_write = {
            each.span.table_id
            for each in self._held.assignments()
            if each.state is TableState.REPLICATING and not self._is_closing
        }
        return writing | may_write

    def take_sent(self) -> list[Sent]:
        """What lands though the capture gets on no more."""
        sent = []
        for joined in self._joined.values():
            if joined.write is not None and self._plane.rng.random() < 0.5:
                write = joined.write
                sent.append((write.lands_at, self._warehouse, joined.table_id, write.landing))
                joined.write = replace(write, is_gone=True)
        return sent

    # What gets on with time.

    def step(self) -> None:
        """What was applied is told before or after the rest: two threads do it in TiCDC."""
        self._read()
        is_told_first = self._plane.rng.random() < 0.5
        if is_told_first:
            self._publish()
        self._join_and_leave()
        for joined in self._joined.values():
            self._get_on(joined, self._plane.now())
        if not is_told_first:
            self._publish()

    def _read(self) -> None:
        self._source.topic.send_to(self._plane.watermark_ts())
        rows: dict[int, list[Row]] = {}
        for row in self._reading.read(self._plane.rng, self._plane.pace.read):
            rows.setdefault(row.table_id, []).append(row)
        for joined in self._joined.values():
            joined.carry = _carried(joined, rows.get(joined.table_id, ()))

    def _join_and_leave(self) -> None:
        held = {each.id: each for each in self._held.assignments()}
        for assignment_id, joined in list(self._joined.items()):
            if joined.write is not None:
                continue  # its batch still runs
            if assignment_id not in held:
                del self._joined[assignment_id]
            else:
                joined.assignment = held[assignment_id]
        coming = [each for each in held.values() if each.id not in self._joined]
        if coming and not self._joined:
            low_waters = [self._low_water_of(each.span.table_id) for each in coming]
            self._reading = self._begun(lowest(low_waters))
        for assignment in coming:
            self._joined[assignment.id] = self._new(assignment)

    def _begun(self, begin: Positions) -> Reading:
        """The watermarks that are recorded may have been seen beyond where it begins."""
        row = self._warehouse.row
        return Reading(self._source.topic, begin, row.watermarks)

    def _low_water_of(self, table_id: int) -> Positions:
        return stored_low_water(self._warehouse.row, self._warehouse.progress[table_id])

    def _new(self, assignment: Assignment) -> _Joined:
        """Its rows before where the reading is are read beside it."""
        table_id = assignment.span.table_id
        version = self._warehouse.opened(table_id).version
        joined = _Joined(assignment, self._plane.delay(), version, TableBlocks())
        begin = self._low_water_of(table_id)
        rows = self._source.topic.rows(table_id, begin, self._reading.position)
        joined.carry = _carried(joined, rows)
        return joined

    def _get_on(self, joined: _Joined, now: float) -> None:
        if joined.write is not None:
            if now >= joined.write.lands_at:
                self._land(joined, joined.write)
        elif now < joined.due_at:
            return
        elif joined.assignment.state is TableState.PREPARING:
            self._held.prepared(joined.assignment)
        elif joined.at is None:
            self._open(joined)
        elif not self._is_closing:
            self._write(joined, joined.at)

    def _open(self, joined: _Joined) -> None:
        if not joined.assignment.is_to_write:
            return
        opened = self._warehouse.opened(joined.table_id)
        checkpoint_ts = max(opened.identity_ts, joined.assignment.checkpoint_ts)
        joined.at = replace(opened, identity_ts=checkpoint_ts)
        joined.due_at = self._plane.delay()
        self._held.opened(joined.assignment, self._applied(joined))

    def _write(self, joined: _Joined, at: Landed) -> None:
        plane, assignment = self._plane, joined.assignment
        allowed = self._held.limit(assignment)
        if allowed is None or not self._may_write():
            return
        limit_ts = min(self._reading.resolved_ts, allowed)
        if (batch_s := plane.pace.batch_s) is not None:
            limit_ts = min(limit_ts, at.identity_ts + ts_at(batch_s))
        if limit_ts <= at.identity_ts or self._fails():
            return
        due = joined.carry.due(at.identity_ts, limit_ts)
        if not due:
            joined.at = replace(at, identity_ts=limit_ts)  # no change, no commit
            return
        try:
            self._held.begin_commit(assignment, Ts(limit_ts))
        except CommitWithdrawn:
            return
        landing = Landing(
            self._trust.identity.capture_id,
            assignment.fence,
            at.identity_ts,
            limit_ts,
            checked_at=plane.now(),
            rows=frozenset(block.min_ts for block in due),
            start=self.start,
        )
        joined.write = _Write(landing, plane.commit_at())
        joined.due_at = joined.write.lands_at + plane.rng.random() * plane.pace.slow_s

    def _land(self, joined: _Joined, write: _Write) -> None:
        warehouse, now_s = self._warehouse, self._plane.now()
        joined.write = None
        if not write.is_gone and self._plane.rng.random() < self._plane.pace.doubt:
            self._lose_answer(joined, write)
            return
        landed = (
            warehouse.opened(joined.table_id)
            if write.is_gone
            else warehouse.land(joined.table_id, write.landing, now_s)
        )
        if write.landing.limit_ts <= landed.identity_ts < 2**62:
            joined.at = landed
        self._held.end_commit(joined.assignment, self._applied(joined))
        self._wake()

    def _lose_answer(self, joined: _Joined, write: _Write) -> None:
        """It is done, now or later, or never. Its writer has the same rows to write again."""
        plane, landing = self._plane, replace(write.landing, is_in_doubt=True)
        late_s = plane.rng.choice((0.0, plane.rng.random() * LATE_S, None))
        if late_s is not None:
            sent = (plane.now() + late_s, self._warehouse, joined.table_id, landing)
            plane.in_doubt.append(sent)
        self._held.end_commit(joined.assignment, self._applied(joined))

    def _publish(self) -> None:
        applied = [(each.assignment, self._applied(each)) for each in self._joined.values()]
        self._held.publish(applied, dict(self._reading.position))

    def _applied(self, joined: _Joined) -> AppliedSpan:
        """Of a span that was not opened, no more is known than what its owner has said."""
        at = joined.at or Landed(joined.assignment.checkpoint_ts, joined.version)
        resolved_ts = Ts(max(at.identity_ts, self._reading.resolved_ts))
        position = self._reading.position
        low_water = lowest([position, joined.carry.applied(at.identity_ts).low_water()])
        return AppliedSpan(
            checkpoint_ts=Ts(at.identity_ts),
            resolved_ts=resolved_ts,
            delta_version=at.version,
            source_positions=None if low_water == position else dict(low_water),
        )

    def _may_write(self) -> bool:
        return self.is_trusted

    def _fails(self) -> bool:
        plane = self._plane
        if plane.fails_at is None or plane.now() < plane.fails_at:
            return False
        plane.fails_at = None
        self._trouble.append(
            RunningError(code=PLAYED[0], message=f"no broker at {plane.now():.2f}")
        )
        return True


def _carried(joined: _Joined, rows: Iterable[Row]) -> TableBlocks:
    """With these rows, and without those that are applied."""
    at_ts = joined.at.identity_ts if joined.at is not None else 0
    carry = joined.carry.applied(max(joined.assignment.checkpoint_ts, at_ts))
    name = joined.assignment.span.name
    for row in rows:
        if row.ts > carry.checkpoint:
            block = RowBlock(
                name=name,
                part=row.partition,
                rows=1,
                min_ts=row.ts,
                max_ts=row.ts,
                first=row.offset,
                last=row.offset,
                key_changes=0,
                body=NO_BODY,
            )
            carry = carry.add(block)
    return carry
