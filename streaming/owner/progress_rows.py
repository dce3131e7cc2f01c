"""The rows that the owner writes to the control tables, made from what captures report. Pure.

A capture reports only spans that it holds now, and a report may arrive late. So the checkpoint, the
Delta version and the fence of a row never fall (I2, I3): the greater of old and new is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from coordination.model import SEALED_TS, TableName, Ts, fence_number, tso_time
from coordination.ports import Advance, RegisteredTable
from coordination.scheduler.coordinator import SpanProgress
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from sinks.control.progress import BLOCKED, DROPPED, STOPPED, ProgressRow
from sinks.control.snapshots import SnapshotRow
from sinks.target.engine_port import GENERATION
from streaming.changefeed.replicated_table import (
    PAUSED,
    REPLICATING,
    WARNING,
    ReplicatedTable,
    not_replicated,
    span_of,
)
from streaming.source.resolved.commit_clock import from_token, pin_at

CLOSE_S = 60.0  # behind now: what `progress --check` calls fresh


def registered(table: ReplicatedTable, incarnation: int) -> RegisteredTable:
    return RegisteredTable(span=span_of(table, incarnation), start_ts=table.checkpoint)


def first_progress(
    table: ReplicatedTable, row: ChangefeedRow, source_positions: Mapping[str, int]
) -> ProgressRow:
    """The row of a table that no capture replicates yet: it names the owner's capture, until a
    capture reports the span."""
    return ProgressRow(
        changefeed_id=row.changefeed_id,
        incarnation=row.incarnation,
        schema_name=table.name.schema,
        table_name=table.name.table,
        generation=GENERATION,
        state=table.state,
        checkpoint_ts=table.checkpoint,
        resolved_ts=table.checkpoint,
        delta_version=table.version,
        identity_ts=table.identity,
        source_positions=source_positions,
        capture_id=row.capture_id,
        epoch=row.epoch,
        fence=fence_number(row.term),
        error=table.why_not or None,
        lacks=table.lacks or None,
        null_dates=table.null_dates,
    )


def made_again(fresh: ProgressRow, before: ProgressRow | None) -> ProgressRow:
    """The first row of a table in the place of ``before``, the row of a dropped table of its name:
    a fence never falls, and dead letters stay counted."""
    if before is None:
        return fresh
    fence = max(fresh.fence, before.fence)
    return replace(fresh, fence=fence, dead_letters=before.dead_letters)


def resumed_progress(
    table: ReplicatedTable, before: ProgressRow, row: ChangefeedRow
) -> ProgressRow:
    """The row of a table as a new owner finds it. Capture, epoch and fence of the span stay,
    unless the incarnation is new."""
    if before.incarnation != row.incarnation:
        fresh = first_progress(table, row, row.source_positions)
        return replace(
            fresh,
            dead_letters=before.dead_letters,
            engine=before.engine,
            null_dates=before.null_dates,
        )
    at_ts = max(table.checkpoint, before.checkpoint_ts)
    is_anew = before.delta_version is None or before.state in (STOPPED, WARNING)
    is_anew |= table.is_blocked or bool(before.error)
    resumed = replace(
        before,
        checkpoint_ts=at_ts,
        resolved_ts=max(before.resolved_ts, at_ts),
        delta_version=table.version if at_ts >= table.version_ts else before.delta_version,
        state=table.state if is_anew else before.state,
        dropped_columns=table.dropped,
        error=table.error or table.why_not or None,
        updated_at=None,
    )
    return with_letters(resumed, before.dead_letters)


def ended_progress(before: ProgressRow, at_ts: Ts, version: int | None) -> ProgressRow:
    """The row of a table that a DDL has dropped. ``version``: the last one that had its rows, if
    known."""
    return replace(
        before,
        state=DROPPED,
        checkpoint_ts=at_ts,
        resolved_ts=max(before.resolved_ts, at_ts),
        delta_version=version,
        error=None,
        lacks=None,
        updated_at=None,
    )


def reported_progress(
    before: ProgressRow, reported: SpanProgress, source_positions: Mapping[str, int]
) -> ProgressRow:
    """The row after a capture's report; ``source_positions`` is its low water when the capture
    reported none for the span."""
    status, checkpoint = reported.status, reported.checkpoint
    at_ts = max(before.checkpoint_ts, checkpoint.checkpoint_ts)
    versions = [v for v in (before.delta_version, reported.delta_version) if v is not None]
    version = max(versions, default=None)
    row = replace(
        before,
        state=_state(before, reported, version),
        checkpoint_ts=at_ts,
        resolved_ts=max(before.resolved_ts, checkpoint.resolved_ts, at_ts),
        delta_version=version,
        capture_id=reported.capture_id or before.capture_id,
        epoch=reported.epoch or before.epoch,
        source_positions=source_positions or before.source_positions,
        updated_at=None,
    )
    if status is None:
        return row
    return replace(
        row,
        engine=status.engine or before.engine,
        fence=max(before.fence, status.fence),
        source_positions=status.source_positions or row.source_positions,
        dropped_columns=_greater(before.dropped_columns, status.dropped_columns or {}),
        null_dates=_greater(before.null_dates, status.null_dates or {}),
        error=status.error or _why_not(row),
        identity_ts=max(before.identity_ts or 0, status.identity_ts) or None,
    )


def _why_not(row: ProgressRow) -> str | None:
    return not_replicated(row.name, row.lacks) if row.lacks else None


def counted(row: ProgressRow, null_dates: Mapping[str, int]) -> ProgressRow:
    """The row after a DDL that made dates of rows NULL."""
    return replace(row, null_dates=_greater(row.null_dates, null_dates), updated_at=None)


def _greater(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """A count never falls: a report may be late."""
    return {c: max(before.get(c, 0), now.get(c, 0)) for c in {**before, **now}}


def with_unlogged(
    rows: Iterable[ProgressRow],
    progress: Mapping[TableName, ProgressRow],
    unlogged: Collection[TableName],
) -> list[ProgressRow]:
    """The rows to write, with those of tables that lack changes which the source does not tell, for
    as long as that is so."""
    written = {row.name: row for row in rows}
    for name, row in {**progress, **written}.items():
        why = (
            f"foreign keys of the database delete or change rows of {name} by CASCADE or SET NULL, "
            "and its server writes no such change to the binlog: they stay here as they were. Let "
            "the application change them, and see `tidelake diff`"
        )
        is_silent = row.error in (None, why) and row.state not in (DROPPED, BLOCKED)
        if name in unlogged and is_silent and (row.state, row.error) != (WARNING, why):
            written[name] = replace(row, state=WARNING, error=why, updated_at=None)
        elif name not in unlogged and row.error == why:
            is_well = row.state == WARNING and not (row.dropped_columns or row.dead_letters)
            state = REPLICATING if is_well else row.state
            written[name] = replace(row, state=state, error=None, updated_at=None)
    return list(written.values())


def with_blocked(
    rows: Iterable[ProgressRow],
    progress: Mapping[TableName, ProgressRow],
    blocked: Mapping[TableName, str],
) -> list[ProgressRow]:
    """The rows to write, with those of tables that wait for an operator, and why. A table whose
    wait is over moves, and its writer reports it."""
    written = {row.name: row for row in rows}
    for name, why in blocked.items():
        row = written.get(name, progress.get(name))
        if row is not None and (row.state, row.error) != (BLOCKED, why):
            written[name] = replace(row, state=BLOCKED, error=why, updated_at=None)
    return list(written.values())


def _state(before: ProgressRow, reported: SpanProgress, version: int | None) -> str:
    """WARNING if there is no table although rows of it came, or if the table lacks columns that its
    rows have; for dead letters see ``with_letters``."""
    status = reported.status
    if status is not None and status.is_blocked:
        return BLOCKED
    if status is not None and status.is_paused:
        return PAUSED
    is_missing = version is None and before.state == WARNING
    is_missing |= status is not None and bool(status.error)
    if is_missing or before.dropped_columns or (status is not None and status.dropped_columns):
        return WARNING
    return reported.state.name.lower()


def with_letters(row: ProgressRow, count: int) -> ProgressRow:
    """With so many open dead letters: a table that has some shows WARNING. Without a table it goes
    on doing so: the next row becomes one too."""
    state = row.state
    if count and state == REPLICATING:
        state = WARNING
    elif not count and state == WARNING and row.delta_version is not None:
        state = WARNING if row.dropped_columns or row.error else REPLICATING
    if (count, state) == (row.dead_letters, row.state):
        return row
    return replace(row, dead_letters=count, state=state, updated_at=None)


def merged(before: Advance | None, newer: Advance) -> Advance:
    """Both in one: a span that only ``before`` reports keeps that report.

    The positions are those of ``newer`` alone: the positions of ``before`` are the low water of the
    spans that were known then, and ``newer`` may know another one."""
    if before is None:
        return newer
    spans = {each.span.table_id: each for each in (*before.spans, *newer.spans)}
    points = [at for at in (before.sync_point_ts, newer.sync_point_ts) if at is not None]
    return replace(
        newer,
        spans=tuple(spans.values()),
        finished=before.finished or newer.finished,
        sync_point_ts=Ts(max(points)) if points else None,
    )


def low_water(
    row: ChangefeedRow,
    advance: Advance,
    reading: Mapping[str, int],
    progress: Iterable[ProgressRow],
) -> Mapping[str, int]:
    """The low water of the whole changefeed. It stays where it is while ``advance`` has none,
    which means that not every span has reported one.

    ``advance`` may be older than the registration of a table, and ``reading`` (the low water of the
    owner's own reading) past that table's first row. So the low water of every progress row
    counts too, and the rows of such a table are not skipped."""
    rows = list(progress)
    tables = [each.source_positions for each in rows if each.state != DROPPED]
    if rows and not tables:  # all were dropped: the owner alone reads
        return later(row.source_positions, [reading])
    if not advance.source_positions:
        return row.source_positions
    return later(row.source_positions, [advance.source_positions, reading, *tables])


def later(before: Mapping[str, int], low_waters: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The least of the low waters by partition, but never below ``before``: messages that could be
    forgotten once can be forgotten later too. A partition that was added to the topic counts once
    all low waters have it."""
    found = list(low_waters)

    def least(part: str) -> int:
        position = before.get(part, 0)
        return max(position, min(each.get(part, position) for each in found))

    known = before.keys() | set.intersection(*map(set, found))
    return {partition: least(partition) for partition in sorted(known)}


def risen(
    before: Mapping[str, RecordedWatermark], newer: Mapping[str, RecordedWatermark]
) -> dict[str, RecordedWatermark]:
    """The greatest watermark of each partition. A new owner may not have read as far as the one
    before, whose low water stays. Watermarks below it are not read again, and a feed that has ended
    sends no other one."""
    marks = dict(before)
    for partition, mark in newer.items():
        if partition not in marks or mark.ts >= marks[partition].ts:
            marks[partition] = mark
    return marks


def at_pins(
    low_water: Mapping[str, int],
    marks: Mapping[str, RecordedWatermark],
    before: Mapping[str, int],
) -> dict[str, int]:
    """The low water of parts whose changes are numbered: the last stored pin at or before it, since
    numbers are known from there on alone. So the source is asked to keep what a restart will read.
    The captures' reports may be newer than the pins: a part that was added, and has none yet, stays
    where it was ``before``."""
    if not any(mark.token for mark in marks.values()):
        return dict(low_water)
    found = {}
    for part, at in low_water.items():
        if part in marks:
            at = min(at, marks[part].position)
            pin = pin_at(from_token(marks[part].token), at)
            found[part] = at if pin is None else pin.position
        elif part in before:
            found[part] = before[part]
    return found


def there_at(progress: Iterable[ProgressRow], at_ts: Ts) -> list[ProgressRow]:
    """The spans that have a table, and have not been dropped at or below the ts."""
    rows = (each for each in progress if each.delta_version is not None)
    return [each for each in rows if each.state != DROPPED or each.checkpoint_ts > at_ts]


def all_is_well(progress: Iterable[ProgressRow], at_ts: Ts, now_s: float) -> bool:
    """Whether every table that there is has come to the ts, with nothing to be said against it, and
    that is close to now."""
    ours = [row for row in progress if row.state != DROPPED]
    is_there = all(row.checkpoint_ts >= at_ts and row.state == REPLICATING for row in ours)
    return is_there and now_s - tso_time(at_ts).timestamp() < CLOSE_S


def _shown_ts(row: ProgressRow) -> int:
    """The ts that its version shows; for a dropped table, everything below the DDL."""
    return row.checkpoint_ts - (row.state == DROPPED)


def past_tables(
    progress: Iterable[ProgressRow], at_ts: Ts, created: Mapping[TableName, Ts]
) -> list[TableName]:
    """The tables that are above ``at_ts`` and began at or below it: their rows at that ts cannot be
    shown. They went on while another one waited for an operator. ``created``: where tables began
    that a DDL made while the changefeed ran."""
    tables = (each for each in there_at(progress, at_ts) if _shown_ts(each) > at_ts)
    return [each.name for each in tables if created.get(each.name, 0) <= at_ts]


def cut(
    changefeed_id: str, progress: Iterable[ProgressRow], at_ts: Ts, dead_letters: int
) -> SnapshotRow | None:
    """The consistent cut at the sync point ``at_ts`` (rule 7); None while a table is below it.

    The barrier holds all tables at ``at_ts``. A table that is above it all the same began later: it
    has no rows at ``at_ts``, and is left out."""
    tables = there_at(progress, at_ts)
    if any(_shown_ts(each) < at_ts for each in tables):
        return None
    tables = [each for each in tables if _shown_ts(each) == at_ts]
    assert at_ts < SEALED_TS
    versions = {str(each.name): each.delta_version or 0 for each in tables}
    return SnapshotRow(
        changefeed_id=changefeed_id,
        primary_ts=at_ts,
        tables=versions,
        dead_letters=dead_letters,
    )
