"""What the owner writes down, from what captures have said: pure.

Captures speak of spans that they hold now; what a span had reached before stays: checkpoint, Delta
version and fence of a row never fall (I2, I3), whatever late news say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coordination.model import SEALED_TS, TableName, Ts, fence_number
from coordination.ports import Advance
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import Span, stored_table_id
from sinks.changefeeds import ChangefeedRow
from sinks.progress import STOPPED, ProgressRow
from sinks.snapshots import SnapshotRow
from streaming.sink_tables import PAUSED, WARNING, SinkTable


def span_of(table: SinkTable, incarnation: int) -> Span:
    """How the scheduler names a table; the same for every owner."""
    schema, name = table.name.schema, table.name.table
    return Span(stored_table_id(incarnation, schema, name, table.created_ts), schema, name)


def first_progress(
    table: SinkTable, row: ChangefeedRow, source_offsets: Mapping[str, int]
) -> ProgressRow:
    """Of a table that nobody replicates yet: the owner's, until a capture has it."""
    return ProgressRow(
        changefeed_id=row.changefeed_id,
        incarnation=row.incarnation,
        schema_name=table.name.schema,
        table_name=table.name.table,
        generation=table.generation,
        state=table.state,
        checkpoint_ts=table.checkpoint,
        resolved_ts=table.checkpoint,
        delta_version=table.version,
        source_offsets=source_offsets,
        capture_id=row.capture_id,
        epoch=row.epoch,
        fence=fence_number(row.term),
    )


def resumed_progress(table: SinkTable, before: ProgressRow, row: ChangefeedRow) -> ProgressRow:
    """As a new owner finds a table; who holds it goes on holding it, unless the incarnation is
    new."""
    if before.incarnation != row.incarnation:
        fresh = first_progress(table, row, row.source_offsets)
        return replace(fresh, dead_letters=before.dead_letters, engine=before.engine)
    at_ts = max(table.checkpoint, before.checkpoint_ts)
    is_anew = before.delta_version is None or before.state in (STOPPED, WARNING)
    return replace(
        before,
        checkpoint_ts=at_ts,
        resolved_ts=max(before.resolved_ts, at_ts),
        delta_version=table.version if at_ts >= table.last_ddl_ts else before.delta_version,
        state=table.state if is_anew else before.state,
        dropped_columns=table.dropped,
        updated_at=None,
    )


def reported_progress(
    before: ProgressRow, reported: SpanProgress, source_offsets: Mapping[str, int]
) -> ProgressRow:
    """The row after what a capture has said; ``source_offsets`` where it did not say its own."""
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
        source_offsets=source_offsets or before.source_offsets,
        updated_at=None,
    )
    if status is None:
        return row
    dropped, now = before.dropped_columns, status.dropped_columns or {}
    return replace(
        row,
        engine=status.engine or before.engine,
        dead_letters=max(before.dead_letters, status.dead_letters),
        fence=max(before.fence, status.fence),
        source_offsets=status.source_offsets or row.source_offsets,
        dropped_columns={c: max(dropped.get(c, 0), now.get(c, 0)) for c in {**dropped, **now}},
    )


def _state(before: ProgressRow, reported: SpanProgress, version: int | None) -> str:
    """WARNING where there is no table and something should be in it, or it lacks columns."""
    status = reported.status
    if status is not None and status.is_paused:
        return PAUSED
    is_dead = status is not None and status.dead_letters > 0
    is_missing = version is None and (before.state == WARNING or is_dead)
    if is_missing or before.dropped_columns or (status is not None and status.dropped_columns):
        return WARNING
    return reported.state.name.lower()


def merged(before: Advance | None, newer: Advance) -> Advance:
    """Both in one: nothing that the first one said of a span is lost.

    But for its offsets: those are of the spans that were known then, and it may be followed by one
    that was not."""
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
    """Of the whole changefeed; it stays where it is while not every span has said its own.

    The note may be older than a table that is registered by now, and ``reading`` (the owner's own)
    past it: no table's row is left behind."""
    if not advance.source_offsets:
        return row.source_offsets
    tables = [each.source_offsets for each in progress]
    return later(row.source_offsets, [advance.source_offsets, reading, *tables])


def later(before: Mapping[str, int], low_waters: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The least of the low waters by partition; what was safe to forget once, stays so. Partitions
    that the topic has grown come in when all know them."""
    found = list(low_waters)

    def least(partition: str) -> int:
        offset = before.get(partition, 0)
        return max(offset, min(each.get(partition, offset) for each in found))

    known = before.keys() | set.intersection(*map(set, found))
    return {partition: least(partition) for partition in sorted(known)}


def dead_letters(counts: Mapping[TableName | None, int], progress: Iterable[ProgressRow]) -> int:
    """Of the changefeed: ``counts`` are as the owner knows them, with those of no table; captures
    bury too, and say so in their tables' progress."""
    letters = dict(counts)
    for row in progress:
        letters[row.name] = max(row.dead_letters, letters.get(row.name, 0))
    return sum(letters.values())


def cut(
    changefeed_id: str, progress: Iterable[ProgressRow], at_ts: Ts, dead_letters: int
) -> SnapshotRow | None:
    """The consistent cut at a sync point, if every table is exactly there (rule 7).

    The barrier holds them all: what is above it anyhow began later, and has no rows in the cut."""
    tables = [each for each in progress if each.delta_version is not None]
    if any(each.checkpoint_ts < at_ts for each in tables):
        return None
    tables = [each for each in tables if each.checkpoint_ts == at_ts]
    assert at_ts < SEALED_TS
    versions = {str(each.name): each.delta_version or 0 for each in tables}
    return SnapshotRow(
        changefeed_id=changefeed_id,
        primary_ts=at_ts,
        tables=versions,
        dead_letters=dead_letters,
    )
