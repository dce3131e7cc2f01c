"""What is done about a DDL today: a table is made, nothing is to do, or the changefeed stops."""

from __future__ import annotations

from collections.abc import Iterator

from sinks.ddl.alter import FROM_UNKNOWN, KEEPS_ROWS, NOTHING
from sinks.ddl.effects import (
    AddColumn,
    AddIndex,
    AlterTable,
    Change,
    ConvertCharset,
    CreateTable,
    CreateTableLike,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropPartition,
    DropPrimaryKey,
    DropTable,
    Effect,
    ExchangePartition,
    ModifyColumn,
    NoEffect,
    RecoverTable,
    RenameColumn,
    RenameIndex,
    RenameTable,
    SetCharset,
    SetDefault,
    Statement,
    TruncatePartition,
    TruncateTable,
    Unsupported,
)
from sinks.ddl.keys import can_be_key
from sinks.ddl.statements import read_ddl
from sinks.ddl.words import same_name
from sinks.schema import Index, TableSchema

COLUMNS = "it changes the table's columns"
KEY = "it changes the table's key"
RENAMES = "it renames a table"
REMOVES_TABLE, REMOVES_TABLES = "it removes a table", "it removes tables"
_REASONS: dict[type[Effect | Change], str] = {
    AddColumn: COLUMNS,
    DropColumn: COLUMNS,
    RenameColumn: COLUMNS,
    ModifyColumn: COLUMNS,
    SetDefault: "it changes a column's default",
    DropPrimaryKey: KEY,
    DropTable: REMOVES_TABLE,
    DropDatabase: REMOVES_TABLES,
    TruncateTable: "it removes rows",
    RenameTable: RENAMES,
    RecoverTable: "it brings a table back",
    TruncatePartition: "it removes rows",
    DropPartition: "it removes rows",
    ExchangePartition: "it exchanges rows",
}


def classify(
    query: str, ddl_type: str, schema: str, table: str, known: TableSchema | None = None
) -> Statement:
    """``outcome`` of a text, as the one effect of a statement."""
    statement = read_ddl(query, ddl_type, schema, table)
    return Statement(effects=(outcome(statement, known),), event_types=statement.event_types)


def outcome(statement: Statement, known: TableSchema | None) -> Effect:
    """CreateTable, CreateTableLike, NoEffect or Unsupported.

    ``known`` is the target's schema as it stands. It decides about indexes: dropping the one that
    is the handle key is Unsupported, any other is not. Without it no index but PRIMARY matters.
    """
    reasons = dict.fromkeys(why for effect in statement.effects for why in _why(effect, known))
    first = statement.effects[0]
    if reasons:
        return Unsupported(reason="; ".join(reasons))
    is_told = isinstance(first, CreateTable | CreateTableLike | NoEffect)
    return first if is_told else NoEffect(reason=NOTHING)


def _why(effect: Effect | Change, known: TableSchema | None) -> Iterator[str]:
    """Why the changefeed stops for it; nothing: it does not."""
    match effect:
        case Unsupported(reason=reason):
            yield RENAMES if reason == FROM_UNKNOWN else reason
        case NoEffect(reason=reason) if reason == KEEPS_ROWS:
            yield "it changes partitions, and with them perhaps rows"
        case AlterTable(changes=changes):
            for change in changes:
                yield from _why(change, known)
        case AddIndex(index=index) if _is_new_key(index, known):
            yield KEY
        case DropIndex(name=name) | RenameIndex(name=name) if known and known.key_index:
            if same_name(name, known.key_index):
                yield KEY
        case SetCharset(binary=True) | ConvertCharset(binary=True):
            yield "CHARACTER SET binary makes bytes of text"
        case _ if type(effect) in _REASONS:
            yield _REASONS[type(effect)]


def _is_new_key(index: Index, known: TableSchema | None) -> bool:
    if index.kind == "primary":
        return True
    if index.kind != "unique" or known is None or known.key_index is None:
        return False
    return len(index.columns) < len(known.key) and can_be_key(index.columns, known)
