"""Cells of a copy: what is selected of a column, and its texts in the type that the binlog gives.

A row that is copied and the same row out of the binlog must be equal, bit for bit. So this is the
one table of types for the copy; its tests compare each type's extremes with the server's.

    MySQL                                     Arrow
    TINYINT … BIGINT, UNSIGNED, YEAR          int8 … int64 (MEDIUMINT int32), uint8 … uint64, int16
    FLOAT, DOUBLE, DECIMAL(p,s), BIT          float32, float64, decimal128 or decimal256, uint64
    DATE, DATETIME, TIMESTAMP, TIME           date32, timestamp(us), the same in UTC, duration(us)
    CHAR … LONGTEXT, ENUM, SET, JSON, VECTOR  string; of a MariaDB, VECTOR is binary
    BINARY … LONGBLOB, GEOMETRY               binary
    UUID, INET4, INET6                        binary, as they are stored

Where a block has dates that are in no calendar (``0000-00-00``), its column comes as string.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.mysql_type import BINARY_TYPES, IDENTIFIER_TYPES, TEXT_TYPES, MySQLType

GEOMETRY_TYPES: Final = frozenset(
    (
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
        *("multipolygon", "geometrycollection", "geomcollection"),
    )
)
_INTEGERS: Final = {
    "tinyint": (pa.int8(), pa.uint8()),
    "smallint": (pa.int16(), pa.uint16()),
    "mediumint": (pa.int32(), pa.uint32()),
    "int": (pa.int32(), pa.uint32()),
    "bigint": (pa.int64(), pa.uint64()),
}
_OTHERS: Final = {
    "year": pa.int16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bit": pa.uint64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "time": pa.duration("us"),
    **dict.fromkeys((*TEXT_TYPES, "enum", "set", "json"), pa.string()),
    "vector": pa.string(),  # `[1,2.5]`, also of a MySQL (`vector_texts`)
    **dict.fromkeys((*BINARY_TYPES, *GEOMETRY_TYPES, *IDENTIFIER_TYPES), pa.binary()),
}
_MOMENTS: Final = ("date", "datetime", "timestamp")
_FIRST_DAY: Final = -719_162  # 0001-01-01
_DAY_US: Final = 86_400_000_000


class UnreadableCells(Exception):
    """Texts that do not fit their column's type, as one sentence."""


def cell_type(mysql_type: MySQLType) -> pa.DataType | None:
    """The type of the cells; None where a copy cannot be had."""
    if (both := _INTEGERS.get(mysql_type.name)) is not None:
        return both[mysql_type.unsigned]
    if mysql_type.name == "decimal":
        precision = 10 if mysql_type.length is None else mysql_type.length
        make = pa.decimal128 if precision <= 38 else pa.decimal256
        return make(precision, mysql_type.scale or 0)
    return _OTHERS.get(mysql_type.name)


def selected(name: str, mysql_type: MySQLType) -> str:
    """What a SELECT asks for. The text of a FLOAT has six digits, and that of DOUBLE(M,D) as many
    as D: as DOUBLE they come exactly."""
    if mysql_type.name == "float" or (mysql_type.name == "double" and mysql_type.length):
        return f"CAST({quoted(name)} AS DOUBLE)"
    if mysql_type.name in IDENTIFIER_TYPES:
        return f"CAST({quoted(name)} AS BINARY({IDENTIFIER_TYPES[mysql_type.name]}))"
    return quoted(name)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return f"`{name.replace('`', '``')}`"


def cells_of(texts: pa.LargeBinaryArray, mysql_type: MySQLType) -> pa.Array:
    """The texts of a column, as its server sends them, as cells. Raises UnreadableCells."""
    try:
        return _read(texts, mysql_type, cell_type(mysql_type))
    except (pa.ArrowInvalid, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableCells(f"a value does not fit the type {mysql_type}: {reason}") from error


def vector_texts(values: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The numbers of vectors, four bytes each, as the binlog's reader writes them."""
    texts = [
        None if each is None else f"[{', '.join(map(str, np.frombuffer(each, '<f4')))}]".encode()
        for each in values.to_pylist()
    ]
    return pa.array(texts, pa.large_binary())


def _read(texts: pa.LargeBinaryArray, mysql_type: MySQLType, kind: pa.DataType) -> pa.Array:
    if kind in (pa.binary(), pa.string()):
        return texts.cast(kind)  # this checks UTF-8
    if mysql_type.name == "bit":
        return _bits(texts, (mysql_type.length or 1) + 7 >> 3)
    words = texts.view(pa.large_string())
    if mysql_type.name == "time":
        return _durations(words)
    if mysql_type.name in _MOMENTS:
        return _moments(words, kind)
    if mysql_type.name == "float":
        return words.cast(pa.float64()).cast(pa.float32())
    return words.cast(kind)


def _moments(words: pa.LargeStringArray, kind: pa.DataType) -> pa.Array:
    """As strings where one is in no calendar: Arrow refuses them, but for those of the year 0."""
    try:
        values = words.cast(kind if kind == pa.date32() else pa.timestamp("us"))
    except pa.ArrowInvalid:
        return words.cast(pa.string())
    is_date = kind == pa.date32()
    earliest = pc.min(values.view(pa.int32() if is_date else pa.int64())).as_py()
    if earliest is not None and earliest < _FIRST_DAY * (1 if is_date else _DAY_US):
        return words.cast(pa.string())
    return values.view(kind)


def _bits(values: pa.LargeBinaryArray, width: int) -> pa.UInt64Array:
    """Big-endian bytes, as many as the type has."""
    size = pc.binary_length(values)
    if values.null_count < len(values) and pc.min_max(size).as_py() != {"min": width, "max": width}:
        raise ValueError(f"its values are not {width} bytes long")
    filled = values.fill_null(bytes(width)) if values.null_count else values
    begin = int(np.frombuffer(filled.buffers()[1], np.int64, 1, filled.offset * 8)[0])
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)
    raw = data[begin : begin + width * len(filled)].reshape(-1, width)
    number = np.zeros(len(filled), np.uint64)
    for place in range(width):
        number = number << np.uint64(8) | raw[:, place]
    return pa.array(number, mask=None if not values.null_count else _mask(values))


def _durations(words: pa.LargeStringArray) -> pa.DurationArray:
    """``-838:59:59.000000`` in microseconds: two or three digits of hours, any fraction."""
    filled = words.fill_null("00:00:00") if words.null_count else words
    bounds = np.frombuffer(filled.buffers()[1], np.int64, len(filled) + 1, filled.offset * 8)
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)
    begin, end = bounds[:-1], bounds[1:]
    if (end - begin < len("00:00:00")).any():
        raise ValueError("it is no time")
    is_negative = data[begin] == ord("-")
    begin = begin + is_negative
    digits = data.astype(np.int64) - ord("0")
    has_three = data[np.minimum(begin + 2, end - 1)] != ord(":")
    hours = digits[begin] * 10 + digits[begin + 1]
    hours = np.where(has_three, hours * 10 + digits[np.minimum(begin + 2, end - 1)], hours)
    at = begin + 2 + has_three
    if (end - at < 6).any() or (data[at] != ord(":")).any() or (data[at + 3] != ord(":")).any():
        raise ValueError("it is no time")
    seconds = hours * 3600
    for place, factor in ((1, 60), (4, 1)):
        seconds += (digits[at + place] * 10 + digits[at + place + 1]) * factor
    micros = seconds * 1_000_000
    at = at + 7  # behind the point
    for place in range(6):
        inside = at + place < end
        digit = np.where(inside, digits[np.minimum(at + place, len(digits) - 1)], 0)
        micros += digit * 10 ** (5 - place)
    micros = np.where(is_negative, -micros, micros)
    return pa.array(micros, mask=_mask(words)).view(pa.duration("us"))


def _mask(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
