"""A table's MySQL definition: its columns and the handle key (docs/types.md).

It comes from a CREATE TABLE (``sinks/ddl``), at a later start from the target's properties
(``TableSchema.from_json``), or, where the stream starts after the CREATE TABLE, from a row's
``mysqlType`` (``schema_from_mysql_types``), which tells less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sinks.types.mysql_type import KNOWN_TYPES, TIMED_TYPES, MySQLType
from sinks.types.partitioning import Partitioning

Generated = Literal["", "virtual", "stored"]
Mask = Literal["", "null", "sha256"]
IndexKind = Literal["primary", "unique", "plain"]
CURRENT_TIMESTAMP = "CURRENT_TIMESTAMP"  # a default that is an expression, in any spelling of it

_HASH = MySQLType(name="char", length=64)
MOMENTS = ("date", "datetime", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: MySQLType
    nullable: bool = True
    generated: Generated = ""
    default: str | None = None  # as the DDL writes the value; None: NULL, or none at all
    default_is_expression: bool = False  # CURRENT_TIMESTAMP, uuid(), …: ``default`` is no value
    left_out: bool = False  # the target does not have it (`column_choice`)
    mask: Mask = ""  # what the target has instead of its values
    # What a server's own rules need (`server_rules`), as its definition says it: the character set
    # of a text (empty: the database's, which nobody has told), and how a generated one is computed.
    charset: str = field(default="", compare=False)
    zerofill: bool = field(default=False, compare=False)
    expression: str = field(default="", compare=False)

    @property
    def stored(self) -> MySQLType:
        """The type of what the target has. ``type``: that of the source."""
        return _HASH if self.mask == "sha256" else self.type


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table. ``columns`` is empty for an index with an expression as a part, or one
    that does not hold all rows."""

    name: str
    columns: tuple[str, ...]
    kind: IndexKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Columns in table order and the handle key (empty: a table without one, rule 8).

    ``key_is_row``: the table has no key, and the user wants its rows told apart by all columns,
    which are ``key`` then. So NULL is a value in it, and equal rows are one; with ``counts_rows``
    the target has each as often as the table does.

    ``indexes`` is empty, without even the key's, in a schema that comes from a row's
    ``mysqlType``.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_index: str | None = None  # the unique index that is the handle key; None: the PRIMARY KEY
    key_is_row: bool = False
    counts_rows: bool = False
    indexes: tuple[Index, ...] = ()  # all of them, in the order of TiDB's index IDs
    binary_charset: bool = False  # the table's CHARACTER SET is binary: text columns hold bytes
    charset: str = field(default="", compare=False)  # of columns that name none; "": not told
    mask_check: str = ""  # tells another salt of its sha256 masks; "": it has none
    partitioning: Partitioning | None = None  # None: it has no partitions, or they are not known
    # ``indexes`` has every DDL of unique ones since the CREATE TABLE: one may become the key
    follows_indexes: bool = field(default=False, compare=False)
    # The columns in the order of TiDB's IDs, as a message told them; a row's checksum has this
    # order. Empty: nobody has told it.
    by_id: tuple[str, ...] = field(default=(), compare=False)
    # The primary key is NONCLUSTERED, as a definition says: TiKV has the rows by another key
    is_nonclustered: bool = field(default=False, compare=False)

    @property
    def delivered(self) -> tuple[Column, ...]:
        """The columns that the target has. TiCDC sends all but virtual generated ones, and the
        user may leave others out."""
        return tuple(
            column
            for column in self.columns
            if column.generated != "virtual" and not column.left_out
        )

    @property
    def is_by_key(self) -> bool:
        """Whether TiKV has the rows by this key, as far as it is known: an UPDATE of it is a DELETE
        and an INSERT there."""
        return (
            bool(self.key)
            and self.key_index is None
            and not (self.key_is_row or self.is_nonclustered)
        )

    def by_all_columns(self, *, counts_rows: bool = False) -> TableSchema:
        """With all columns as the key."""
        key = tuple(column.name for column in self.delivered)
        return replace(self, key=key, key_index=None, key_is_row=True, counts_rows=counts_rows)

    def completed(self, by: TableSchema) -> TableSchema:
        """With the digits, and the names of ENUMs and SETs, that ``by``, a definition of the table,
        tells beyond it. A column of another type there is another."""
        told = {column.name.lower(): column.type for column in by.columns}
        columns = (
            replace(column, type=_completed(column.type, told.get(column.name.lower())))
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))

    def column(self, name: str) -> Column:
        """The column of that name, in any case, as in MySQL. Raises KeyError."""
        wanted = name.lower()
        for column in self.columns:
            if column.name.lower() == wanted:
                return column
        raise KeyError(name)

    def to_json(self) -> str:
        """The schema for the Delta table's properties: a later start can read it nowhere else."""
        columns = [
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.nullable,
                **({"generated": column.generated} if column.generated else {}),
                **({"default": column.default} if column.default is not None else {}),
                **({"default_is_expression": True} if column.default_is_expression else {}),
                **({"left_out": True} if column.left_out else {}),
                **({"mask": column.mask} if column.mask else {}),
                **({"charset": column.charset} if column.charset else {}),
                **({"zerofill": True} if column.zerofill else {}),
                **({"expression": column.expression} if column.expression else {}),
            }
            for column in self.columns
        ]
        fields = {
            "columns": columns,
            **({"charset": self.charset} if self.charset else {}),
            "key": list(self.key),
            "key_index": self.key_index,
            **({"key_is_row": True} if self.key_is_row else {}),
            **({"counts_rows": True} if self.counts_rows else {}),
            "indexes": [
                {"name": index.name, "columns": list(index.columns), "kind": index.kind}
                for index in self.indexes
            ],
            **({"binary_charset": True} if self.binary_charset else {}),
            **({"mask_check": self.mask_check} if self.mask_check else {}),
            **({"partitioning": self.partitioning.to_json()} if self.partitioning else {}),
            **({"follows_indexes": True} if self.follows_indexes else {}),
            **({"by_id": list(self.by_id)} if self.by_id else {}),
            **({"is_nonclustered": True} if self.is_nonclustered else {}),
        }
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        """Read what ``to_json`` wrote. Raises ValueError or KeyError on anything else."""
        fields = json.loads(text)
        partitioning = fields.get("partitioning")
        columns = tuple(
            Column(
                name=column["name"],
                type=MySQLType.parse(column["type"]),
                nullable=column["nullable"],
                generated=column.get("generated", ""),
                default=column.get("default"),
                default_is_expression=column.get("default_is_expression", False),
                left_out=column.get("left_out", False),
                mask=column.get("mask", ""),
                charset=column.get("charset", ""),
                zerofill=column.get("zerofill", False),
                expression=column.get("expression", ""),
            )
            for column in fields["columns"]
        )
        return cls(
            charset=fields.get("charset", ""),
            columns=columns,
            key=tuple(fields["key"]),
            key_index=fields["key_index"],
            key_is_row=fields.get("key_is_row", False),
            counts_rows=fields.get("counts_rows", False),
            indexes=tuple(
                Index(index["name"], tuple(index["columns"]), index["kind"])
                for index in fields["indexes"]
            ),
            binary_charset=fields.get("binary_charset", False),
            mask_check=fields.get("mask_check", ""),
            partitioning=None if partitioning is None else Partitioning.from_json(partitioning),
            follows_indexes=fields.get("follows_indexes", False),
            by_id=tuple(fields.get("by_id", ())),
            is_nonclustered=fields.get("is_nonclustered", False),
        )


def _completed(mysql_type: MySQLType, by: MySQLType | None) -> MySQLType:
    if by is None or (by.name, by.unsigned) != (mysql_type.name, mysql_type.unsigned):
        return mysql_type
    if by.elements and not mysql_type.elements:
        return replace(by, is_untold=True)
    return by if mysql_type.is_untold else mysql_type


def schema_from_mysql_types(
    types: Mapping[str, str], pk_names: Sequence[str]
) -> tuple[TableSchema, list[str]]:
    """The schema that a row's ``mysqlType`` and ``pkNames`` tell, and warnings about the rest, as
    sentences.

    The columns are in the order of ``types``. TiCDC shuffles ``mysqlType``, so pass them in the
    order of ``data``. Never pass those of a handle-key-only or claim-check message, which has the
    key's types alone. Raises ValueError if ``pk_names`` are not among ``types``, or a type is none.
    """
    in_key = {name.lower() for name in pk_names}
    columns = []
    warnings = []
    found = {name: MySQLType.parse(text) for name, text in types.items()}
    # With content-compatible=true a type without digits has none.
    are_full = any("(" in types[name] and found[name].name not in TIMED_TYPES for name in types)
    for name, text in types.items():
        mysql_type = found[name] if are_full or "(" in text else found[name].as_untold()
        warnings += _what_is_missing(name, mysql_type)
        columns.append(Column(name=name, type=mysql_type, nullable=name.lower() not in in_key))
    if not pk_names:
        warnings.append(
            "the rows name no primary key and do not tell whether there is a NOT NULL unique key:"
            " start the changefeed before the table's CREATE TABLE to have it known"
        )
    return _keyed(TableSchema(columns=tuple(columns), key=()), pk_names), warnings


def _keyed(schema: TableSchema, pk_names: Sequence[str]) -> TableSchema:
    """The schema with this key, in the spelling of its columns. Raises ValueError where a name of
    the key is no column."""
    try:
        return replace(schema, key=tuple(schema.column(name).name for name in pk_names))
    except KeyError as missing:
        raise ValueError(f"pkNames has {missing.args[0]}, which mysqlType has not") from None


def _what_is_missing(name: str, mysql_type: MySQLType) -> list[str]:
    bare = mysql_type.length is None and not mysql_type.elements
    if mysql_type.name == "decimal" and bare:
        return [f"column {name}: the rows do not tell the precision of its decimal: kept as string"]
    if mysql_type.name in ("enum", "set") and bare:
        what = "index" if mysql_type.name == "enum" else "bitmask"
        return [
            f"column {name}: the rows do not tell the elements of its {mysql_type.name}:"
            f" the {what} is kept as text"
        ]
    if mysql_type.name == "bit" and bare:
        return [f"column {name}: the rows do not tell the width of its bit: kept as decimal(20,0)"]
    if mysql_type.name not in KNOWN_TYPES:
        return [f"column {name}: unknown type {mysql_type.name}: kept as string"]
    return []
