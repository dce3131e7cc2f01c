"""Sorts a DDL: it makes a table, has no effect on targets, or changes a target.

What changes a target is `ChangesTarget`, with the reason that an operator reads where the
changefeed stops for it; ``streaming/owner/ddl/steps.py`` says which of these the owner can run."""

from __future__ import annotations

from collections.abc import Iterator

from sinks.ddl.alter_table import FROM_UNKNOWN, NOTHING
from sinks.ddl.effects import (
    RENAMES,
    AddIndex,
    AddPartitions,
    AlterSpec,
    AlterTable,
    ChangesTarget,
    CreateTable,
    CreateTableLike,
    DropIndex,
    Effect,
    NoEffect,
    RenameIndex,
    ReorganizePartitions,
    SetCharset,
    SetPartitioning,
    Statement,
    Unsupported,
)
from sinks.ddl.handle_key import PRIMARY, can_be_key
from sinks.ddl.text.tokens import same_name
from sinks.types.table_schema import Index, TableSchema

KEY = "it changes the table's key"
PARTITIONS = "it changes the table's partitions"
UNIQUE_INDEXES = "it changes the table's unique indexes"  # one of which may become the key
RENAMES_UNREAD = "it renames a table that [filter] leaves out, so its rows were not read"


def outcome(statement: Statement, known: TableSchema | None) -> Effect:
    """CreateTable, CreateTableLike, NoEffect, or ChangesTarget, also for what is not understood.

    ``known`` is the target's present schema. Indexes need it: to drop the index that is the handle
    key changes the target, to drop another has no effect. Without it only PRIMARY counts.
    """
    reasons = dict.fromkeys(why for effect in statement.effects for why in _why(effect, known))
    first = statement.effects[0]
    if reasons:
        return ChangesTarget(reason="; ".join(reasons))
    is_told = isinstance(first, CreateTable | CreateTableLike | NoEffect)
    return first if is_told else NoEffect(reason=NOTHING)


def _why(effect: Effect | AlterSpec, known: TableSchema | None) -> Iterator[str]:
    """The reasons why the effect changes a target; none where it does not."""
    match effect:
        case Unsupported(reason=reason):
            yield RENAMES if reason == FROM_UNKNOWN else reason
        case AlterTable(changes=changes):
            for change in changes:
                yield from _why(change, known)
        case _ if known is not None and _changes_partitions(effect, known):
            yield PARTITIONS
        case AddIndex() | DropIndex() | RenameIndex():
            yield from _why_index(effect, known)
        case SetCharset(binary=True):
            yield "CHARACTER SET binary makes bytes of text"
        case SetCharset(by_server=True):
            yield "it changes the character set of texts"
        case _ if effect.why:
            yield effect.why


def _changes_partitions(effect: Effect | AlterSpec, known: TableSchema) -> bool:
    """Unknown ones stay unknown until a statement names them all."""
    if isinstance(effect, AddPartitions | ReorganizePartitions):
        return known.partitioning is not None
    return isinstance(effect, SetPartitioning)


def _is_new_key(index: Index, known: TableSchema | None) -> bool:
    if index.kind == "primary":
        return True
    if index.kind != "unique" or known is None or known.key_index is None:
        return False
    return len(index.columns) < len(known.key) and can_be_key(index.columns, known)


def _why_index(
    change: AddIndex | DropIndex | RenameIndex, known: TableSchema | None
) -> Iterator[str]:
    """The key, and the unique indexes that may become it."""
    if isinstance(change, AddIndex):
        if _is_new_key(change.index, known):
            yield KEY
        elif change.index.kind == "unique" and known and known.follows_indexes:
            yield UNIQUE_INDEXES
    elif (isinstance(change, DropIndex) and same_name(change.name, PRIMARY)) or (
        known and known.key_index and same_name(change.name, known.key_index)
    ):
        yield KEY
    elif known and known.follows_indexes:
        found = (each for each in known.indexes if same_name(each.name, change.name))
        if any(each.kind == "unique" for each in found):
            yield UNIQUE_INDEXES
