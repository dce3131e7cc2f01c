"""A typed cell and its text are one value in Delta, or both are none."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from sinks.types.casts.columns import CastColumn, CastRules, arrow_type, cast_column
from sinks.types.casts.typed_cells import as_values, cell_texts
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from tests.sinks.types.typed_values import TYPES, WIDE, texts_of, typed_cells

ROWS = 400
ZERO_DATES: tuple[Literal["null", "fail"], ...] = ("null", "fail")
COLUMNS = (*TYPES, "decimal", "time(?)", "bit", "enum('a','b')", "enum", "set('a','b')", "set")


def cast(
    cells: pa.Array,
    mysql_type: str,
    zone: str = "UTC",
    zero_date: Literal["null", "fail"] = "null",
    **more: Any,
) -> CastColumn:
    of = MySQLType.parse(mysql_type)
    rules = CastRules(time_zone=zone, zero_date=zero_date)
    found = cast_column(cells, Column(name="c", type=of), rules, **more)
    assert (found.values.type, len(found.values)) == (arrow_type(of), len(cells))
    found.values.validate(full=True)
    return found


def worth(found: CastColumn) -> list[tuple[str, bool]]:
    failed = [False] * len(found.values) if found.failed is None else found.failed.to_pylist()
    numbers = found.values
    if pa.types.is_timestamp(numbers.type):  # Python has not all of them
        numbers = numbers.view(pa.int64())
    return list(zip(map(repr, numbers.to_pylist()), failed, strict=True))


@pytest.mark.parametrize("mysql_type", TYPES)
@pytest.mark.seeds(1, 2)
def test_cells_of_a_column_s_own_type_are_its_values(mysql_type: str, seed: int) -> None:
    cells = typed_cells(mysql_type, ROWS, random.Random(f"{mysql_type}{seed}"))
    digits = MySQLType.parse(mysql_type).digits or 0
    text = pa.array(texts_of(cells, digits), pa.string())
    found = cast(cells, mysql_type)
    assert found.failed is None
    assert worth(found) == worth(cast(text, mysql_type))
    assert found.values.null_count == cells.null_count
    assert worth(cast(cells.slice(7, 90), mysql_type)) == worth(found)[7:97]


@pytest.mark.parametrize("mysql_type", TYPES)
@pytest.mark.seeds(1, 1)
def test_cells_of_another_type_are_ruled_as_their_texts(mysql_type: str, seed: int) -> None:
    """Where a DDL was passed over, or a later shape reads older rows."""
    cells = typed_cells(mysql_type, ROWS, random.Random(f"{mysql_type}{seed}"))
    text = pa.array(texts_of(cells), pa.string())
    for column in (each for each in COLUMNS if each != mysql_type):
        for zero_date in ZERO_DATES:
            one, other = (cast(each, column, zero_date=zero_date) for each in (cells, text))
            assert worth(one) == worth(other), column
            assert worth(cast(cells.slice(5, 50), column, zero_date=zero_date)) == worth(one)[5:55]


def test_a_cell_of_the_right_type_is_not_copied() -> None:
    for mysql_type in ("bigint", "double", "decimal(30,10)", "date", "datetime(6)", "blob"):
        cells = typed_cells(mysql_type, 50, random.Random(1))
        values = as_values(cells, MySQLType.parse(mysql_type))
        assert values is not None
        assert [b and b.address for b in values.buffers()] == [
            b and b.address for b in cells.buffers()
        ]


@pytest.mark.parametrize(
    ("cells", "mysql_type"),
    [
        (pa.array([8388607, 8388608, -8388608, -8388609], pa.int32()), "mediumint"),
        (pa.array([16777215, 16777216], pa.uint32()), "mediumint unsigned"),
        (pa.array([1023, 1024], pa.uint64()), "bit(10)"),
        (pa.array([0, 1900, 1901, 2155, 2156, -1], pa.int16()), "year"),
        (pa.array([1.5, np.inf, -np.inf, np.nan], pa.float32()), "float"),
        (pa.array([1.5, np.inf, -np.inf, np.nan], pa.float64()), "double"),
        (pa.array([3.5e38, 1e-50, 0.1], pa.float64()), "float"),
        (pa.array([0.1, 16777217.0], pa.float32()), "double"),
        (pa.array([-1, 2**63 - 1], pa.int64()), "bigint unsigned"),
        (pa.array([2**63, 2**64 - 1], pa.uint64()), "bigint"),
        (pa.array([Decimal("1.230"), Decimal("1.239")], pa.decimal128(10, 3)), "decimal(10,2)"),
        (pa.array([Decimal(10**38), Decimal(1)], pa.decimal256(65, 0)), "decimal(38,0)"),
        (pa.array([Decimal("9" * 38), Decimal(1)], pa.decimal128(38, 0)), "decimal(38,10)"),
        (pa.array([0, 1, 2, 3], pa.uint8()), "enum('a','b')"),
        (pa.array([0, 1, 2, 3, 4], pa.uint64()), "set('a','b')"),
        (pa.array([-719_163, -719_528, 0, 2_932_897], pa.int32()).view(pa.date32()), "date"),
    ],
)
def test_a_cell_beyond_its_column_is_ruled_as_its_text(cells: pa.Array, mysql_type: str) -> None:
    text = pa.array(texts_of(cells), pa.string())
    for zero_date in ZERO_DATES:
        found = cast(cells, mysql_type, zero_date=zero_date)
        assert worth(found) == worth(cast(text, mysql_type, zero_date=zero_date))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+08:00"])
def test_a_typed_timestamp_is_an_instant_in_whatever_zone(zone: str) -> None:
    twice = [datetime(2020, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6)]  # 01:30 in New York
    cells = pa.array([*twice, datetime(2038, 1, 19, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert cast(cells, "timestamp(6)", zone).values.equals(cells)
    text = pa.array(["2020-11-01 05:30:00", "0000-00-00 00:00:00"])
    found = cast(text, "timestamp", zone, are_typed=True)
    assert found.values.to_pylist() == [twice[0], None]


def test_a_text_among_typed_cells_is_the_name_of_an_element() -> None:
    names = pa.array(["2", "", None, "1"])
    of = "enum('2','1')"
    assert cast(names, of, are_typed=True).values.equals(names)
    assert cast(pa.array(["1", "0", None, "2"]), of).values.equals(names)
    some = pa.array(["x,z", "", "z", None])
    assert cast(some, "set('x','y','z')", are_typed=True).values.equals(some)
    assert cast(pa.array(["5", "0", "4", None]), "set('x','y','z')").values.equals(some)
    every = pa.array([",".join(map(str, range(64)))])
    assert cast(every, WIDE, are_typed=True).values.equals(every)
    assert cast(pa.array([2**64 - 1], pa.uint64()), WIDE).values.equals(every)


@pytest.mark.parametrize("mysql_type", ["date", "datetime(3)"])
def test_a_column_with_a_date_of_no_calendar_comes_as_texts(mysql_type: str) -> None:
    time = "" if mysql_type == "date" else " 00:00:00.000"
    text = pa.array(
        [day + time for day in ("0000-00-00", "2021-02-31", "2020-00-10", "2020-02-29")]
    )
    typed = cast(text, mysql_type, "Asia/Shanghai", are_typed=True)
    assert typed.values.null_count == 3
    assert worth(typed) == worth(cast(text, mysql_type, "Asia/Shanghai"))


@pytest.mark.parametrize("mysql_type", TYPES)
@pytest.mark.seeds(1)
def test_the_text_of_a_cell_is_what_canal_json_has(mysql_type: str, seed: int) -> None:
    cells = typed_cells(mysql_type, ROWS, random.Random(f"{mysql_type}{seed}"))
    digits = MySQLType.parse(mysql_type).digits
    if pa.types.is_duration(cells.type):
        assert cell_texts(cells, digits).to_pylist() == texts_of(cells, digits or 0)
    assert cell_texts(cells).to_pylist() == texts_of(cells)
    assert cell_texts(cells.slice(3, 9)).to_pylist() == texts_of(cells)[3:12]
    assert cell_texts(cells.slice(3, 0)).to_pylist() == []
