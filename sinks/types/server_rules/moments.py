"""Dates and times: what becomes of fractions of a second, and which texts are read."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from sinks.types.mysql_type import MySQLType
from sinks.types.server_rules.session import ServerSession

_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d{1,6})?))?", re.A)
_TIME: Final = re.compile(r"(-?)([0-9]{1,3}):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?")
_LONGEST_S: Final = 838 * 3600 + 59 * 60 + 59


def in_digits(value: datetime, digits: int, session: ServerSession) -> datetime:
    """With so many digits of a fraction."""
    step = 10 ** (6 - digits)
    micros = value.microsecond
    micros = (micros + (step // 2 if session.rounds else 0)) // step * step
    return value.replace(microsecond=0) + timedelta(microseconds=micros)


def as_moment(value: Any, new: MySQLType, session: ServerSession) -> Any:
    """A DATE, DATETIME or local time of a TIMESTAMP as one of these. MySQL rounds a fraction for a
    DATE too."""
    if new.name == "date":
        if isinstance(value, datetime):
            value = in_digits(value, 0, session) if not session.is_mariadb else value
            return value.date()
        return value
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if new.digits is None:
        raise ValueError("how many digits of a fraction it has is not known")
    return in_digits(value, new.digits, session)


def read_moment(text: str) -> Any:
    """A date, or a datetime. Other forms that the servers take are not read here."""
    found = _MOMENT.fullmatch(text.rstrip(" "))
    if found is None:
        raise ValueError("it is no date or time of the form 2020-01-02 03:04:05")
    if found[2] is None:
        return date.fromisoformat(found[1])
    return datetime.fromisoformat(text.rstrip(" "))


def as_time(text: str, new: MySQLType, session: ServerSession) -> str:
    """The text of a time in the digits of the new type; a half goes away from zero."""
    found = _TIME.fullmatch(text.rstrip(" "))
    if found is None or new.digits is None:
        raise ValueError("it is no time of the form 03:04:05")
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = int((fraction or "0").ljust(6, "0"))
    micros += ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 10**6
    step = 10 ** (6 - new.digits)
    units = (micros + (step // 2 if session.rounds else 0)) // step
    whole, part = divmod(units, 10**new.digits)
    if whole > _LONGEST_S or (whole == _LONGEST_S and part):
        raise ValueError("it is out of range")
    minus = "-" if sign and units else ""
    shown = f"{minus}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{shown}.{part:0{new.digits}d}" if new.digits else shown


def time_of(value: datetime, new: MySQLType, session: ServerSession) -> str:
    """The time of the day of a moment."""
    return as_time(value.time().isoformat("microseconds"), new, session)
