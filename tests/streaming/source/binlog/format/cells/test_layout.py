"""Two ways to find the images, beside a slow one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streaming.source.binlog.format.cells.column import Column
from streaming.source.binlog.format.cells.layout import (
    Layout,
    image_ends,
    layout_of,
    one_by_one,
    side_by_side,
    width_of,
)
from streaming.source.binlog.format.events import PADDING
from streaming.source.binlog.format.faults import Refused
from streaming.source.binlog.format.type_codes import ColumnType

FIXED = [
    (1, 0),
    (2, 0),
    (3, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (18, 6),
    (19, 3),
    (246, 30 << 8 | 10),
    (247, 2),
    (16, 1 << 8 | 4),
]
VARIABLE = [(15, 30), (15, 300), (254, 20), (252, 1), (252, 2), (252, 3), (252, 4), (245, 4)]


def random_columns(rng: random.Random) -> tuple[Column, ...]:
    kinds = rng.choices([*FIXED, *VARIABLE], k=rng.randrange(1, 30))
    return tuple(
        Column(name=f"c{n}", type=kind, meta=meta, is_nullable=rng.random() < 0.6)
        for n, (kind, meta) in enumerate(kinds)
    )


def random_image(columns: tuple[Column, ...], rng: random.Random) -> bytes:
    is_null = [column.is_nullable and rng.random() < 0.3 for column in columns]
    bitmap = sum(1 << n for n, null in enumerate(is_null) if null)
    raw = bitmap.to_bytes((len(columns) + 7) // 8, "little")
    for column, null in zip(columns, is_null, strict=True):
        width, prefix = width_of(column)
        size = rng.randrange(20)
        value = (
            size.to_bytes(prefix, "little") + rng.randbytes(size)
            if prefix
            else rng.randbytes(width)
        )
        raw += b"" if null else value
    return raw


@pytest.mark.seeds(60)
def test_both_ways_find_every_image(seed: int):
    rng = random.Random(seed)
    by_turns = [random_columns(rng) for _ in range(rng.randint(1, 2))]
    data, begin, stop, expected, owners = bytearray(), [], [], [], []
    for number in range(rng.randrange(1, 30)):
        data += rng.randbytes(rng.randrange(9))
        begin.append(len(data))
        for turn in range(rng.randrange(12)):
            expected.append(len(data))
            owners.append(number)
            data += random_image(by_turns[turn % len(by_turns)], rng)
        stop.append(len(data))
    array = np.frombuffer(bytes(data) + bytes(PADDING), np.uint8)
    layouts = [layout_of(columns) for columns in by_turns]
    for way in (one_by_one, side_by_side):
        starts, owner, is_bad = way(array, np.array(begin), np.array(stop), *layouts)
        assert (starts.tolist(), owner.tolist()) == (expected, owners)
        assert not is_bad.any()


@pytest.mark.seeds(100)
def test_both_ways_find_the_same_garbage(seed: int):
    """Ranges of random bytes, up to the very end of what may be read."""
    rng = random.Random(seed)
    layout = layout_of(random_columns(rng))
    data = np.frombuffer(rng.choice([rng.randbytes(300), bytes(300), b"\xff" * 300]), np.uint8)
    ends = sorted(rng.sample(range(300 - PADDING + 1), 20))
    begin, stop = np.array(ends[:-1]), np.array(ends[1:])
    first, second = (way(data, begin, stop, layout) for way in (one_by_one, side_by_side))
    for one, other in zip(first, second, strict=True):
        assert one.tolist() == other.tolist()


def test_bytes_behind_the_range_do_not_matter():
    columns = tuple(Column(name=f"c{n}", type=252, meta=4, is_nullable=True) for n in range(40))
    layout: Layout = layout_of(columns)
    at, stop = np.array([0]), np.array([7])
    ends = set()
    for fill in (b"\0", b"\xff", b"\7"):
        data = np.frombuffer(bytes(7) + fill * PADDING, np.uint8)
        ends.add(bool((image_ends(data, at, stop, layout) > stop).all()))
    assert ends == {True}


@pytest.mark.parametrize(
    ("kind", "meta", "match"),
    [
        (ColumnType.DATETIME_OLD, 0, "column c has the DATETIME format from before MySQL 5.6"),
        (ColumnType.TYPED_ARRAY, 0, "column c has type 20"),
        (ColumnType.BLOB, 5, "column c has type 252"),
        (ColumnType.DATETIME, 7, "column c has type 18"),
        (ColumnType.DECIMAL, 70 << 8, "column c has type 246"),
        (ColumnType.BIT, 9 << 8, "column c has type 16"),
        (200, 0, "leave its table out"),
    ],
)
def test_types_that_are_not_read(kind: int, meta: int, match: str):
    with pytest.raises(Refused, match=match):
        layout_of((Column(name="c", type=kind, meta=meta, is_nullable=True),))
