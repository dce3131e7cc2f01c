"""Cells that say more than their value: TIMESTAMPs with their zone, and bytes in base64."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from sinks.types.casts.columns import cast_column
from sinks.types.casts.encoded_cells import without_zone
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from sinks.types.text_arrays import CastRules

RULES = CastRules(time_zone="Asia/Tokyo", zero_date="null", are_encoded=True)
WHEN = Column(name="t", type=MySQLType.parse("timestamp"))


def located(zone: str, value: str) -> str:
    return f'{{"location":"{zone}","value":"{value}"}}'


def moments(*cells: str | None) -> list[datetime | None]:
    texts, rules = without_zone(pa.array(cells, pa.string()), RULES)
    found = cast_column(texts, WHEN, rules)
    assert found.failed is None
    return list(found.values.to_pylist())


def at(hour: int) -> datetime:
    return datetime(2020, 1, 2, hour, 4, 5, tzinfo=UTC)


def test_a_moment_is_in_the_zone_that_its_cell_names() -> None:
    one = located("Asia/Shanghai", "2020-01-02 11:04:05")
    assert moments(one, None, one) == [at(3), None, at(3)]


def test_zones_may_differ() -> None:
    cells = [located(z, "2020-01-02 11:04:05") for z in ("Asia/Shanghai", "UTC", "+09:00")]
    assert moments(*cells, None, "2020-01-02 11:04:05") == [at(3), at(11), at(2), None, at(2)]


def test_the_zone_of_a_machine_is_the_one_that_the_user_names() -> None:
    assert moments(located("Local", "2020-01-02 11:04:05")) == [at(2)]


@pytest.mark.parametrize("zones", [("UTC",), ("UTC", "Asia/Shanghai")])
def test_a_zero_date_is_one_in_every_zone(zones: tuple[str, ...]) -> None:
    assert moments(*(located(z, "0000-00-00 00:00:00") for z in zones)) == [None] * len(zones)


def test_what_is_no_time_is_a_failure() -> None:
    for cells in (["x"], ["x", located("UTC", "2020-01-02 11:04:05")], [located("UTC", "x")]):
        texts, rules = without_zone(pa.array(cells), RULES)
        failed = cast_column(texts, WHEN, rules).failed
        assert failed is not None
        assert failed.to_pylist() == ["x" in cell for cell in cells]


def test_bytes_are_in_base64() -> None:
    column = Column(name="b", type=MySQLType.parse("varbinary(9)"))
    texts = pa.array(["AP8=", "", None, "A"])
    for kind in (pa.string(), pa.large_string()):
        found = cast_column(texts.cast(kind), column, RULES)
        assert found.values.to_pylist() == [b"\x00\xff", b"", None, None]
        assert found.failed is not None
        assert found.failed.to_pylist() == [False, False, False, True]


def test_texts_are_as_ever() -> None:
    column = Column(name="v", type=MySQLType.parse("varchar(9)"))
    assert cast_column(pa.array(["AP8="]), column, RULES).values.to_pylist() == ["AP8="]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bit(64)", Decimal(2**64 - 1)),
        ("set('a','b'," + ",".join(f"'e{n}'" for n in range(62)) + ")", None),
        ("enum('a','b')", None),
        ("bigint", -1),
    ],
)
def test_the_highest_of_64_bits_is_no_sign(kind: str, value: object) -> None:
    of = MySQLType.parse(kind)
    cells = pa.array([-1, 1, None], pa.int64())
    found = cast_column(cells, Column(name="c", type=of), RULES)
    if of.name == "set":
        value = ",".join(of.elements)
    assert found.values[0].as_py() == value
    assert found.values[1].as_py() == (of.elements[0] if of.elements else 1)
    assert (found.failed is not None) == (of.name == "enum")
