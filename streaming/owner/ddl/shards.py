"""What a DDL of one shard means for the target of all: pure. Pessimistic, as in DM.

    A: d1 ──► every other shard has d1 too ──► it runs on the target, at A's place; the others are
    B:        ────────── d1 ──►                *behind* until their own d1 comes, and their rows are
                                               cast by the shape from before (`Shards.behind`)
              no d1 yet ──► the target waits below A's d1, and other tables go on

So all rows of a target wait, not only those of the shard that is ahead: a target has one progress
(rule 5), and no snapshot shows half of the shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coordination.model import TableName, Ts
from sinks.ddl import classify as reasons
from sinks.ddl.effects import (
    AlterTable,
    ChangesTarget,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    Effect,
    NoEffect,
    PassedOver,
    RenameTable,
    Statement,
    TruncateTable,
    Unsupported,
)
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.plain_text import TYPED
from sinks.types.table_schema import TableSchema
from streaming.changefeed.filter import TableFilter
from streaming.changefeed.routes import Routes, Shards, Statements
from streaming.changefeed.schema_from_rows import fits
from streaming.owner.ddl.due import Orders, is_wanted, statement_of
from streaming.owner.ddl.routed import NOT_OF_SHARDS, is_of_shards
from streaming.owner.ddl.steps import ROWS, DdlEvent

NOT_TOLD = (
    "it empties one of several tables that go into this target, and no column tells its rows from "
    "those of the others (extract-table): delete them by hand, and pass over it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """It cannot run now. ``is_waiting``: for DDLs of other shards."""

    why: str
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The targets' shards afterwards; nothing else changes but that the rows ``of_shard`` go.
    ``merged``: targets that stay, of a DDL that drops tables."""

    shards: Mapping[TableName, Shards]
    of_shard: tuple[tuple[str, str], ...] = ()
    merged: frozenset[TableName] = frozenset()
    is_skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """All shards have it: it runs on the target."""

    shards: Mapping[TableName, Shards]


class Passes:
    """There is nothing to do."""


Decision = Stays | Noted | Runs | Passes | None
Targets = Mapping[TableName, TableSchema | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDdls:
    """``ddls``: all that were read, in order. ``unlike``: by upstream table, how a whole row of it
    differs from its target."""

    routes: Routes
    ddls: Sequence[DdlEvent]
    limit: Ts
    table_filter: TableFilter
    orders: Orders
    unlike: Mapping[TableName, str] = field(default_factory=dict)
    shaped: Mapping[TableName, Ts] = field(default_factory=dict)  # by target, its last DDL

    def decide(
        self,
        event: DdlEvent,
        statement: Statement,
        schemas: Targets,
        shards: Mapping[TableName, Shards],
    ) -> Decision:
        """``statement``: by upstream names, without DROP DATABASE. ``schemas``: of targets that are
        there. None: it is about a table that goes into a target alone. Raises ConfigError."""
        if any(isinstance(each, DropTable) for each in statement.effects):
            return self._dropped(statement, shards)
        if is_of_shards(statement, self.routes):
            return Stays(why=NOT_OF_SHARDS)
        of = shards.get(event.name, Shards())
        route = self.routes.of(event.upstream)
        is_own = not of and event.upstream == event.name and not route.columns
        if event.name not in schemas or is_own:
            return None
        first = statement.effects[0]
        if isinstance(first, RenameTable):
            return self._renamed(event, first)
        return self._of_one(event, first, of, schemas[event.name])

    def _of_one(
        self, event: DdlEvent, first: Effect, of: Shards, schema: TableSchema | None
    ) -> Decision:
        """A DDL of one upstream table, which joins first. All that join at one commit-ts do so in
        one step: the target tells its steps apart by that alone."""
        is_new = brings(event, first)
        if is_new and schema is None:
            return Passes()  # there is no target: its rows are dead letters, or tell it and join
        if event.upstream in of:
            return Passes() if is_new else self._of_shard(event, first, of, schema)
        is_skipped, whys = self._is_skipped(event), []
        together = self._joining(event) if is_new or is_skipped else ()
        for each, effect in ((event, first), *together):
            if each.upstream in of:
                continue
            whys.append("" if is_skipped else self._why_not(each, effect, of, schema))
            of = of.joined(each.upstream)
        if why := "; ".join(filter(None, whys)):
            return Stays(why=why)
        if is_new or is_skipped:
            return Noted(shards={event.name: of}, is_skipped=is_skipped)
        return self._of_shard(event, first, of, schema)

    def _joining(self, event: DdlEvent) -> Iterator[tuple[DdlEvent, Effect]]:
        """What brings upstream tables to its target at its commit-ts."""
        for each in self.ddls:
            if (each.name, each.commit_ts) != (event.name, event.commit_ts):
                continue
            statement = statement_of(each)
            first = statement.effects[0]
            if brings(each, first) and is_wanted(each, statement, self.table_filter):
                yield each, first

    def _is_ordered(self, event: DdlEvent) -> bool:
        """Whether an operator lets it run without the others, or another statement in its place."""
        order = self.orders.get((event.name, event.commit_ts))
        return event.query.startswith(TYPED) or (order is not None and order.action == "apply")

    def _is_skipped(self, event: DdlEvent) -> bool:
        order = self.orders.get((event.name, event.commit_ts))
        return order is not None and order.action == "skip"

    def _dropped(self, statement: Statement, shards: Mapping[TableName, Shards]) -> Decision:
        """The rows of a shard stay, as in DM: old shards are dropped to make room upstream."""
        found: dict[TableName, Shards] = {}
        merged = set()
        for effect in statement.effects:
            if isinstance(effect, DropTable) and self.routes.of(effect.name).is_merging:
                target = self.routes.of(effect.name).target
                merged.add(target)
                of = found.get(target, shards.get(target, Shards()))
                if effect.name in of:
                    found[target] = of.left(effect.name)
        return Noted(shards=found, merged=frozenset(merged)) if merged else None

    def _renamed(self, event: DdlEvent, effect: RenameTable) -> Decision:
        """A table alone in its target, which is that of its new name too."""
        old, new = (self.routes.of(each).target for each in (effect.name, effect.new_name))
        if old != new:
            return None
        return Noted(shards={event.name: Shards().joined(effect.new_name)})

    def _why_not(
        self, event: DdlEvent, first: Effect, of: Shards, schema: TableSchema | None
    ) -> str:
        """Why the table cannot join these; "": it can."""
        origin = event.upstream
        if why := self.routes.clash(origin, of):
            return why
        if isinstance(first, CreateTable):
            return difference(self.routes.extended(origin, first.schema), schema, event)
        return self.unlike.get(origin, "")

    def _of_shard(  # noqa: PLR0911 - one per kind
        self, event: DdlEvent, effect: Effect, of: Shards, schema: TableSchema | None
    ) -> Decision:
        """A DDL of a shard that is there."""
        route = self.routes.of(event.upstream)
        if not route.is_merging:
            return None
        match effect:
            case PassedOver():
                return Noted(shards={event.name: _caught_up(of, event)}, is_skipped=True)
            case TruncateTable():
                twins = [each for each in of if self.routes.of(each).columns == route.columns]
                if not route.columns or len(twins) > 1:
                    return Stays(why=NOT_TOLD)
                return Noted(shards={event.name: of}, of_shard=route.columns)
            case AlterTable() if _counts(effect, schema, of.behind[event.upstream]):
                return self._altered(event, effect, of, schema)
            case AlterTable():
                return Passes()
            case NoEffect():
                return Passes()
        why = effect.reason if isinstance(effect, Unsupported) else effect.why
        return Stays(why=f"{why}, in one of several tables of the target")

    def _altered(
        self, event: DdlEvent, effect: AlterTable, of: Shards, schema: TableSchema | None
    ) -> Decision:
        if event.commit_ts <= self.shaped.get(event.name, 0):
            return Passes()  # the table was copied, or rewound, in this shape or a later one
        behind, is_typed = of.behind[event.upstream], self._is_ordered(event)
        after = _caught_up(of, event)
        if behind and not is_typed:
            query = behind[0][1]
            if is_same(effect, query):
                return Noted(shards={event.name: after})
            return Stays(why=f"the other tables of the target have had another DDL: {query}")
        if not is_typed and (stays := self._others(event, effect, of, schema)) is not None:
            return stays
        had = (event.commit_ts, event.query)
        later = {
            name: each if name == event.upstream else (*each, had)
            for name, each in after.behind.items()
        }
        return Runs(shards={event.name: Shards(later)})

    def _others(
        self, event: DdlEvent, effect: AlterTable, of: Shards, schema: TableSchema | None
    ) -> Stays | None:
        """None: all other shards have it too, further on."""
        missing = []
        for other, behind in sorted(of.behind.items()):
            if other == event.upstream:
                continue
            found, is_dropped = self._later(event, other, behind, schema)
            if len(found) > len(behind):
                there, query = found[len(behind)]
                if there.changes != effect.changes:
                    return Stays(why=f"{other} has another DDL in its place: {query}")
            elif not is_dropped:
                missing.append(str(other))
        if not missing:
            return None
        return Stays(why=f"it waits for the same DDL of {', '.join(missing)}", is_waiting=True)

    def _later(
        self, event: DdlEvent, other: TableName, behind: Statements, schema: TableSchema | None
    ) -> tuple[list[tuple[AlterTable, str]], bool]:
        """The DDLs of another shard behind this one, and whether it is dropped then."""
        found: list[tuple[AlterTable, str]] = []
        for each in self.ddls:
            if not event.commit_ts < each.commit_ts <= self.limit or self._is_skipped(each):
                continue
            if each.name != event.name and each.name.table:
                continue
            statement = statement_of(each)
            if not is_wanted(each, statement, self.table_filter):
                continue
            gone = (DropTable(name=other), DropDatabase(schema=other.schema))
            if any(effect in gone for effect in statement.effects):
                return found, True
            first = statement.effects[0]
            if each.upstream == other and isinstance(first, AlterTable):
                found += [(first, each.query)] if _counts(first, schema, behind) else []
        return found, False


def _caught_up(of: Shards, event: DdlEvent) -> Shards:
    """With the next DDL of this upstream table behind it."""
    return Shards({**of.behind, event.upstream: of.behind[event.upstream][1:]})


def brings(event: DdlEvent, first: Effect) -> bool:
    """Whether an upstream table begins with it."""
    return event.ddl_type == ROWS or isinstance(first, CreateTable | CreateTableLike)


def _counts(effect: AlterTable, schema: TableSchema | None, behind: Statements) -> bool:
    """Whether it changes a target, or did so when another shard had it: an index that it drops may
    be gone from the target's schema since."""
    statement = Statement(effects=(effect,), event_types=())
    is_change = isinstance(reasons.outcome(statement, schema), ChangesTarget)
    return is_change or any(is_same(effect, query) for _, query in behind)


def is_same(effect: AlterTable, query: str) -> bool:
    """Whether the DDL of another shard does the same."""
    (first, *_) = read_ddl(query, "", effect.name.schema, effect.name.table).effects
    return isinstance(first, AlterTable) and first.changes == effect.changes


def difference(made: TableSchema, target: TableSchema | None, event: DdlEvent) -> str:
    """How a table differs from the target that it is to join, as a reason; "": it does not."""
    if target is None:
        return ""
    mine = {each.name.lower(): each for each in made.delivered}
    theirs = {each.name.lower(): each for each in target.delivered}
    found = [f"it has {mine[each].name}" for each in mine if each not in theirs]
    found += [f"it lacks {theirs[each].name}" for each in theirs if each not in mine]
    found += [
        f"its {mine[each].name} is {mine[each].type}, and not {theirs[each].type}"
        for each in mine
        if each in theirs and not fits(mine[each].type, str(theirs[each].type))
    ]
    own = () if target.key_is_row else target.key  # with all columns as the key it has none
    keys = [sorted(each.lower() for each in key) for key in (made.key, own)]
    if keys[0] != keys[1]:
        found.append(f"its key is ({', '.join(made.key)}), and not ({', '.join(target.key)})")
    if not found:
        return ""
    return (
        f"{event.upstream} goes into {event.name} with other tables, and is another: "
        f"{'; '.join(found)}. Make it like them, or leave it out with [filter] rules"
    )
