"""What a text is worth, one cell at a time and by other means than the casts: for tests."""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from sinks.types.mysql_type import BINARY_TYPES, MySQLType

FAILED = object()
MAX_FLOAT = 3.4028234663852886e38
BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def value_of(text: str, of: MySQLType, zone: tzinfo = UTC) -> Any:
    """None for a date that Delta does not have, FAILED for what is no value of the type."""
    name = of.name
    if name in ("date", "datetime", "timestamp"):
        return _temporal(text, name, zone)
    if name in BINARY_TYPES:
        return text.encode("latin-1") if all(char <= "\xff" for char in text) else FAILED
    if name in ("enum", "set") and of.elements:
        return _names(text, of)
    if name == "time" and of.digits is not None:
        return _time(text, of.digits)
    return _vector(text) if name == "vector" else _number(text, of)


def _time(text: str, digits: int) -> str:
    """With so many digits, and more where they are not zero."""
    if not _is(r"-?\d+:\d\d:\d\d(\.\d+)?", text):
        return text
    whole, _, fraction = text.partition(".")
    while len(fraction) > digits and fraction[-1] == "0":
        fraction = fraction[:-1]
    fraction += "0" * (digits - len(fraction))
    return f"{whole}.{fraction}" if fraction else whole


def _number(text: str, of: MySQLType) -> Any:
    """A number, or the text where the type is none."""
    name = of.name
    if name in BITS or name == "bit":
        low, high = _bounds(of)
        return _whole(text, low, high, decimal=high == 2**64 - 1)
    if name == "year":
        year = _whole(text, 0, 2155)
        return year if year is FAILED or year == 0 or year > 1900 else FAILED
    if name == "decimal" and of.length is not None and of.length <= 38:
        return _decimal(text, of.length, of.scale or 0)
    return _floating(text, name) if name in ("float", "double") else text


def _bounds(of: MySQLType) -> tuple[int, int]:
    bits = (of.length or 64) if of.name == "bit" else BITS[of.name]
    if of.unsigned or of.name == "bit":
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def zone_of(name: str) -> tzinfo:
    if name[0] in "+-":
        away = timedelta(hours=int(name[1:3]), minutes=int(name[4:]))
        return timezone(away if name[0] == "+" else -away)
    return ZoneInfo(name)


def _is(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.ASCII) is not None


def _whole(text: str, low: int, high: int, *, decimal: bool = False) -> Any:
    sign = "-?" if low < 0 else ""
    if not _is(sign + (r"\d{1,20}" if decimal else r"\d+"), text):
        return FAILED
    value = int(text)
    if not low <= value <= high:
        return FAILED
    return Decimal(value) if decimal else value


def _decimal(text: str, precision: int, scale: int) -> Any:
    if not _is(r"-?(\d+\.?\d*|\.\d+)", text):
        return FAILED
    value = Decimal(text)
    too_fine = len(text.partition(".")[2]) > scale
    return FAILED if too_fine or value.copy_abs() >= 10 ** (precision - scale) else value


def _floating(text: str, name: str) -> Any:
    if not _is(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
        return FAILED
    value = float(text)
    if name == "float" and math.isfinite(value):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:  # as a double it may be the number that no float is nearest to
            nearest = abs(Fraction(text)) < 2**128 - 2**103
            return math.copysign(MAX_FLOAT, value) if nearest else FAILED
    return value if math.isfinite(value) else FAILED


def _temporal(text: str, name: str, zone: tzinfo) -> Any:
    clock = r"([01]\d|2[0-3])(:[0-5]\d){2}(\.\d{1,6})?"
    form = r"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])" + ("" if name == "date" else f" {clock}")
    if not _is(form, text):
        return None if _is(r"0000-00-00( 00:00:00(\.0{1,6})?)?", text) else FAILED
    try:
        local = datetime.fromisoformat(text)
    except ValueError:  # no day, or the year 0
        return None
    if name != "timestamp":
        return local if name == "datetime" else local.date()
    try:
        return local.replace(tzinfo=zone).astimezone(UTC)  # fold=0: the earlier one
    except OverflowError:
        return None


def _names(text: str, of: MySQLType) -> Any:
    size = len(of.elements)
    if of.name == "enum":
        index = _whole(text, 0, size)
        return FAILED if index is FAILED else ("", *of.elements)[index]
    mask = _whole(text, 0, 2**size - 1, decimal=size == 64)
    if mask is FAILED:
        return FAILED
    return ",".join(name for bit, name in enumerate(of.elements) if int(mask) >> bit & 1)


def _vector(text: str) -> Any:
    if not _is(r"\[[-+0-9.eE, ]*\]", text):
        return FAILED
    if not text[1:-1].strip(" "):
        return []
    found = []
    for part in text[1:-1].split(","):
        number = part.strip(" ")
        if not _is(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", number):
            return FAILED
        found.append(_floating(number, "float"))
    return FAILED if FAILED in found else found
