"""A table of a changefeed as a value: what it is, and how far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from coordination.model import TableName, Ts
from coordination.scheduler.messages import Span, stored_table_id
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import BLOCKED, DROPPED, ProgressRow
from sinks.control.schemas import SchemaRow, columns_of, partitioning_of
from sinks.target.engine_port import GENERATION, LastSeen, Target
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import TargetState
from sinks.target.write_mode import WriteMode
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Shards

REPLICATING = "replicating"
WARNING = "warning"
PAUSED = "paused"  # by an operator, for work of his own on the table
NO_DDL = NOTHING_SHOWN = Ts(0)
NO_KEY: Final = "no primary key and no NOT NULL unique key"
WHY: Final = ", since "
RULES: Final = (
    '[[sink.tables]] with write-mode = "append", key = "all-columns" or, for a binlog, key = "rows"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedTable:
    """One table and how far it is.

    ``target`` is None for a table without a usable key (``is_keyless``), and as long as no whole
    row has told the columns of a table whose CREATE TABLE was not read. ``state`` is then
    ``warning`` as soon as a row of it is a dead letter."""

    name: TableName
    checkpoint: Ts
    target: Target | None = None
    version: int | None = None  # Delta version that holds everything up to the checkpoint
    identity: Ts | None = None  # of its app ID in that version
    engine: str = ""
    created_ts: Ts = NO_DDL  # commit-ts of the DDL that made the target
    last_ddl_ts: Ts = NO_DDL  # ... of the last one that has run on it since
    shape_ts: Ts = NO_DDL  # ... and of the one that its shape is of: newer where it was rewound
    shape: DdlIdentity | None = None  # the DDL that made or altered it last
    shaped_at: int = 0  # the version that this one has made
    shown_ts: Ts = NOTHING_SHOWN  # what a rewind has left in the table may be of up to here
    shards: Shards = field(default_factory=Shards)  # its upstream tables, where routes lead to it
    is_keyless: bool = False
    state: str = REPLICATING
    dropped: Mapping[str, int] = field(default_factory=dict)  # column that it lacks -> values
    null_dates: Mapping[str, int] = field(default_factory=dict)  # column -> written as NULL
    error: str = ""  # why it cannot be written now
    lacks: str = ""  # rows of before, so it has none, and gets none, until it is copied

    @property
    def why_not(self) -> str:
        """Why it is not replicated, for an operator; empty: it is."""
        return not_replicated(self.name, self.lacks) if self.lacks else ""

    @property
    def schema_or_empty(self) -> TableSchema:
        """The schema that its rows are cast by; without columns for a table whose rows are dead
        letters."""
        return self.target.schema if self.target else TableSchema(columns=(), key=())

    @property
    def version_ts(self) -> Ts:
        """Below it the version shows what came later: rows of another writer, who has brought the
        table further, or the shape after a DDL."""
        return Ts(max(self.last_ddl_ts, self.identity or NOTHING_SHOWN))

    @property
    def version_at_checkpoint(self) -> int | None:
        """None where the version shows what came after the checkpoint."""
        return self.version if self.checkpoint >= self.version_ts else None

    @property
    def last(self) -> LastSeen | None:
        """How it was seen last, in a version of which is known what others had done."""
        return None if self.version is None else LastSeen(self.version, self.identity)

    @property
    def is_blocked(self) -> bool:
        """Until an operator has mended it: nothing of it moves."""
        return self.state == BLOCKED

    @property
    def is_settled(self) -> bool:
        """Whether its rows need not tell its schema any more."""
        return self.target is not None or self.is_keyless

    @property
    def has_no_row(self) -> bool:
        """Nothing but DELETEs has come: they have nothing to delete."""
        return not self.is_settled and self.state == REPLICATING

    @property
    def is_dropped(self) -> bool:
        """By a DDL at its checkpoint."""
        return self.state == DROPPED


def where_it_goes_on(
    row: ProgressRow, state: TargetState | None, feed: ChangefeedRow
) -> ReplicatedTable | None:
    """The table of this row where no target is to be opened: a DDL has dropped it, or it is not
    made yet. None: it goes on in what is at its place (``state``), if that is its own."""
    dropped = ReplicatedTable(name=row.name, checkpoint=Ts(row.checkpoint_ts), state=DROPPED)
    if row.state == DROPPED:
        return dropped
    begin = start_point(row, None, feed)
    if row.lacks:
        return lacking(row.name, Ts(max(begin, feed.checkpoint_ts)), row.lacks)
    unmade = ReplicatedTable(name=row.name, checkpoint=begin, state=unmade_state(row))
    if state is None or state.changefeed_id != feed.changefeed_id:
        return unmade if row.delta_version is None else None
    waits_for_rename = state.left_version is not None and row.delta_version is not None
    is_newer = (state.incarnation or 0) > feed.incarnation
    if state.dropped_ts is None or waits_for_rename or is_newer:
        return None
    if state.dropped_ts > row.checkpoint_ts:  # nobody had noted it yet
        return replace(dropped, checkpoint=state.dropped_ts)
    return unmade  # it was made again without a key


def lacking(name: TableName, checkpoint: Ts, what: str) -> ReplicatedTable:
    """A table whose rows of before no copy has: its later rows alone would be a part of it."""
    return ReplicatedTable(
        name=name, checkpoint=checkpoint, is_keyless=True, state=WARNING, lacks=what
    )


def not_replicated(name: TableName, what: str) -> str:
    """``what`` it lacks; behind `WHY` the reason, unless that is a missing key."""
    what, _, why = what.partition(WHY)
    if why:
        return (
            f"table {name} is not replicated: {why}. It lacks {what}, and all later ones, until "
            "the copy is started again (tidelake run with task-mode=all): it is copied then, and "
            "joins. Or leave it out with [filter] rules"
        )
    return (
        f"table {name} is not replicated: it had {NO_KEY} when the tables were copied, so it lacks "
        f"{what}, and all later ones. Give it a key in the database, or {RULES}, and start the "
        "copy again (tidelake run with task-mode=all, or the tidb:// URI): it is copied then, and "
        "joins. Or leave it out with [filter] rules"
    )


def no_reload_of(form: WriteMode, schema: TableSchema | None = None) -> str:
    """Why a table of this form takes no copy in the place of what it has; empty: it does."""
    if form.is_log or form.is_history:
        kind = "events" if form.is_log else "versions of rows"
        return (
            f"it is written with {form}, and holds {kind} of before that no copy has. Move it away "
            "first, if it shall begin anew with the rows of now"
        )
    if schema is not None and not schema.key:
        return (
            f"it has {NO_KEY} in the database, and {RULES} says what it shall be: give it one of "
            "them, and order it again"
        )
    return ""


def start_point(row: ProgressRow, identity: int | None, feed: ChangefeedRow) -> Ts:
    """Rule 5: of the same incarnation the greater of identity and progress; else where it was
    sealed."""
    if row.incarnation >= feed.incarnation:
        return Ts(max(row.checkpoint_ts, identity or 0))
    if identity is not None:
        return Ts(identity)
    recorded = Ts(row.checkpoint_ts)
    return min(recorded, Ts(feed.checkpoint_ts)) if is_rewinding(feed) else recorded


def is_rewinding(feed: ChangefeedRow) -> bool:
    return feed.state == "rewinding"


def unmade_state(row: ProgressRow) -> str:
    """The state of a table without a target; when its changefeed stopped, the row said so."""
    if row.state in (REPLICATING, WARNING):
        return row.state
    return WARNING if row.dead_letters else REPLICATING


def span_of(table: ReplicatedTable, incarnation: int) -> Span:
    """The span of a table, with the table ID that every owner computes alike."""
    schema, name = table.name.schema, table.name.table
    return Span(stored_table_id(incarnation, schema, name, table.created_ts), schema, name)


def schema_row(table: ReplicatedTable, changefeed_id: str) -> SchemaRow | None:
    """The shape that it has; None: it has no target yet, or nobody noted its DDL."""
    if table.target is None or table.shape is None:
        return None
    return SchemaRow(
        changefeed_id=changefeed_id,
        schema_name=table.name.schema,
        table_name=table.name.table,
        generation=GENERATION,
        commit_ts=table.shape.commit_ts,
        statement=table.shape.query,
        columns=columns_of(table.target.schema),
        key=table.target.schema.key,
        delta_version=table.shaped_at,
        partitioning=partitioning_of(table.target.schema),
    )
