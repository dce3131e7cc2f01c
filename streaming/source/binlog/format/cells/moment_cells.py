"""Columns of dates and times.

The servers store dates that no calendar has: ``0000-00-00``, ``2024-00-10``, ``2021-02-31``. A
column with such a date, or one of the year 0, comes as texts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.source.binlog.format.cells.column import Column
from streaming.source.binlog.format.cells.layout import Mask
from streaming.source.binlog.format.cells.reading import Reading
from streaming.source.binlog.format.events import Offsets, words_of
from streaming.source.binlog.format.type_codes import ColumnType

_MONTH_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0])
_MAX_YEAR: Final = 9999
_DATE_CHARS: Final = 10
_SECOND_CHARS: Final = 19


def date_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """date32, or string."""
    raw = (words_of(reading.data, "<u4")[at] & np.uint32(0xFFFFFF)).astype(np.int64)
    year, month, day = raw >> 9, raw >> 5 & 15, raw & 31
    no_day = _no_day(year, month, day)
    if is_null is not None:
        no_day &= ~is_null
    days = _days(year, month, day).astype(np.int32)
    if not no_day.any():
        return pa.array(days, mask=is_null).view(pa.date32())
    texts = [f"{y:04}-{m:02}-{d:02}" for y, m, d in _values(year, month, day, at=no_day)]
    return _with_texts(pa.array(days).view(pa.date32()), column, is_null, no_day, texts)


def datetime_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """timestamp[us] without a zone, or string."""
    raw = reading.big_endian(at, 5).astype(np.int64) - (1 << 39)
    year_month, day = raw >> 22, raw >> 17 & 31
    year, month = year_month // 13, year_month % 13
    hour, minute, second = raw >> 12 & 31, raw >> 6 & 63, raw & 63
    us = _fraction_us(reading, at + 5, column.meta)
    no_day = _no_day(year, month, day)
    no_day |= (hour > 23) | (minute > 59) | (second > 59) | (us > 999_999) | (raw < 0)
    if is_null is not None:
        no_day &= ~is_null
    seconds = (_days(year, month, day) * 24 + hour) * 3600 + minute * 60 + second
    moments = pa.array(seconds * 1_000_000 + us, mask=None if no_day.any() else is_null)
    if not no_day.any():
        return moments.view(pa.timestamp("us"))
    parts = _values(year, month, day, hour, minute, second, us, at=no_day)
    texts = [
        f"{y:04}-{m:02}-{d:02} {h:02}:{n:02}:{s:02}" + _fraction(f, column.meta)
        for y, m, d, h, n, s, f in parts
    ]
    return _with_texts(moments.view(pa.timestamp("us")), column, is_null, no_day, texts)


def timestamp_cells(
    reading: Reading, column: Column, at: Offsets, is_null: Mask | None
) -> pa.Array:
    """timestamp[us, UTC], or string. All zeros are ``0000-00-00 00:00:00``."""
    seconds = reading.big_endian(at, 4).astype(np.int64)
    us = seconds * 1_000_000 + _fraction_us(reading, at + 4, column.meta)
    no_day = us == 0
    if is_null is not None:
        no_day &= ~is_null
    if not no_day.any():
        return pa.array(us, mask=is_null).view(pa.timestamp("us", "UTC"))
    texts = ["0000-00-00 00:00:00" + _fraction(0, column.meta)] * int(no_day.sum())
    moments = pa.array(us).view(pa.timestamp("us", "UTC"))
    return _with_texts(moments, column, is_null, no_day, texts)


def time_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """duration[us]: up to 838 hours, negative ones too. A negative time is stored as 0 minus its
    whole word, with the fraction in it."""
    width = (column.meta + 1) // 2
    raw = reading.big_endian(at, 3 + width).astype(np.int64) - (1 << (23 + 8 * width))
    is_negative = raw < 0
    raw = np.abs(raw)
    fraction, raw = raw & ((1 << 8 * width) - 1), raw >> 8 * width
    seconds = (raw >> 12 & 1023) * 3600 + (raw >> 6 & 63) * 60 + (raw & 63)
    us = seconds * 1_000_000 + fraction * 10 ** (6 - 2 * width)
    return pa.array(np.where(is_negative, -us, us), mask=is_null).view(pa.duration("us"))


def as_texts(cells: pa.Array, column: Column) -> pa.Array:
    """A column of dates as texts, as a column with a date that no calendar has comes."""
    if pa.types.is_string(cells.type):
        return cells
    if pa.types.is_timestamp(cells.type):
        cells = cells.view(pa.timestamp("us"))
    chars = _DATE_CHARS
    if column.type != ColumnType.DATE:
        chars = _SECOND_CHARS + (1 + column.meta if column.meta else 0)
    return pc.utf8_slice_codeunits(cells.cast(pa.string()), 0, chars)


def _with_texts(
    cells: pa.Array, column: Column, is_null: Mask | None, no_day: Mask, texts: list[str]
) -> pa.Array:
    """``texts`` of those that are no day; ``cells`` of the others. A cell that is out of Arrow's
    range is not looked at."""
    shown = np.flatnonzero(~no_day if is_null is None else ~(no_day | is_null))
    others = as_texts(cells.take(pa.array(shown)), column)
    index = np.zeros(len(cells), np.int64)
    index[shown] = np.arange(len(shown))
    index[no_day] = len(shown) + np.arange(len(texts))
    both = pa.concat_arrays([others, pa.array(texts, pa.string())])
    return both.take(pa.array(index, mask=is_null))


def _values(*parts: Offsets, at: Mask) -> list[tuple[int, ...]]:
    return list(zip(*(part[at].tolist() for part in parts), strict=True))


def _fraction(us: int, digits: int) -> str:
    return f".{us:06}"[: digits + 1] if digits else ""


def _fraction_us(reading: Reading, at: Offsets, digits: int) -> Offsets:
    width = (digits + 1) // 2
    if not width:
        return np.zeros(len(at), np.int64)
    us: Offsets = reading.big_endian(at, width).astype(np.int64) * 10 ** (6 - 2 * width)
    return us


def _no_day(year: Offsets, month: Offsets, day: Offsets) -> Mask:
    most = _MONTH_DAYS[month & 15]
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    no_day: Mask = (day == 0) | (day > most + ((month == 2) & is_leap))
    no_day |= (year == 0) | (year > _MAX_YEAR)
    return no_day


def _days(year: Offsets, month: Offsets, day: Offsets) -> Offsets:
    """Days since 1970-01-01 in the Gregorian calendar. The year is taken to begin in March: then a
    leap day is its last, and the months before a given one have 30.6 days each, rounded."""
    is_early = month <= 2
    years = year - is_early
    months = month + np.where(is_early, 9, -3)
    leap_days = years // 4 - years // 100 + years // 400
    return years * 365 + leap_days + (153 * months + 2) // 5 + day - 719_469
