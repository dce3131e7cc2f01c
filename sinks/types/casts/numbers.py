"""Casts text to numbers, exactly or not at all: nothing is rounded, trimmed or wrapped."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.delta_types import arrow_type, whole_range
from sinks.types.mysql_type import MySQLType
from sinks.types.text_arrays import (
    CastColumn,
    Mask,
    as_mask,
    bytes_at,
    cast_result,
    data,
    is_within,
    matches,
    nullified,
    only,
    spans,
    try_cast,
)

Range = tuple[int, int]  # both ends are values

_YEARS: tuple[Range, ...] = ((0, 0), (1901, 2155))
_WIDE = pa.decimal128(38, 0)
_UNSIGNED_LONG = pa.decimal128(20, 0)
_UNSIGNED_LONG_DIGITS = 20
_MAX_DIGITS = 38  # of a decimal; Arrow wraps a longer one silently where its precision is 38
_FLOATING = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"


def cast_integers(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """Integers within the range of their type (tinyint … bigint, signed or not), and bit(n), which
    canal-json writes as a number. Leading zeros (zerofill) are allowed."""
    return _cast_whole(text, arrow_type(mysql_type), (whole_range(mysql_type),))


def cast_years(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """A year: 0, or 1901 to 2155."""
    return _cast_whole(text, arrow_type(mysql_type), _YEARS)


def are_years(numbers: pa.Array) -> bool:
    """Whether all these whole numbers are years."""
    found = pc.fill_null(numbers, 0).to_numpy()
    inside = [(found >= low) & (found <= high) for low, high in _YEARS]
    return bool(np.logical_or.reduce(inside).all())


def cast_index(text: pa.Array, highest: int) -> CastColumn:
    """The index of an enum's element, from 0 to ``highest``, as int32."""
    return _cast_whole(text, pa.int32(), ((0, highest),))


def _cast_whole(text: pa.Array, kind: pa.DataType, ranges: tuple[Range, ...]) -> CastColumn:
    """Whole numbers within ``ranges``: digits only, with a minus where a range goes below zero."""
    lowest = ranges[0][0]
    if is_within(text, "-" if lowest < 0 else "0", "9"):
        values = _plain_whole(text, kind)
        if values is not None and _are_inside(values, ranges[-1]):
            return CastColumn(values=values, failed=None)
    digits = "[0-9]{1,20}" if kind == _UNSIGNED_LONG else "0*[0-9]{1,20}"
    fine = matches(text, ("-?" if lowest < 0 else "") + digits)
    wide = only(text, fine).cast(_WIDE)
    fine &= _inside(wide, ranges)
    return cast_result(nullified(wide, fine).cast(kind), text, fine)


def _plain_whole(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    if kind != _UNSIGNED_LONG:
        return try_cast(text, kind)
    begin, end = spans(text)
    if len(begin) and int((end - begin).max()) > _UNSIGNED_LONG_DIGITS:
        return None
    values = try_cast(text, pa.uint64())  # first: three times as fast as text to decimal
    return None if values is None else values.cast(_UNSIGNED_LONG)


def _are_inside(values: pa.Array, bounds: Range) -> bool:
    low, high = bounds
    width = 64 if pa.types.is_decimal(values.type) else values.type.bit_width
    if high - low == 2**width - 1:
        return True  # the range is that of the Arrow type, which the cast has checked
    found = pc.min_max(values).as_py()
    return found["min"] is None or bool(low <= found["min"] and found["max"] <= high)


def _inside(wide: pa.Array, ranges: tuple[Range, ...]) -> Mask:
    inside = np.zeros(len(wide), np.bool_)
    for low, high in ranges:
        not_below = pc.greater_equal(wide, pa.scalar(low, _WIDE))
        inside |= as_mask(pc.and_(not_below, pc.less_equal(wide, pa.scalar(high, _WIDE))))
    return inside


def cast_decimals(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """At most as many digits on either side of the point as the type has room for; no exponent."""
    kind = arrow_type(mysql_type)
    assert pa.types.is_decimal(kind)
    if is_within(text, "-", "9") and _fits(text, kind.scale):
        values = try_cast(text, kind)
        if values is not None:
            return CastColumn(values=values, failed=None)
    fine = matches(text, _decimal_pattern(kind.precision - kind.scale, kind.scale))
    return cast_result(only(text, fine).cast(kind), text, fine)


def _fits(text: pa.Array, scale: int) -> bool:
    """Whether no text has more digits behind the point than ``scale``, nor so many in all that
    Arrow's cast wraps silently."""
    begin, end = spans(text)
    if not len(begin):
        return True
    lengths = end - begin
    if int(lengths.max()) > _MAX_DIGITS:
        return False
    if int(lengths.min()) > scale and bool((bytes_at(text, end - scale - 1) == ord(".")).all()):
        return True  # mostly: TiCDC writes as many digits as the scale has
    points = pc.find_substring(text, ".")
    whole = pc.if_else(pc.less(points, 0), pc.binary_length(text).cast(points.type), points)
    if pc.max(whole).as_py() + scale > _MAX_DIGITS:
        return False  # with zeros up to the scale it would be too long
    behind = pc.subtract(pc.binary_length(text).cast(points.type), points)
    too_many = pc.and_(pc.greater_equal(points, 0), pc.greater(behind, scale + 1))
    return not pc.any(too_many).as_py()


def _decimal_pattern(whole: int, scale: int) -> str:
    before = "0+" if whole == 0 else f"0*[0-9]{{1,{whole}}}"
    if scale == 0:
        return rf"-?{before}\.?"
    return rf"-?(?:{before}(?:\.[0-9]{{0,{scale}}})?|\.[0-9]{{1,{scale}}})"


def cast_floats(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """Finite numbers. A number too large for the type is a failure, one too small becomes zero."""
    kind = arrow_type(mysql_type)
    if is_within(text, "-", "9") or _has_only_exponents(text):
        values = try_cast(text, kind)
        if values is not None and not _has_infinite(values):
            return CastColumn(values=values, failed=None)
    fine = matches(text, _FLOATING)
    values = only(text, fine).cast(kind)
    if _has_infinite(values):
        fine &= ~as_mask(pc.is_inf(values))
        values = nullified(values, fine)
    return cast_result(values, text, fine)


def _has_only_exponents(text: pa.Array) -> bool:
    """Whether the texts have only digits, points, minus signs, ``e``, ``E``, and ``+`` behind an
    ``e`` or ``E``."""
    found = data(text)
    rare = np.flatnonzero((found - ord("-")) > ord("9") - ord("-"))  # a byte below "-" wraps
    letters = found[rare]
    is_plus = letters == ord("+")
    # Where "+" is the very first byte, this looks at the last byte: that is no letter, or the cast
    # fails on it.
    before = found[rare[is_plus] - 1]
    return bool(_is_e(letters[~is_plus]).all() and _is_e(before).all())


def _is_e(letters: npt.NDArray[np.uint8]) -> Mask:
    found: Mask = (letters | 0x20) == ord("e")
    return found


def _has_infinite(values: pa.Array) -> bool:
    found = pc.min_max(values).as_py()
    return bool(found["max"] == math.inf or found["min"] == -math.inf)
