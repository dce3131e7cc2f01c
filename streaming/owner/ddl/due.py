"""The DDLs that are due, as statements: those that the filter takes, in order. Pure.

The filter, and what an operator has decided, know a DDL by its upstream table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from coordination.model import TableName, Ts
from sinks.control.blocked_ddls import BlockedDdl
from sinks.ddl.effects import PassedOver, RenameTable, Statement
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.logged import as_written, in_lower_case
from sinks.ddl.text.plain_text import TYPED
from streaming.changefeed.filter import TableFilter
from streaming.owner.ddl.steps import (
    ROWS,
    DdlEvent,
    dropped_names,
    exchanged_names,
    folded,
    is_rename,
    new_names,
    old_names,
)

Place = tuple[TableName, Ts]  # of a DDL: its table and commit-ts
Orders = Mapping[Place, BlockedDdl]  # operators' decisions


def due_ddls(
    ddls: Sequence[DdlEvent],
    table_filter: TableFilter,
    *,
    checkpoint: Ts,
    start_ts: Ts,
    limit: Ts,
) -> Iterator[tuple[DdlEvent, Statement, DdlEvent]]:
    """With the last event that belongs to it: TiCDC sends each part of a RENAME TABLE in a message
    of its own, at the same commit-ts."""
    held: tuple[DdlEvent, Statement, DdlEvent] | None = None  # until the next one is known
    for event in ddls:
        if event.commit_ts > limit:
            break
        if event.commit_ts < checkpoint or event.commit_ts <= start_ts:
            continue
        statement = statement_of(event)
        if not is_wanted(event, statement, table_filter):
            continue
        if held is not None:
            first, before, _ = held
            if event.commit_ts == first.commit_ts and is_rename(before) and is_rename(statement):
                effects = (*before.effects, *statement.effects)
                held = first, replace(before, effects=effects), event
                continue
            yield held
        held = event, statement, event
    if held is not None:
        yield held


def in_turn(
    statement: Statement, tables: Iterable[TableName], target: Callable[[TableName], TableName]
) -> Statement:
    """One RENAME TABLE of several tables, its parts in an order in which they can run. ``tables``:
    those that are there, by target.

    Where each table has a topic or a folder of its own, nobody tells that order. Then a name is
    taken when its table has left it, and of a swap the first part takes the name that no table has.
    Where the parts can run as they came, their order is right."""
    parts = [each for each in statement.effects if isinstance(each, RenameTable)]
    there = {folded(name) for name in tables}
    if len(parts) < 2 or not is_rename(statement) or _can_run(parts, there, target):
        return statement
    turn: list[RenameTable] = []
    while parts:
        lasting = (each for each in parts if not any(_leaves(o, each) for o in parts))
        free = (each for each in parts if folded(target(each.new_name)) not in there)
        turn.append(next(lasting, None) or next(free, parts[0]))
        parts.remove(turn[-1])
    return replace(statement, effects=tuple(turn))


def _can_run(
    parts: Iterable[RenameTable],
    there: Iterable[tuple[str, str]],
    target: Callable[[TableName], TableName],
) -> bool:
    now = set(there)
    for each in parts:
        if folded(target(each.new_name)) in now:
            return False
        now.discard(folded(target(each.name)))
        now.add(folded(target(each.new_name)))
    return True


def _leaves(one: RenameTable, other: RenameTable) -> bool:
    """Whether its table leaves the name that the other one takes."""
    return one is not other and folded(one.name) == folded(other.new_name)


def statement_of(event: DdlEvent) -> Statement:
    """By upstream names."""
    if event.ddl_type == ROWS:
        return Statement(effects=(PassedOver(name=event.upstream),), event_types=())
    found = read_ddl(event.query, event.ddl_type, event.upstream.schema, event.upstream.table)
    return in_lower_case(found) if event.is_lower else found


def as_ordered(
    event: DdlEvent, statement: Statement, order: BlockedDdl | None
) -> tuple[DdlEvent, Statement]:
    """The DDL after an operator's decision: nothing at all, or another statement in its place."""
    if order is not None and order.action == "skip":
        return event, replace(statement, effects=(PassedOver(name=event.upstream),))
    if order is None or order.sql is None:
        return event, statement
    event = replace(event, query=TYPED + order.sql, ddl_type="")
    return event, statement_of(event)


def is_wanted(event: DdlEvent, statement: Statement, table_filter: TableFilter) -> bool:
    """A DDL of a schema has an empty table name: the filter answers for the whole schema. A
    rename's event has the new name; the old name counts too, and so does the table of an
    EXCHANGE. One of several tables counts if the filter takes one of them."""
    names = [*old_names(statement), *new_names(statement), *dropped_names(statement)]
    names += exchanged_names(statement)
    if event.upstream.table or not names:
        names.append(event.upstream)
    return any(map(table_filter.selects, names)) and not table_filter.ignores_ddl(
        event.upstream, statement.event_types, as_written(event.query)
    )


def unsure_of_indexes(
    names: Iterable[TableName], table_filter: TableFilter, orders: Orders
) -> set[TableName]:
    """The tables whose known indexes are not certain, since DDLs of them may be passed over."""
    events = (("create index", "alter table"), ("drop index", "alter table"))
    ordered = {order.name for order in orders.values() if order.action == "skip" or order.sql}
    return {
        name
        for name in names
        if name in ordered or any(table_filter.ignores_ddl(name, each, "") for each in events)
    }
