"""The casts beside a reading of one cell at a time, over random and nasty texts of every type."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sinks.types.casts.columns import CastRules, arrow_type, cast_column
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from tests.sinks.types.cast_oracle import FAILED, value_of, zone_of
from tests.sinks.types.nasty_texts import TYPES, texts, values

ROWS = 3000
ZONES = ("UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "-03:30", "+14:00")


def cast(text: pa.Array, of: MySQLType, zone: str = "UTC") -> list[Any]:
    """Values, with FAILED for what has failed."""
    rules = CastRules(time_zone=zone, zero_date="null")
    cells = cast_column(text, Column(name="c", type=of), rules)
    assert isinstance(cells.values, pa.Array)
    assert (cells.values.type, len(cells.values)) == (arrow_type(of), len(text))
    cells.values.validate(full=True)
    found = cells.values.to_pylist()
    if cells.failed is not None:
        for at in pc.indices_nonzero(cells.failed).to_pylist():
            assert found[at] is None
            found[at] = FAILED
    return found


def read(found: Sequence[str | None], of: MySQLType, zone: str = "UTC") -> list[Any]:
    return [None if text is None else value_of(text, of, zone_of(zone)) for text in found]


def differences(found: Sequence[str | None], got: list[Any], wanted: list[Any]) -> list[Any]:
    """Zeros differ in their sign, and equal numbers of two types differ."""
    rows = zip(found, got, wanted, strict=True)
    return [row for row in rows if row[1] != row[2] or repr(row[1])[:2] != repr(row[2])[:2]]


@pytest.mark.seeds(1)
@pytest.mark.parametrize("mysql_type", TYPES)
def test_every_text_is_its_value_or_a_failure(mysql_type: str, seed: int) -> None:
    of = MySQLType.parse(mysql_type)
    found = texts(mysql_type, ROWS, random.Random(f"{mysql_type}{seed}"))
    assert differences(found, cast(pa.array(found, pa.string()), of), read(found, of)) == []


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("decimal(38,10)", "34749755920566960271707193916143"),
        ("decimal(38,38)", "3.96364775498925984121378304793"),
    ],
)
def test_a_decimal_that_is_too_long_with_its_zeros_is_a_failure(mysql_type: str, text: str) -> None:
    """Arrow wraps it silently, found by a soak."""
    of = MySQLType.parse(mysql_type)
    assert cast(pa.array(["0.5", text], pa.string()), of)[1] == read([text], of)[0]


@pytest.mark.seeds(1)
@pytest.mark.parametrize("mysql_type", TYPES)
def test_one_text_among_good_ones_is_its_value_or_a_failure(mysql_type: str, seed: int) -> None:
    """Where the fast path must notice the one that it cannot take."""
    of = MySQLType.parse(mysql_type)
    random_ = random.Random(f"{mysql_type}{seed}")
    good = [text for text in values(mysql_type, 40, random_) if value_of(text, of) is not FAILED]
    good = [text for text in good if value_of(text, of) is not None][:7] or ["1"]
    wanted = read(good, of)
    for text in texts(mysql_type, 400, random_):
        at = random_.randint(0, len(good))
        found = [*good[:at], text, *good[at:]]
        worth = [*wanted[:at], *read([text], of), *wanted[at:]]
        assert differences(found, cast(pa.array(found, pa.string()), of), worth) == []


@pytest.mark.seeds(1)
@pytest.mark.parametrize("mysql_type", TYPES)
@pytest.mark.parametrize("good", [True, False], ids=["good", "nasty"])
def test_slices_and_large_strings_are_cast_alike(mysql_type: str, good: bool, seed: int) -> None:
    of = MySQLType.parse(mysql_type)
    random_ = random.Random(f"{mysql_type}{seed}")
    found = [*values(mysql_type, 300, random_), None] if good else texts(mysql_type, 300, random_)
    random_.shuffle(found)
    wanted = read(found, of)
    for kind in (pa.string(), pa.large_string()):
        text = pa.array(found, kind)
        for begin, end in ((0, 300), (7, 250), (299, 300), (100, 100)):
            part = text.slice(begin, end - begin)
            assert differences(found[begin:end], cast(part, of), wanted[begin:end]) == []
    assert cast(pa.nulls(3), of) == [None] * 3


@pytest.mark.parametrize("mysql_type", TYPES)
def test_bytes_beneath_a_null_are_not_looked_at(mysql_type: str) -> None:
    """Whoever masks a cell may leave its text in the buffer."""
    of = MySQLType.parse(mysql_type)
    good = next(
        t for t in values(mysql_type, 99, random.Random(1)) if value_of(t, of) is not FAILED
    )
    for hidden in ("\u0100x", "", "[", "9" * 400, "0x1f", "\u00ff"):
        plain = pa.array([good, hidden, good])
        bitmap = pa.array([True, False, True]).buffers()[1]
        masked = pa.Array.from_buffers(pa.string(), 3, [bitmap, *plain.buffers()[1:]])
        assert cast(masked, of) == read([good, None, good], of)


@pytest.mark.parametrize("zone", ZONES)
def test_a_timestamp_of_any_time_is_read_in_its_zone(zone: str) -> None:
    of = MySQLType.parse("timestamp(6)")
    found = values("timestamp", ROWS, random.Random(zone))
    found = [text for text in found if "0002" < text[:4] < "9999"]  # Python's instants end there
    for some in (found, [text for text in found if "1970-01-02" < text < "2038"]):
        assert differences(some, cast(pa.array(some), of, zone), read(some, of, zone)) == []
