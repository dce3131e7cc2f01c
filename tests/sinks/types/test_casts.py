"""Every type of docs/types.md at its extremes, and what is not a value of it, in Arrow."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sinks.merge_on_write.log import physical_schema
from sinks.types.casts.columns import CastRules, arrow_type, cast_column, key_values
from sinks.types.delta_types import delta_type, log_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from tests.sinks.types.cast_cases import DATES, DELTA_TYPES, FAIL, NUMBERS, TEXTS, ZERO

CASES = NUMBERS | TEXTS | DATES


def column(mysql_type: str) -> Column:
    return Column(name="c", type=MySQLType.parse(mysql_type))


def cast(
    texts: pa.Array | list[str | None],
    mysql_type: str,
    zero_date: Any = "null",
    time_zone: str = "UTC",
) -> tuple[list[Any], list[bool]]:
    """Values and failures."""
    text = pa.array(texts, pa.string()) if isinstance(texts, list) else texts
    rules = CastRules(time_zone=time_zone, zero_date=zero_date)
    cells = cast_column(text, column(mysql_type), rules)
    assert cells.values.type == arrow_type(MySQLType.parse(mysql_type))
    assert len(cells.values) == len(text)
    cells.values.validate(full=True)
    if cells.failed is None:
        return cells.values.to_pylist(), [False] * len(text)
    assert (len(cells.failed), cells.failed.null_count) == (len(text), 0)
    assert True in cells.failed.to_pylist()
    return cells.values.to_pylist(), cells.failed.to_pylist()


def expected(mysql_type: str, value: Any, zero_date: str) -> tuple[Any, bool]:
    if value in (FAIL, ZERO):
        return None, value == FAIL or zero_date == "fail"
    if mysql_type.startswith("timestamp") and value is not None:
        return value.replace(tzinfo=UTC), False
    if mysql_type == "float" and value is not None:
        return struct.unpack("f", struct.pack("f", value))[0], False
    return value, False


@pytest.mark.parametrize("zero_date", ["null", "fail"])
@pytest.mark.parametrize("mysql_type", CASES)
def test_a_text_becomes_its_exact_value_or_a_failure(mysql_type: str, zero_date: str) -> None:
    """Alone, and beside all others, where the failing ones must not touch the good ones."""
    cases = [*CASES[mysql_type], (None, None)]
    wanted = [expected(mysql_type, value, zero_date) for _, value in cases]
    alone = [cast([text], mysql_type, zero_date) for text, _ in cases]
    assert [(values[0], failed[0]) for values, failed in alone] == wanted
    values, failed = cast([text for text, _ in cases], mysql_type, zero_date)
    assert list(zip(values, failed, strict=True)) == wanted
    assert [type(value) for value in values] == [type(value) for value, _ in wanted]


@pytest.mark.parametrize("text", DELTA_TYPES)
def test_a_column_has_the_type_that_its_files_have(text: str) -> None:
    mysql_type = MySQLType.parse(text)
    in_files = physical_schema.arrow_type("c", log_type(delta_type(mysql_type)))
    assert arrow_type(mysql_type) == in_files


@pytest.mark.parametrize(
    ("time_zone", "text", "instant"),
    [
        ("UTC", "2020-07-01 00:00:00.000001", "2020-07-01T00:00:00.000001+00:00"),
        ("Asia/Shanghai", "2020-07-01 08:00:00", "2020-07-01T00:00:00+00:00"),
        ("+08:00", "2020-07-01 08:00:00", "2020-07-01T00:00:00+00:00"),
        ("-03:30", "2020-07-01 08:00:00", "2020-07-01T11:30:00+00:00"),
        ("PRC", "2020-07-01 08:00:00", "2020-07-01T00:00:00+00:00"),
        ("America/New_York", "2020-07-01 00:00:00", "2020-07-01T04:00:00+00:00"),
        ("America/New_York", "2020-11-01 01:30:00", "2020-11-01T05:30:00+00:00"),  # twice: earlier
        ("America/New_York", "2020-03-08 02:30:00", "2020-03-08T07:30:00+00:00"),  # never: 03:30
        ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30T22:00:00+00:00"),  # a day that was not
        ("America/New_York", "1950-07-01 00:00:00", "1950-07-01T04:00:00+00:00"),  # no TIMESTAMP
        ("America/New_York", "2200-07-01 00:00:00", "2200-07-01T04:00:00+00:00"),
    ],
)
def test_a_timestamp_is_read_in_the_source_zone(time_zone: str, text: str, instant: str) -> None:
    assert cast([text], "timestamp(6)", "null", time_zone)[0] == [datetime.fromisoformat(instant)]


@pytest.mark.parametrize(
    ("time_zone", "text"),
    [
        ("+08:00", "0001-01-01 07:59:59.999999"),
        ("Asia/Shanghai", "0001-01-01 00:00:00"),
        ("-05:00", "9999-12-31 19:00:00"),
        ("America/New_York", "9999-12-31 23:59:59"),
    ],
)
def test_a_zone_that_leads_out_of_the_years_is_ruled_as_other_dates(
    time_zone: str, text: str
) -> None:
    good, zero = "2020-01-01 00:00:00", "0000-00-00 00:00:00"
    texts = [good, None, text, zero, "x"]
    values, failed = cast(texts, "timestamp(6)", "null", time_zone)
    assert (values[1:], failed) == ([None] * 4, [False, False, False, False, True])
    values, failed = cast(texts, "timestamp(6)", "fail", time_zone)
    assert (values[1:], failed) == ([None] * 4, [False, False, True, True, True])
    assert values[0] == cast([good], "timestamp(6)", "null", time_zone)[0][0]


def test_minus_zero_is_zero_in_a_key() -> None:
    for kind in (pa.float32(), pa.float64()):
        made = key_values(pa.array([-0.0, 0.0, 1.5, None], kind))
        assert (made.type, list(map(str, made.to_pylist()))) == (
            kind,
            ["0.0", "0.0", "1.5", "None"],
        )
    assert key_values(pa.array([1, 2])).to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "mysql_type"),
    [
        ("0x1f", "int"),
        ("0XFF", "tinyint"),  # -1 to Arrow
        ("0x1f", "bigint unsigned"),
        ("0x1", "enum('a')"),
        ("1e2", "decimal(10,2)"),
        ("+1", "decimal(10,2)"),
        ("1.230", "decimal(10,2)"),
        ("9" * 39, "decimal(38,0)"),  # a negative number to Arrow
        ("+1", "double"),
        ("nan", "double"),
        ("inf", "float"),
        ("Infinity", "double"),
        ("1e39", "float"),
        ("1" + "0" * 400, "double"),
        ("0000-02-29", "date"),  # null by `zero-date`, which "fail" makes a failure
        ("2020-01-01", "datetime"),
        ("2020-01-01 00", "datetime"),
        ("2020-01-01 00:00", "datetime"),
        ("2020-01-01T00:00:00", "datetime(6)"),
        ("2020-01-01T00:00:00", "timestamp"),
        ("0000-02-29 00:00:00", "datetime"),
        ("0000-01-01 00:00:00.000000", "timestamp"),
    ],
)
def test_what_arrow_alone_would_take_is_a_failure(text: str, mysql_type: str) -> None:
    kind = arrow_type(MySQLType.parse(mysql_type))
    kind = pa.int64() if mysql_type.startswith(("enum", "bigint")) else kind
    naive = pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
    assert pa.array([text]).cast(naive).null_count == 0  # if not, the guard may go
    assert cast([text], mysql_type, "fail") == ([None], [True])
    good = "2020-01-01 00:00:00" if pa.types.is_timestamp(kind) else "1"
    good = "2020-01-01" if mysql_type == "date" else good
    assert cast([good, text, good], mysql_type, "fail")[1] == [False, True, False]


def test_no_array_can_hold_more_text_than_its_offsets_count() -> None:
    """It is said so, not cut."""
    bounds = pa.array([0, 1 << 31], pa.int64()).buffers()[1]
    zeros = pa.py_buffer(np.zeros(1 << 31, np.uint8))  # nobody reads them: they take no memory
    huge = pa.Array.from_buffers(pa.large_string(), 1, [None, bounds, zeros])
    with pytest.raises(pa.ArrowInvalid):
        cast_column(huge, column("longtext"), CastRules(time_zone="UTC", zero_date="null"))
