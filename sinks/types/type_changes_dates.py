"""How TiDB converts dates and times when their column changes: how they are rounded, and which
texts are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, time, timedelta
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

from sinks.types.mysql_type import MySQLType

_MAX_DIGITS = 6  # of a fraction of a second; there may be so many where their number is not known
_LONGEST_S = 838 * 3600 + 59 * 60 + 59  # of a TIME
_TIME = re.compile(r"(-?)([0-9]{1,3}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,6})?)")


def as_moment(value: Any, new: MySQLType) -> Any:
    if new.name == "date":
        return value.date() if isinstance(value, datetime) else value
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return rounded(value, new)


def rounded(value: datetime, new: MySQLType) -> datetime:
    """Rounded half up to the fraction of a second that the new type keeps."""
    step = 10 ** (_MAX_DIGITS - _most_digits(new))
    micros = (value.microsecond + step // 2) // step * step
    return value.replace(microsecond=0) + timedelta(microseconds=micros)


def read_moment(text: str, new: MySQLType) -> datetime:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?", text.strip(" "), re.A):
        raise ValueError("it is no date or time of the form 2020-01-02 03:04:05")
    found = datetime.fromisoformat(text.strip(" "))
    return rounded(found, replace(new, length=None)) if new.name == "date" else found


def as_time(text: str, new: MySQLType, rounds: Callable[[Decimal], int]) -> str:
    found = _TIME.fullmatch(text.strip(" "))
    if found is None:
        raise ValueError("it is no time of the form 03:04:05")
    sign, hours, minutes, seconds = found.groups()
    digits = _most_digits(new)
    exact = (int(hours) * 60 + int(minutes)) * 60 + Decimal(seconds)
    units = rounds((-exact if sign else exact).scaleb(digits))
    whole, fraction = divmod(abs(units), 10**digits)
    if whole > _LONGEST_S:
        raise ValueError("it is out of range")
    sign = "-" if units < 0 else ""
    text = f"{sign}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{text}.{fraction:0{digits}d}" if digits else text


def half_up(number: Decimal) -> int:
    """-1.5 is -1: so TiDB rounds a TIME (``Duration.RoundFrac``)."""
    return int((number + Decimal("0.5")).to_integral_value(ROUND_FLOOR))


def half_away(number: Decimal) -> int:
    """-1.5 is -2: so TiDB rounds the text of a time (``ParseFrac``)."""
    return int(number.to_integral_value(ROUND_HALF_UP))


def may_round(old: MySQLType, new: MySQLType) -> bool:
    """Whether a fraction of a second may have more digits than the new type keeps."""
    return _most_digits(new) < _most_digits(old)


def has_other_digits(old: MySQLType, new: MySQLType) -> bool:
    """A TIME is kept as text: TiDB shows the stored ones with the new number of digits."""
    return new.digits is not None and old.digits != new.digits


def _most_digits(of: MySQLType) -> int:
    return _MAX_DIGITS if of.digits is None else of.digits
