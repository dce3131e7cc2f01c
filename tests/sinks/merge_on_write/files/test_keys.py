"""Keys as numbers and the index of them, beside Python's dictionaries."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sinks.merge_on_write.files.key_index import first_double, rows_with, sort_keys
from sinks.types.key_hash import keys_of
from tests.sinks.merge_on_write.histories import POOLS

Cells = Sequence[Any]
TEXTS = [
    *("", "\x00", "\x00\x00", "a", "a\x00", "\x00a", "A", "a ", "ab", "a" * 7, "a" * 8, "a" * 9),
    *("a" * 15, "a" * 16, "a" * 17, "é", "e\u0301", "\U0001f600", "b" * 300, "b" * 299 + "c"),
]
KINDS: dict[str, tuple[pa.DataType, Cells]] = {
    "byte": (pa.int8(), POOLS["tinyint"]),
    "short": (pa.int16(), POOLS["smallint"]),
    "int": (pa.int32(), POOLS["int"]),
    "long": (pa.int64(), POOLS["bigint"]),
    "date": (pa.date32(), POOLS["date"]),
    "ntz": (pa.timestamp("us"), POOLS["datetime(6)"]),
    "timestamp": (pa.timestamp("us", tz="UTC"), POOLS["timestamp(6)"]),
    "boolean": (pa.bool_(), [True, False]),
    "double": (pa.float64(), [*POOLS["double"], -0.0, math.nan, math.inf, -math.inf]),
    "float": (pa.float32(), [*POOLS["float"], -0.0, math.nan]),
    "u64": (pa.decimal128(20, 0), POOLS["bigint unsigned"]),
    "d38": (pa.decimal128(38, 10), POOLS["decimal(38,10)"]),
    "d5": (pa.decimal128(5, 2), POOLS["decimal(5,2)"]),
    "text": (pa.string(), TEXTS),
    "large text": (pa.large_string(), TEXTS),
    "vector": (
        pa.list_(pa.float32()),
        [[], [0.0], [-0.0], [0.0, 0.0], [1.5], [1.5, 2.5], [2.5, 1.5], [float("nan")]],
    ),
    "bytes": (pa.binary(), [b"\xff", b"\xff\x00", *(text.encode() for text in TEXTS)]),
}


def same_for_delta(cell: Any) -> Any:
    """-0.0 is 0.0 already to Python; NaN is NaN."""
    if isinstance(cell, list):
        return tuple(map(same_for_delta, cell))
    return "NaN" if isinstance(cell, float) and math.isnan(cell) else cell


def expected(index: Sequence[Cells], wanted: Sequence[Cells]) -> list[int]:
    """Rows whose key is among the wanted ones; NULL is a value like others."""
    asked = {tuple(map(same_for_delta, key)) for key in wanted}
    return [row for row, key in enumerate(index) if tuple(map(same_for_delta, key)) in asked]


def columns_of(rows: Sequence[Cells], kinds: Sequence[str]) -> list[pa.Array]:
    return [pa.array([row[at] for row in rows], KINDS[kind][0]) for at, kind in enumerate(kinds)]


def found(index: list[pa.Array], wanted: list[pa.Array]) -> list[int]:
    return sorted(rows_with(sort_keys(keys_of(index)), sort_keys(keys_of(wanted))).tolist())


def random_rows(dice: random.Random, kinds: Sequence[str], count: int) -> list[Cells]:
    def cell(kind: str) -> Any:
        return None if dice.random() < 0.1 else dice.choice(KINDS[kind][1])

    return [tuple(cell(kind) for kind in kinds) for _ in range(count)]


def unique(rows: Sequence[Cells]) -> list[Cells]:
    return list({tuple(map(same_for_delta, row)): row for row in rows}.values())


@pytest.mark.seeds(1)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_one_column(kind: str, seed: int):
    check(random.Random(f"{kind}{seed}"), [kind], 30)


@pytest.mark.seeds(1)
def test_keys_of_several_columns(seed: int):
    dice = random.Random(seed)
    for _ in range(150):
        check(dice, dice.sample(sorted(KINDS), dice.randint(2, 4)), 1)


def check(dice: random.Random, kinds: Sequence[str], times: int) -> None:
    """Several rows of a key, sizes from nothing on, slices of larger arrays too."""
    for _ in range(times):
        rows = random_rows(dice, kinds, dice.choice((0, 1, 2, 60)))
        wanted = unique(random_rows(dice, kinds, dice.choice((0, 1, 12))))
        index, asked = columns_of(rows, kinds), columns_of(wanted, kinds)
        assert found(index, asked) == expected(rows, wanted), (kinds, rows, wanted)
        cut = dice.randint(0, len(rows))
        sliced = [column.slice(cut) for column in index]
        assert found(sliced, asked) == expected(rows[cut:], wanted)


def test_lengths_and_places_count():
    rows = [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), ("a\x00", "bc"), ("bc", "a")]
    for at, row in enumerate(rows):
        assert found(columns_of(rows, ["text", "text"]), columns_of([row], ["text", "text"])) == [
            at
        ]


@pytest.mark.parametrize("kind", ["long", "text"])
def test_the_columns_of_an_index_may_have_another_width(kind: str):
    """A file of an older type of the column is read as the table's type before it comes here."""
    kinds = [kind, "int"]
    rows = random_rows(random.Random(3), kinds, 40)
    assert found(columns_of(rows, kinds), columns_of(unique(rows), kinds)) == [*range(len(rows))]


@pytest.mark.parametrize("kinds", [["long"], ["text"], ["text", "date"], ["d38"], ["vector"]])
@pytest.mark.seeds(1)
def test_a_double_is_found(kinds: Sequence[str], seed: int):
    dice = random.Random(seed)
    for _ in range(50):
        rows = random_rows(dice, kinds, dice.randint(0, 8))
        whole = [tuple(map(same_for_delta, row)) for row in rows]
        doubles = {key for key in whole if whole.count(key) > 1}
        row = first_double(sort_keys(keys_of(columns_of(rows, kinds))))
        assert (row is not None) == bool(doubles)
        assert row is None or whole[row] in doubles


def test_null_is_neither_zero_nor_nothing():
    """Not even where a part of the rows has no NULL, and keys are plain numbers there."""
    rows: list[Cells] = [(0,), (None,), (0,), (-(2**63),), (None,)]
    index = columns_of(rows, ["long"])
    for wanted in ([(0,)], [(None,)], [(0,), (None,)], [(-(2**63),), (None,)]):
        assert found(index, columns_of(wanted, ["long"])) == expected(rows, wanted)
    assert found(columns_of([(0,), (7,)], ["long"]), columns_of([(None,)], ["long"])) == []
    texts: list[Cells] = [("", None), (None, ""), (None, None), ("", "")]
    for at, row in enumerate(texts):
        kinds = ["text", "text"]
        assert found(columns_of(texts, kinds), columns_of([row], kinds)) == [at]


def test_a_key_that_stands_very_often():
    rows: list[Cells] = [(number % 3,) for number in range(3000)]
    index = columns_of(rows, ["long"])
    assert found(index, columns_of([(1,), (9,)], ["long"])) == expected(rows, [(1,)])


def test_dates_and_moments_are_their_numbers():
    """So that bounds can narrow what is looked for."""
    columns = [
        pa.array([date(1970, 1, 2), date(1969, 12, 31)]),
        pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)] * 2, pa.timestamp("us", tz="UTC")),
        pa.array([-5, 7], pa.int8()),
    ]
    assert [keys_of([column]).first.tolist() for column in columns] == [
        [1, -1],
        [1_000_000, 1_000_000],
        [-5, 7],
    ]
    assert keys_of([pa.array([Decimal(1)])]).second is not None
