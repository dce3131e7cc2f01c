"""Rows of one schema, many at once: a field of all of them is read in one step.

``is_right`` is false for a row that is not whole, or has a value that its type does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.protocols.avro.writer_schema import Field, Form
from streaming.protocols.avro_binary.byte_walk import Bytes, Indexes, Mask, Walk, texts

_INT = range(-(2**31), 2**31)
_WORD_BITS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A field of all rows. ``begins`` and ``ends``: where its bytes are; ``numbers``: what it
    is."""

    field: Field
    is_null: Mask | None  # None: none is
    begins: Indexes
    ends: Indexes
    numbers: Indexes

    def cells(self, of: Bytes, rows: Indexes) -> tuple[pa.Array, Mask | None]:
        """The cells of these rows, which rise; and which are what they must be; None: all."""
        form, kind = self.field.form, self.field.cells
        is_null = None if self.is_null is None else self.is_null[rows]
        if is_null is not None and not is_null.any():
            is_null = None
        begins, ends = self.begins[rows], self.ends[rows]
        if form is Form.BITS:
            return _bits(of, begins, ends, is_null)
        if form is Form.DECIMAL:
            return _decimals(of, begins, ends, is_null, kind)
        if form not in (Form.BYTES, Form.TEXT):
            return pa.array(self._numbers(of, rows), kind, mask=is_null), None
        pieces = of.pieces(begins, ends, None if is_null is None else ~is_null)
        return (pieces, None) if form is Form.BYTES else texts(pieces)

    def _numbers(self, of: Bytes, rows: Indexes) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.numbers[rows]
        match self.field.form:
            case Form.FLOAT:
                found = np.ascontiguousarray(of.words(self.begins[rows]).view("<f4")[::2])
            case Form.DOUBLE:
                found = of.words(self.begins[rows]).view(np.float64)
            case Form.UNSIGNED:
                found = found.view(np.uint64)
            case Form.BOOLEAN:
                found = found != 0
        return found


def read_fields(walk: Walk, fields: Sequence[Field]) -> list[Column | list[Column]]:
    """The fields of all messages, from where the walk is. The old rows are a list, in which rows
    that have none are NULL."""
    return [_read(walk, each) for each in fields]


def _read(walk: Walk, field: Field) -> Column | list[Column]:
    if field.null is None:
        return _value(walk, field)
    index = walk.byte()
    is_null = index == 2 * field.null
    walk.is_right &= (index == 0) | (index == 2)
    if not is_null.any():
        return _value(walk, field)
    rows = np.flatnonzero(~is_null)
    part = walk.part(rows)
    found = _value(part, field)
    walk.join(part, rows)
    if isinstance(found, list):
        return [_spread(each, walk, rows, is_null) for each in found]
    return _spread(found, walk, rows, is_null)


def _spread(found: Column, walk: Walk, rows: Indexes, is_null: Mask) -> Column:
    """A column of some rows as one of all, NULL in the others."""
    begins, ends, numbers = walk.at.copy(), walk.at.copy(), np.zeros(len(walk.at), np.int64)
    begins[rows], ends[rows], numbers[rows] = found.begins, found.ends, found.numbers
    nulls = is_null.copy()
    if found.is_null is not None:
        nulls[rows] = found.is_null
    return Column(found.field, nulls, begins, ends, numbers)


def _value(walk: Walk, field: Field) -> Column | list[Column]:
    begins = ends = numbers = walk.at
    match field.form:
        case Form.BEFORE:
            inner = [_read(walk, each) for each in field.before]
            return [each for each in inner if isinstance(each, Column)]
        case Form.INT:
            numbers = walk.number()
            walk.is_right &= (numbers >= _INT.start) & (numbers < _INT.stop)
        case Form.LONG | Form.UNSIGNED:
            numbers = walk.number()
        case Form.BOOLEAN:
            numbers = walk.byte().astype(np.int64)
            walk.is_right &= numbers <= 1
        case Form.FLOAT:
            begins = walk.fixed(4)
        case Form.DOUBLE:
            begins = walk.fixed(8)
        case _:
            begins, ends = walk.span()
    return Column(field, None, begins, ends, numbers)


def _bits(
    of: Bytes, begins: Indexes, ends: Indexes, is_null: Mask | None
) -> tuple[pa.Array, Mask | None]:
    sizes = ends - begins
    found = np.zeros(len(begins), np.uint64)
    for place in range(int(min(sizes.max(initial=0), 8))):
        is_here = sizes > place
        byte = of.data[np.where(is_here, begins + place, 0)].astype(np.uint64)
        found = np.where(is_here, found << np.uint64(8) | byte, found)
    fine = sizes <= _WORD_BITS // 8
    return pa.array(found, mask=is_null), None if fine.all() else fine


def _decimals(
    of: Bytes, begins: Indexes, ends: Indexes, is_null: Mask | None, kind: pa.DataType
) -> tuple[pa.Array, Mask | None]:
    """From bytes of a signed number, the highest first, to as many as Arrow has, the lowest
    first."""
    width, sizes = kind.bit_width // 8, ends - begins
    top = of.data[np.where(sizes > 0, begins, 0)]
    sign = np.where((sizes > 0) & (top >= 0x80), 0xFF, 0).astype(np.uint8)
    found = np.repeat(sign, width).reshape(-1, width)
    for place in range(int(min(sizes.max(initial=0), width))):
        is_here = sizes > place
        found[is_here, place] = of.data[(ends - 1 - place)[is_here]]
    fine = (sizes <= width) & (sizes > 0)
    if is_null is not None:
        fine |= is_null
        found[is_null] = 0
    array = _of_decimals(found, kind, is_null)
    if fine.all() and _is_valid(array):
        return array, None
    fine &= [_is_valid(array[row : row + 1]) for row in range(len(array))]
    found[~fine] = 0
    return _of_decimals(found, kind, is_null), fine


def _of_decimals(found: npt.NDArray[np.uint8], kind: pa.DataType, is_null: Mask | None) -> pa.Array:
    bitmap = None if is_null is None else pa.array(~is_null).buffers()[1]
    return pa.Array.from_buffers(kind, len(found), [bitmap, pa.py_buffer(found.tobytes())])


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
