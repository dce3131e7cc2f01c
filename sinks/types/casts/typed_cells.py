"""Typed cells, as a decoder of MySQL's binlog gives them, on the way to Delta's types.

Cells that are values of their column as they stand pass at once; integers, decimals and bytes get
the column's width (``as_values``). Everything else becomes the text that canal-json would have for
it (``cell_texts``), and the casts of texts rule what it is worth. So each rule stands in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.dates import are_in_years
from sinks.types.casts.numbers import are_years
from sinks.types.delta_types import INTEGER_BITS, arrow_type, whole_range
from sinks.types.mysql_type import MySQLType
from sinks.types.text_arrays import as_mask, is_valid, try_cast

_MICROS = 10**6
_DIGITS = 6  # of a fraction of a second
_EXPONENT = "e"
Numbers = npt.NDArray[np.int64]


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_values(cells: pa.Array, of: MySQLType) -> pa.Array | None:
    """The cells in ``arrow_type(of)``, if each of them surely is a value of the column; else None.
    Raises ArrowInvalid where bytes are too much for one array (2 GiB)."""
    kind, mine = arrow_type(of), cells.type
    if pa.types.is_integer(mine):
        return cells.cast(kind) if _are_whole_values(cells, of) else None
    if mine == kind:
        return cells if _is_in_delta(cells) else None
    if pa.types.is_large_binary(mine) and pa.types.is_binary(kind):
        return cells.cast(kind)
    if of.name == "decimal" and pa.types.is_decimal(mine) and pa.types.is_decimal(kind):
        return try_cast(cells, kind) if mine.scale <= kind.scale else None
    return None


def _are_whole_values(cells: pa.Array, of: MySQLType) -> bool:
    if of.name == "year":
        return are_years(cells)
    return (of.name in INTEGER_BITS or of.name == "bit") and _is_within(cells, whole_range(of))


def _is_in_delta(cells: pa.Array) -> bool:
    """Whether all these numbers are finite, and dates of the years that Delta has."""
    if pa.types.is_floating(cells.type):
        return bool(pc.all(pc.is_finite(cells)).as_py())
    is_date = pa.types.is_date32(cells.type) or pa.types.is_timestamp(cells.type)
    return not is_date or are_in_years(cells)


def _is_within(cells: pa.Array, bounds: tuple[int, int]) -> bool:
    """Whether these whole numbers lie within the bounds, both of which are inside."""
    bits = cells.type.bit_width
    is_signed = pa.types.is_signed_integer(cells.type)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    if bounds[0] <= low and high <= bounds[1]:
        return True
    found = pc.min_max(cells).as_py()
    return bool(bounds[0] <= found["min"] and found["max"] <= bounds[1])


def cell_texts(cells: pa.Array, digits: int | None = None) -> pa.Array:
    """The cells as canal-json would write them, a TIMESTAMP in UTC. Texts stay as they are.
    ``digits`` of a TIME's fraction of a second; if it has more, or if None, it is written with
    six."""
    if is_text(cells.type):
        return cells
    if pa.types.is_duration(cells.type):
        return _time_texts(cells, digits)
    return next((text for is_it, text in _TEXTS if is_it(cells.type)), _plain_texts)(cells)


def of_one_type(parts: Sequence[pa.Array]) -> list[pa.Array]:
    """The same cells in one type, so that they can be compared and joined: as texts where their
    types differ."""
    if all(part.type == parts[0].type for part in parts):
        return list(parts)
    return [cell_texts(part).cast(pa.large_string()) for part in parts]


def _plain_texts(cells: pa.Array) -> pa.Array:
    """Whole numbers and dates."""
    return cells.cast(pa.string())


def _moment_texts(cells: pa.Array) -> pa.Array:
    return _plain_texts(cells.view(pa.int64()).view(pa.timestamp("us")))


def _decimal_texts(cells: pa.Array) -> pa.Array:
    """With as many digits behind the point as the scale has. (Arrow itself writes small ones with
    an exponent.)"""
    kind, scale = cells.type, cells.type.scale
    of = pa.decimal128 if kind.bit_width == 128 else pa.decimal256
    unscaled = pa.Array.from_buffers(
        of(kind.precision, 0), len(cells), cells.buffers(), offset=cells.offset
    ).cast(pa.string())
    if scale == 0:
        return unscaled
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled, "-"), scale + 1, "0")
    whole, behind = (pc.utf8_slice_codeunits(digits, *at) for at in ((0, -scale), (-scale, None)))
    is_negative = pc.starts_with(unscaled, "-")
    sign = pc.if_else(is_negative, "-", "")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), behind, ".")


def _float_texts(cells: pa.Array) -> pa.Array:
    """The shortest text that is read back as the same number, without an exponent."""
    text = cells.cast(pa.string())
    has_exponent = as_mask(pc.match_substring(text, _EXPONENT))
    if not has_exponent.any():
        return text
    rare = cells.filter(pa.array(has_exponent)).to_numpy(zero_copy_only=False)
    written = [np.format_float_positional(number, trim="-") for number in rare]
    return pc.replace_with_mask(text, pa.array(has_exponent), pa.array(written, pa.string()))


def _time_texts(cells: pa.Array, digits: int | None) -> pa.Array:
    """Times, below zero or above 24 hours too, one byte beside the other."""
    there = is_valid(cells)
    micros: Numbers = pc.fill_null(cells.view(pa.int64()), 0).to_numpy()
    seconds, fraction = np.divmod(np.abs(micros), _MICROS)
    shown = _DIGITS if digits is None else digits
    if shown < _DIGITS and (fraction % 10 ** (_DIGITS - shown)).any():
        shown = _DIGITS
    hours = seconds // 3600
    width = max(2, len(str(int(hours.max(initial=0)))))
    columns, kept = [np.full(len(cells), ord("-"), np.uint8)], [micros < 0]
    for place in range(width - 1, -1, -1):
        columns.append(_digit(hours, place))
        kept.append(there if place < 2 else hours >= 10**place)
    for number in (seconds // 60 % 60, seconds % 60):
        columns += [_same(":", len(cells)), _digit(number, 1), _digit(number, 0)]
    if shown:
        columns.append(_same(".", len(cells)))
        columns += [_digit(fraction, place) for place in range(5, _DIGITS - shown - 1, -1)]
    kept += [there] * (len(columns) - len(kept))
    keep = np.stack(kept, axis=1)
    bounds = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(keep.sum(axis=1), out=bounds[1:])
    return _text_array(np.stack(columns, axis=1)[keep], bounds, there)


def _digit(numbers: Numbers, place: int) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = (numbers // 10**place % 10 + ord("0")).astype(np.uint8)
    return found


def _same(char: str, count: int) -> npt.NDArray[np.uint8]:
    return np.full(count, ord(char), np.uint8)


def _latin_texts(cells: pa.Array) -> pa.Array:
    """Bytes as ISO-8859-1 text: each byte is one character."""
    wide = cells.cast(pa.large_binary())
    bounds = np.frombuffer(wide.buffers()[1], np.int64, len(wide) + 1, wide.offset * 8)
    first, last = int(bounds[0]), int(bounds[-1])
    found = np.frombuffer(wide.buffers()[2] or b"", np.uint8)[first:last]
    longer = np.zeros(last - first + 1, np.int64)  # how many bytes more the text has up to there
    np.cumsum(found >= 0x80, out=longer[1:])
    text = np.frombuffer(found.tobytes().decode("latin-1").encode(), np.uint8)
    return _text_array(text, bounds - first + longer[bounds - first], is_valid(wide))


def _text_array(
    text: npt.NDArray[np.uint8], bounds: Numbers, there: npt.NDArray[np.bool_]
) -> pa.Array:
    bitmap = None if there.all() else pa.array(there).buffers()[1]
    buffers = [bitmap, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(text))]
    return pa.Array.from_buffers(pa.large_string(), len(there), buffers)


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (pa.types.is_decimal, _decimal_texts),
    (pa.types.is_floating, _float_texts),
    (pa.types.is_timestamp, _moment_texts),
    (pa.types.is_binary, _latin_texts),
    (pa.types.is_large_binary, _latin_texts),
)
