"""Columns of texts and bytes: CHAR to LONGTEXT, BINARY to LONGBLOB, ENUM, SET, JSON, GEOMETRY."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.source.binlog.format.cells.column import Column, labels
from streaming.source.binlog.format.cells.json_text import json_text
from streaming.source.binlog.format.cells.layout import Mask, lengths, width_of
from streaming.source.binlog.format.cells.reading import Reading
from streaming.source.binlog.format.charsets import BINARY, UTF_8, Charset, characters, text_of
from streaming.source.binlog.format.events import Bytes, Offsets, words_of
from streaming.source.binlog.format.type_codes import ColumnType

_COMPRESSED: Final = (ColumnType.BLOB_COMPRESSED, ColumnType.VARCHAR_COMPRESSED)
_MOST_INFLATED: Final = 1 << 30


def enum_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """string: the label; ``""`` for index 0, which an invalid value has."""
    number = reading.data[at] if column.meta == 1 else words_of(reading.data, "<u2")[at]
    names, is_null = _names(reading, column, at, is_null)
    is_bad = number > len(names)
    is_null = reading.fault(is_bad, is_null, f"column {column.name} has no label with this index")
    number = np.where(is_bad, 0, number)
    return pa.array(["", *names], pa.string()).take(pa.array(number, mask=is_null))


def _labels(chosen: Iterable[str]) -> str:
    """As the servers write a SET: no comma stands first, behind a label without a character."""
    text = ""
    for label in chosen:
        text += f",{label}" if text else label
    return text


def set_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """string: the labels with commas between them."""
    bits = words_of(reading.data, "<u8")[at]
    if column.meta < 8:
        bits = bits & np.uint64((1 << 8 * column.meta) - 1)
    names, is_null = _names(reading, column, at, is_null)
    is_bad = bits >> np.uint64(len(names)) != 0 if len(names) < 64 else np.zeros(len(at), np.bool_)
    is_null = reading.fault(is_bad, is_null, f"column {column.name} has no label for a bit")
    found, places = np.unique(bits, return_inverse=True)
    texts = [
        _labels(name for place, name in enumerate(names) if value >> place & 1)
        for value in found.tolist()
    ]
    return pa.array(texts, pa.string()).take(pa.array(places, mask=is_null))


def _names(
    reading: Reading, column: Column, at: Offsets, is_null: Mask | None
) -> tuple[tuple[str, ...], Mask | None]:
    charset = column.charset(reading.charsets)
    names = labels(column, charset)
    if names or not column.labels:
        return names, is_null
    everywhere = np.ones(len(at), np.bool_)
    if charset is None:
        return ("",) * len(column.labels), reading.fault(everywhere, is_null, _unknown(column))
    message = f"column {column.name} has labels that are not written in {charset.codec}"
    return ("",) * len(column.labels), reading.fault(everywhere, is_null, message)


def _unknown(column: Column) -> str:
    return (
        f"column {column.name} has the collation with ID {column.collation}, whose character set "
        "is not known or cannot be decoded: convert the column to utf8mb4"
    )


def character_cells(
    reading: Reading, column: Column, at: Offsets, is_null: Mask | None
) -> pa.Array:
    """string, or binary; BINARY(n) with the zeros at its end, which the event has not."""
    values = _values(reading, column, at, is_null)
    if column.type in _COMPRESSED:
        values = _each(reading, values, column, _inflated, pa.large_binary())
    charset = column.charset(reading.charsets)
    if charset is None:
        reading.fault(_mask(values.is_valid()), None, _unknown(column))
        return pa.nulls(len(values), pa.string())
    if charset.codec == BINARY:
        if column.type == ColumnType.STRING:
            values = _padded(values, column.meta)
        return values.cast(pa.binary())
    return _decoded(reading, values, column, charset)


def json_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """string."""
    return _each(reading, _values(reading, column, at, is_null), column, json_text, pa.string())


def geometry_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """binary: four bytes of SRID, then well-known binary."""
    return _values(reading, column, at, is_null).cast(pa.binary())


def vector_cells(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """string: ``[1.0, 2.5]``, the fewest digits that tell each number."""
    return _each(reading, _values(reading, column, at, is_null), column, _vector, pa.string())


def _vector(value: bytes) -> str:
    return "[" + ", ".join(map(str, np.frombuffer(value, "<f4"))) + "]"


def _values(reading: Reading, column: Column, at: Offsets, is_null: Mask | None) -> pa.Array:
    """large_binary, copied out of the events. Values and what stands between them are the elements
    of an Arrow array on the events' own bytes, by turns; every second one is taken."""
    _, prefix = width_of(column)
    size = lengths(reading.data, at, prefix)
    if is_null is not None:
        size = np.where(is_null, 0, size)
    begin = at + prefix
    count = len(begin)
    wanted = np.arange(0, 2 * count, 2)
    if not (begin[1:] >= begin[:-1]).all():  # inflated events stand behind the others
        order = np.argsort(begin, kind="stable")
        begin, size = begin[order], size[order]
        wanted[order] = wanted.copy()
    ends = np.empty(2 * count + 1, np.int64)
    ends[0:-1:2] = begin
    ends[1::2] = begin + size
    ends[-1] = ends[-2] if count else 0
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(reading.data)]
    every = pa.Array.from_buffers(pa.large_binary(), 2 * count, buffers)
    return every.take(pa.array(wanted, mask=is_null))


def _each(
    reading: Reading,
    values: pa.Array,
    column: Column,
    read: Callable[[bytes], str | bytes],
    kind: pa.DataType,
) -> pa.Array:
    """One value after the other, for what has no columnar way."""
    found: list[str | bytes | None] = []
    is_bad = np.zeros(len(values), np.bool_)
    message = ""
    for number, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else read(value))
        except ValueError as error:
            found.append(None)
            is_bad[number] = True
            message = message or f"column {column.name}: {error}"
    reading.fault(is_bad, None, message)
    return pa.array(found, kind)


def _inflated(value: bytes) -> bytes:
    """A value of a COMPRESSED column of MariaDB: a byte that says how, the size, then the data."""
    if not value:
        return value
    method, width, is_raw = value[0] >> 4, value[0] & 0x07, bool(value[0] & 0x08)
    if method == 0:
        return value[1:]
    size = int.from_bytes(value[1 : 1 + width], "big")
    if method != 8 or size > _MOST_INFLATED:
        raise ValueError(f"a compressed value begins with byte {value[0]}, which is not known")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else zlib.MAX_WBITS)
    try:
        out = inflater.decompress(value[1 + width :], size + 1)
    except zlib.error as error:
        raise ValueError(f"a compressed value cannot be inflated: {error}") from error
    if len(out) != size:
        raise ValueError("a compressed value has not the size that it says")
    return out


def _padded(values: pa.Array, width: int) -> pa.Array:
    """Each value with zeros up to its width."""
    offsets, data = _buffers(values)
    size = np.diff(offsets)
    if (size == width).all():
        return values
    out = np.zeros((len(values), width), np.uint8)
    within = np.arange(len(data)) - np.repeat(offsets[:-1] - offsets[0], size)
    out[np.repeat(np.arange(len(values)), size), within] = data
    whole = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(values), [None, pa.py_buffer(out)]
    )
    return pc.if_else(values.is_valid(), whole.cast(pa.large_binary()), None)


def _buffers(values: pa.Array) -> tuple[Offsets, Bytes]:
    """The offsets of a large_binary, and the bytes between the first and the last."""
    _, raw_offsets, raw = values.buffers()
    offsets = np.frombuffer(raw_offsets, np.int64)[values.offset :][: len(values) + 1]
    data = np.frombuffer(raw if raw is not None else b"", np.uint8)
    return offsets, data[offsets[0] : offsets[-1]]


def _decoded(reading: Reading, values: pa.Array, column: Column, charset: Charset) -> pa.Array:
    if charset.codec != UTF_8:
        points = _code_points(charset.codec)
        if points is not None:
            return _single_bytes(values, points)
        return _by_value(reading, values, column, charset.codec)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return _by_value(reading, values, column, UTF_8)


def _by_value(reading: Reading, values: pa.Array, column: Column, codec: str) -> pa.Array:
    """Each different text once."""

    def decode(value: bytes) -> str:
        try:
            return text_of(value, codec)
        except UnicodeDecodeError as error:
            raise ValueError(f"{value[:80]!r} is not written in {codec}") from error

    encoded = values.dictionary_encode()
    own = Reading(reading.data, reading.charsets)
    texts = _each(own, encoded.dictionary, column, decode, pa.string())
    for is_bad, message in own.faults:
        reading.fault(
            _mask(pc.fill_null(pa.array(is_bad).take(encoded.indices), False)), None, message
        )
    return texts.take(encoded.indices)


@lru_cache(maxsize=64)
def _code_points(codec: str) -> npt.NDArray[np.int64] | None:
    """The character of each byte in a character set of single bytes; None for another one."""
    found = characters(codec)
    return None if found is None else np.array([*map(ord, found)], np.int64)


def _single_bytes(values: pa.Array, points: npt.NDArray[np.int64]) -> pa.Array:
    """Every byte becomes one to three bytes of UTF-8."""
    offsets, data = _buffers(values)
    if not len(data) or (int(data.max()) < 0x80 and (points[:128] == np.arange(128)).all()):
        return values.cast(pa.string())
    point = points[data]
    width = 1 + (point >= 0x80) + (point >= 0x800)
    ends = np.concatenate([[0], np.cumsum(width)])
    out = np.empty(int(ends[-1]), np.uint8)
    begin, two, three = ends[:-1], width == 2, width == 3
    out[begin] = np.where(three, 0xE0 | point >> 12, np.where(two, 0xC0 | point >> 6, point))
    out[begin[two] + 1] = 0x80 | point[two] & 0x3F
    out[begin[three] + 1] = 0x80 | point[three] >> 6 & 0x3F
    out[begin[three] + 2] = 0x80 | point[three] & 0x3F
    bounds = ends[offsets - offsets[0]].astype(np.int64)
    valid = pa.array(_mask(values.is_valid())).buffers()[1]
    buffers = [valid, pa.py_buffer(bounds), pa.py_buffer(out)]
    whole = pa.Array.from_buffers(pa.large_string(), len(bounds) - 1, buffers)
    return whole.cast(pa.string())


def _mask(values: pa.Array) -> Mask:
    found: Mask = values.to_numpy(zero_copy_only=False)
    return found
