"""Columns of numbers: integers, FLOAT and DOUBLE, DECIMAL, BIT, YEAR."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.source.binlog.format.cells.column import Column
from streaming.source.binlog.format.cells.layout import DIGIT_BYTES, Mask, width_of
from streaming.source.binlog.format.cells.reading import Reading
from streaming.source.binlog.format.events import Offsets, words_of
from streaming.source.binlog.format.type_codes import ColumnType

_INTEGERS: Final = {
    ColumnType.TINY: ("i1", "u1"),
    ColumnType.SHORT: ("<i2", "<u2"),
    ColumnType.LONG: ("<i4", "<u4"),
    ColumnType.LONGLONG: ("<i8", "<u8"),
}
_DIGITS_OF_INT64: Final = 18
_DIGITS_OF_DECIMAL128: Final = 38


def integer_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """int8 to int64, or uint8 to uint64; MEDIUMINT has 32 bits."""
    if column.type == ColumnType.INT24:
        values: npt.NDArray[Any] = words_of(reading.data, "<u4")[at] & np.uint32(0xFFFFFF)
        if not column.is_unsigned:
            values = (values.astype(np.int32) << 8) >> 8
        return pa.array(values, mask=is_null)
    width = _INTEGERS[ColumnType(column.type)][column.is_unsigned]
    return pa.array(words_of(reading.data, width)[at], mask=is_null)


def float_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    width = "<f4" if column.type == ColumnType.FLOAT else "<f8"
    return pa.array(words_of(reading.data, width)[at], mask=is_null)


def year_cells(reading: Reading, _: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """int16: 0, or 1901 to 2155."""
    raw = reading.data[at].astype(np.int16)
    return pa.array(np.where(raw == 0, raw, raw + np.int16(1900)), mask=is_null)


def bit_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """uint64."""
    return pa.array(reading.big_endian(at, width_of(column)[0]), mask=is_null)


def decimal_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """decimal128, or decimal256 for more than 38 digits.

    Digits stand in groups of nine, each a big-endian number. The first bit is the sign turned over,
    and all bits of a negative number are turned over.
    """
    precision, scale = column.precision, column.scale
    is_negative = reading.data[at] < 0x80
    parts = _groups(reading, column, at, is_negative)
    is_bad = np.zeros(len(at), np.bool_)
    for digits, part in parts:
        is_bad |= part >= np.uint64(10**digits)
    is_null = reading.fault(is_bad, is_null, f"column {column.name} has a decimal with no digits")
    if precision <= _DIGITS_OF_INT64:
        value = np.zeros(len(at), np.int64)
        for digits, part in parts:
            value = value * 10**digits + part.astype(np.int64)
        raw: npt.NDArray[Any] = np.empty((len(at), 2), np.int64)
        raw[:, 0] = np.where(is_negative, -value, value)
        raw[:, 1] = raw[:, 0] >> 63
    else:
        raw = _limbs(parts, is_negative, 4 if precision <= _DIGITS_OF_DECIMAL128 else 8)
    kind = pa.decimal128 if precision <= _DIGITS_OF_DECIMAL128 else pa.decimal256
    valid = None if is_null is None else pa.array(~is_null).buffers()[1]
    return pa.Array.from_buffers(kind(precision, scale), len(at), [valid, pa.py_buffer(raw)])


_Groups = list[tuple[int, npt.NDArray[np.uint64]]]


def _groups(reading: Reading, column: Column, at: Offsets, is_negative: Mask) -> _Groups:
    """The groups of digits from the left: how many digits, and their numbers."""
    scale, whole = column.scale, column.precision - column.scale
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    parts: _Groups = []
    place = at
    for digits in filter(None, sizes):
        width = DIGIT_BYTES[digits]
        part = reading.big_endian(place, width)
        if not parts:
            part = part ^ np.uint64(1 << (8 * width - 1))
        turned = part ^ np.uint64((1 << 8 * width) - 1)
        parts.append((digits, np.where(is_negative, turned, part)))
        place = place + width
    return parts


def _limbs(parts: _Groups, is_negative: Mask, count: int) -> npt.NDArray[np.uint32]:
    """The numbers in two's complement, as ``count`` words of 32 bits, the lowest first."""
    length = len(is_negative)
    limbs = [np.zeros(length, np.uint64) for _ in range(count)]
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    done = 0
    for digits, part in parts:
        carry, times = part, np.uint64(10**digits)
        done += digits
        for i in range(min(count, done * 10 // 96 + 1)):  # as far as so many digits reach
            carry = limbs[i] * times + carry
            limbs[i] = carry & low
            carry = carry >> shift
    carry = is_negative.astype(np.uint64)
    raw = np.empty((length, count), np.uint32)
    for i in range(count):
        limb = np.where(is_negative, limbs[i] ^ low, limbs[i]) + carry
        raw[:, i] = limb & low
        carry = limb >> shift
    return raw
