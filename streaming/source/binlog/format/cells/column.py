"""A column as a TABLE_MAP tells it, and its type in MySQL's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sinks.types.mysql_type import BINARY_FORM, MySQLType
from streaming.source.binlog.format.charsets import BINARY, UTF_8, Charset, Charsets, text_of
from streaming.source.binlog.format.type_codes import ColumnType

BINARY_COLLATION: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """``type`` and ``meta`` as in the TABLE_MAP, except that STRING is resolved: ENUM and SET have
    their own type with the width of a value as ``meta``, CHAR and BINARY their length in bytes.

    ``labels`` of an ENUM or SET are in the character set of ``collation``."""

    name: str
    type: int
    meta: int
    is_nullable: bool
    is_unsigned: bool = False
    collation: int | None = None
    labels: tuple[bytes, ...] = ()
    dimension: int | None = None  # how many numbers a VECTOR has

    @property
    def is_hidden(self) -> bool:
        """MariaDB's own, of a UNIQUE over a TEXT or BLOB: the last ones of a row, and of no table
        that its server shows."""
        is_number = self.type == ColumnType.LONGLONG and self.is_unsigned and self.is_nullable
        return is_number and self.name.startswith("DB_ROW_HASH_")

    @property
    def precision(self) -> int:
        """The digits of a DECIMAL; ``scale`` of them stand behind the point."""
        return self.meta >> 8

    @property
    def scale(self) -> int:
        return self.meta & 0xFF

    def charset(self, charsets: Charsets) -> Charset | None:
        """None: the server has told no character set with that ID."""
        if self.collation in (None, BINARY_COLLATION):
            return Charset(BINARY)
        return charsets.get(self.collation)


_PLAIN: Final[Mapping[int, str]] = {
    ColumnType.TINY: "tinyint",
    ColumnType.SHORT: "smallint",
    ColumnType.INT24: "mediumint",
    ColumnType.LONG: "int",
    ColumnType.LONGLONG: "bigint",
    ColumnType.FLOAT: "float",
    ColumnType.DOUBLE: "double",
    ColumnType.DATE: "date",
    ColumnType.YEAR: "year",
    ColumnType.JSON: "json",
    ColumnType.GEOMETRY: "geometry",
    ColumnType.VECTOR: "vector",
}
_MOMENTS: Final[Mapping[int, str]] = {
    ColumnType.DATETIME: "datetime",
    ColumnType.TIMESTAMP: "timestamp",
    ColumnType.TIME: "time",
}
_TEXTS: Final = ("", "tinytext", "text", "mediumtext", "longtext")  # by the bytes of its length


def mysql_type(column: Column, charsets: Charsets) -> MySQLType:
    """The type as a definition writes it. A length is in characters; without its character set it
    is not known."""
    kind, unsigned = column.type, column.is_unsigned
    if kind in _PLAIN:
        unsigned = unsigned and kind != ColumnType.YEAR
        return MySQLType(name=_PLAIN[kind], unsigned=unsigned, length=column.dimension)
    if kind in _MOMENTS:
        return MySQLType(name=_MOMENTS[kind], length=column.meta or None)
    if kind == ColumnType.DECIMAL:
        precision, scale = column.precision, column.scale
        return MySQLType(name="decimal", unsigned=unsigned, length=precision, scale=scale)
    if kind == ColumnType.BIT:
        return MySQLType(name="bit", length=(column.meta >> 8) * 8 + (column.meta & 0xFF))
    charset = column.charset(charsets)
    if kind in (ColumnType.ENUM, ColumnType.SET):
        name = "enum" if kind == ColumnType.ENUM else "set"
        return MySQLType(name=name, elements=labels(column, charset))
    return _of_characters(column, charset)


def _of_characters(column: Column, charset: Charset | None) -> MySQLType:
    is_binary = charset is not None and charset.codec == BINARY
    if column.type in (ColumnType.BLOB, ColumnType.BLOB_COMPRESSED):
        name = _TEXTS[column.meta]
        return MySQLType(name=BINARY_FORM[name] if is_binary else name)
    name = "char" if column.type == ColumnType.STRING else "varchar"
    length = None if charset is None else column.meta // charset.width
    if column.type == ColumnType.VARCHAR_COMPRESSED and length is not None:
        length = (column.meta - 1) // charset.width if charset is not None else None
    return MySQLType(name=BINARY_FORM[name] if is_binary else name, length=length)


def labels(column: Column, charset: Charset | None) -> tuple[str, ...]:
    """The names of an ENUM or SET; empty if their character set is not known, or they are not
    written in it."""
    if charset is None:
        return ()
    codec = UTF_8 if charset.codec == BINARY else charset.codec
    try:
        return tuple(text_of(label, codec) for label in column.labels)
    except UnicodeDecodeError:
        return ()
