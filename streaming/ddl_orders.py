"""``tidelake ddl``: which DDLs have stopped a changefeed, and an operator's word to go on.

The word goes into ``_tidelake/blocked_ddls``, beside the tables: a `run` and a cluster find it
there, whenever they start again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conf.settings import DeltaSink
from coordination.errors import ConfigError
from coordination.metadata.model import FeedState
from coordination.model import TableName, Ts, tso_time
from sinks.blocked_ddls import BlockedDdl, DdlAction
from sinks.changefeeds import ChangefeedRow
from sinks.ddl.effects import NoEffect, Unsupported
from sinks.ddl.statements import read_ddl
from streaming.control_tables import ControlTables
from streaming.operations import Operator

Row = Mapping[str, Any]


def list_ddls(sink: DeltaSink, changefeed_id: str | None) -> list[Row]:
    """Those that block now, and those that an operator has decided upon."""
    tables = ControlTables.of(sink)
    checkpoints = {row.changefeed_id: row.checkpoint_ts for row in tables.changefeeds.read_all()}
    return [
        {
            "changefeed": row.changefeed_id,
            "table": str(row.name),
            "commit_ts": row.commit_ts,
            "commit_time": tso_time(row.commit_ts),
            "state": _state(row, checkpoints.get(row.changefeed_id, 0)),
            "query": row.query,
            "reason": row.reason,
            "sql": row.sql,
        }
        for row in tables.blocked_ddls.read_all()
        if changefeed_id in (None, row.changefeed_id)
    ]


def _state(row: BlockedDdl, checkpoint_ts: int) -> str:
    is_behind = checkpoint_ts >= row.commit_ts
    match row.action:
        case "skip":
            return "skipped" if is_behind else "to be skipped"
        case "apply":
            return "applied" if is_behind else "to be applied"
        case _:
            return "passed" if is_behind else "blocks"


def order_ddl(
    sink: DeltaSink,
    *,
    changefeed_id: str,
    table: str,
    commit_ts: int,
    action: DdlAction,
    sql: str | None = None,
) -> tuple[BlockedDdl, ChangefeedRow]:
    """Store the word; ConfigError where there is no such DDL, or it is too late for another word
    than the one that has been carried out."""
    schema, _, name = table.partition(".")
    place = TableName(schema, name), Ts(commit_ts)
    if sql is not None:
        _check_statement(sql, place[0])
    tables = ControlTables.of(sink)
    known = tables.blocked_ddls.read(changefeed_id).get(place)
    row = tables.changefeeds.read(changefeed_id) if known is not None else None
    is_said = known is not None and (known.action, known.sql) == (action, sql)
    if row is not None and row.checkpoint_ts >= commit_ts and not is_said:
        raise ConfigError(
            f"changefeed {changefeed_id} is beyond that DDL, at checkpoint-ts "
            f"{row.checkpoint_ts}: nothing can be said of it any more"
        )
    ordered = tables.blocked_ddls.order(changefeed_id, place, action, sql)
    assert row is not None, "who notes a DDL has a row"
    return ordered, row


def _check_statement(sql: str, name: TableName) -> None:
    """Whether it is one that changes this table; whether the table allows it is seen when it is
    run."""
    for effect in read_ddl(sql, "", name.schema, "").effects:
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
    """What happens next, in a sentence. With an operator's access to the cluster a changefeed that
    has failed is resumed."""
    if row.is_of_a_run:
        if row.state in ("failed", "stopped"):
            return "start `tidelake run` again: it goes on from there"
        return "`tidelake run` goes on from there with its next start"
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
