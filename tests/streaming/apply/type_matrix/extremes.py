"""Extremes that the recorded table lacks: some of its values are exchanged for others, in the bytes
of all messages, as the same encoder would write them, and in what SELECT gave."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.services.wire import ExpectedTable

Notation = Callable[[str, str], bytes]  # of a number, and its column, as a decimal text

# Column, what the recording has, what it has not.
NUMBERS = (
    ("c_float", "3.402823e38", "3.4028235e38"),
    ("c_ufloat", "1.5e10", "1e-45"),
    ("c_double", "1.7976931348623157e308", "2.2250738585072014e-308"),
    ("c_udouble", "1e300", "5e-324"),
)
FIRST_DAY = (b"1970-01-02", b"1970-01-01")  # of a TIMESTAMP, at 00:00:01


def plain(number: str, _column: str) -> bytes:
    """All digits, without an exponent."""
    return f"{Decimal(number):f}".encode()


def go_json(number: str, _column: str) -> bytes:
    """As Go writes a number in JSON."""
    exponent = Decimal(number).adjusted()
    return plain(number, "") if -7 < exponent < 21 else _exponential(number, digits=1)


def go_shortest(number: str, _column: str) -> bytes:
    """As Go prints a number, ``%v``."""
    exponent = Decimal(number).adjusted()
    return plain(number, "") if -5 < exponent < 6 else _exponential(number, digits=2)


def _exponential(number: str, *, digits: int) -> bytes:
    of = Decimal(number).normalize()
    exponent = of.adjusted()
    mantissa = f"{of.scaleb(-exponent):f}"
    return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):0{digits}}".encode()


def packed(number: str, column: str) -> bytes:
    """The bytes of a float or double."""
    return struct.pack("<f" if column.endswith("float") else "<d", float(number))


def exchanged(data: bytes, notation: Notation) -> bytes:
    """A message, or a file."""
    for column, old, new in NUMBERS:
        for sign in ("", "-"):
            data = data.replace(notation(sign + old, column), notation(sign + new, column))
    return data.replace(*FIRST_DAY)


def exchanged_events(data: bytes, notation: Notation) -> bytes:
    """A value of open-protocol: events with their lengths before them."""
    found, at = b"", 0
    while at < len(data):
        (length,) = struct.unpack_from(">Q", data, at)
        event = exchanged(data[at + 8 : at + 8 + length], notation)
        found += struct.pack(">Q", len(event)) + event
        at += 8 + length
    return found


def with_extremes(table: ExpectedTable) -> ExpectedTable:
    """What SELECT would have given."""
    exchange: dict[str, dict[Any, Any]] = {}
    for column, old, new in NUMBERS:
        read = table.readers[column]
        exchange[column] = {read(sign + old): read(sign + new) for sign in ("", "-")}
    first = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    exchange["c_timestamp"] = {first.replace(day=2): first}
    first = first.replace(microsecond=1)
    exchange["c_timestamp6"] = {first.replace(day=2): first}
    rows = tuple(
        row | {column: of.get(row[column], row[column]) for column, of in exchange.items()}
        for row in table.rows
    )
    return replace(table, rows=rows)
