"""Casts text to dates and times; a TIMESTAMP from its server's time zone to UTC. A TIME stays text,
in one form.

MySQL and TiDB store dates that are in no calendar: ``0000-00-00``, ``2021-02-00``, ``2021-02-31``
(by ``sql_mode``), and dates of the year 0. Delta has none of them. One rule (``zero-date``,
docs/types.md) says what becomes of them all.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.mysql_type import MySQLType
from sinks.types.text_arrays import (
    CastColumn,
    CastRules,
    Mask,
    as_mask,
    bytes_at,
    cast_result,
    data,
    is_valid,
    matches,
    nullified,
    only,
    spans,
    try_cast,
)
from sinks.types.time_zones import to_utc

_DATE_LENGTH = 10  # 2020-01-02
_SECONDS_LENGTH = 19  # 2020-01-02 03:04:05
_FIRST_DAY = -719_162  # 0001-01-01; Arrow also takes the year 0000
_FIRST_MICRO = _FIRST_DAY * 86_400_000_000
_END_DAY = 2_932_897  # 10000-01-01
_END_MICRO = _END_DAY * 86_400_000_000
_MICROS = pa.timestamp("us")
_MONTH_AND_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_YEAR = (
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"  # not 0000
)
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_DATE = f"(?:{_YEAR}-{_MONTH_AND_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = r" (?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_TIME_OF_DAY = r"^(?P<whole>-?[0-9]+:[0-9]{2}:[0-9]{2})(?:\.(?P<fraction>[0-9]+))?$"
_STORABLE = "[0-9]{4}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"  # by MySQL, in whatever sql_mode
_PLAIN_ZEROS = pa.array(
    [
        "0000-00-00",
        "0000-00-00 00:00:00",
        *("0000-00-00 00:00:00." + "0" * digits for digits in range(1, 7)),
    ]
)


def cast_dates(text: pa.Array, rules: CastRules) -> CastColumn:
    """``2020-01-02``, from the year 1 to 9999, to date32."""
    return _cast(text, pa.date32(), rules)


def cast_datetimes(text: pa.Array, rules: CastRules) -> CastColumn:
    """``2020-01-02 03:04:05``, with one to six digits of a fraction or none, to microseconds."""
    return _cast(text, _MICROS, rules)


def cast_timestamps(text: pa.Array, rules: CastRules) -> CastColumn:
    """The form of a datetime, in the time zone of ``rules``, to microseconds of UTC."""
    local = _cast(text, _MICROS, rules)
    values = to_utc(local.values, rules.time_zone)
    if are_in_years(values):
        return CastColumn(values=values, failed=local.failed)
    micros = values.view(pa.int64())  # the zone's offset has led out of the years 1 to 9999
    is_in = as_mask(pc.and_(pc.greater_equal(micros, _FIRST_MICRO), pc.less(micros, _END_MICRO)))
    values, fine = nullified(values, is_in), is_in
    if rules.zero_date == "null":
        fine = ~as_mask(local.failed) if local.failed is not None else is_valid(text)
    return cast_result(values, text, fine)


def are_in_years(values: pa.Array) -> bool:
    """Whether all these dates or moments are of the years 1 to 9999."""
    is_date = pa.types.is_date32(values.type)
    ends = pc.min_max(values.view(pa.int32() if is_date else pa.int64())).as_py()
    first, end = (_FIRST_DAY, _END_DAY) if is_date else (_FIRST_MICRO, _END_MICRO)
    return ends["min"] is None or bool(first <= ends["min"] and ends["max"] < end)


def is_zero_date(text: pa.Array) -> Mask:
    """Which texts are ``0000-00-00``, or that with a time of zeros."""
    return as_mask(pc.is_in(text, value_set=_PLAIN_ZEROS.cast(text.type)))


def is_storable(text: pa.Array) -> Mask:
    """Which texts have the form of a date, or date and time, that MySQL stores in some sql_mode."""
    return matches(text, f"{_STORABLE}(?:{_TIME})?")


def cast_times(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """TIME as text, with as many digits of a fraction as the type has: equal times are one text,
    by which keys are matched. More digits stay where they are not zero: nothing is rounded."""
    digits = mysql_type.digits
    values = text if text.type == pa.string() else text.cast(pa.string())
    if digits is not None and not _has_digits(values, digits):
        found = pc.extract_regex(values, _TIME_OF_DAY)
        fraction = pc.utf8_rtrim(pc.struct_field(found, "fraction"), "0")
        fraction = pc.utf8_rpad(fraction, digits, "0")
        whole = pc.struct_field(found, "whole")
        longer = pc.binary_join_element_wise(whole, fraction, ".")
        is_whole = pc.equal(fraction, pa.scalar("", fraction.type))
        values = pc.coalesce(pc.if_else(is_whole, whole, longer), values)
    return CastColumn(values=values, failed=None)


def _has_digits(text: pa.Array, digits: int) -> bool:
    """Whether each text has so many digits behind its point, or no point where it is none."""
    if digits == 0:
        return not bool((data(text) == ord(".")).any())
    begin, end = spans(text)
    if not len(begin):
        return True
    is_longer = int((end - begin).min()) > digits
    return is_longer and bool((bytes_at(text, end - digits - 1) == ord(".")).all())


def _cast(text: pa.Array, kind: pa.DataType, rules: CastRules) -> CastColumn:
    values = _plain(text, kind)
    if values is not None:
        return CastColumn(values=values, failed=None)
    zeros = is_zero_date(text)
    if zeros.any():  # zero dates are mostly plain zeros: then no pattern needs to be matched
        values = _plain(only(text, is_valid(text) & ~zeros), kind)
        if values is not None:
            return cast_result(values, text, ~zeros | (rules.zero_date == "null"))
    behind = "" if kind == pa.date32() else _TIME
    fine = matches(text, _DATE + behind)
    values = only(text, fine).cast(kind)
    if rules.zero_date == "null":
        fine |= zeros | matches(only(text, ~fine & is_valid(text)), _STORABLE + behind)
    return cast_result(values, text, fine)


def _plain(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    is_date = kind == pa.date32()
    if not is_date and not _has_times(text):
        return None
    values = try_cast(text, kind)
    if values is None:
        return None
    return values if are_in_years(values) else None


def _has_times(text: pa.Array) -> bool:
    """Whether each text has a blank and a time (to the second or finer) behind its date.

    Arrow's cast would also accept a bare date, hours without minutes, and a ``T`` for the blank.
    """
    begin, end = spans(text)
    if not len(begin):
        return True
    if int((end - begin).min()) < _SECONDS_LENGTH:
        return False
    return bool((bytes_at(text, begin + _DATE_LENGTH) == ord(" ")).all())
