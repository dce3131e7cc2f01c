"""Which TABLE_MAP tells the table of each row event.

Two TABLE_MAPs that say the same are one *shape*, whatever their table IDs. A table ID holds from
its TABLE_MAP to the end of the statement: behind it stands another map, or another table's rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from streaming.source.binlog.format.events import HEADER_BYTES, Events, Offsets, words_of
from streaming.source.binlog.format.table_map import FLAGS_BYTES, TABLE_ID_BYTES
from streaming.source.binlog.format.type_codes import RowsFlag

Shape = bytes  # the body of a TABLE_MAP behind its ID and flags

HEAD_BYTES: Final = TABLE_ID_BYTES + FLAGS_BYTES  # of a TABLE_MAP, and of an event of rows
_ID_MASK: Final = np.uint64((1 << 8 * TABLE_ID_BYTES) - 1)
_COMPARED_BYTES: Final = 1 << 22  # TABLE_MAPs are compared in parts of this size
_BEFORE: Final = -1  # the number of a map that held where the block begins


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """The TABLE_MAPs of a block, and those that held before it. ``place``: of a map's shape in
    ``shapes``."""

    shapes: list[Shape]
    number: Offsets  # of the event
    table_id: Offsets
    place: Offsets

    @staticmethod
    def of(events: Events, numbers: Offsets, held: Mapping[int, Shape]) -> Maps:
        """``numbers``: the TABLE_MAPs, none shorter than its head."""
        shapes, place = _shapes(events, numbers)
        return Maps(
            shapes=[*shapes, *held.values()],
            number=np.append(numbers, np.full(len(held), _BEFORE)),
            table_id=np.append(table_ids(events, numbers), np.array([*held], np.int64)),
            place=np.append(place, len(shapes) + np.arange(len(held))),
        )

    def places(self, events: Events, rows: Offsets) -> Offsets:
        """The shape of each row event, -1 where no map holds: that of the last map with its table
        ID, if no statement has ended between."""
        ids = table_ids(events, rows)
        _, rank = np.unique(np.append(self.table_id, ids), return_inverse=True)
        span = len(events) + 1
        keys = rank[: len(self.table_id)] * span + self.number + 1
        order = np.argsort(keys)
        wanted = rank[len(self.table_id) :] * span + rows + 1
        nearest = np.searchsorted(keys[order], wanted) - 1
        if not len(order):
            return np.full(len(rows), -1)
        found = order[np.maximum(nearest, 0)]
        ends = _statement_ends(events, rows)
        last_end = np.append(-2, ends)[np.searchsorted(ends, rows)]
        holds = (nearest >= 0) & (self.table_id[found] == ids) & (self.number[found] > last_end)
        return np.where(holds, self.place[found], -1)

    def held_behind(self, events: Events, rows: Offsets) -> dict[int, Shape]:
        """The maps that hold where the block ends."""
        ends = _statement_ends(events, rows)
        last_end = int(ends[-1]) if len(ends) else -2
        behind = np.flatnonzero(self.number > last_end)
        behind = behind[np.argsort(self.number[behind], kind="stable")]
        return {int(self.table_id[each]): self.shapes[self.place[each]] for each in behind}


def members(place: Offsets, count: int) -> Iterator[Offsets]:
    """Which elements have each place below ``count``, by rising number."""
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(count + 1))
    for begin, end in itertools.pairwise(bounds.tolist()):
        yield order[begin:end]


def table_ids(events: Events, numbers: Offsets) -> Offsets:
    """The table IDs of TABLE_MAPs and row events."""
    words = words_of(events.data, "<u8")[events.at[numbers] + HEADER_BYTES]
    return (words & _ID_MASK).astype(np.int64)


def _statement_ends(events: Events, rows: Offsets) -> Offsets:
    flags = events.data[events.at[rows] + HEADER_BYTES + TABLE_ID_BYTES]
    ends: Offsets = rows[flags & RowsFlag.STATEMENT_END != 0]
    return ends


def _shapes(events: Events, numbers: Offsets) -> tuple[list[Shape], Offsets]:
    """The different shapes, and which of them each map has. Maps with the same ID and size are
    nearly always the same: they are compared all at once."""
    at = events.at[numbers] + HEADER_BYTES + HEAD_BYTES
    size = events.end[numbers] - at
    places: dict[Shape, int] = {}
    out = np.empty(len(numbers), np.int64)
    key = table_ids(events, numbers) << 15 ^ size
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
    for one, those in zip(first.tolist(), members(kind, len(first)), strict=True):
        begin, length = int(at[one]), int(size[one])
        shape = events.data[begin : begin + length].tobytes()
        out[those] = places.setdefault(shape, len(places))
        for other in _unlike(events, at[those], size[those], begin, length).tolist():
            member = those[other]
            shape = events.data[at[member] : at[member] + size[member]].tobytes()
            out[member] = places.setdefault(shape, len(places))
    return list(places), out


def _unlike(events: Events, at: Offsets, size: Offsets, begin: int, length: int) -> Offsets:
    """Those that differ from the bytes at ``begin``."""
    shape = events.data[begin : begin + length]
    step = max(1, _COMPARED_BYTES // max(1, length))
    found = [np.flatnonzero(size != length)]
    at = np.where(size == length, at, begin)
    for part in range(0, len(at), step):
        same = events.data[at[part : part + step, None] + np.arange(length)] == shape
        found.append(part + np.flatnonzero(~same.all(axis=1)))
    return np.concatenate(found)
