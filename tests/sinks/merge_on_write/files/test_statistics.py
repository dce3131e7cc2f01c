"""Bounds that readers skip files by: never too narrow, as each reader understands them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from sinks.merge_on_write.files.key_bounds import Bounds, bounds_of, may_hold, told_bounds
from sinks.merge_on_write.files.statistics import bounds, rows_in, statistics_text, widened
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.physical_schema import PhysicalColumn, PhysicalSchema
from sinks.storage.local_storage import LocalStorage
from tests.sinks.merge_on_write.histories import POOLS

KINDS: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "varchar(90)": pa.string(),
    "date": pa.date32(),
    "datetime(6)": pa.timestamp("us"),
    "timestamp(6)": pa.timestamp("us", tz="UTC"),
}


def column(kind: pa.DataType, *, has_statistics: bool = True) -> PhysicalColumn:
    return PhysicalColumn(
        name="c", physical="p", field_id=1, arrow=kind, has_statistics=has_statistics
    )


def order(value: Any) -> Any:
    """As Delta compares: text by its bytes."""
    return value.encode() if isinstance(value, str) else value


def understood(bound: Any, kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return date.fromisoformat(bound)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(bound)
    return order(bound)


@pytest.mark.seeds(1)
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_out_of_its_bounds(kind: str, seed: int):
    dice = random.Random(f"{kind}{seed}")
    arrow = KINDS[kind]
    for _ in range(300):
        values = dice.choices(POOLS[kind], k=dice.randint(1, 4))
        if pa.types.is_timestamp(arrow) and dice.random() < 0.5:
            values = [near(dice, value) for value in values]
        cells = pa.chunked_array([[*values, None][:: dice.choice((1, -1))]], arrow)
        low, high = bounds(cells, column(arrow))
        for value in cells.drop_null().to_pylist():
            assert low is None or understood(low, arrow) <= order(value), (low, value)
            assert high is None or order(value) <= understood(high, arrow), (value, high)


def near(dice: random.Random, value: datetime) -> datetime:
    step = timedelta(microseconds=dice.randint(-2000, 2000))
    late = value.year == 9999
    return value - abs(step) if late else value + step


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [None, None], (None, None)),
        (pa.int64(), [2**53 + 1, -(2**63)], (-(2**63), 2**53 + 1)),
        (pa.float64(), [1.0, float("nan")], (None, None)),
        (pa.float64(), [0.0], (-0.0, 0.0)),
        (pa.float64(), [float("inf"), 1.0], (1.0, None)),
        (pa.decimal128(20, 0), [1], (None, None)),
        (pa.binary(), [b"a"], (None, None)),
        (pa.bool_(), [True], (None, None)),
        (pa.string(), ["z" * 32], ("z" * 32, "z" * 32)),
        (pa.string(), ["z" * 33], ("z" * 32, "z" * 32 + "\U0010ffff")),
        (pa.string(), ["\U0010ffff" * 33], ("\U0010ffff" * 32, None)),
        (pa.timestamp("us"), [-1], ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000")),
        (
            pa.timestamp("us", tz="UTC"),
            [1001],
            ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z"),
        ),
    ],
)  # fmt: skip
def test_bounds_as_they_are_written(kind: pa.DataType, values: Sequence[Any], expected: Any):
    found = bounds(pa.chunked_array([pa.array(values, kind)]), column(kind))
    assert found == expected
    assert [str(each) for each in found] == [str(each) for each in expected]  # -0.0 is not 0.0


def test_the_end_of_days_has_no_upper_bound_that_could_be_written():
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    kind = pa.timestamp("us", tz="UTC")
    low, high = bounds(pa.chunked_array([pa.array([last], kind)]), column(kind))
    assert (low, high) == ("9999-12-31T23:59:59.999Z", None)


def test_only_columns_that_shall_have_statistics_have_them():
    shape = PhysicalSchema(
        columns=(
            column(pa.int64()),
            PhysicalColumn(
                name="d", physical="q", field_id=2, arrow=pa.int64(), has_statistics=False
            ),
        ),
    )
    rows = pa.table({"p": pa.array([3, None, 1]), "q": pa.array([1, 2, 3])})
    assert json.loads(statistics_text(rows, shape)) == {
        "numRecords": 3,
        "minValues": {"p": 1},
        "maxValues": {"p": 3},
        "nullCount": {"p": 1},
        "tightBounds": True,
    }


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (None, '{"numRecords":9,"tightBounds":false}'),
        ("{}", '{"numRecords":9,"tightBounds":false}'),
        ('{"minValues":{"a":1}}', '{"numRecords":9,"tightBounds":false}'),
        ('{"numRecords":3}', '{"numRecords":3,"tightBounds":false}'),
        ('{"tightBounds":true,"numRecords":3}', '{"numRecords":3,"tightBounds":false}'),
        ('{"numRecords":3,"tightBounds":true}', '{"numRecords":3,"tightBounds":false}'),
        (
            '{ "numRecords" : 3 , "tightBounds" : true , "minValues":{"a":1} }',
            '{ "numRecords" : 3  , "minValues":{"a":1},"tightBounds":false}',
        ),
        (  # a number that no double holds, and text that looks like ours
            '{"numRecords":3,"minValues":{"a":12345678901234567.89,"b":"\\"tightBounds\\":true"}}',
            '{"numRecords":3,"minValues":{"a":12345678901234567.89,"b":"\\"tightBounds\\":true"}'
            ',"tightBounds":false}',
        ),
        (  # a bound that looks like an object without its first member
            '{"numRecords":3,"minValues":{"b":"a{,3}"},"tightBounds":true}',
            '{"numRecords":3,"minValues":{"b":"a{,3}"},"tightBounds":false}',
        ),
    ],
)
def test_a_file_that_gets_a_vector_keeps_the_text_of_its_statistics(
    stats: str | None, expected: str
):
    assert widened(stats, 9) == expected
    assert json.loads(expected)["tightBounds"] is False
    assert widened(expected, 9) == expected


def test_rows_are_the_physical_ones():
    assert rows_in('{"numRecords": 12,"tightBounds":false}') == 12
    assert rows_in('{"minValues":{}}') is None
    assert rows_in(None) is None


def logged_bounds(stats: str, kind: pa.DataType) -> Bounds | None:
    """Of a file of ours, which is not looked into."""
    file = DataFile.new(path="tidelake-1.parquet", size=1, modification_time_ms=0, stats=stats)
    column = PhysicalColumn(name="p", physical="p", field_id=None, arrow=kind, has_statistics=True)
    nowhere = FileLocations(LocalStorage("/nowhere"), LocalStorage)
    return told_bounds(nowhere, file, column)


class TestOurOwnBounds:
    """What the engine itself skips files by."""

    @pytest.mark.parametrize("kind", ["tinyint", "bigint", "varchar(90)"])
    def test_a_file_that_holds_a_wanted_key_is_a_candidate(self, kind: str):
        dice = random.Random(kind)
        arrow = KINDS[kind]
        shape = PhysicalSchema(columns=(column(arrow),))
        for _ in range(300):
            values = dice.choices(POOLS[kind], k=dice.randint(1, 4))
            rows = pa.table({"p": pa.array(values, arrow)})
            told = logged_bounds(statistics_text(rows, shape), arrow)
            wanted = bounds_of(pa.array([dice.choice(values)], arrow))
            assert may_hold(told, wanted)
            assert may_hold(bounds_of(rows["p"]), wanted)

    def test_a_file_that_cannot_hold_one_is_none(self):
        assert not may_hold((1, 5), (6, 9))
        assert not may_hold((b"a", b"b"), (b"c", b"c"))
        assert may_hold(None, (1, 2))
        assert may_hold((1, 2), None)

    @pytest.mark.parametrize(
        ("stats", "kind"),
        [
            ({}, pa.int64()),
            ({"minValues": {"p": 1}, "maxValues": None}, pa.int64()),
            ({"minValues": {"p": 1.0}, "maxValues": {"p": 2.0}}, pa.int64()),
            ({"minValues": {"p": "2024-01-01"}, "maxValues": {"p": "2024-01-01"}}, pa.date32()),
            ({"minValues": {"p": "\ud800"}, "maxValues": {"p": "z"}}, pa.string()),
        ],
    )
    def test_what_is_not_plainly_told_is_not_used(self, stats: dict[str, Any], kind: pa.DataType):
        assert logged_bounds(json.dumps(stats), kind) is None

    def test_text_is_ordered_by_its_bytes(self):
        low, high = bounds_of(pa.array(["\uffff", "\U00010000"])) or (None, None)
        assert (low, high) == ("\uffff".encode(), "\U00010000".encode())
        assert bounds_of(pa.array([None], pa.int64())) is None
        assert bounds_of(pa.array([1.0, float("nan")])) is None
