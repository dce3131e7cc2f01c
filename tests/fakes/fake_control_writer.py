"""The control writer over a source and a warehouse in memory: one thing at a time, in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from coordination.errors import TidelakeError
from coordination.metadata.records import ChangefeedInfo
from coordination.model import Ownership, Ts, lowest
from coordination.ports import (
    Advance,
    Changes,
    Claim,
    DdlScan,
    RegisteredTable,
    ShownState,
    Wake,
)
from coordination.scheduler.barrier import PendingDdl
from coordination.trust.fence import Trust
from streaming.owner.progress_rows import merged
from streaming.source.positions import Positions
from tests.fakes.fake_topic import Reading
from tests.fakes.fake_warehouse import Start

if TYPE_CHECKING:
    from tests.fakes.fake_data_plane import FakeDataPlane
    from tests.fakes.fake_source import SourceTable


class FakeControlWriter:
    """See `coordination.ports.ControlWriter`. One thing at a time, each takes a while."""

    def __init__(
        self,
        plane: FakeDataPlane,
        *,
        info: ChangefeedInfo,
        ownership: Ownership,
        trust: Trust,
        wake: Wake,
    ) -> None:
        self.changefeed_id = info.id
        self._plane = plane
        self._warehouse = plane.warehouse_of(info.id)
        self._source = self._warehouse.source
        self._ownership = ownership
        self._trust = trust
        self._wake = wake
        self._claim: Claim | None = None
        self._error: TidelakeError | None = None
        self._jobs: list[Callable[[], None]] = []  # begun, in order
        self._keys: list[object] = []  # of those jobs, to begin none twice
        self._due_at = plane.delay()
        self._advance: Advance | None = None
        self._added: list[RegisteredTable] = []
        self._removed: list[int] = []
        self._is_closing = False
        self._is_dropped = False
        self._start = Start(info.start_epoch, info.start_ts)
        self._reading: Reading | None = None  # from the claim on
        self._first_rows: dict[int, Positions] = {}  # of tables that nobody has: before they came
        self._begin("claim", self._do_claim)

    def claimed(self) -> Claim | None:
        self._raise()
        return self._claim

    def ddl_scan(self) -> DdlScan:
        self._raise()
        pending, waiting = [], set()
        for each in self._source.ddls:
            if each.commit_ts > self._scan_ts or each.commit_ts in self._warehouse.ran:
                continue
            if each.table_id in waiting and each.table_id is not None:
                continue  # it waits its turn
            ids = None if each.kind in ("global", "create") else (each.table_id or 0,)
            is_held = self._source.is_unknown(each, self._plane.now())
            if is_held and any(ids == known.table_ids for known in pending):
                continue  # it comes when the one before it has run
            pending.append(PendingDdl(commit_ts=Ts(each.commit_ts), table_ids=ids, is_held=is_held))
            if is_held:
                waiting.add(each.table_id)
                self._warehouse.waited.add(each.commit_ts)
            if each.kind == "global" and waiting:
                break
        return DdlScan(position_ts=Ts(self._scan_ts), pending=tuple(pending))

    def run_ddl(self, ddl: PendingDdl) -> None:
        self._raise()
        (found,) = (e for e in self._source.ddls if e.commit_ts == ddl.commit_ts)
        is_held = any(each.is_held for each in self.ddl_scan().pending)
        if ddl.is_held or (found.kind == "global" and is_held):
            return  # the real one stops the changefeed

        def run() -> None:
            before = set(self._warehouse.registered)
            low_water = self._low_water_of(found.table_id or 0)
            self._warehouse.run_ddl(self._term, found, low_water)
            after = self._warehouse.registered
            self._added += [each for table_id, each in after.items() if table_id not in before]
            self._removed += sorted(before.difference(after))

        self._begin(("ddl", ddl.commit_ts), run)

    def trouble(self) -> str | None:
        return None

    def take_changes(self) -> Changes:
        self._raise()
        published = self._warehouse.published
        changes = Changes(
            added=tuple(self._added),
            removed=tuple(self._removed),
            published_ts=Ts(published[-1]) if published else None,
            is_finished=self._warehouse.is_finished,
        )
        self._added, self._removed = [], []
        return changes

    def record(self, advance: Advance) -> None:
        self._raise()
        self._advance = merged(self._advance, advance)
        self._begin("record", self._do_record)

    def set_shown(self, shown: ShownState) -> None:
        self._warehouse.shown = shown

    def close(self, *, drop: bool) -> None:
        self._is_closing = True
        self._is_dropped |= drop

    def is_closed(self) -> bool:
        is_idle = self._is_dropped or not self._jobs
        return self._is_closing and is_idle and not self._plane.hangs

    def step(self) -> None:
        self._read()
        self._find_tables()
        self._refresh()
        if not self._jobs or self._plane.now() < self._due_at or self._is_dropped:
            return
        job = self._jobs.pop(0)
        self._keys.pop(0)
        self._due_at = self._plane.delay()
        if self._error is not None:
            return
        try:
            self._trust.check()
            job()
        except TidelakeError as error:
            self._error = error
        self._wake()

    def _refresh(self) -> None:
        is_ours = self._claim is not None and self._claim.term == self._warehouse.term
        if is_ours and not self._is_closing:
            with suppress(TidelakeError):
                self._trust.check()
                self._warehouse.refreshed_at = self._plane.now()

    @property
    def _scan_ts(self) -> int:
        """No further than where a table begins that is not registered yet."""
        read_ts = max(int(self._start.ts), self._reading.resolved_ts if self._reading else 0)
        return min([read_ts, *(table.changes[0] - 1 for _, table in self._found())])

    def _read(self) -> None:
        self._source.topic.send_to(self._plane.watermark_ts())
        reading, known = self._reading, self._warehouse.targets
        if reading is None:
            return
        before = dict(reading.position)
        for row in reading.read(self._plane.rng, self._plane.pace.read):
            self._first_rows.setdefault(row.table_id, before)
        self._first_rows = {t: at for t, at in self._first_rows.items() if t not in known}

    def _find_tables(self) -> None:
        """Those that no DDL makes are registered when their first row is resolved."""
        for table_id, table in () if self._is_closing else self._found():
            register = partial(self._register, table_id, table.changes[0] - 1)
            self._begin(("register", table_id), register)

    def _found(self) -> list[tuple[int, SourceTable]]:
        reading, warehouse = self._reading, self._warehouse
        return [
            (table_id, table)
            for table_id, table in self._source.tables.items()
            if reading is not None and table.changes and table.created_ts is None
            if table_id not in warehouse.registered and table.changes[0] <= reading.resolved_ts
            if table.dropped_ts is None or table.dropped_ts not in warehouse.ran
        ]

    def _register(self, table_id: int, start_ts: int) -> None:
        low_water = self._low_water_of(table_id)
        self._added.append(self._warehouse.register(self._term, table_id, start_ts, low_water))

    def _low_water_of(self, table_id: int) -> dict[str, int]:
        assert self._reading is not None
        return dict(self._first_rows.get(table_id, self._reading.position))

    @property
    def _term(self) -> int:
        assert self._claim is not None
        return self._claim.term

    def _do_claim(self) -> None:
        self._claim = self._warehouse.claim(self._ownership, self._start, self._plane.now())
        row = self._warehouse.row
        self._reading = Reading(self._source.topic, row.source_positions, row.watermarks)

    def _do_record(self) -> None:
        advance, self._advance = self._advance, None
        reading = self._reading
        if advance is None or reading is None:
            return
        before = [reading.position, *self._first_rows.values()]
        marks = reading.watermarks.to_record()
        self._warehouse.record(self._term, advance, lowest(before), marks)

    def _begin(self, key: object, job: Callable[[], None]) -> None:
        if key not in self._keys:
            if not self._jobs:
                self._due_at = self._plane.delay()
            self._keys.append(key)
            self._jobs.append(job)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
