"""What a table of the source is, as a copy needs it: columns, key, and about how large."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from coordination.model import TableName
from sinks.types.column_choice import ColumnChoice
from sinks.types.mysql_type import MySQLType
from streaming.source.dump.cells import cell_type, cells_of, vector_texts

Query = Callable[[str], list[tuple[Any, ...]]]
_VERSIONED: Final = "SYSTEM VERSIONED"
# The binlog has the history of such a table among its rows, as INSERTs of keys that are there.
_OF_VERSIONED: Final = "it is system-versioned, and no copy has its history"
_SNAPSHOT_ENGINES: Final = frozenset(("innodb", "rocksdb"))


class Vectors(Enum):
    """What a server shows of a VECTOR."""

    TEXTS = "texts"  # a TiDB: ``[1,2.5]``
    FLOATS = "floats"  # MySQL: the numbers, four bytes each
    BYTES = "bytes"  # MariaDB: the same, and its rows have it as a VARBINARY


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumn:
    """``charset``: the server's name of a text's character set; None for what is no text, but
    "binary" for a vector that comes as its numbers' bytes. ``is_masked``: nobody is to see its
    values in clear."""

    name: str
    type: MySQLType
    nullable: bool
    charset: str | None = None
    is_masked: bool = False

    def cells(self, texts: pa.LargeBinaryArray) -> pa.Array:
        """The texts that its server has sent, as cells. Raises UnreadableCells."""
        is_of_floats = self.type.name == "vector" and self.charset is not None
        return cells_of(vector_texts(texts) if is_of_floats else texts, self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A table, with all columns that its row images have: invisible and generated ones too.

    ``key``: the columns of the primary key, or of the first unique one without NULLs; empty: there
    is none. ``index`` is its name. ``is_of_prefixes``: it has parts of columns alone: these tell
    rows apart, so whole columns do, but the index has no order by which chunks could be cut.
    ``rows`` and ``bytes`` are the server's estimates. ``hindered``: why it alone cannot be read
    whole, and what mends that; empty where it can be.
    ``has_snapshots``: its engine shows a transaction the table as it was when that began.
    """

    name: TableName
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]
    index: str
    rows: int
    bytes: int
    hindered: str = ""
    has_snapshots: bool = True
    is_of_prefixes: bool = False

    def chosen(self, choice: ColumnChoice) -> SourceTable:
        """Without the columns of which the target has no value."""

        def is_read(name: str) -> bool:
            return name in self.key or (choice.takes(name) and choice.mask_of(name) != "null")

        columns = tuple(
            replace(column, is_masked=bool(choice.mask_of(column.name)))
            for column in self.columns
            if is_read(column.name)
        )
        return self if choice.is_all else replace(self, columns=columns)

    @property
    def unread(self) -> str:
        """Why it cannot be read whole; empty where it can be."""
        of_types = (
            f"its column {each.name} has the type {each.type}, which is not known here: leave the "
            "column out with [[sink.column-selectors]]"
            for each in self.columns
            if cell_type(each.type) is None
        )
        return self.hindered or next(of_types, "")

    @property
    def has_chunks(self) -> bool:
        return bool(self.key) and not self.is_of_prefixes

    @property
    def key_columns(self) -> tuple[SourceColumn, ...]:
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)


def read_tables(
    query: Query,
    schemas: Sequence[str],
    is_wanted: Callable[[TableName], bool] = lambda _: True,
    *,
    vectors: Vectors = Vectors.FLOATS,
) -> list[SourceTable]:
    """The wanted tables of these schemas, without views and sequences: three statements for all of
    them.

    Raises as ``query`` does.
    """
    where = f"TABLE_SCHEMA IN ({', '.join(map(_text, schemas))})"
    sizes = query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(TABLE_ROWS, 0), COALESCE(DATA_LENGTH, 0),"
        " TABLE_TYPE, COALESCE(ENGINE, '')"
        f" FROM information_schema.TABLES WHERE {where}"
        f" AND TABLE_TYPE IN ('BASE TABLE', '{_VERSIONED}')"
    )
    columns: dict[TableName, list[SourceColumn]] = defaultdict(list)
    for schema, table, name, text, nullable, charset in query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME"
        f" FROM information_schema.COLUMNS WHERE {where}"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
    ):
        if not is_wanted(TableName(schema, table)):
            continue
        column = SourceColumn(
            name=name, type=MySQLType.parse(text), nullable=nullable == "YES", charset=charset
        )
        columns[TableName(schema, table)].append(_shown(column, vectors))
    indexes: dict[TableName, list[tuple[str, str | None, int | None]]] = defaultdict(list)
    for schema, table, index, name, prefix in query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART"
        f" FROM information_schema.STATISTICS WHERE {where} AND NON_UNIQUE = 0"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME = 'PRIMARY' DESC, INDEX_NAME, SEQ_IN_INDEX"
    ):
        indexes[TableName(schema, table)].append((index, name, prefix))
    found = []
    for schema, table, rows, size, kind, engine in sizes:
        name = TableName(schema, table)
        if not is_wanted(name):
            continue
        index, key = key_of(indexes[name], columns[name])
        found.append(
            SourceTable(
                name=name,
                columns=tuple(columns[name]),
                key=key,
                index=index,
                is_of_prefixes=any(each == index and cut for each, _, cut in indexes[name]),
                rows=int(rows),
                bytes=int(size),
                hindered=_OF_VERSIONED if kind == _VERSIONED else "",
                has_snapshots=engine.lower() in _SNAPSHOT_ENGINES,
            )
        )
    return found


def key_of(
    indexes: Iterable[tuple[str, str | None, int | None]], columns: Iterable[SourceColumn]
) -> tuple[str, tuple[str, ...]]:
    """The index by which rows are told apart, and its columns; ("", ()): there is none.

    ``indexes``: (index, column, bytes of a prefix) of unique ones, the primary key first. One
    with NULLs or with an expression does not tell all rows apart. Where parts of columns are
    unique, whole ones are. An expression has no column: MySQL tells NULL then, and TiDB the
    text "NULL".
    """
    nullable = {column.name: column.nullable for column in columns}
    parts: dict[str, list[str | None]] = defaultdict(list)
    for index, name, _ in indexes:
        parts[index].append(name)
    for index, named in parts.items():
        names = tuple(
            name for name in named if name in nullable and (name != "NULL" or index == "PRIMARY")
        )
        if len(names) == len(named) and not any(nullable[name] for name in names):
            return index, names
    return "", ()


def _shown(column: SourceColumn, vectors: Vectors) -> SourceColumn:
    """As the rows of its server have it."""
    if column.type.name != "vector" or column.type.length is None:
        return column
    if vectors is Vectors.BYTES:
        return replace(column, type=MySQLType(name="varbinary", length=4 * column.type.length))
    return replace(column, charset="binary") if vectors is Vectors.FLOATS else column


def _text(value: str) -> str:
    """A text as SQL writes it, in whatever sql_mode."""
    return f"CONVERT(0x{value.encode().hex()} USING utf8mb4)" if value else "''"
