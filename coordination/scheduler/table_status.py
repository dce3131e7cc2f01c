"""Spans as their captures have them: one as a value, many as columns, and both as text.

The owner of a changefeed takes a million statuses in a tick. So it never walks over them: it
compares and stores columns, and makes a `TableStatus` only of a span that needs a decision.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from coordination.model import NO_TS, Ts

Numbers: TypeAlias = npt.NDArray[np.int64]
Notes: TypeAlias = npt.NDArray[np.object_]
Mask: TypeAlias = npt.NDArray[np.bool_]


class TableState(IntEnum):
    """A span on one capture, as its agent sees it; the numbers are TiCDC's."""

    UNKNOWN = 0
    ABSENT = 1
    PREPARING = 2
    PREPARED = 3
    REPLICATING = 4
    STOPPING = 5
    STOPPED = 6


class TableStatus(NamedTuple):
    """A span on one capture."""

    table_id: int
    state: TableState
    checkpoint_ts: Ts = NO_TS
    resolved_ts: Ts = NO_TS
    identity_ts: Ts = NO_TS  # that its log was seen with; 0: none
    fence: int = 0  # of the assignment under which the span is written
    delta_version: int | None = None
    dead_letters: int = 0
    # From here on, what few tables have, or what many have alike: a row's *note*.
    engine: str | None = None
    source_positions: Mapping[str, int] | None = None  # low water; None: as far as was read
    dropped_columns: Mapping[str, int] | None = None  # values of columns that the table lacks
    is_paused: bool = False  # by an operator: its rows wait
    null_dates: Mapping[str, int] | None = None  # by column: dates that are NULL in the table
    is_blocked: bool = False  # until an operator has mended it
    error: str | None = None  # why it cannot be written now


COLUMNS: Final = TableStatus._fields[:8]
TABLE_ID, STATE, CHECKPOINT_TS, RESOLVED_TS, _IDENTITY_TS, FENCE, DELTA_VERSION, _ = range(8)
_STATES: Final = tuple(TableState)  # by number: calling the enum is ten times slower
NO_VERSION: Final = -1
_DEFAULTS: Final = dict.fromkeys((*COLUMNS, "note"), 0) | {"delta_version": NO_VERSION}
NO_NOTE: Final = TableStatus(0, TableState.UNKNOWN)[len(COLUMNS) :]
_WIDTHS: Final = (1, 2, 4, 8)  # bytes of a number on the wire
_WRAP: Final = 2**64 - 1


class Statuses(Sequence[TableStatus]):
    """The statuses of many spans, each span once, in the order of their table IDs."""

    __slots__ = ("notes", "numbers")

    def __init__(self, numbers: Numbers, notes: Notes) -> None:
        """A row for each span, in their order: `COLUMNS`, and its note."""
        self.numbers = numbers
        self.notes = notes

    @classmethod
    def of(cls, statuses: Iterable[TableStatus]) -> Statuses:
        found = sorted(statuses, key=itemgetter(0))
        numbers = np.array([numbers_of(each) for each in found], np.int64).reshape(-1, len(COLUMNS))
        notes = np.empty(len(found), np.object_)
        for place, each in enumerate(found):
            notes[place] = note_of(each)
        return cls(numbers, notes)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> TableStatus: ...
    @overload
    def __getitem__(self, place: slice) -> Statuses: ...
    def __getitem__(self, place: int | slice) -> TableStatus | Statuses:
        if isinstance(place, slice):
            return Statuses(self.numbers[place], self.notes[place])
        return status_of(self.numbers[place], self.notes[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Statuses.of({list(self)})"

    @property
    def table_ids(self) -> Numbers:
        return self.numbers[:, TABLE_ID]

    @property
    def states(self) -> Numbers:
        return self.numbers[:, STATE]

    def where(self, is_in: Mask) -> Statuses:
        """Those rows, as a copy."""
        return Statuses(self.numbers[is_in], self.notes[is_in])

    def absent(self) -> Statuses:
        """The same rows of spans that are gone."""
        numbers = self.numbers.copy()
        numbers[:, STATE] = TableState.ABSENT
        return Statuses(numbers, self.notes)

    def beside(self, others: Statuses) -> Statuses:
        """These and those; no span is in both."""
        numbers = np.concatenate([self.numbers, others.numbers])
        order = np.argsort(numbers[:, TABLE_ID])
        return Statuses(numbers[order], np.concatenate([self.notes, others.notes])[order])

    def checksum(self) -> int:
        """As `checksum` of the rows, at once."""
        table_ids, states, checkpoints, resolved, _, fences, *_ = self.numbers.view(np.uint64).T
        one, three, five = map(np.uint64, (1, 3, 5))
        weights = (table_ids | one) * (checkpoints + three * resolved + five * fences + states)
        return int(weights[self.states != TableState.ABSENT].sum(dtype=np.uint64))


def status_of(numbers: Numbers, note: tuple[Any, ...]) -> TableStatus:
    """The status of one row."""
    table_id, state, checkpoint, resolved, identity, fence, version, letters = numbers.tolist()
    shown = None if version == NO_VERSION else version
    return TableStatus(
        *(table_id, _STATES[state], checkpoint, resolved, identity, fence, shown, letters), *note
    )


def numbers_of(status: TableStatus) -> tuple[int, ...]:
    table_id, state, checkpoint, resolved, identity, fence, version, letters, *_ = status
    shown = NO_VERSION if version is None else version
    return table_id, state, checkpoint, resolved, identity, fence, shown, letters


def note_of(status: TableStatus) -> tuple[Any, ...]:
    return status[len(COLUMNS) :]


def weight(status: TableStatus) -> int:
    """One span's part of the checksum; a product, so that two spans cannot swap their numbers."""
    table_id, state, checkpoint_ts, resolved_ts, _, fence, *_ = status
    if state is TableState.ABSENT:
        return 0
    return (table_id | 1) * (checkpoint_ts + 3 * resolved_ts + 5 * fence + state) & _WRAP


def checksum(statuses: Iterable[TableStatus]) -> int:
    """The checksum of an agent's spans: the sum of their weights."""
    return sum(map(weight, statuses)) & _WRAP


# As text. A column that is the same in all rows is that number, and any other one its least number,
# a width in bytes, and the differences to the least. A column of defaults is left out.


def dump(statuses: Statuses) -> dict[str, Any]:
    dumped: dict[str, Any] = {"count": len(statuses)}
    if statuses:
        notes, places = _distinct(statuses.notes)
        table = np.column_stack([statuses.numbers, places])
        least, most = table.min(axis=0).tolist(), table.max(axis=0).tolist()
        for name, *column in zip((*COLUMNS, "note"), table.T, least, most, strict=True):
            if (told := _dump_column(*column)) != _DEFAULTS[name]:
                dumped[name] = told
        if notes != [NO_NOTE]:
            dumped["notes"] = [_trimmed(each) for each in notes]
    return dumped


def load(dumped: Mapping[str, Any]) -> Statuses:
    """Raises ``ValueError`` and its like for what `dump` has not made."""
    count = dumped["count"]
    if not count:
        return Statuses.of(())
    numbers = np.empty((count, len(COLUMNS)), np.int64)
    for place, name in enumerate(COLUMNS):
        numbers[:, place] = _load_column(dumped.get(name, _DEFAULTS[name]))
    states, table_ids = numbers[:, STATE], numbers[:, TABLE_ID]
    is_known = states.min() >= 0 and states.max() < len(_STATES)
    notes = [tuple(each) for each in dumped.get("notes", [[]])]
    is_known &= max(map(len, notes)) <= len(NO_NOTE)
    if not is_known or not (table_ids[1:] > table_ids[:-1]).all():
        raise ValueError("a state or a note is unknown, or the spans are not in order")
    known = np.empty(len(notes), np.object_)
    for place, note in enumerate(notes):
        known[place] = (*note, *NO_NOTE[len(note) :])
    places = np.broadcast_to(_load_column(dumped.get("note", _DEFAULTS["note"])), count)
    return Statuses(numbers, known[places])


def _dump_column(column: Numbers, least: int, most: int) -> Any:
    if least == most:
        return least
    width = next(each for each in _WIDTHS if most - least < 1 << 8 * each)
    steps = (column - least).astype(f"<u{width}")
    return [least, width, base64.b64encode(steps.tobytes()).decode()]


def _load_column(dumped: Any) -> Any:
    if isinstance(dumped, int):
        return np.int64(dumped)
    least, width, steps = dumped
    return np.frombuffer(base64.b64decode(steps), f"<u{width}").astype(np.int64) + least


def _distinct(notes: Notes) -> tuple[list[tuple[Any, ...]], Numbers]:
    """The notes that differ, and which of them each row has."""
    places: dict[object, int] = {}
    found: list[tuple[Any, ...]] = []
    which = np.empty(len(notes), np.int64)
    for row, note in enumerate(notes):
        _, positions, dropped, _, dates, _, _ = note
        is_plain = positions is None and dropped is None and dates is None
        place = places.setdefault(note if is_plain else id(note), len(found))
        if place == len(found):
            found.append(note)
        which[row] = place
    return found, which


def _trimmed(note: tuple[Any, ...]) -> tuple[Any, ...]:
    last = len(note)
    while last and note[last - 1] == NO_NOTE[last - 1]:
        last -= 1
    return note[:last]
