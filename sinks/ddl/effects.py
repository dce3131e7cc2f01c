"""What a DDL does to tables, as data.

A statement has effects, in the order in which they happen (two renames may swap names), and the
names by which event filters know it. Names are as the statement spells them; MySQL ignores case
when it compares names of columns and indexes.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordination.model import TableName
from sinks.partitioning import Partition, Partitioning
from sinks.schema import Column, Index, TableSchema

FIRST = ""
"""A place in front of all columns; any other text names the column that stands before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """Adds ``column`` at ``place``; None: at the end. Old rows show its default, or the type's zero
    where it is NOT NULL without a default.
    """

    column: Column
    place: str | None = None
    if_not_exists: bool = False
    has_charset: bool = False  # False: in a table of CHARACTER SET binary, text becomes bytes


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
    """Sets the default for later rows; present rows do not change. ``default`` as in ``Column``."""

    name: str
    default: str | None
    default_is_expression: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddIndex:
    """Adds an index or a primary key. Without a name it gets its first column's."""

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
    """CONVERT TO CHARACTER SET: ``binary`` turns all text into bytes; any other changes nothing."""

    binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCharset:
    """The character set of later columns: with ``binary``, text columns that name none hold
    bytes."""

    binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPartitioning:
    """PARTITION BY, REMOVE PARTITIONING: all rows stay. None: no partitions, or unknown ones."""

    partitioning: Partitioning | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """``count``: of HASH, by their number; below zero: COALESCE PARTITION."""

    partitions: tuple[Partition, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorganizePartitions:
    """``into`` stand where ``names`` stood; all rows stay."""

    names: tuple[str, ...]
    into: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitions:
    """Their definitions; their rows are another effect (``DropPartition``)."""

    names: tuple[str, ...]


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
    | SetPartitioning
    | AddPartitions
    | ReorganizePartitions
    | DropPartitions
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
    """All changes happen at once, as in MySQL: see ``evolve.evolved``."""

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
    """Deletes the rows of ``partitions`` (empty: of all); TiCDC sends no DELETE for them."""

    name: TableName
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartition:
    """Like TruncatePartition; the partitions are dropped too."""

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
    """The columns, rows and key of target tables do not change."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """An operator says so: the target stays as it is, and notes the DDL's position."""

    name: TableName


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
    | PassedOver
    | Unsupported
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """At least one effect. Where one of them is Unsupported, none may be carried out.

    ``event_types`` are TiCDC's names for event filters, the most exact first.
    """

    effects: tuple[Effect, ...]
    event_types: tuple[str, ...]
