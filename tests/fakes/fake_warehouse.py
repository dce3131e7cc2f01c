"""Delta tables and control rows in memory: identity, versions, the term's compare-and-set.

It is also where the truth is: every landing is checked against the source (I2, I3, I5 and I7 of
docs/cluster.md), and `check_checkpoint` says whether a checkpoint means what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from coordination.capture.owner.sync_point import next_sync_point
from coordination.errors import TermRefused
from coordination.model import SEALED_TS, Ownership, TermNumber, Ts
from coordination.ports import Advance, Claim, RegisteredTable, ShownState
from coordination.scheduler.coordinator import SpanProgress
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from streaming.owner.progress_rows import cut, low_water, past_tables, reported_progress
from streaming.spans.joining_spans import stored_low_water
from streaming.stream.read import Marks
from tests.fakes.fake_source import FakeSource, SourceDdl
from tests.fakes.fake_topic import PARTITIONS

FRESH_S: Final = 2.0  # a row that stands still for so long has no owner


class Start(NamedTuple):
    """Where a changefeed is to start, and when that was said."""

    epoch: int
    ts: Ts


class InvariantBroken(AssertionError):
    """What must never be; the text says which invariant of docs/cluster.md."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise InvariantBroken(what)


@dataclass(frozen=True)
class Landing:
    """A target commit, as its `userMetadata` tells."""

    capture_id: str
    fence: int
    checkpoint_ts: int
    limit_ts: int
    checked_at: float  # when trust, state and barrier were looked at for the last time
    rows: frozenset[int]  # what its writer has of them, by commit-ts
    start: Start  # as its writer knows it
    is_in_doubt: bool = False  # its writer goes on without an answer


@dataclass(frozen=True)
class Landed:
    """A table as its log has it."""

    identity_ts: int
    version: int | None


@dataclass
class Target:
    """One Delta table."""

    identity_ts: int
    start_ts: int
    rows: set[int] = field(default_factory=set)
    newest_fence: int = 0
    log: list[Landing] = field(default_factory=list)
    held: list[int] = field(default_factory=lambda: [0])  # rows, by version

    @property
    def landed(self) -> Landed:
        return Landed(self.identity_ts, len(self.held) - 1)


class FakeWarehouse:
    def __init__(
        self,
        source: FakeSource,
        sync_interval_ms: int | None,
        quiet_s: float,
        *,
        target_ts: int | None = None,
    ) -> None:
        """``quiet_s``: a commit that takes no longer than that ends before a successor begins."""
        self.source = source
        self.targets: dict[int, Target] = {}
        self.registered: dict[int, RegisteredTable] = {}
        self.row = ChangefeedRow(
            changefeed_id="shop",
            start_ts=source.start_ts,
            checkpoint_ts=source.start_ts,
            resolved_ts=source.start_ts,
            source_positions={str(each): 0 for each in PARTITIONS},
        )
        self.checkpoint_ts = source.start_ts
        self.start: Start | None = None  # as it was last said
        self.refreshed_at = 0.0  # by its owner
        self.lenient_until = 0.0  # etcd has forgotten leases, and who had them goes on until then
        self.shown_ts = 0  # tables may show what is at or below it, wherever they are
        self.term = 0
        self.owner_revision = 0
        self.owner = ""
        self.ran: set[int] = set()  # commit-ts of DDLs
        self.waited: set[int] = set()  # ... that have held their tables
        self.published: list[int] = []
        self.progress: dict[int, ProgressRow] = {}
        self.late_landings = 0
        self.is_finished = False
        self.shown = ShownState()  # what the owner has last said of it
        self._sync_interval_ms = sync_interval_ms
        self._quiet_s = quiet_s
        self._target_ts = target_ts

    def aim_at(self, target_ts: int | None) -> None:
        """Where the changefeed is to finish from now on."""
        self._target_ts = target_ts

    # control rows: compare-and-set on the term

    def claim(self, ownership: Ownership, start: Start, now_s: float) -> Claim:
        is_earlier = ownership.election_revision < self.owner_revision
        if is_earlier and now_s < self.refreshed_at + FRESH_S:
            raise TermRefused(f"an owner of revision {self.owner_revision} has claimed")
        self.owner_revision = ownership.election_revision
        self.term += 1
        self.owner = ownership.capture_id
        self.refreshed_at = now_s
        if self.start not in (None, start) and not is_earlier:
            self._rewind(start.ts)
        self.start = start
        for table_id in self.registered:  # one that was dropped is sealed: its row stays
            at = self.opened(table_id)
            self.progress[table_id] = replace(
                self.progress[table_id], checkpoint_ts=at.identity_ts, delta_version=at.version
            )
        tables = tuple(
            RegisteredTable(span=each.span, start_ts=Ts(self.start_of(table_id)))
            for table_id, each in sorted(self.registered.items())
        )
        return Claim(
            term=TermNumber(self.term),
            checkpoint_ts=self.checkpoint_ts,
            tables=tables,
            published_ts=Ts(self.published[-1]) if self.published else Ts(0),
        )

    def _rewind(self, ts: Ts) -> None:
        """Its tables stay as they are, and go on from there: what lies beyond comes again."""
        self.checkpoint_ts = ts
        self.row = replace(
            self.row, source_positions={str(each): 0 for each in PARTITIONS}, watermarks={}
        )
        for table_id in self.registered:
            target = self.targets[table_id]
            self.shown_ts = max(self.shown_ts, target.identity_ts)
            target.identity_ts = max(ts, target.start_ts)
            self.progress[table_id] = replace(
                self.progress[table_id],
                checkpoint_ts=target.identity_ts,
                source_positions=self.row.source_positions,
            )

    def start_of(self, table_id: int) -> int:
        """Where a table begins: its identity or its progress row."""
        return self.opened(table_id).identity_ts

    def opened(self, table_id: int) -> Landed:
        """What a capture finds that takes the table up."""
        target = self.targets[table_id]
        at_ts = max(target.identity_ts, target.start_ts, self.progress[table_id].checkpoint_ts)
        return replace(target.landed, identity_ts=at_ts)

    def check_term(self, term: int) -> None:
        if term != self.term:
            raise TermRefused(f"term {term} is over: {self.owner} has claimed {self.term}")

    def register(
        self, term: int, table_id: int, start_ts: int, source_positions: Mapping[str, int]
    ) -> RegisteredTable:
        self.check_term(term)
        found = self.registered.get(table_id)
        if found is None:
            span = self.source.tables[table_id].span
            found = RegisteredTable(span=span, start_ts=Ts(start_ts))
            self.registered[table_id] = found
            self.targets[table_id] = Target(identity_ts=start_ts, start_ts=start_ts)
            self.progress[table_id] = self._first_progress(span.table, start_ts, source_positions)
        return found

    def run_ddl(self, term: int, ddl: SourceDdl, source_positions: Mapping[str, int]) -> None:
        """Its effect, once; the tables must be exactly at it."""
        self.check_term(term)
        if ddl.commit_ts in self.ran:
            return
        blocked = list(self.registered) if ddl.table_id is None else [ddl.table_id]
        for table_id in blocked:
            if ddl.kind != "create" and table_id in self.registered:
                self._require_exactly(table_id, ddl.commit_ts, f"I5: a DDL {ddl.kind} runs early")
        earlier = [each for each in self.source.ddls if each.commit_ts < ddl.commit_ts]
        left = [each for each in earlier if each.commit_ts not in self.ran]
        if ddl.table_id is not None:  # those of a table that waits are behind the first of them
            waiting = {each.table_id for each in left if each.commit_ts in self.waited}
            left = [e for e in left if e.table_id not in waiting - {ddl.table_id}]
        require(not left, "I5: DDLs run out of order")
        self.ran.add(ddl.commit_ts)
        if ddl.kind == "create" and ddl.table_id is not None:
            self.register(term, ddl.table_id, ddl.commit_ts, source_positions)
        elif ddl.kind == "drop" and ddl.table_id is not None:
            self.registered.pop(ddl.table_id, None)
            if ddl.table_id in self.targets:
                self.targets[ddl.table_id].identity_ts = SEALED_TS

    def record(self, term: int, advance: Advance, reading: Mapping[str, int], marks: Marks) -> None:
        """``reading``: from where the owner's own must begin again."""
        self.check_term(term)
        require(advance.checkpoint_ts >= self.checkpoint_ts, "I3: the changefeed's row falls")
        self.checkpoint_ts = advance.checkpoint_ts
        self.check_checkpoint(advance.checkpoint_ts)
        for span in advance.spans:
            self._write_progress(span, advance.source_positions)
        for table_id, table in self.registered.items():
            require(
                self.progress[table_id].checkpoint_ts >= advance.checkpoint_ts,
                f"I3: the changefeed's row is ahead of that of {table.span.table}",
            )
        self.row = replace(
            self.row,
            source_positions=low_water(self.row, advance, reading, self.progress.values()),
            watermarks={**self.row.watermarks, **{str(p): mark for p, mark in marks.items()}},
        )
        self._check_low_waters()
        if advance.finished:
            self._finish()
        if advance.sync_point_ts is not None:
            self._publish(advance.sync_point_ts)

    def _finish(self) -> None:
        assert self._target_ts is not None, "finished without a target-ts"
        self.is_finished = True
        for table_id in self.registered:
            self._require_exactly(table_id, self._target_ts, "I5: it finishes too early")

    def _check_low_waters(self) -> None:
        """Whoever takes a table up finds all of its rows that are not applied."""
        for table_id, table in self.source.tables.items():
            target = self.targets.get(table_id)
            if table.dropped_ts in self.ran:
                continue
            begin = stored_low_water(self.row, self.progress.get(table_id))
            applied_ts = target.identity_ts if target is not None else self.source.start_ts
            for row in self.source.topic.first_above(table_id, applied_ts):
                require(
                    begin[row.partition] <= row.offset,
                    f"I7: the low water is past a row of {table.span.table} that nobody applied",
                )

    def _write_progress(self, told: SpanProgress, source_positions: Mapping[str, int]) -> None:
        before = self.progress[told.span.table_id]
        at_ts, status = told.checkpoint.checkpoint_ts, told.status
        require(at_ts >= before.checkpoint_ts, "I3: a span's checkpoint falls")
        if status is not None and status.fence:
            require(status.fence >= before.fence, "I2: a fence falls")
        self.progress[told.span.table_id] = reported_progress(before, told, source_positions)

    def _first_progress(
        self, table: str, start_ts: int, source_positions: Mapping[str, int]
    ) -> ProgressRow:
        return ProgressRow(
            changefeed_id="shop",
            incarnation=1,
            schema_name="shop",
            table_name=table,
            generation=1,
            state="replicating",
            checkpoint_ts=start_ts,
            resolved_ts=start_ts,
            delta_version=0,
            source_positions=source_positions,
            capture_id=self.owner,
            epoch="",
            fence=0,
        )

    def _publish(self, sync_ts: int) -> None:
        if self.published and sync_ts <= self.published[-1]:
            return
        if sync_ts <= self.shown_ts:
            self.published.append(sync_ts)  # passed over
            return
        here = {table_id: self.progress[table_id] for table_id in self.registered}
        created = {row.name: Ts(self.targets[t].start_ts) for t, row in here.items()}
        if self.waited and past_tables(here.values(), sync_ts, created):
            self.published.append(sync_ts)  # passed over too: they went on
            return
        snapshot = cut("shop", here.values(), sync_ts, 0)
        if snapshot is None:
            return
        for table_id, row in here.items():
            if not self.waited or self.targets[table_id].start_ts <= sync_ts:
                self._require_exactly(table_id, sync_ts, "I5: a sync point finds a table elsewhere")
            self._check_version(table_id, snapshot.tables.get(str(row.name)), sync_ts)
        self.published.append(sync_ts)

    def _check_version(self, table_id: int, version: int | None, sync_ts: int) -> None:
        target, table = self.targets[table_id], self.source.tables[table_id]
        if target.start_ts > sync_ts:
            require(version is None, f"I5: {table.span.table} in a snapshot, before it began")
            return
        require(version is not None, f"I5: {table.span.table} is not in a snapshot")
        expected = table.count(sync_ts) - table.count(target.start_ts)
        held = target.held[version or 0]
        require(
            held == expected,
            f"I5: a snapshot has {table.span.table} with {held} changes of {expected}",
        )

    # targets: no compare-and-set but the identity

    def land(self, table_id: int, landing: Landing, now_s: float) -> Landed:
        """Commit all changes in (checkpoint, limit]; what the table is now."""
        target = self.targets[table_id]
        if landing.start != self.start:
            return target.landed  # sealed against it
        if landing.fence < target.newest_fence:
            took_s = now_s - landing.checked_at
            is_late = landing.is_in_doubt or took_s > self._quiet_s
            is_late |= landing.checked_at < self.lenient_until
            require(is_late, "I2: an older fence commits behind a newer one")
            self.late_landings += 1
        if target.identity_ts >= landing.limit_ts:
            return target.landed  # skipped: somebody was further
        target.newest_fence = max(target.newest_fence, landing.fence)
        self._check_barriers(table_id, target, landing)
        target.rows.update(landing.rows)
        target.identity_ts = landing.limit_ts
        target.held.append(len(target.rows))
        target.log.append(landing)
        self.check_content(table_id, landing.limit_ts)
        return target.landed

    def _check_barriers(self, table_id: int, target: Target, landing: Landing) -> None:
        for ddl in self.source.ddls:
            is_blocked = ddl.table_id in (None, table_id) and ddl.kind != "create"
            if is_blocked and target.start_ts < ddl.commit_ts < landing.limit_ts:
                require(ddl.commit_ts in self.ran, "I5: a commit above a DDL that has not run")
        if self._target_ts is not None:
            require(landing.limit_ts <= self._target_ts, "I5: a commit above the target-ts")
        if self._sync_interval_ms is not None and not self.waited:
            last = self.published[-1] if self.published else self.source.start_ts
            limit = next_sync_point(last, self._sync_interval_ms)
            require(landing.limit_ts <= limit, "I5: a commit above a sync point")

    # the truth

    def check_content(self, table_id: int, upto_ts: int) -> None:
        """I7: the table holds exactly the source's state at that moment."""
        target, table = self.targets[table_id], self.source.tables[table_id]
        expected = table.count(upto_ts) - table.count(target.start_ts)
        held = len(target.rows)
        if upto_ts < self.shown_ts:
            held = sum(each <= upto_ts for each in target.rows)
        require(
            held == expected,
            f"I7: {table.span.table} holds {held} changes of {expected}",
        )

    def check_checkpoint(self, checkpoint_ts: int) -> None:
        """I3, I7: everything at or below a checkpoint is in a table, registered or not."""
        for table_id, table in self.source.tables.items():
            if table.dropped_ts is not None and table.dropped_ts <= checkpoint_ts:
                continue
            count = table.count(checkpoint_ts)
            if not count:
                continue
            target = self.targets.get(table_id)
            held = len(target.rows) if target is not None else 0
            require(held >= count, f"I3: the checkpoint is ahead of {table.span.table}")

    def _require_exactly(self, table_id: int, ts: int, what: str) -> None:
        target, table = self.targets[table_id], self.source.tables[table_id]
        is_exact = len(target.rows) == table.count(ts) - table.count(target.start_ts)
        require(
            is_exact and target.identity_ts <= max(ts, target.start_ts),
            f"{what}: {table.span.table}",
        )
