"""A TABLE_MAP event: the table and columns of the row events behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final

from coordination.model import TableName
from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.cells.column import Column
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import ColumnType

_SEQUENCE: Final = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment"),
    *("cache_size", "cycle_option", "cycle_count"),
)
TABLE_ID_BYTES: Final = 6
FLAGS_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class TableMap:
    """``key``: the primary key, or a NOT NULL unique key where there is none; None if the event
    names none. ``has_names``: the columns' names are told (``binlog_row_metadata = FULL``).
    ``collations``: those of its columns, each once."""

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...] | None
    has_names: bool
    collations: tuple[int, ...]

    @property
    def is_sequence(self) -> bool:
        """MariaDB writes the steps of a sequence as rows of a table; no such table has a key."""
        return tuple(column.name for column in self.columns) == _SEQUENCE


_NUMERIC: Final[frozenset[int]] = frozenset(
    {
        *(ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG),
        *(ColumnType.LONGLONG, ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.DECIMAL),
        *(ColumnType.YEAR, ColumnType.DECIMAL_OLD),  # a YEAR has a bit of signedness, too
    }
)
_CHARACTER: Final[frozenset[int]] = frozenset(
    {
        *(ColumnType.STRING, ColumnType.VAR_STRING, ColumnType.VARCHAR, ColumnType.BLOB),
        *(ColumnType.TINY_BLOB, ColumnType.MEDIUM_BLOB, ColumnType.LONG_BLOB),
        *(ColumnType.BLOB_COMPRESSED, ColumnType.VARCHAR_COMPRESSED, ColumnType.VECTOR),
    }
)
_LABELLED: Final[frozenset[int]] = frozenset({ColumnType.ENUM, ColumnType.SET})
_META_BYTES: Final = {
    **dict.fromkeys((4, 5, 17, 18, 19, 140, 242, 245, 249, 250, 251, 252, 255), 1),
    **dict.fromkeys((15, 16, 141, 246, 247, 248, 253, 254), 2),
}
_MOST_COLUMNS: Final = 4096


@lru_cache(maxsize=4096)
def table_map(raw: bytes, *, is_mariadb: bool) -> TableMap:
    """``raw``: the body behind table ID and flags. MariaDB counts GEOMETRY among the columns that
    have a character set. Raises BadEvent."""
    body = ByteReader(raw)
    schema = body.text(body.number(1))
    body.take(1)
    table = body.text(body.number(1))
    body.take(1)
    count = body.length_encoded()
    if not 0 < count <= _MOST_COLUMNS:
        raise BadEvent(f"a table with {count} columns")
    types = body.take(count)
    metas = body.sized(body.length_encoded())
    described = [_type_and_meta(kind, metas) for kind in types]
    nullable = body.take((count + 7) // 8)
    columns = [
        Column(name="", type=kind, meta=meta, is_nullable=bool(nullable[i >> 3] >> (i & 7) & 1))
        for i, (kind, meta) in enumerate(described)
    ]
    metadata = _Metadata(columns, is_mariadb)
    while body.left:
        metadata.read(body.number(1), body.sized(body.length_encoded()))
    return metadata.table_map(TableName(schema, table))


def _type_and_meta(kind: int, metas: ByteReader) -> tuple[int, int]:
    raw = metas.take(_META_BYTES.get(kind, 0))
    if kind == ColumnType.STRING:
        if raw[0] in _LABELLED:
            return raw[0], raw[1]
        return kind, raw[1] | (
            (raw[0] & 0x30) ^ 0x30
        ) << 4  # two bits of a CHAR's length hide there
    if kind == ColumnType.DECIMAL:
        return kind, raw[0] << 8 | raw[1]
    return kind, int.from_bytes(raw, "little")


@dataclass(slots=True)
class _Metadata:
    """The optional part: each field is a list over some kind of columns."""

    columns: list[Column]
    is_mariadb: bool
    key: list[int] | None = None
    names: list[str] = field(default_factory=list)

    def table_map(self, name: TableName) -> TableMap:
        has_names = len(self.names) == len(self.columns)
        if has_names:
            named = zip(self.columns, self.names, strict=True)
            self.columns = [replace(column, name=text) for column, text in named]
        key = None
        if self.key is not None and has_names:
            key = tuple(self.columns[number].name for number in self.key)
        told = [each.collation for each in self.columns if each.collation is not None]
        return TableMap(name, tuple(self.columns), key, has_names, tuple(dict.fromkeys(told)))

    def read(self, tag: int, part: ByteReader) -> None:
        """A field that is not known says nothing that a row depends on."""
        if tag in _FIELDS:
            _FIELDS[tag](self, part)

    def _those(self, kinds: frozenset[int]) -> list[int]:
        more = {ColumnType.GEOMETRY} if self.is_mariadb and kinds is _CHARACTER else set()
        return [i for i, column in enumerate(self.columns) if column.type in kinds | more]

    def signedness(self, part: ByteReader) -> None:
        bits = part.rest()
        for place, i in enumerate(self._those(_NUMERIC)):
            if place >> 3 >= len(bits):
                raise BadEvent("the metadata of a table has too few bits of signedness")
            is_unsigned = bool(bits[place >> 3] & 0x80 >> (place & 7))
            self.columns[i] = replace(self.columns[i], is_unsigned=is_unsigned)

    def default_collation(self, part: ByteReader, kinds: frozenset[int]) -> None:
        """One for all, then those that have another."""
        those = self._those(kinds)
        self._set_collations(those, [part.length_encoded()] * len(those))
        while part.left:
            place = _nth(those, part.length_encoded())
            self._set_collations([place], [part.length_encoded()])

    def collations(self, part: ByteReader, kinds: frozenset[int]) -> None:
        those = self._those(kinds)
        self._set_collations(those, [part.length_encoded() for _ in those])

    def _set_collations(self, those: Sequence[int], collations: Sequence[int]) -> None:
        for i, collation in zip(those, collations, strict=True):
            self.columns[i] = replace(self.columns[i], collation=collation)

    def column_names(self, part: ByteReader) -> None:
        while part.left:
            self.names.append(part.text(part.length_encoded()))

    def labels(self, part: ByteReader, kind: ColumnType) -> None:
        for i in self._those(frozenset({kind})):
            texts = [part.take(part.length_encoded()) for _ in range(part.length_encoded())]
            self.columns[i] = replace(self.columns[i], labels=tuple(texts))

    def dimensions(self, part: ByteReader) -> None:
        for i in self._those(frozenset({ColumnType.VECTOR})):
            self.columns[i] = replace(self.columns[i], dimension=part.length_encoded())

    def primary_key(self, part: ByteReader, *, has_prefixes: bool) -> None:
        self.key = []
        while part.left:
            self.key.append(_nth(range(len(self.columns)), part.length_encoded()))
            if has_prefixes:
                part.length_encoded()


def _nth(those: Sequence[int], number: int) -> int:
    if number >= len(those):
        raise BadEvent(f"the metadata of a table names column {number} of {len(those)}")
    return those[number]


_FIELDS: Final[Mapping[int, Callable[[_Metadata, ByteReader], None]]] = {
    1: _Metadata.signedness,
    2: partial(_Metadata.default_collation, kinds=_CHARACTER),
    3: partial(_Metadata.collations, kinds=_CHARACTER),
    4: _Metadata.column_names,
    5: partial(_Metadata.labels, kind=ColumnType.SET),
    6: partial(_Metadata.labels, kind=ColumnType.ENUM),
    8: partial(_Metadata.primary_key, has_prefixes=False),
    9: partial(_Metadata.primary_key, has_prefixes=True),
    10: partial(_Metadata.default_collation, kinds=_LABELLED),
    11: partial(_Metadata.collations, kinds=_LABELLED),
    13: _Metadata.dimensions,
}
