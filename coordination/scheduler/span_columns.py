"""The sets of all spans of a changefeed, as columns.

    sets[table_id] ──► a ReplicationSet, made of its row ──changed──► put ──► its row
    a capture's statuses ──► advance: the rows of the spans that it writes, all at once

A `ReplicationSet` decides about one span, and is not kept. When all of a million spans advance, no
decision is asked for, and no object is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, overload

import numpy as np

from coordination.model import CaptureID, Ts
from coordination.scheduler import table_status
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.replication_set import ReplicationSet, ReplicationState
from coordination.scheduler.table_status import (
    COLUMNS,
    NO_VERSION,
    Mask,
    Notes,
    Numbers,
    Statuses,
    TableState,
    status_of,
)


class _Of(IntEnum):
    """The columns of numbers."""

    STATE = 0
    PRIMARY = 1  # a capture's number
    SECONDARY = 2
    CHECKPOINT_TS = 3
    RESOLVED_TS = 4
    DELTA_VERSION = 5
    IS_CURRENT = 6  # whether the changefeed has the table now
    HAS_CHANGED = 7


_SPAN, _UNDETERMINED, _NOTE = range(3)  # the columns of objects
_NOBODY: Final = 0  # a capture's number
_NOT_REPORTED: Final = -1  # as checkpoint-ts
_FIRST_ROWS: Final = 16


class SpanRows(Sequence[ReplicationSet]):
    """The rows, each as its set. The captures' numbers stay what they are as captures are added."""

    __slots__ = ("captures", "numbers", "objects", "reported")

    def __init__(
        self, numbers: Numbers, reported: Numbers, objects: Notes, captures: list[CaptureID]
    ) -> None:
        """``reported``: the last status of who writes each span, as in `Statuses`."""
        self.numbers = numbers
        self.reported = reported
        self.objects = objects
        self.captures = captures

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, row: int) -> ReplicationSet: ...
    @overload
    def __getitem__(self, row: slice) -> SpanRows: ...
    def __getitem__(self, row: int | slice) -> ReplicationSet | SpanRows:
        if isinstance(row, slice):
            return SpanRows(self.numbers[row], self.reported[row], self.objects[row], self.captures)
        state, primary, secondary, checkpoint, resolved, version, *_ = self.numbers[row].tolist()
        span, undetermined, note = self.objects[row]
        return ReplicationSet(
            span=span,
            checkpoint_ts=checkpoint,
            resolved_ts=resolved,
            state=_STATES[state],
            primary=self.captures[primary] if primary else None,
            secondary=self.captures[secondary] if secondary else None,
            undetermined=undetermined,
            delta_version=None if version == NO_VERSION else version,
            status=None if note is None else status_of(self.reported[row], note),
        )


_STATES: Final = tuple(ReplicationState)


class SpanColumns(Mapping[int, ReplicationSet]):
    """Mutable; one thread. What it gives is a copy: a change counts once it is `put`."""

    def __init__(self) -> None:
        self._row_of: dict[int, int] = {}
        self._in_order: tuple[Numbers, Numbers] | None = None  # its table IDs in order; their rows
        self._free: list[int] = []
        self._number_of: dict[CaptureID, int] = {}
        self._held: list[int] = [0]  # spans that a capture is primary of, by its number
        self._rows = SpanRows(
            np.zeros((_FIRST_ROWS, len(_Of)), np.int64),
            np.zeros((_FIRST_ROWS, len(COLUMNS)), np.int64),
            np.empty((_FIRST_ROWS, 3), np.object_),
            [CaptureID("")],
        )

    def __getitem__(self, table_id: int) -> ReplicationSet:
        return self._rows[self._row_of[table_id]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._row_of)

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, table_id: object) -> bool:
        return table_id in self._row_of

    def put(self, span_set: ReplicationSet, *, is_current: bool, is_news: bool) -> None:
        """``is_current``: the changefeed has the table now. ``is_news``: see `take_changed`."""
        row = self._row(span_set.span.table_id)
        numbers, status, version = self._rows.numbers, span_set.status, span_set.delta_version
        primary = self._number(span_set.primary)
        self._held[numbers.item(row, _Of.PRIMARY)] -= 1
        self._held[primary] += 1
        numbers[row] = (
            *(span_set.state, primary, self._number(span_set.secondary)),
            *(span_set.checkpoint_ts, span_set.resolved_ts),
            NO_VERSION if version is None else version,
            is_current,
            is_news or numbers.item(row, _Of.HAS_CHANGED),
        )
        objects = self._rows.objects
        objects[row, _SPAN], objects[row, _UNDETERMINED] = span_set.span, span_set.undetermined
        if status is None:
            self._rows.reported[row, table_status.CHECKPOINT_TS] = _NOT_REPORTED
            objects[row, _NOTE] = None
        else:
            self._rows.reported[row] = table_status.numbers_of(status)
            objects[row, _NOTE] = table_status.note_of(status)

    def remove(self, table_id: int) -> None:
        row = self._row_of.pop(table_id)
        self._in_order = None
        self._held[self._rows.numbers.item(row, _Of.PRIMARY)] -= 1
        self._rows.numbers[row] = 0
        self._rows.objects[row] = None
        self._free.append(row)

    def adopt(self, capture_id: CaptureID, spans: Sequence[Span], start_ts: Sequence[Ts]) -> None:
        """Put new sets of the changefeed's tables, Replicating, all written by this capture: `put`
        of many."""
        rows = [self._row(each.table_id) for each in spans]
        numbers, objects, primary = self._rows.numbers, self._rows.objects, self._number(capture_id)
        self._held[primary] += len(rows)
        numbers[rows, _Of.STATE] = ReplicationState.REPLICATING
        numbers[rows, _Of.PRIMARY] = primary
        numbers[rows, _Of.CHECKPOINT_TS] = numbers[rows, _Of.RESOLVED_TS] = start_ts
        numbers[rows, _Of.DELTA_VERSION] = NO_VERSION
        numbers[rows, _Of.IS_CURRENT] = numbers[rows, _Of.HAS_CHANGED] = True
        self._rows.reported[rows, table_status.CHECKPOINT_TS] = _NOT_REPORTED
        objects[rows, _SPAN] = spans
        objects[rows, _UNDETERMINED] = [()] * len(rows)

    def advance(self, capture_id: CaptureID, statuses: Statuses) -> Statuses:
        """Take the statuses of spans that are Replicating, and are written by this capture: they
        have only advanced. Returns the others."""
        if not statuses or not self._row_of:
            return statuses
        rows = self._find(statuses.table_ids)
        ours = self._rows.numbers[rows]
        is_taken = (
            (rows >= 0)
            & (ours[:, _Of.STATE] == ReplicationState.REPLICATING)
            & (ours[:, _Of.PRIMARY] == self._number(capture_id))
            & (statuses.states == TableState.REPLICATING)
        )
        self._update(rows[is_taken], ours[is_taken], statuses.where(is_taken))
        return statuses.where(~is_taken)

    def _update(self, rows: Numbers, ours: Numbers, statuses: Statuses) -> None:
        """``ours``: the numbers of these rows."""
        reported, notes, news = self._rows.reported, self._rows.objects[:, _NOTE], statuses.numbers
        is_news = (reported[rows] != news).any(axis=1)
        same = np.flatnonzero(~is_news)
        is_news[same] = notes[rows[same]] != statuses.notes[same]
        for column, told in _ADVANCING:  # as `ReplicationSet.advance_checkpoint`
            np.maximum(ours[:, column], news[:, told], out=ours[:, column])
        resolved = ours[:, _Of.RESOLVED_TS]
        np.maximum(resolved, ours[:, _Of.CHECKPOINT_TS], out=resolved)
        ours[:, _Of.HAS_CHANGED] |= is_news
        self._rows.numbers[rows] = ours
        reported[rows] = news
        notes[rows] = statuses.notes

    def take_changed(self) -> SpanRows:
        """The sets that have changed in any way since the last call."""
        rows = np.flatnonzero(self._rows.numbers[:, _Of.HAS_CHANGED])
        self._rows.numbers[rows, _Of.HAS_CHANGED] = False
        found = self._rows
        return SpanRows(
            found.numbers[rows], found.reported[rows], found.objects[rows], found.captures
        )

    # What the tables that the changefeed has now have in common.

    @property
    def primaries(self) -> set[CaptureID]:
        """The captures that write spans."""
        held = enumerate(self._held)
        return {self._rows.captures[number] for number, count in held if number and count}

    def least(self) -> Checkpoint | None:
        """None: there are no tables."""
        numbers, is_in = self._rows.numbers, self._is_current()
        if not is_in.any():
            return None
        columns = (_Of.CHECKPOINT_TS, _Of.RESOLVED_TS)
        return Checkpoint(*(Ts(int(numbers[:, each][is_in].min())) for each in columns))

    def least_but(self, without: Collection[int], default: Ts) -> Ts:
        """The least checkpoint of the tables but those."""
        is_in = self._is_current()
        is_in[[self._row_of[each] for each in without if each in self._row_of]] = False
        found = self._rows.numbers[is_in, _Of.CHECKPOINT_TS]
        return Ts(int(found.min(initial=default)))

    def is_reported(self, ts: Ts) -> bool:
        """Whether the capture that writes it has reported every table at ``ts``, or above."""
        reported = self._rows.reported[self._is_current(), table_status.CHECKPOINT_TS]
        return bool((reported >= ts).all())

    def _is_current(self) -> Mask:
        return self._rows.numbers[:, _Of.IS_CURRENT].astype(bool)

    # Rows and numbers.

    def _row(self, table_id: int) -> int:
        row = self._row_of.get(table_id)
        if row is not None:
            return row
        self._in_order = None
        row = self._row_of[table_id] = self._free.pop() if self._free else len(self._row_of)
        if row >= len(self._rows):
            self._rows = self._grown()
        return row

    def _find(self, table_ids: Numbers) -> Numbers:
        """The rows of many; -1: there is none. (A million look-ups in a dict take most of a
        second.)"""
        if self._in_order is None:
            known = np.fromiter(self._row_of, np.int64)
            rows = np.fromiter(self._row_of.values(), np.int64)
            order = np.argsort(known)
            self._in_order = known[order], rows[order]
        known, rows = self._in_order
        places = np.searchsorted(known, table_ids)
        places[places == len(known)] = 0
        return np.where(known[places] == table_ids, rows[places], -1)

    def _grown(self) -> SpanRows:
        """Half as much again, so that a span costs one copy of its row or two."""
        before = self._rows
        more = len(before) // 2
        return SpanRows(
            np.pad(before.numbers, ((0, more), (0, 0))),
            np.pad(before.reported, ((0, more), (0, 0))),
            np.concatenate([before.objects, np.empty((more, 3), np.object_)]),
            before.captures,
        )

    def _number(self, capture_id: CaptureID | None) -> int:
        if capture_id is None:
            return _NOBODY
        number = self._number_of.get(capture_id)
        if number is None:
            number = self._number_of[capture_id] = len(self._rows.captures)
            self._rows.captures.append(capture_id)
            self._held.append(0)
        return number


_ADVANCING: Final = (
    (_Of.CHECKPOINT_TS, table_status.CHECKPOINT_TS),
    (_Of.RESOLVED_TS, table_status.RESOLVED_TS),
    (_Of.DELTA_VERSION, table_status.DELTA_VERSION),
)
