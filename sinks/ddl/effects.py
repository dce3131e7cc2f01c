"""What a DDL does to tables, as data.

A statement has effects in the order in which they happen (two renames may swap names), and the
names that event filters know it by. Names are as the statement spells them; MySQL compares those of
columns and indexes in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordination.model import TableName
from sinks.schema import Column, Index, TableSchema

FIRST = ""
"""A place in front of all columns; any other text names the column that stands before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """``column`` at ``place``, or at the end. Old rows show its default, or the type's zero where
    it is NOT NULL without one.
    """

    column: Column
    place: str | None = None
    if_not_exists: bool = False
    has_charset: bool = False  # else a table of CHARACTER SET binary makes bytes of text


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyColumn:
    """MODIFY and CHANGE: ``column`` is the whole new definition, its name included."""

    name: str
    column: Column
    place: str | None = None  # None: it stays where it is
    if_exists: bool = False
    has_charset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefault:
    """Of rows to come: no row that is there changes. ``default`` as in ``Column``."""

    name: str
    default: str | None
    default_is_expression: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddIndex:
    """A primary key too. Without a name it gets its first column's."""

    index: Index
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIndex:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPrimaryKey:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameIndex:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET: ``binary`` makes bytes of all text; any other leaves text text."""

    binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCharset:
    """The character set of columns to come; ``binary`` makes bytes of those that name none."""

    binary: bool


Change = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ModifyColumn
    | SetDefault
    | AddIndex
    | DropIndex
    | DropPrimaryKey
    | RenameIndex
    | ConvertCharset
    | SetCharset
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    name: TableName
    schema: TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableLike:
    name: TableName
    source: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    name: TableName
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTable:
    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable:
    name: TableName
    new_name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    """All changes at once, as in MySQL: ``evolve.evolved`` says how."""

    name: TableName
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase:
    schema: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverTable:
    """A dropped or truncated table comes back with its rows, which TiCDC does not send."""

    name: TableName
    new_name: TableName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePartition:
    """The rows of ``partitions`` go (empty: of all); TiCDC sends no delete for them."""

    name: TableName
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartition:
    """As TruncatePartition, and the partitions go too."""

    name: TableName
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePartition:
    """A partition and a table exchange their rows; TiCDC sends none of them."""

    name: TableName
    partition: str
    table: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEffect:
    """Neither columns, rows nor key of a target table change."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """``reason`` completes "this DDL is not supported, because …"."""

    reason: str


Effect = (
    CreateTable
    | CreateTableLike
    | DropTable
    | TruncateTable
    | RenameTable
    | AlterTable
    | DropDatabase
    | RecoverTable
    | TruncatePartition
    | DropPartition
    | ExchangePartition
    | NoEffect
    | Unsupported
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """At least one effect; where one of them is Unsupported, none may be carried out.

    ``event_types`` are TiCDC's names for event filters, the most exact first.
    """

    effects: tuple[Effect, ...]
    event_types: tuple[str, ...]
