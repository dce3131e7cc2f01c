"""What a batch leaves for others to read: progress rows, the changefeed's row, the snapshot ledger.

All three are written after the targets and before the next batch, by this term's owner alone; every
writer checks the term on the handle that commits (design 3, rule 6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from coordination.errors import CaptureSuicide, Fenced, TidelakeError
from coordination.failpoint import Failpoint, FailpointHit, failpoint
from coordination.fence import Fence
from coordination.model import TableName, Ts, fence_number
from sinks.changefeeds import ENDED, ChangefeedRow, Changefeeds, ChangefeedState
from sinks.jvm_errors import line
from sinks.progress import Progress, ProgressRow
from sinks.snapshots import SnapshotRow, Snapshots
from streaming.backlog import Backlog
from streaming.concerns import NO_CONCERN
from streaming.segments import Carry
from streaming.spans import Span, Spans
from streaming.watermark import Watermarks

if TYPE_CHECKING:
    from streaming.events import TopicPartition

logger = logging.getLogger(__name__)


class HasPosition(Protocol):
    """What of the stream's position is recorded."""

    offsets: dict[TopicPartition, int]
    watermarks: Watermarks
    checkpoint: Ts
    carry: Carry


class CountsDeadLetters(Protocol):
    """By table; None stands for messages whose table could not be read."""

    counts: dict[TableName | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTables:
    """The control tables of one warehouse."""

    changefeeds: Changefeeds
    progress: Progress
    snapshots: Snapshots


class Record:
    """Writes one changefeed's control rows in one term. ``row`` is the changefeed's row as last
    saved.
    """

    def __init__(
        self,
        *,
        tables: ControlTables,
        row: ChangefeedRow,
        spans: Spans,
        dead: CountsDeadLetters,
        backlog: Callable[[], Backlog],
        concern: Callable[[], str | None] = lambda: NO_CONCERN,
    ) -> None:
        """``concern``: what is wrong right now, without having failed."""
        self._tables = tables
        self._spans = spans
        self._dead = dead
        self._backlog = backlog
        self._concern = concern
        self._shown_concern = NO_CONCERN
        self.row = row
        self._saved_at = time.monotonic()

    def batch(self, position: HasPosition, resolved: Ts, *, finished: bool) -> None:
        """Everything that a batch changed, in order: progress, changefeed row, ledger."""
        offsets = _texts(position.carry.low_water(position.offsets))
        self._tables.progress.advance(
            [self._progress_row(span, resolved, offsets) for span in self._spans], self.row.term
        )
        failpoint(Failpoint.AFTER_PROGRESS)
        self.save(
            replace(
                self.row,
                state=self._state(position.checkpoint, finished),
                checkpoint_ts=position.checkpoint,
                resolved_ts=max(resolved, position.checkpoint),
                max_published_ts=self._floor_ts,
                source_offsets=offsets,
                watermarks={str(p): mark for p, mark in position.watermarks.to_record().items()},
                error=None,
                **self._backlog().columns(),
            )
        )
        failpoint(Failpoint.AFTER_CHANGEFEED)
        self.publish(position.checkpoint)
        failpoint(Failpoint.AFTER_LEDGER)

    def publish(self, limit: Ts) -> None:
        """One consistent cut, when every table is exactly at ``limit`` (rule 7)."""
        if limit <= self._floor_ts or self.row.state == "rewinding":
            return
        spans = [span for span in self._spans if span.target is not None]
        if not spans or any(span.checkpoint != limit for span in spans):
            return
        versions = {str(span.name): span.version for span in spans if span.version is not None}
        self._tables.snapshots.publish(
            SnapshotRow(
                changefeed_id=self.row.changefeed_id,
                primary_ts=limit,
                tables=versions,
                dead_letters=sum(self._dead.counts.values()),
            ),
            self.row.term,
        )

    def save(self, row: ChangefeedRow) -> None:
        """The row, as this term's."""
        row, concern = replace(row, dead_letters=sum(self._dead.counts.values())), self._concern()
        is_warned = concern is not None and row.state not in ENDED
        shown = replace(row, state="warning", error=concern) if is_warned else row
        self._tables.changefeeds.save(shown)
        self.row, self._shown_concern = row, concern
        self._saved_at = time.monotonic()

    def refresh(self, position: HasPosition, after_s: float) -> None:
        """Show other owners that this one lives, and where W stands while nothing can be
        applied.
        """
        is_news = self._concern() != self._shown_concern
        if time.monotonic() - self._saved_at < after_s and not is_news:
            return
        marks = position.watermarks
        self.save(
            replace(
                self.row,
                resolved_ts=max(self.row.resolved_ts, marks.global_ts - 1),
                watermarks={str(p): mark for p, mark in marks.to_record().items()},
                **self._backlog().columns(),
            )
        )

    def advance_spans(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The spans as they were resumed, under this term and incarnation."""
        rows = [self._progress_row(span, span.checkpoint, _texts(offsets)) for span in self._spans]
        self._tables.progress.advance(rows, self.row.term)

    def _state(self, checkpoint: Ts, finished: bool) -> ChangefeedState:
        if finished:
            return "finished"
        rewinding = self.row.state == "rewinding" and checkpoint <= self._floor_ts
        return "rewinding" if rewinding else "running"

    @property
    def _floor_ts(self) -> int:
        """At or below it no cut is published: it was, or a table shows what it had beyond it."""
        return max(self.row.max_published_ts, self._spans.shown_ts)

    def _progress_row(self, span: Span, resolved: int, offsets: Mapping[str, int]) -> ProgressRow:
        return ProgressRow(
            changefeed_id=self.row.changefeed_id,
            incarnation=self.row.incarnation,
            schema_name=span.name.schema,
            table_name=span.name.table,
            generation=span.generation,
            state=span.state,
            checkpoint_ts=span.checkpoint,
            resolved_ts=max(resolved, span.checkpoint),
            delta_version=span.version,
            engine=span.engine or None,
            dead_letters=self._dead.counts.get(span.name, 0),
            dropped_columns=span.dropped,
            source_offsets=offsets,
            capture_id=self.row.capture_id,
            epoch=self.row.epoch,
            fence=fence_number(self.row.term),
        )


def show(
    tables: ControlTables, fence: Fence, changefeed_id: str, state: ChangefeedState, why: str
) -> ChangefeedRow | None:
    """The changefeed's row, which says so now, where it is ours and storage lets us."""
    try:
        epoch = fence.check().epoch
        return tables.changefeeds.show(
            changefeed_id, state, why, may=lambda row: row.epoch == epoch
        )
    except (CaptureSuicide, Fenced):
        return None
    except TidelakeError as error:
        logger.warning("the changefeed's row cannot say that it is %s: %s", state, error)
        return None


def show_failure(
    tables: ControlTables, fence: Fence, changefeed_id: str, failure: BaseException
) -> None:
    """Why nobody runs it, and that nobody fills its tables; where that is ours to say."""
    if isinstance(failure, CaptureSuicide | Fenced | FailpointHit):
        return
    why = str(failure) if isinstance(failure, TidelakeError) else line(failure)
    row = show(tables, fence, changefeed_id, "failed", why)
    with suppress(TidelakeError):
        if row is not None:
            tables.progress.stop(row.changefeed_id, row.term)


def _texts(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
