"""What a DDL does to tables, as data.

A statement has effects, in the order in which they happen (two renames may swap names), and the
names by which event filters know it. Names are as the statement spells them; MySQL ignores case
when it compares names of columns and indexes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coordination.model import TableName
from sinks.types.partitioning import Partition, Partitioning
from sinks.types.table_schema import Column, Index, TableSchema

FIRST = ""
"""A place in front of all columns; any other text names the column that stands before it."""

COLUMNS = "it changes the table's columns"
REMOVES_ROWS = "it removes rows"
RENAMES = "it renames a table"


class Effect:
    """What a statement does. ``why``: tells operators why it changes a target; empty: it does not,
    or the table's schema says whether it does (``classify``)."""

    __slots__ = ()
    why: ClassVar[str] = ""


class AlterSpec:
    """What a part of an ALTER TABLE does to one table. ``why``: as in Effect."""

    __slots__ = ()
    why: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """The table of an ALTER TABLE. ``written``: its name as the statement has it, which a RENAME
    needs, since the message of one has the new name. ``home``: the database of other tables that
    the statement names without one."""

    name: TableName
    written: TableName
    home: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn(AlterSpec):
    """Adds ``column`` at ``place``; None: at the end. Old rows show its default, or the type's zero
    where it is NOT NULL without a default.
    """

    why: ClassVar[str] = COLUMNS
    column: Column
    place: str | None = None
    if_not_exists: bool = False
    has_charset: bool = False  # False: in a table of CHARACTER SET binary, text becomes bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn(AlterSpec):
    why: ClassVar[str] = COLUMNS
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn(AlterSpec):
    why: ClassVar[str] = COLUMNS
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyColumn(AlterSpec):
    """MODIFY and CHANGE: ``column`` is the whole new definition, its name included."""

    why: ClassVar[str] = COLUMNS
    name: str
    column: Column
    place: str | None = None  # None: it stays where it is
    if_exists: bool = False
    has_charset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefault(AlterSpec):
    """Sets the default for later rows; present rows do not change. ``default`` as in ``Column``."""

    why: ClassVar[str] = "it changes a column's default"
    name: str
    default: str | None
    default_is_expression: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddIndex(AlterSpec):
    """Adds an index or a primary key. Without a name it gets its first column's."""

    index: Index
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIndex(AlterSpec):
    """An index, or (``keys.PRIMARY``) the primary key."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameIndex(AlterSpec):
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCharset(AlterSpec):
    """The character set of later columns: with ``binary``, text columns that name none hold bytes.
    ``converts``: CONVERT TO does the same to existing columns, in TiDB without another change of
    their values. ``charset``: its name; empty where it is not told. ``by_server``: of a MySQL or
    MariaDB, whose texts may be others in it."""

    binary: bool
    converts: bool = False
    charset: str = ""
    by_server: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPartitioning(AlterSpec):
    """PARTITION BY, REMOVE PARTITIONING: all rows stay. None: no partitions, or unknown ones."""

    partitioning: Partitioning | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions(AlterSpec):
    """``count``: the number of added HASH partitions; below zero: COALESCE PARTITION."""

    partitions: tuple[Partition, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorganizePartitions(AlterSpec):
    """``into`` stand where ``names`` stood; all rows stay. None: their rows are another effect
    (``TruncatePartition``)."""

    names: tuple[str, ...]
    into: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Effect):
    """``replaces``: a table that has the name goes first (MariaDB's CREATE OR REPLACE).
    ``if_not_exists``: of a binlog, where MySQL writes the statement too if the table is there."""

    name: TableName
    schema: TableSchema
    replaces: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableLike(Effect):
    name: TableName
    source: TableName
    replaces: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(Effect):
    why: ClassVar[str] = "it removes a table"
    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTable(Effect):
    why: ClassVar[str] = REMOVES_ROWS
    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable(Effect):
    why: ClassVar[str] = RENAMES
    name: TableName
    new_name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable(Effect):
    """All changes happen at once, as in MySQL: see ``evolve.evolved``."""

    name: TableName
    changes: tuple[AlterSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase(Effect):
    why: ClassVar[str] = "it removes tables"
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverTable(Effect):
    """A dropped or truncated table comes back with its rows, which TiCDC does not send."""

    why: ClassVar[str] = "it brings a table back"
    name: TableName
    new_name: TableName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePartition(Effect):
    """Deletes the rows of ``partitions`` (empty: of all); TiCDC sends no DELETE for them.
    ``drops``: deletes the partitions too."""

    why: ClassVar[str] = REMOVES_ROWS
    name: TableName
    partitions: tuple[str, ...]
    drops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePartition(Effect):
    """A partition and a table exchange their rows; TiCDC sends none of them."""

    why: ClassVar[str] = "it exchanges rows"
    name: TableName
    partition: str
    table: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEffect(Effect):
    """The columns, rows and key of target tables do not change."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver(Effect):
    """An operator has skipped the DDL: the target stays as it is, and notes the DDL's position."""

    why: ClassVar[str] = "an operator passes over it"
    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesTarget(Effect):
    """What a statement does as a whole, where that is more than a new table. ``reason`` completes
    "the changefeed stops for it, because …", if the owner cannot run it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported(Effect):
    """A text that is not understood. ``reason`` completes "this DDL is not supported, because …".
    ``name``: the table that the statement is about, where it tells one for certain."""

    reason: str
    name: TableName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """At least one effect. If one of them is Unsupported, none may be carried out.

    ``event_types`` are TiCDC's names for event filters, the most exact first.
    """

    effects: tuple[Effect, ...]
    event_types: tuple[str, ...]
