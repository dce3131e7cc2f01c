"""``tidelake ddl``: which DDLs hold a table or have stopped a changefeed, and an operator's word.

The word goes into ``_tidelake/blocked_ddls``, beside the tables: a `run` and a cluster find it
there, at once where they wait for it, else when they start again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conf.settings import DeltaSink
from coordination.errors import ConfigError
from coordination.metadata.records import FeedState
from coordination.model import TableName, Ts, tso_time
from sinks.control.blocked_ddls import BlockedDdl, DdlAction
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from sinks.control.warehouse import ControlTables
from sinks.ddl.effects import NoEffect, Unsupported
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.plain_text import TYPED
from streaming.operations.changed import CHANGED, between
from streaming.operations.cluster import Operator
from streaming.operations.progress_report import changefeed_rows

ShownRow = Mapping[str, Any]


def list_ddls(sink: DeltaSink, changefeed_id: str | None) -> list[ShownRow]:
    """The DDLs that block now, and those that an operator has decided upon. ConfigError if the
    warehouse has no such changefeed: "nothing blocks it" would be no answer."""
    if changefeed_id is not None:
        changefeed_rows(sink, changefeed_id)
    tables = ControlTables.of(sink)
    changefeeds = {row.changefeed_id: row for row in tables.changefeeds.read_all()}
    of_tables = {(row.changefeed_id, row.name): row for row in tables.progress.read_all()}

    def reached_ts(row: BlockedDdl) -> int:
        changefeed = changefeeds.get(row.changefeed_id)
        of_table = of_tables.get((row.changefeed_id, row.name))
        return 0 if changefeed is None else _reached_ts(changefeed, of_table)

    return [
        {
            "changefeed": row.changefeed_id,
            "table": str(row.name),
            "commit_ts": row.commit_ts,
            "commit_time": tso_time(row.commit_ts),
            "state": _state(row, reached_ts(row)),
            "query": row.query,
            "reason": row.reason,
            "sql": row.sql,
        }
        for row in tables.blocked_ddls.read_all()
        if changefeed_id in (None, row.changefeed_id)
    ]


def _reached_ts(row: ChangefeedRow, of_table: ProgressRow | None) -> int:
    """How far the DDL's table is: further than the changefeed, where that waits for another one."""
    if of_table is None or of_table.incarnation != row.incarnation:
        return row.checkpoint_ts
    return max(row.checkpoint_ts, of_table.checkpoint_ts)


def _state(row: BlockedDdl, checkpoint_ts: int) -> str:
    is_behind = checkpoint_ts >= row.commit_ts
    match row.action:
        case "skip":
            return "skipped" if is_behind else "to be skipped"
        case "apply":
            return "applied" if is_behind else "to be applied"
        case _:
            return "passed" if is_behind else "blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """An operator's decision about a DDL: the DDL's row before and now, and how far its table
    is."""

    before: BlockedDdl
    ddl: BlockedDdl
    changefeed: ChangefeedRow
    reached_ts: int

    @property
    def is_done(self) -> bool:
        """Whether the word has been carried out already."""
        return self.reached_ts >= self.ddl.commit_ts

    def to_row(self) -> ShownRow:
        before, after = (
            {"state": _state(each, self.reached_ts), "sql": each.sql}
            for each in (self.before, self.ddl)
        )
        return {
            "changefeed": self.ddl.changefeed_id,
            "table": str(self.ddl.name),
            "commit_ts": self.ddl.commit_ts,
            "query": self.ddl.query,
            **after,
            CHANGED: between(before, after),
        }


def order_ddl(
    sink: DeltaSink,
    *,
    changefeed_id: str,
    table: str,
    commit_ts: int,
    action: DdlAction,
    sql: str | None = None,
) -> Ordered:
    """Store the decision. ConfigError if there is no such DDL, or if another decision has been
    carried out already."""
    tables = ControlTables.of(sink)
    blocked = tables.blocked_ddls.read(changefeed_id)
    schema, _, rest = table.partition(".")
    shown = {str(name): name for name, at_ts in blocked if at_ts == commit_ts}
    name = shown.get(table) or TableName(schema, rest)  # a database's name may have a dot
    place = name, Ts(commit_ts)
    if sql is not None:
        _check_statement(sql, name)
    known = blocked.get(place)
    row = tables.changefeeds.read(changefeed_id) if known is not None else None
    is_said = known is not None and (known.action, known.sql) == (action, sql)
    of_table = tables.progress.read(changefeed_id).get(name)
    reached_ts = _reached_ts(row, of_table) if row is not None else 0
    if reached_ts >= commit_ts and not is_said:
        raise ConfigError(
            f"changefeed {changefeed_id} is beyond that DDL, at checkpoint-ts "
            f"{reached_ts}: it is too late to decide about it"
        )
    ordered = tables.blocked_ddls.order(changefeed_id, place, action, sql)
    assert row is not None, "who notes a DDL has a row"
    assert known is not None, "what is ordered was noted"
    return Ordered(before=known, ddl=ordered, changefeed=row, reached_ts=reached_ts)


def _check_statement(sql: str, name: TableName) -> None:
    """Whether the statement changes this table. Only its run shows whether the table allows it."""
    for effect in read_ddl(TYPED + sql, "", name.schema, "").effects:
        if isinstance(effect, Unsupported):
            raise ConfigError(f"--sql {sql!r} cannot be run: {effect.reason}")
        if isinstance(effect, NoEffect):
            raise ConfigError(
                f"--sql {sql!r} would change nothing ({effect.reason}): `tidelake ddl skip` "
                "passes over the DDL"
            )
        of = getattr(effect, "name", None)
        if of is None or str(of).lower() != str(name).lower():
            raise ConfigError(f"--sql {sql!r} is about {of or 'no single table'}, not {name}")


def go_on(row: ChangefeedRow, op: Operator | None) -> str:
    """A sentence that says what happens next. With an operator's access to the cluster a changefeed
    that has failed is resumed."""
    if row.is_of_a_run:
        if row.state in ("failed", "stopped"):
            return "start `tidelake run` again: it goes on from there"
        return "a `tidelake run` that is up goes on from there, else its next start does"
    resume = f"`tidelake changefeed resume -c {row.changefeed_id}` goes on from there"
    if op is None:
        return resume
    state = op.query(row.changefeed_id)["state"]
    if state == FeedState.FAILED:
        op.resume(row.changefeed_id, None)
        return "the changefeed is resumed, and goes on from there"
    if state == FeedState.STOPPED:
        return f"the changefeed is paused: {resume}"
    return "the changefeed runs, and goes on from there"
