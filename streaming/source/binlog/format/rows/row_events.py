"""The row events of a block by table and shape, and where the images of their rows begin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.source.binlog.format.cells.column import Column
from streaming.source.binlog.format.cells.layout import Layout, image_starts, layout_of
from streaming.source.binlog.format.events import HEADER_BYTES, Events, Offsets, words_of
from streaming.source.binlog.format.faults import NO_TABLE_MAP, UNREADABLE, BadEvent, Refused
from streaming.source.binlog.format.rows.columns_there import Present, by_columns
from streaming.source.binlog.format.rows.maps_in_force import (
    HEAD_BYTES,
    Maps,
    Shape,
    members,
    table_ids,
)
from streaming.source.binlog.format.table_map import TableMap, table_map
from streaming.source.binlog.format.type_codes import (
    IS_DELETE,
    IS_PARTIAL,
    IS_ROW_EVENT,
    IS_UPDATE,
    EventType,
)

_NO_ROWS_ID: Final = 0xFFFFFF  # the table ID of an event that ends a statement without rows
_FIRST_WITH_EXTRA: Final = int(
    EventType.WRITE_ROWS
)  # from this code on an event may have extra data
_PARTIAL_JSON: Final = (
    "the binlog has JSON values of {} by their changes alone: SET GLOBAL "
    "binlog_row_value_options = '' on the server, let its sessions connect again, and bring these "
    "rows again (UPDATE them there), or copy the table again"
)


@dataclass(frozen=True, slots=True, eq=False)
class Garbage:
    """An event that means nothing. ``number``: of the block's event; its name where it is sure."""

    number: int
    fault: BadEvent
    name: TableName = NO_TABLE


@dataclass(frozen=True, slots=True, eq=False)
class TableEvents:
    """The row events of one shape in a block, by their numbers, which rise."""

    table: TableMap
    shape: Shape
    numbers: Offsets


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """The rows of one shape whose images have the same columns. ``at``: where each row's image
    begins: the new one, for a DELETE the old one; ``old_at``: the old one of an UPDATE, else -1."""

    op: npt.NDArray[np.int8]
    number: Offsets  # of the block's event
    index: npt.NDArray[np.int32]
    at: Offsets
    old_at: Offsets
    before: tuple[Column, ...]  # of the images at ``old_at``; where there is none as ``after``
    after: tuple[Column, ...]  # of those at ``at``


def table_events(
    events: Events, held: dict[int, Shape], *, is_mariadb: bool
) -> tuple[list[TableEvents], list[Garbage], dict[int, Shape]]:
    """By their first event; the garbage among TABLE_MAPs and row events; and the maps that hold
    behind the block (``held``: before it), by table ID."""
    garbage: list[Garbage] = []
    map_numbers = _whole(events, np.flatnonzero(events.kind == EventType.TABLE_MAP), garbage)
    rows = _whole(events, np.flatnonzero(IS_ROW_EVENT[events.kind]), garbage)
    maps = Maps.of(events, map_numbers, held)
    places = maps.places(events, rows)
    is_unknown = places < 0
    found = []
    known = members(np.where(is_unknown, len(maps.shapes), places), len(maps.shapes))
    for place, (shape, those) in enumerate(zip(maps.shapes, known, strict=True)):
        numbers = rows[those]
        try:
            table = table_map(shape, is_mariadb=is_mariadb)
        except BadEvent as fault:
            at = maps.number[maps.place == place]
            garbage += [Garbage(number, fault) for number in at[at >= 0].tolist()]
            is_unknown |= places == place
            continue
        if len(numbers):
            found.append(TableEvents(table, shape, numbers))
    if is_unknown.any():
        unknown = rows[is_unknown & (table_ids(events, rows) != _NO_ROWS_ID)]
        no_map = BadEvent("an event of rows names a table that no TABLE_MAP tells", NO_TABLE_MAP)
        garbage += [Garbage(number, no_map) for number in unknown.tolist()]
    found.sort(key=lambda each: int(each.numbers[0]))
    return found, garbage, maps.held_behind(events, rows)


def _whole(events: Events, numbers: Offsets, garbage: list[Garbage]) -> Offsets:
    """Those that are not shorter than their head."""
    is_whole = events.end[numbers] - events.at[numbers] >= HEADER_BYTES + HEAD_BYTES
    if is_whole.all():
        return numbers
    fault = BadEvent("the event ends within the head of its body")
    garbage += [Garbage(number, fault) for number in numbers[~is_whole].tolist()]
    return numbers[is_whole]


def table_rows(
    events: Events, found: TableEvents, *, is_mariadb: bool
) -> tuple[list[TableRows], list[Garbage]]:
    """The rows by the columns that their images have. Raises Refused where the server names no
    columns. What else leaves a table's rows unreadable (changes of JSON in place of values, a type
    that is not read) makes garbage of its events."""
    table = found.table
    name = table.name
    if not table.has_names:
        raise Refused(
            f"the binlog does not name the columns of {name}: SET GLOBAL binlog_row_metadata = "
            "'FULL' on the server, and start behind the rows that were written before it"
        )
    is_partial = IS_PARTIAL[events.kind[found.numbers]]
    garbage = _unreadable(found.numbers[is_partial], _PARTIAL_JSON.format(name), name)
    numbers = found.numbers[~is_partial]
    begin = image_begins(events, numbers, len(table.columns))
    other = BadEvent(f"an event of rows has another number of columns than the TABLE_MAP of {name}")
    garbage += [Garbage(number, other, name) for number in numbers[begin < 0].tolist()]
    numbers, begin = numbers[begin >= 0], begin[begin >= 0]
    beyond = BadEvent(f"a row image of {name} ends beyond its event")
    rows = []
    for present, those in by_columns(events, numbers, begin, len(table.columns)):
        try:
            images = _images(found.shape, present, is_mariadb=is_mariadb)
        except Refused as refused:
            garbage += _unreadable(numbers[those], str(refused), name)
            continue
        here, bad = _rows(events, numbers[those], begin[those], images)
        garbage += [Garbage(number, beyond, name) for number in bad.tolist()]
        rows.append(here)
    return rows, garbage


def _unreadable(numbers: Offsets, why: str, name: TableName) -> list[Garbage]:
    fault = BadEvent(why, UNREADABLE)
    return [Garbage(number, fault, name) for number in numbers.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class _Images:
    """``layouts``: of the images of a row, one after the other; one if they are alike."""

    before: tuple[Column, ...]
    after: tuple[Column, ...]
    layouts: tuple[Layout, ...]


@lru_cache(maxsize=4096)
def _images(shape: Shape, present: Present, *, is_mariadb: bool) -> _Images:
    """Raises Refused for images that cannot be read."""
    table = table_map(shape, is_mariadb=is_mariadb)
    before, after = (
        tuple(table.columns[number] for number in numbers)
        for numbers in (present.before, present.after)
    )
    if not (before and after):
        raise Refused(f"table {table.name}: rows without any column, which cannot be counted")
    try:
        layouts = tuple(map(layout_of, dict.fromkeys((before, after))))
    except Refused as error:
        raise Refused(f"table {table.name}: {error}") from error
    return _Images(before, after, layouts)


def image_begins(events: Events, numbers: Offsets, count: int) -> Offsets:
    """Where the first image begins; -1 where the event has not that number of columns."""
    data, kind, end = events.data, events.kind[numbers], events.end[numbers]
    at = events.at[numbers] + HEADER_BYTES + HEAD_BYTES
    extra = words_of(data, "<u2")[at].astype(np.int64)
    at = np.minimum(at + np.where(kind >= _FIRST_WITH_EXTRA, extra, 0), end)
    if count < 251:
        is_same = data[at] == count
    else:
        is_same = (data[at] == 252) & (words_of(data, "<u2")[at + 1] == count)
    bitmaps = np.where(IS_UPDATE[kind], 2, 1) * ((count + 7) // 8)
    begin = at + (1 if count < 251 else 3) + bitmaps
    return np.where(is_same & (begin <= end), begin, -1)


def _rows(
    events: Events, numbers: Offsets, begin: Offsets, images: _Images
) -> tuple[TableRows, Offsets]:
    """The rows, and the events that hold none. The images of an UPDATE are the old one and the new
    one of each row, by turns."""
    is_update = IS_UPDATE[events.kind[numbers]]
    starts, owner, is_bad = image_starts(events.data, begin, events.end[numbers], *images.layouts)
    is_odd = np.bincount(owner, minlength=len(numbers)) & 1 == 1
    is_bad |= is_update & is_odd
    if is_bad.any():
        is_kept = ~is_bad[owner]
        starts, owner = starts[is_kept], owner[is_kept]
    first = np.searchsorted(owner, np.arange(len(numbers)))
    nth = np.arange(len(starts)) - first[owner]
    is_paired = is_update[owner]
    rows = np.flatnonzero(~is_paired | (nth & 1 == 1))
    op = np.where(IS_DELETE[events.kind[numbers]], OP_DELETE, OP_INSERT)
    op = np.where(is_update, OP_UPDATE, op).astype(np.int8)
    owner, is_paired = owner[rows], is_paired[rows]
    index = np.where(is_paired, nth[rows] >> 1, nth[rows]) + events.base[numbers][owner]
    found = TableRows(
        op=op[owner],
        number=numbers[owner],
        index=index.astype(np.int32),
        at=starts[rows],
        old_at=np.where(is_paired, starts[rows - 1], -1),
        before=images.before,
        after=images.after,
    )
    return found, numbers[is_bad]
