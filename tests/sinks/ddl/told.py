"""Effects of a statement in a line of words, as corpus.sql writes them down."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.model import TableName
from sinks.ddl.effects import (
    FIRST,
    AddColumn,
    AddIndex,
    AddPartitions,
    AlterSpec,
    AlterTable,
    ChangesTarget,
    CreateTable,
    CreateTableLike,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropTable,
    Effect,
    ExchangePartition,
    ModifyColumn,
    NoEffect,
    PassedOver,
    RecoverTable,
    RenameColumn,
    RenameIndex,
    RenameTable,
    ReorganizePartitions,
    SetCharset,
    SetDefault,
    SetPartitioning,
    Statement,
    TruncatePartition,
    TruncateTable,
    Unsupported,
)
from sinks.ddl.handle_key import PRIMARY
from sinks.ddl.text.tokens import same_name
from sinks.types.partitioning import Partition, Partitioning
from sinks.types.table_schema import Column, Index, TableSchema

SCHEMA = "test"  # where a statement's tables are if it does not say


def told(statement: Statement) -> str:
    return "; ".join(_effect(effect) for effect in statement.effects)


def _effect(effect: Effect) -> str:  # noqa: PLR0911, PLR0912, C901
    match effect:
        case NoEffect():
            return "no effect"
        case PassedOver(name=name):
            return f"{_name(name)}: passed over"
        case Unsupported(reason=reason) | ChangesTarget(reason=reason):
            return f"unsupported: {reason}"
        case CreateTable(name=name, schema=schema):
            return f"create {_name(name)}: {_schema(schema)}"
        case CreateTableLike(name=name, source=source):
            return f"create {_name(name)} like {_name(source)}"
        case AlterTable(name=name, changes=changes):
            return f"{_name(name)}: " + ", ".join(_change(change) for change in changes)
        case DropTable(name=name):
            return f"drop {_name(name)}"
        case TruncateTable(name=name):
            return f"truncate {_name(name)}"
        case RenameTable(name=name, new_name=new_name):
            return f"rename {_name(name)} to {_name(new_name)}"
        case DropDatabase(schema=schema):
            return f"drop database {schema}"
        case RecoverTable(name=name, new_name=as_name):
            return f"recover {_name(name)}" + (f" as {_name(as_name)}" if as_name else "")
        case TruncatePartition(name=name, partitions=partitions, drops=drops):
            verb = "drop" if drops else "truncate"
            return f"{_name(name)}: {verb} partition {' '.join(partitions) or 'all'}"
        case ExchangePartition(name=name, partition=partition, table=table):
            return f"{_name(name)}: exchange partition {partition} with {_name(table)}"
    raise AssertionError(effect)


def _change(change: AlterSpec) -> str:  # noqa: PLR0911, PLR0912, C901
    match change:
        case AddColumn(column=column):
            return f"add {_column(column)}{_where(change)}" + " if not exists" * (
                change.if_not_exists
            )
        case ModifyColumn(name=name, column=column):
            return f"modify {name} to {_column(column)}{_where(change)}" + " if exists" * (
                change.if_exists
            )
        case DropColumn(name=name, if_exists=if_exists):
            return f"drop {name}" + " if exists" * if_exists
        case RenameColumn(name=name, new_name=new_name):
            return f"rename {name} to {new_name}"
        case SetDefault(name=name, default=default, default_is_expression=is_expression):
            return f"default of {name}{_default(default, is_expression) or ' none'}"
        case AddIndex(index=index, if_not_exists=if_not_exists):
            return f"add {_index(index)}" + " if not exists" * if_not_exists
        case DropIndex(name=name):
            return "drop primary key" if same_name(name, PRIMARY) else f"drop index {name}"
        case RenameIndex(name=name, new_name=new_name):
            return f"rename index {name} to {new_name}"
        case SetCharset(binary=binary, converts=converts):
            return ("convert to " if converts else "charset of ") + ("bytes" if binary else "text")
        case SetPartitioning(partitioning=None):
            return "partitions unknown"
        case SetPartitioning(partitioning=partitioning):
            return f"partitions {_partitioning(partitioning)}"
        case AddPartitions(partitions=partitions, count=count):
            return f"add partitions {count or _partitions(partitions)}"
        case ReorganizePartitions(names=names, into=into):
            return f"partitions {' '.join(names)} into {_partitions(into)}"
    raise AssertionError(change)


def _partitioning(known: Partitioning) -> str:
    by = f"{known.function.lower()} {' '.join(known.columns)}".strip()
    return f"{known.method} by {by}: {_partitions(known.partitions)}"


def _partitions(partitions: Sequence[Partition]) -> str:
    return ", ".join(_partition(each) for each in partitions)


def _partition(each: Partition) -> str:
    below = " ".join("max" if bound is None else bound for bound in each.less_than)
    tuples = (" ".join("null" if v is None else v for v in values) for values in each.values)
    listed = f" in {' | '.join(tuples)}" if each.values else ""
    return each.name + (f" < {below}" if below else "") + listed + " default" * each.is_default


def _where(change: AddColumn | ModifyColumn) -> str:
    charset = " charset" if change.has_charset else ""
    if change.place is None:
        return charset
    return charset + (" first" if change.place == FIRST else f" after {change.place}")


def _schema(schema: TableSchema) -> str:
    columns = ", ".join(_column(column) for column in schema.columns)
    unique = "".join(f"; {_index(index)}" for index in schema.indexes if index.kind == "unique")
    key = f"; key {' '.join(schema.key)}" if schema.key else "; no key"
    by = f" by {schema.key_index}" if schema.key_index else ""
    parts = f"; {_partitioning(schema.partitioning)}" if schema.partitioning else ""
    return columns + key + by + unique + "; bytes" * schema.binary_charset + parts


def _column(column: Column) -> str:
    return (
        f"{column.name} {column.type}"
        + " not null" * (not column.nullable)
        + (f" {column.generated}" if column.generated else "")
        + _default(column.default, column.default_is_expression)
    )


def _default(default: str | None, is_expression: bool) -> str:
    if default is None:
        return ""
    return f" = {default}" if is_expression else f" = {default!r}"


def _index(index: Index) -> str:
    kind = {"primary": "primary key", "unique": "unique", "plain": "index"}[index.kind]
    name = f" {index.name}" if index.name and index.kind != "primary" else ""
    return f"{kind}{name} ({' '.join(index.columns)})"


def _name(name: TableName) -> str:
    return name.table if name.schema == SCHEMA else str(name)
