"""Tables of a changefeed that cannot go on, each with the way out. ``feed``: the changefeed's row,
``row``: the table's, ``state``: the table at its ``uri``."""

from __future__ import annotations

from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from sinks.target.target_table import TargetState, refuse_unless_ours
from sinks.target.way_out import load_anew
from streaming.changefeed.replicated_table import ReplicatedTable


def refuse_a_gap(span: ReplicatedTable, feed: ChangefeedRow) -> None:
    """Raises TidelakeError for changes that a table lacks and that nobody will read again: they are
    never skipped in silence."""
    if span.checkpoint < feed.checkpoint_ts:
        raise TidelakeError(
            f"table {span.name} is at checkpoint-ts {span.checkpoint} and the changefeed at "
            f"{feed.checkpoint_ts}: the changes between are not in the table, since [filter] "
            "left it out for a while or --overwrite-checkpoint-ts went forward. Leave the table "
            f"out again, or start with --overwrite-checkpoint-ts {span.checkpoint} at most, or "
            f"{load_anew(span.name)}"
        )


def refuse_dropped(name: TableName, dropped_ts: Ts | None) -> None:
    """Refuses rows of a table behind its DROP TABLE, or behind the RENAME TABLE that took it."""
    if dropped_ts is not None:
        raise TidelakeError(
            f"rows of table {name} have come above commit-ts {dropped_ts}, where a DROP TABLE or "
            "RENAME TABLE of it has run, and no CREATE TABLE: let [filter] take that DDL, or leave "
            "the table out with [filter] rules"
        )


def refuse_late(row: ProgressRow, feed: ChangefeedRow) -> None:
    """Refuses a table that is to be upserted by all columns from now on, behind rows that are dead
    letters."""
    if row.incarnation < feed.incarnation and row.dead_letters:
        raise TidelakeError(
            f"table {row.name} is to be upserted by all columns, and {row.dead_letters} of its "
            "messages so far are dead letters, so it would lack these rows: rewind to below the "
            "first of them with --overwrite-checkpoint-ts, or leave the table out with [filter] "
            "rules"
        )


def refuse_unless_there(
    uri: str, row: ProgressRow, state: TargetState | None, feed: ChangefeedRow
) -> None:
    """Raises TidelakeError where `progress` says that a table is filled, and the table at its place
    is gone or not ours."""
    if state is None:
        raise TidelakeError(
            f"table {row.name} is gone from {uri} though progress says that it is "
            f"filled: restore it, or exclude it with [filter] rules, or "
            f"{load_anew(row.name, 'rewind with --overwrite-checkpoint-ts')}"
        )
    ours, incarnation = feed.changefeed_id, feed.incarnation
    refuse_unless_ours(state, row.name, uri, changefeed_id=ours, incarnation=incarnation)
