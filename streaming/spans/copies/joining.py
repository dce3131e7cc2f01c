"""Tables that join a changefeed which has begun: those that an earlier [filter] has left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from conf.settings import Changefeed
from coordination.errors import ConfigError, TryAgain
from coordination.model import TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.warehouse import ControlTables
from streaming.changefeed.earlier_filters import left_out
from streaming.changefeed.freshness import Freshness
from streaming.changefeed.routes import changefeed_routes, shards_of
from streaming.source.binlog.source import PART
from streaming.source.resolved.commit_clock import from_token, to_token, with_pins
from streaming.spans.copies.leftover import was_never_followed
from streaming.spans.copies.settled_copy import SettledCopy
from streaming.spans.copies.table_copies import Standing


def new_tables(changefeed: Changefeed, row: ChangefeedRow) -> Callable[[TableName], bool]:
    """Whether a table that is there now is to be copied, and to join: an earlier filter has left it
    out, or a copy. It raises ConfigError for one whose target has rows already."""
    routes, was_left_out = changefeed_routes(changefeed), left_out(row)
    progress = ControlTables.of(changefeed.sink).progress.read(row.changefeed_id)
    lacking = {name for name, each in progress.items() if each.lacks}
    known = {name for name, each in progress.items() if not was_never_followed(each, row)} - lacking

    def is_new(name: TableName) -> bool:
        if name in known or not routes.filter.selects(name):
            return False
        target = routes.of(name).target
        if target in lacking:
            return True
        if not was_left_out(name):
            return False
        if target in known and name in shards_of(changefeed.sink, target):
            return False  # it has joined
        if target in known:
            raise ConfigError(
                f"table {name}, which an earlier [filter] has left out, goes into {target}, "
                "which has rows already: no copy is made on top of them. Leave it out again, "
                "or give all tables of that target to a new changefeed"
            )
        return True

    return is_new


def lacking_targets(changefeed: Changefeed) -> set[TableName]:
    """The targets of tables that a copy has left out."""
    rows = ControlTables.of(changefeed.sink).progress.read(changefeed.id)
    return {name for name, each in rows.items() if each.lacks}


def refuse_beside_an_owner(changefeed: Changefeed) -> None:
    """Raise TryAgain while somebody replicates the changefeed. Blocks: whether its row is still
    refreshed may need a second look."""
    id_ = changefeed.id
    rows, left = Freshness().look(ControlTables.of(changefeed.sink).changefeeds.read_all)
    for row in rows:
        if row.changefeed_id == id_ and row.fresh_for_s is not None and id_ not in left:
            raise TryAgain(
                f"tables are to join changefeed {id_}, and capture {row.capture_id} "
                f"({row.process}) still replicates it: stop that; where it was killed, its row "
                f"counts for {row.fresh_for_s:.0f} s"
            )


def standing(row: ChangefeedRow) -> Standing:
    """Where the changefeed of a database's binlog stands. It has read something."""
    pins = from_token(row.watermarks[PART].token)
    return Standing(Ts(row.checkpoint_ts), row.source_positions[PART], pins)


def joined(row: ChangefeedRow, settled: SettledCopy) -> ChangefeedRow:
    """The row of a changefeed from the moment on at which tables join it, under a new term: so an
    owner that is not seen to live writes no more."""
    watermark = row.watermarks[PART]
    pins = with_pins(from_token(watermark.token), settled.pins)
    return replace(
        row,
        term=row.term + 1,
        state="stopped",
        max_published_ts=max(row.max_published_ts, settled.end.ts),
        loaded_ts=settled.end.ts,
        watermarks={**row.watermarks, PART: replace(watermark, token=to_token(pins))},
    )
