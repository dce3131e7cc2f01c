"""Where the row images of events begin: image by image within an event, all events side by side.

Where an image begins depends on the image before it, but only within its event. So step k takes the
k-th image of every event at once. Between two columns of variable width a step is one addition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.cells.column import Column
from streaming.source.binlog.format.events import Bytes, Offsets, words_of
from streaming.source.binlog.format.faults import Refused
from streaming.source.binlog.format.type_codes import ColumnType

Mask = npt.NDArray[np.bool_]
FEW: Final = 12  # so many events are walked sooner one by one
DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of so many digits of a DECIMAL

_FIXED: Final[Mapping[int, int]] = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
    ColumnType.FLOAT: 4,
    ColumnType.DOUBLE: 8,
    ColumnType.DATE: 3,
    ColumnType.YEAR: 1,
}
_MOMENTS: Final[Mapping[int, int]] = {
    ColumnType.TIMESTAMP: 4,
    ColumnType.DATETIME: 5,
    ColumnType.TIME: 3,
}
_LONG: Final = (
    *(ColumnType.BLOB, ColumnType.BLOB_COMPRESSED, ColumnType.JSON),
    *(ColumnType.GEOMETRY, ColumnType.VECTOR),
)
_OLD: Final = {
    ColumnType.TIMESTAMP_OLD: "TIMESTAMP",
    ColumnType.DATETIME_OLD: "DATETIME",
    ColumnType.TIME_OLD: "TIME",
    ColumnType.DECIMAL_OLD: "DECIMAL",
}


def decimal_bytes(precision: int, scale: int) -> int:
    whole = precision - scale
    parts = (whole // 9 * 4, DIGIT_BYTES[whole % 9], scale // 9 * 4, DIGIT_BYTES[scale % 9])
    return sum(parts)


def width_of(column: Column) -> tuple[int, int]:
    """(bytes of every value, 0), or (0, bytes of the length before each value). Raises Refused for
    a type that is not read."""
    kind, meta = column.type, column.meta
    if kind in (ColumnType.VARCHAR, ColumnType.VARCHAR_COMPRESSED, ColumnType.STRING):
        return 0, 1 if meta < 256 else 2
    if kind in _LONG and 1 <= meta <= 4:
        return 0, meta
    width = _fixed_width(column)
    if width is None:
        raise Refused(f"column {column.name} {_unread(kind, meta)}")
    return width, 0


def _fixed_width(column: Column) -> int | None:
    kind, meta = column.type, column.meta
    width = _FIXED.get(kind)
    if kind in _MOMENTS and meta <= 6:
        width = _MOMENTS[kind] + (meta + 1) // 2
    elif kind == ColumnType.DECIMAL and column.scale <= column.precision <= 65:
        width = decimal_bytes(column.precision, column.scale)
    elif kind in (ColumnType.ENUM, ColumnType.SET) and meta <= 8:
        width = meta
    elif kind == ColumnType.BIT and 0 < (meta >> 8) * 8 + (meta & 0xFF) <= 64:
        width = (meta >> 8) + (1 if meta & 0xFF else 0)
    return width


def _unread(kind: int, meta: int) -> str:
    if kind in _OLD:
        return (
            f"has the {_OLD[ColumnType(kind)]} format from before MySQL 5.6, which is not read: "
            "rebuild the table there (ALTER TABLE … FORCE, on MariaDB with "
            "mysql56_temporal_format = ON)"
        )
    return f"has type {kind} ({meta}), which is not read: leave its table out with [filter] rules"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Columns of fixed width that follow one another, then perhaps one of variable width."""

    fixed: int  # bytes of those that are never NULL
    nullable: tuple[tuple[int, Offsets], ...]  # a byte of the NULL bitmap, and the bytes by value
    prefix: int  # bytes of the variable one's length; 0: there is none
    null_at: tuple[int, int] | None  # byte and bit of the variable one, if it is nullable


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    bitmap: int  # bytes of the NULL bitmap, which an image begins with
    steps: tuple[Step, ...]


def _walk(raw: bytes, layouts: Sequence[Layout]) -> list[int] | None:
    """Where the images begin in the bytes of one event; None if one would end beyond them."""
    starts = []
    at, stop = 0, len(raw)
    told = [
        (
            layout.bitmap,
            [
                (step.fixed, [(byte, sizes.tolist()) for byte, sizes in step.nullable], step.prefix)
                + (step.null_at or (0, 8))
                for step in layout.steps
            ],
        )
        for layout in layouts
    ]
    for bitmap, steps in cycle(told):
        if at >= stop:
            break
        starts.append(at)
        place = at + bitmap
        if place > stop:
            return None
        for fixed, nullable, prefix, byte, bit in steps:
            place += fixed
            for null_byte, widths in nullable:
                place += widths[raw[at + null_byte]]
            if prefix and not raw[at + byte] >> bit & 1:
                end = place + prefix
                if end > stop:
                    return None
                size = raw[place] if prefix == 1 else int.from_bytes(raw[place:end], "little")
                place = end + size
        if place > stop:
            return None
        at = place
    return starts


def layout_of(columns: tuple[Column, ...]) -> Layout:
    """Raises Refused for a column of a type that is not read."""
    values = np.arange(256)
    steps: list[Step] = []
    fixed, nullable = 0, dict[int, Offsets]()
    for number, column in enumerate(columns):
        width, prefix = width_of(column)
        byte, bit = number >> 3, number & 7
        if prefix:
            null_at = (byte, bit) if column.is_nullable else None
            steps.append(Step(fixed, tuple(nullable.items()), prefix, null_at))
            fixed, nullable = 0, {}
        elif column.is_nullable:
            bytes_here = (1 - (values >> bit & 1)) * width
            nullable[byte] = nullable.get(byte, np.zeros(256, np.int64)) + bytes_here
        else:
            fixed += width
    steps.append(Step(fixed, tuple(nullable.items()), 0, None))
    return Layout((len(columns) + 7) // 8, tuple(steps))


def lengths(data: Bytes, at: Offsets, prefix: int) -> Offsets:
    """The numbers of ``prefix`` bytes at these places."""
    if prefix == 1:
        return data[at].astype(np.int64)
    if prefix == 2:
        return words_of(data, "<u2")[at].astype(np.int64)
    words = words_of(data, "<u4")[at].astype(np.int64)
    return words & 0xFFFFFF if prefix == 3 else words


def image_ends(data: Bytes, at: Offsets, stop: Offsets, layout: Layout) -> Offsets:
    """Where the images end that begin at ``at``. Beyond ``stop``: the bytes until there are no
    image."""
    beyond = stop + 1  # nothing is read behind it, and from there on no sum comes back
    bitmaps: dict[int, Bytes] = {}

    def bitmap(byte: int) -> Bytes:
        if byte not in bitmaps:
            bitmaps[byte] = data[np.minimum(at + byte, beyond)]
        return bitmaps[byte]

    place = at + layout.bitmap
    for step in layout.steps:
        if step.fixed:
            place = place + step.fixed
        for byte, widths in step.nullable:
            place = place + widths[bitmap(byte)]
        if step.prefix:
            place = np.minimum(place, beyond)
            size = step.prefix + lengths(data, place, step.prefix)
            if step.null_at is not None:
                byte, bit = step.null_at
                size *= 1 - (bitmap(byte) >> bit & 1)
            place = place + size
    return place


def image_starts(
    data: Bytes, begin: Offsets, stop: Offsets, *layouts: Layout
) -> tuple[Offsets, Offsets, Mask]:
    """Where every image begins that stands in one of the ranges, and the number of its range; and
    which ranges hold no images: one would end beyond the range. Those give none. ``layouts``: of
    the images of a range, by turns."""
    if len(begin) <= FEW:
        return one_by_one(data, begin, stop, *layouts)
    return side_by_side(data, begin, stop, *layouts)


def one_by_one(
    data: Bytes, begin: Offsets, stop: Offsets, *layouts: Layout
) -> tuple[Offsets, Offsets, Mask]:
    """`image_starts` for a few ranges, which may be large."""
    found: list[int] = []
    counts = []
    is_bad = np.zeros(len(begin), np.bool_)
    for number, (at, end) in enumerate(zip(begin.tolist(), stop.tolist(), strict=True)):
        starts = _walk(data[at:end].tobytes(), layouts)
        is_bad[number] = starts is None
        counts.append(len(starts or ()))
        found += [at + start for start in starts or ()]
    return np.array(found, np.int64), np.repeat(np.arange(len(begin)), counts), is_bad


def side_by_side(
    data: Bytes, begin: Offsets, stop: Offsets, *layouts: Layout
) -> tuple[Offsets, Offsets, Mask]:
    """`image_starts` for many ranges: a step costs about the same for one as for a thousand."""
    events, starts = [], []
    is_bad = np.zeros(len(begin), np.bool_)
    event, at, end = np.arange(len(begin)), begin, stop
    for layout in cycle(layouts):
        is_left = at < end
        if not is_left.all():
            is_bad[event[at > end]] = True
            event, at, end = event[is_left], at[is_left], end[is_left]
        if not len(event):
            break
        events.append(event)
        starts.append(at)
        at = image_ends(data, at, end, layout)
    if not events:
        return np.empty(0, np.int64), np.empty(0, np.int64), is_bad
    counts = np.zeros(len(begin), np.int64)
    for each in events:
        counts[each] += 1
    first = np.cumsum(counts) - counts
    out = np.empty(int(counts.sum()), np.int64)
    for k, (each, start) in enumerate(zip(events, starts, strict=True)):
        out[first[each] + k] = start
    owner = np.repeat(np.arange(len(begin)), counts)
    if is_bad.any():
        is_kept = ~is_bad[owner]
        out, owner = out[is_kept], owner[is_kept]
    return out, owner, is_bad
