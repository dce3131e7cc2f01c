"""A DDL of the stream, and its effect on one target when its time has come: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.ddl.classify import KEY, RENAMES_UNREAD
from sinks.ddl.effects import (
    AddIndex,
    AlterTable,
    CreateTable,
    DropDatabase,
    DropTable,
    Effect,
    ExchangePartition,
    NoEffect,
    PassedOver,
    RecoverTable,
    RenameTable,
    ReorganizePartitions,
    Statement,
    TruncatePartition,
    TruncateTable,
    Unsupported,
)
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.text.logged import server_session
from sinks.target.table_properties import DdlIdentity
from sinks.target.way_out import load_anew
from sinks.target.write_mode import UPSERT, WriteMode
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Shards

ROWS: Final = "ROWS"  # no DDL: the first rows of an upstream table have come

DdlKey = tuple[Ts, str, TableName]

PARTITIONS_UNKNOWN = (
    "it moves or removes the rows of partitions, and which rows those are is not known: the CREATE "
    "TABLE that says so was not read, or is of a kind that is not known here"
)
EXCHANGES_UNREAD = (
    "it exchanges rows with a table that was not read: [filter] leaves it out, or it has no key"
)
PARTITIONS_OF_LATER = (
    "it moves or removes the rows of partitions, and the table was rewound to below later DDLs, by "
    "which it is not known any more which rows those are: mend them by hand"
)
RECOVERS_UNKNOWN = (
    "it brings a table back, and [filter] passes over DDLs that take rows away, so that it is not "
    "known which ones it means"
)
TOLD_APART_ANEW = (
    "it changes the key: the table gets its first key, or loses its last one, or all columns are "
    "the key and it loses one, or gets a type in which two values may be equal. The target cannot "
    f"follow: {load_anew()}. Or pass over it, if the columns of a lost key stay unique"
)

_OF_ONE_TABLE = frozenset({"ALTER", "CINDEX", "DINDEX", "TRUNCATE"})  # canal-json's types
_OF_A_SECOND_TABLE = frozenset({"EXCHANGE", "RENAME"})
_ABOUT_ONE = (
    AlterTable,
    CreateTable,
    DropTable,
    PassedOver,
    TruncatePartition,
    TruncateTable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """A DDL as it was sent. Identity: (commit_ts, query, upstream); order: `sent_at`. ``origin``:
    the upstream table, if ``name`` is that of the target into which it is routed."""

    commit_ts: Ts
    place: int
    part: str = ""  # the least of those in which it came
    name: TableName
    ddl_type: str
    query: str
    origin: TableName | None = None
    by_id: tuple[str, ...] = field(default=(), compare=False)  # `TableSchema.by_id` behind it
    is_lower: bool = field(default=False, compare=False)  # so are all names in it (`Spellings`)

    @property
    def upstream(self) -> TableName:
        return self.origin or self.name

    @property
    def key(self) -> DdlKey:
        return self.commit_ts, self.query, self.upstream

    @property
    def sent_at(self) -> tuple[Ts, str, int]:
        """Places of several parts cannot be compared: where every part has each DDL, one counts."""
        return self.commit_ts, self.part, self.place

    @property
    def identity(self) -> DdlIdentity:
        """The identity that a table keeps of the DDL that makes it."""
        return DdlIdentity(commit_ts=self.commit_ts, order=0, query=self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlStep:
    """One commit of the table. ``change`` None: its shape stays, or has the DDL's effect already.

    ``ends``: the tables that are dropped, each by a commit of its own; ``moves``: those that are
    renamed, from which name to which, as they are before and after the whole DDL; ``recovers``: the
    name of a dropped table, and the one under which it comes back. With one of these, nothing else
    happens. ``exchanges_with``: the table with which the partition changes rows.
    """

    event: DdlEvent
    name: TableName
    change: SchemaChange | None = None
    empties: bool = False  # its rows go
    partitions: tuple[str, ...] = ()  # ... or those of these partitions
    is_rewound: bool = False  # the table's shape is of this DDL already, or of a later one
    is_skipped: bool = False  # an operator has said so
    ends: tuple[TableName, ...] = ()
    moves: tuple[tuple[TableName, TableName], ...] = ()
    recovers: tuple[TableName, TableName] | None = None
    exchanges_with: TableName | None = None
    shards: Mapping[TableName, Shards] = field(default_factory=dict)  # targets' afterwards
    leaves: tuple[TableName, ...] = ()  # targets that lose a shard, beside those that end
    of_shard: tuple[tuple[str, str], ...] = ()  # the rows with these values go

    @property
    def names(self) -> tuple[TableName, ...]:
        """The names of the tables that wait for it; none: all do, since it adds a table."""
        if self.recovers is not None:
            return ()
        if self.exchanges_with is not None:
            return self.name, self.exchanges_with
        return (*self.ends, *self.leaves, *(old for old, _ in self.moves)) or (self.name,)

    @property
    def is_of_one(self) -> bool:
        """Whether it is about the table alone that its message names."""
        return not self.moves and self.names == (self.event.name,)

    @property
    def touched(self) -> set[TableName]:
        """All names whose tables are others afterwards."""
        return {*self.names, *(new for _, new in self.moves), *(self.recovers or ())}

    @property
    def alone(self) -> tuple[TableName, ...]:
        """The tables that are done one by one; renamed ones are done together."""
        return self.ends if self.moves or self.exchanges_with else self.names

    @property
    def turns(self) -> tuple[TableName, ...]:
        """The names by which it is carried out, one after the other."""
        together = () if self.recovers is None else self.recovers[1:]
        if self.exchanges_with is not None:
            together = (self.name,)
        return (*self.alone, *(old for old, _ in self.moves[:1]), *together)


def step_of(  # noqa: PLR0911 - one per kind
    event: DdlEvent,
    statement: Statement,
    schemas: Mapping[TableName, TableSchema | None],
    seen: Mapping[TableName, Ts],
    shaped: Mapping[TableName, Ts],
    *,
    form: WriteMode = UPSERT,
) -> DdlStep | str | None:
    """None if there is no target. A text if the DDL cannot be run, with the reason if the kind of
    DDL does not say enough. ``statement``: the parsed ``event``. ``schemas``, ``seen`` (the last
    DDLs) and ``shaped``: as in ``plan.KnownTables``; ``form``: the table's."""
    match statement.effects:
        case (DropDatabase() | DropTable(), *_):
            names = _dropped(statement, schemas)
            ends = tuple(each for each in names if event.commit_ts > seen.get(each, 0))
            return DdlStep(event=event, name=event.name, ends=ends) if ends else None
        case (AlterTable(name=name) | TruncateTable(name=name) | PassedOver(name=name) as effect,):
            schema = schemas.get(name)
            if schema is None or not (schema.key or form.is_log):
                is_first = name in schemas and _adds_key(effect) and not form.is_log
                return TOLD_APART_ANEW if is_first else None
            if not isinstance(effect, AlterTable):
                is_skipped = isinstance(effect, PassedOver)
                return DdlStep(
                    event=event, name=name, empties=not is_skipped, is_skipped=is_skipped
                )
            if event.commit_ts <= shaped.get(name, 0):
                return DdlStep(event=event, name=name)
            return _altered(event, schema, effect, form)
        case (TruncatePartition(name=name) as effect,):
            schema = schemas.get(name)
            if schema is None:
                return None
            return _without_partitions(event, schema, effect, shaped.get(name, Ts(0)), form)
        case (RecoverTable(name=told, new_name=new),):
            recovers = as_known(told, seen), new or event.name
            return DdlStep(event=event, name=recovers[1], recovers=recovers)
        case (ExchangePartition() as effect,):
            return _exchanged(event, effect, schemas, shaped)
    return ""


def is_about_one(event: DdlEvent, statement: Statement) -> bool:
    """Whether the DDL is surely about the table alone that its message names. A text that is not
    understood tells no names. TiCDC's kind does, but for clauses that name a second table."""
    name = event.name
    if not name.table:
        return False
    if all(_about(each) == name for each in statement.effects):
        return True
    match statement.effects:
        case (Unsupported(name=None),):
            words = set(re.findall(r"\w+", event.query.upper()))
            return event.ddl_type in _OF_ONE_TABLE and words.isdisjoint(_OF_A_SECOND_TABLE)
        case (NoEffect(),):
            return True
    return False


def _about(effect: Effect) -> TableName | None:
    """The one table that an effect is surely about."""
    return effect.name if isinstance(effect, (*_ABOUT_ONE, Unsupported)) else None


def is_rename(statement: Statement) -> bool:
    return all(isinstance(effect, RenameTable) for effect in statement.effects)


def old_names(statement: Statement) -> list[TableName]:
    """The earlier names of the tables that it renames."""
    return list(_moves(statement.effects)) if is_rename(statement) else []


def new_names(statement: Statement) -> list[TableName]:
    """The later names of those tables."""
    return list(_moves(statement.effects).values()) if is_rename(statement) else []


def dropped_names(statement: Statement) -> list[TableName]:
    """The tables that it drops by their names."""
    return [each.name for each in statement.effects if isinstance(each, DropTable)]


def exchanged_names(statement: Statement) -> list[TableName]:
    """The tables whose rows a partition gets."""
    return [each.table for each in statement.effects if isinstance(each, ExchangePartition)]


def _moves(effects: Iterable[Effect]) -> dict[TableName, TableName]:
    """Old name to new name, of all parts together: through ``tmp`` two tables swap their names."""
    now: dict[TableName, TableName] = {}
    for each in effects:
        if isinstance(each, RenameTable):
            same = (old for old, name in now.items() if folded(name) == folded(each.name))
            now[next(same, each.name)] = each.new_name
    return {old: new for old, new in now.items() if old != new}


def folded(name: TableName) -> tuple[str, str]:
    """TiDB compares names in any case, and TiCDC writes old ones in lower case."""
    return name.schema.lower(), name.table.lower()


def as_known(told: TableName, names: Iterable[TableName]) -> TableName:
    """The spelling of the name among these, if the statement spells it otherwise."""
    return {folded(name): name for name in names}.get(folded(told), told)


def rename_step_of(
    event: DdlEvent,
    statement: Statement,
    schemas: Iterable[TableName],
    seen: Mapping[TableName, Ts],
    *,
    selects: Callable[[TableName], bool],
    reached: Mapping[TableName, Ts],
) -> DdlStep | str | None:
    """As ``step_of``, for a RENAME TABLE; ``selects``: the filter's. A table that is renamed out of
    the filter is gone for us. A table of which no row was ever read is made from later rows.

    Where the new name's table was loaded as it was after the rename (``reached``), it has the
    rows already, and the one with the old name is gone."""
    known = {folded(name): name for name in schemas}
    every = _moves(statement.effects)
    leaving = {folded(told) for told in every}
    ends, moves = [], []
    for told, new in every.items():
        old = known.get(folded(told))
        if old is None and selects(new) and not selects(told):
            return RENAMES_UNREAD
        there = None if folded(new) in leaving else known.get(folded(new))
        is_loaded = there is not None and reached.get(there, 0) > event.commit_ts
        if old is not None and selects(new) and not is_loaded:
            moves.append((old, new))
        elif old is not None and event.commit_ts > seen.get(old, 0):
            ends.append(old)
    if not any(event.commit_ts > seen.get(old, 0) for old in (*ends, *(old for old, _ in moves))):
        return None
    return DdlStep(event=event, name=event.name, ends=tuple(ends), moves=tuple(moves))


def _dropped(statement: Statement, schemas: Collection[TableName]) -> list[TableName]:
    """Those of our tables that it drops, in order."""
    named = {as_known(name, schemas) for name in dropped_names(statement)}
    whole = {each.schema for each in statement.effects if isinstance(each, DropDatabase)}
    return sorted(name for name in schemas if name in named or name.schema in whole)


def _without_partitions(
    event: DdlEvent,
    schema: TableSchema,
    effect: TruncatePartition,
    shape_ts: Ts,
    form: WriteMode,
) -> DdlStep | str:
    name = effect.name
    if not effect.partitions:  # of ALL
        return DdlStep(event=event, name=name, empties=True)
    step = DdlStep(event=event, name=name, partitions=effect.partitions)
    if event.commit_ts <= shape_ts:
        return replace(step, is_rewound=True)
    if schema.partitioning is None:
        return PARTITIONS_UNKNOWN
    if not effect.drops:
        return step
    try:
        change = evolved(
            schema, (ReorganizePartitions(names=effect.partitions, into=()),), form.choice
        )
        return replace(step, change=replace(change, after=form.keyed(change.after)))
    except (ValueError, ConfigError) as error:
        return str(error)


def _exchanged(
    event: DdlEvent,
    effect: ExchangePartition,
    schemas: Mapping[TableName, TableSchema | None],
    shaped: Mapping[TableName, Ts],
) -> DdlStep | str | None:
    known = {folded(name): name for name in schemas}
    found = [known.get(folded(name)) for name in (effect.name, effect.table)]
    names = [name for name in found if name is not None]
    if not any(schemas[name] for name in names):
        return None  # neither has a target
    if len(names) != len(found) or not all(schemas[name] for name in names):
        return EXCHANGES_UNREAD
    if any(event.commit_ts < shaped.get(name, 0) for name in names):
        return PARTITIONS_OF_LATER
    schema = schemas[names[0]]
    if schema is None or schema.partitioning is None:
        return PARTITIONS_UNKNOWN
    return DdlStep(
        event=event, name=names[0], partitions=(effect.partition,), exchanges_with=names[1]
    )


def _adds_key(effect: AlterTable | TruncateTable | PassedOver) -> bool:
    changes = effect.changes if isinstance(effect, AlterTable) else ()
    return any(isinstance(each, AddIndex) and each.index.kind != "plain" for each in changes)


def _altered(
    event: DdlEvent, schema: TableSchema, effect: AlterTable, form: WriteMode
) -> DdlStep | str:
    try:
        change = evolved(schema, effect.changes, form.choice, server_session(event.query))
        after = replace(change.after, by_id=event.by_id)
        change = replace(change, after=form.keyed(after))
    except (ValueError, ConfigError) as error:
        return str(error)
    if not form.is_log and (not change.after.key or change.loses_rows_of_a_set):
        return TOLD_APART_ANEW
    if not _is_sure(change, is_log=form.is_log):
        return KEY
    return DdlStep(event=event, name=effect.name, change=change)


def _is_sure(change: SchemaChange, *, is_log: bool) -> bool:
    """Whether the table's key after the DDL is known, and its rows tell the key's values. A change
    log's rows need not; with all columns as the key they tell them all.

    A unique index becomes the key by the known ones, which DDLs that were passed over may alter.
    """
    before, after = change.before, change.after
    if after.key_is_row:
        return True
    sources = {change.sources[name] for name in after.key}
    is_same = sources == set(before.key)
    is_told = is_log or None not in sources
    return is_told and (is_same or after.key_index is None or after.follows_indexes)
