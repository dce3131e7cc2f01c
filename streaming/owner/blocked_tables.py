"""Tables that wait for an operator: noted, reported, and looked after until there is a decision.

    held by the plan ──► a row of `_tidelake/blocked_ddls`, a concern, state `blocked`
        ▲                                    │ every few seconds: has an operator said something?
        └── it did not run ◄── planned anew ◄┘

A DDL for which a table waits stays to be read again, and the table's rows wait in the carry. So
there is a limit to how much is read meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from coordination.model import TableName
from coordination.secrets import revealed_options
from sinks.control.blocked_ddls import BlockedDdl
from sinks.ddl.text.shown import shown
from sinks.merge_on_write.version_reader import open_version
from sinks.target.target_table import inspect, table_uri
from streaming.changefeed.target_forms import write_modes
from streaming.owner.ddl.due import Place
from streaming.owner.ddl.plan import HeldTable
from streaming.owner.ddl.refusal import brief, is_loaded_anew, refusal, way_past
from streaming.owner.ddl.steps import DdlEvent
from streaming.source.positions import Positions
from streaming.stream.role_context import RoleContext

logger = logging.getLogger(__name__)

ASK_EVERY_S: Final = 2.0
REMIND_EVERY_S: Final = 600.0


class BlockedTables:
    """The blocked tables of one term. ``orders`` and ``failed`` are for any thread: they are
    replaced, never changed.

    ``orders``: operators' decisions; ``failed``: why those DDLs did not run that were tried.
    """

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        self._changefeed = context.changefeed
        self._noted: dict[Place, HeldTable] = {}
        self._ask_at_s = 0.0
        self._remind_at_s = 0.0
        self.failed: Mapping[Place, str] = {}
        self.orders = self._read()

    def _read(self) -> Mapping[Place, BlockedDdl]:
        return self._context.tables.blocked_ddls.read(self._changefeed.id)

    def fail(self, ddl: DdlEvent, why: str) -> None:
        """It was tried and cannot run; until an operator says something new."""
        self.failed = {**self.failed, (ddl.name, ddl.commit_ts): why}

    def look(self, held: Sequence[HeldTable], now_s: float, checkpoint_ts: int) -> bool:
        """Note and report the holds on tables, once the changefeed's checkpoint is there: a warning
        lasts until that rises. Returns whether an operator has decided something since the last
        call: then plan anew. Blocks for storage."""
        self._end({each.place for each in held})
        for each in held:
            is_there = checkpoint_ts >= held[0].event.commit_ts - 1
            if is_there and self._noted.get(each.place) != each:
                self._note(each)
        if not held or now_s < self._ask_at_s:
            return False
        self._ask_at_s = now_s + ASK_EVERY_S
        if now_s >= self._remind_at_s:
            if self._remind_at_s:
                for each in held:
                    logger.warning("still: %s", self._text(each))
            self._remind_at_s = now_s + REMIND_EVERY_S
        before, self.orders = self.orders, self._read()
        news = {p for p, each in self.orders.items() if _word(each) != _word(before.get(p))}
        self.failed = {place: why for place, why in self.failed.items() if place not in news}
        return bool(news)

    def _end(self, held: set[Place]) -> None:
        for place in self._noted.keys() - held:
            self._context.concerns.say(_subject(place[0]), None)
            del self._noted[place]

    def close(self) -> None:
        """Ends with the term. The next owner reports its own blocked tables."""
        for name, _ in self._noted:
            self._context.concerns.withdraw(_subject(name))
        self._noted.clear()

    def _note(self, held: HeldTable) -> None:
        self._context.trust.check()
        self._context.tables.blocked_ddls.note(noted_row(self._changefeed.id, held))
        self._context.concerns.say(_subject(held.name), None)
        self._context.concerns.say(_subject(held.name), self._text(held))
        self._order(held)
        self._noted[held.place] = held

    def _order(self, held: HeldTable) -> None:
        """Have the table loaded anew, where the user says so; once for a DDL."""
        feed, tables = self._changefeed, self._context.tables
        if feed.on_unknown_values != "reload" or not self._may_reload(held):
            return
        if write_modes(feed).of(held.name).soft_delete:
            logger.warning(
                "the table is not loaded anew by itself: its rows that are marked as deleted would "
                "go table=%s",
                held.name,
            )
            return
        rows, most = self._rows(held.name), feed.reload_most_rows
        if rows > most:
            logger.warning(
                "the table is not loaded anew by itself: it has %d rows, and reload-most-rows is "
                "%d table=%s",
                *(rows, most, held.name),
            )
            return
        order = tables.reloads.order(feed.id, held.name, held.event.commit_ts)
        if order.is_open:
            logger.info("the table is to be loaded anew rows=%d table=%s", rows, held.name)

    def _rows(self, name: TableName) -> int:
        sink = self._changefeed.sink
        options = revealed_options(sink.storage_options)
        state = inspect(table_uri(sink.warehouse, name), options)
        if state is None:
            return 0
        return open_version(state.handle.table_uri, state.version, options).count_rows()

    def _text(self, held: HeldTable) -> str:
        may_reload = self._may_reload(held)
        way = way_past(held.event, self._changefeed, may_reload=may_reload)
        told = refusal(held.event, held.why, way, is_waiting=held.is_waiting)
        return f"table {held.name} waits, the other tables go on: {told}"

    def briefs(self, held: Sequence[HeldTable]) -> dict[TableName, str]:
        """Why each waits, for its row."""
        return {
            each.name: brief(each.event, each.why, may_reload=self._may_reload(each))
            for each in held
        }

    def _may_reload(self, held: HeldTable) -> bool:
        return is_loaded_anew(self._changefeed, held.name) and not held.is_waiting

    def too_far(self, read: Positions, low_water: Positions) -> str:
        """Why tables can wait no longer while others go on; empty where they can."""
        limit = self._context.batch.held_messages
        distance = self._context.source.distance(low_water, read)
        if distance <= limit:
            return ""
        return (
            f"; {distance} messages lie between it and where the other tables are, and more than "
            f"{limit} ([batch] held-messages) are not kept or read again"
        )


def noted_row(changefeed_id: str, held: HeldTable) -> BlockedDdl:
    ddl = held.event
    return BlockedDdl(
        changefeed_id=changefeed_id,
        schema_name=ddl.name.schema,
        table_name=ddl.name.table,
        commit_ts=ddl.commit_ts,
        query=shown(ddl.query),
        reason=held.why,
    )


def _subject(name: TableName) -> str:
    return f"DDL of {name}"


def _word(order: BlockedDdl | None) -> object:
    if order is None or order.action is None:
        return None
    return order.action, order.sql, order.ordered_at
