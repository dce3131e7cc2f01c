"""The checksum of a row as TiDB and TiCDC compute it: CRC32 of its values, one behind the other, by
the IDs of their columns. NULL has no bytes.

    whole numbers, YEAR, BIT, ENUM, SET     8 bytes, little-endian, of their number
    FLOAT, DOUBLE                           8 bytes of the DOUBLE
    VECTOR                                  4 bytes of its length, then 4 bytes a number
    texts, bytes, all others                4 bytes of the length, then the text; a TIMESTAMP in UTC

Source: ``rowcodec`` of TiDB, and ``verify_checksum.go`` of TiCDC.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.base64_texts import from_base64
from sinks.types.casts.encoded_cells import without_zone
from sinks.types.mysql_type import BINARY_TYPES, INTEGER_TYPES, MySQLType
from sinks.types.text_arrays import CastRules, as_mask, try_cast
from sinks.types.time_zones import to_utc

_WHOLE: Final = frozenset((*INTEGER_TYPES, "year", "bit", "enum", "set"))
_MICROS: Final = pa.timestamp("us")
_MOMENT: Final = "^[1-9][0-9]{3}-(?:0[1-9]|1)"
_VALUE, _BEHIND = '"value":"', '"}'  # of a TIMESTAMP that tells its zone
_NOTHING: Final = pa.scalar(b"", pa.binary())


def is_countable(kind: MySQLType, cells: pa.DataType) -> bool:
    """Whether ``row_checksums`` takes a column with such cells."""
    if pa.types.is_string(cells):
        return True
    if kind.name in _WHOLE:
        return bool(pa.types.is_integer(cells))
    if kind.name in ("float", "double"):
        return bool(pa.types.is_floating(cells))
    return kind.name in BINARY_TYPES and bool(pa.types.is_binary(cells))


def of_names(
    columns: Sequence[tuple[MySQLType, pa.Array]],
) -> tuple[list[tuple[MySQLType, pa.Array]], npt.NDArray[np.bool_]]:
    """The columns with numbers for names of ENUM and SET, and the rows of which all can be told.
    An empty text is no member, number 0; where a member has that name, it cannot be told."""
    found, is_told = [], np.ones(len(columns[0][1]), np.bool_)
    for kind, cells in columns:
        numbers = cells
        if kind.name in ("enum", "set") and pa.types.is_string(cells.type):
            encoded = cells.dictionary_encode()
            of = [_of_name(each, kind) for each in encoded.dictionary.to_pylist()]
            numbers = pa.array(of, pa.uint64()).take(encoded.indices)
            is_told &= as_mask(pc.or_(cells.is_null(), numbers.is_valid()))
        found.append((kind, numbers))
    return found, is_told


def _of_name(text: str, kind: MySQLType) -> int | None:
    names = kind.elements
    if not text:
        return None if "" in names else 0
    if kind.name == "enum":
        return names.index(text) + 1 if text in names else None
    chosen = text.split(",")
    return sum(1 << names.index(each) for each in chosen) if {*chosen} <= {*names} else None


def row_checksums(
    columns: Sequence[tuple[MySQLType, pa.Array]], rules: CastRules
) -> npt.NDArray[np.int64]:
    """One for each row. ``columns``: by their IDs; at least one. Cells are
    ``contract.Cells.ENCODED``, or AVRO after ``of_names``, all of them ``is_countable``. Where a
    cell is no value of its type, the checksum is some number.
    """
    parts = [pa.repeat(_NOTHING, len(columns[0][1]))]  # Arrow leaves out a row of NULLs alone
    parts += [part for kind, cells in columns for part in _parts(cells, kind, rules)]
    rows = pc.binary_join_element_wise(*parts, _NOTHING, null_handling="skip")
    data = memoryview(rows.buffers()[2] or b"")
    bounds = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset :][: len(rows) + 1].tolist()
    return np.array([zlib.crc32(data[begin:end]) for begin, end in pairwise(bounds)], np.int64)


def _parts(cells: pa.Array, kind: MySQLType, rules: CastRules) -> Iterator[pa.BinaryArray]:
    if cells.null_count == len(cells):
        return
    if kind.name in _WHOLE:
        yield _fixed(_whole(cells), cells)
    elif kind.name in ("float", "double"):
        yield _fixed(_floating(cells, kind.name), cells)
    elif kind.name == "vector":
        yield pa.array([_vector(each) for each in cells.to_pylist()], pa.binary())
    else:
        texts = cells.cast(pa.binary())
        if kind.name in BINARY_TYPES and pa.types.is_string(cells.type):
            texts, _ = from_base64(cells)
        elif kind.name == "timestamp":
            texts = _in_utc(cells, rules).cast(pa.binary())
        yield _fixed(pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype("<u4"), texts)
        yield texts


def _fixed(numbers: npt.NDArray[Any], like: pa.Array) -> pa.BinaryArray:
    """The bytes of these numbers; null where ``like`` is."""
    width = numbers.dtype.itemsize
    ends = pa.py_buffer(np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(width))
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    found = pa.Array.from_buffers(pa.binary(), len(numbers), [None, ends, data])
    if not like.null_count:
        return found
    return pc.if_else(like.is_valid(), found, pa.scalar(None, pa.binary()))


def _whole(cells: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_integer(cells.type):
        integers: npt.NDArray[np.uint64] = pc.fill_null(cells, 0).to_numpy().astype(np.uint64)
        return integers
    texts = pc.fill_null(cells, "0")
    for kind in (pa.int64(), pa.uint64()):
        found = try_cast(texts, kind)
        if found is not None and not found.null_count:
            numbers: npt.NDArray[np.uint64] = found.to_numpy().astype(np.uint64)
            return numbers
    return np.array([_number(each) for each in texts.to_pylist()], np.uint64)


def _number(text: str) -> int:
    try:
        return int(text) % (1 << 64) if len(text) <= 20 else 0
    except ValueError:
        return 0


def _floating(cells: pa.Array, name: str) -> npt.NDArray[np.float64]:
    found = cells
    if pa.types.is_string(cells.type):
        texts = pc.fill_null(cells, "0")
        found = try_cast(texts, pa.float32() if name == "float" else pa.float64())
    numbers = np.zeros(len(cells)) if found is None else pc.fill_null(found, 0).to_numpy()
    finite: npt.NDArray[np.float64] = np.where(np.isfinite(numbers), numbers, 0).astype("<f8")
    return finite


def _vector(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(json.loads(text), "<f4")
    except (ValueError, TypeError, RecursionError):
        return b""
    return struct.pack("<I", numbers.size) + numbers.tobytes()


def _in_utc(cells: pa.StringArray, rules: CastRules) -> pa.StringArray:
    """As TiDB prints them, each with its own digits; what is no moment stays as it is."""
    texts, by = without_zone(cells, rules)
    if by.time_zone != "UTC":
        texts = pc.coalesce(_moved(texts, by.time_zone), texts)
    begins = pc.find_substring(cells, _VALUE)
    located = pc.subtract(pc.utf8_length(cells), pc.add(begins, len(_VALUE) + len(_BEHIND)))
    own = pc.if_else(pc.less(begins, 0), pc.utf8_length(cells), located)
    for length in pc.unique(own.filter(pc.not_equal(own, pc.utf8_length(texts)))).to_pylist():
        cut = pc.utf8_slice_codeunits(texts, 0, max(0, length))
        texts = pc.if_else(pc.equal(own, length), cut, texts)
    return texts


def _moved(texts: pa.StringArray, zone: str) -> pa.StringArray:
    """Moments of that zone in UTC, with six digits; null where there is none."""
    is_moment = pc.fill_null(pc.match_substring_regex(texts, _MOMENT), False)
    local = try_cast(pc.if_else(is_moment, texts, None), _MICROS)
    if local is None:
        return pa.nulls(len(texts), pa.string())
    return pc.strftime(to_utc(local, zone).cast(_MICROS), "%Y-%m-%d %H:%M:%S")
