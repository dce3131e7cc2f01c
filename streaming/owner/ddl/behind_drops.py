"""Rows that come behind the DROP TABLE of their table, where readers give the commit-ts.

Each partition is numbered by itself. So what was changed before a DROP TABLE may have a higher
number than it. And a sender may send rows again that it has sent before::

    rows ──wait for `LATE`──┬─ CREATE TABLE: they are the new table's
                            ├─ DROP TABLE again: they have come again, up to there
                            ├─ nothing: they are passed over
                            └─ rows of beyond that time: the table is there, and who made it was
                               not read
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from coordination.model import TSO_LOGICAL_BITS, TableName, Ts
from sinks.ddl.effects import DropDatabase
from sinks.target.target_table import TargetState
from streaming.changefeed.table_registry import TableRegistry
from streaming.owner.ddl.due import statement_of
from streaming.owner.ddl.steps import DdlEvent, dropped_names
from streaming.protocols.contract import Block, Kind
from streaming.stream.lasting_warnings import SAYS_AFTER_S, LastingWarnings

logger = logging.getLogger(__name__)

LATE: Final = 60_000 << TSO_LOGICAL_BITS  # by so much a sender's partitions may differ


class Fate(Enum):
    WAIT = auto()
    PASS = auto()
    STOP = auto()


@dataclass(frozen=True, slots=True)
class Behind:
    """The first and the last of the rows of one table, by commit-ts."""

    first: Ts
    last: Ts


@dataclass(slots=True)
class BehindDrops:
    """``checkpoint_ts``: the changefeed's at the start; the life before has decided about what lies
    at or below. ``concerns``: where rows that wait are reported."""

    checkpoint_ts: Ts
    is_used: bool = True
    concerns: LastingWarnings = field(default_factory=LastingWarnings)
    rows: dict[TableName, Behind] = field(default_factory=dict)
    _since_s: dict[TableName, float] = field(default_factory=dict)  # for how long they wait
    _again: dict[TableName, Ts] = field(default_factory=dict)  # dropped once more

    def look(
        self,
        blocks: Iterable[Block],
        ended: Mapping[TableName, Ts],
        is_unmade: Callable[[TableName], bool],
    ) -> None:
        """``ended``: where tables were dropped. ``is_unmade``: whether no table has this name."""
        for block in blocks if self.is_used and ended else ():
            if block.kind is not Kind.ROW or block.name not in ended or not is_unmade(block.name):
                continue
            above = max(self.checkpoint_ts, ended[block.name], self._again.get(block.name, 0))
            if (last := Ts(block.max_ts or 0)) > above:
                first = Ts(max(block.min_ts or 0, above + 1))
                known = self.rows.get(block.name, Behind(first, last))
                self.rows[block.name] = Behind(min(first, known.first), max(last, known.last))

    def meet(self, ddls: Iterable[DdlEvent], limit: Ts) -> None:
        """Those that drop such tables again, at or below ``limit``."""
        for event in ddls if self.rows else ():
            if event.commit_ts > limit:
                continue
            statement = statement_of(event)
            schemas = {e.schema for e in statement.effects if isinstance(e, DropDatabase)}
            dropped = dropped_names(statement)
            dropped += [event.name] if dropped else []  # the target
            for name, rows in list(self.rows.items()):
                if name not in dropped and name.schema not in schemas:
                    continue
                self._again[name] = max(event.commit_ts, self._again.get(name, Ts(0)))
                if rows.last <= event.commit_ts:
                    del self.rows[name]
                elif rows.first <= event.commit_ts:
                    self.rows[name] = replace(rows, first=Ts(event.commit_ts + 1))

    def fates(
        self, found: Iterable[TableName], spans: TableRegistry, ddls: Iterable[DdlEvent], limit: Ts
    ) -> dict[TableName, Fate]:
        """Those of these tables that are not to be made from their rows: they were dropped, and
        whoever has rows of them waits, or passes them over. ``limit``: everything at or below has
        been read. ``ddls``: that were read and not planned before."""
        fates: dict[TableName, Fate] = {}
        if not self.is_used:
            return fates
        self.meet(ddls, limit)
        self.rows = {name: each for name, each in self.rows.items() if name not in spans}
        for name in found:
            if name in spans or name not in spans.ended or is_renamed(spans.at(name)):
                continue
            fate = self.fate(name, spans.ended[name], limit)
            if fate is not Fate.STOP:
                fates[name] = fate
            if fate is Fate.PASS and (rows := self.rows.pop(name, None)) is not None:
                logger.warning(
                    "rows that lie behind the DROP TABLE of their table are passed over: they were "
                    "changed before it, or have come again table=%s commit_ts=%d to=%d dropped=%d",
                    *(name, rows.first, rows.last, spans.ended[name]),
                )
        self._report({name for name, fate in fates.items() if fate is Fate.WAIT})
        return fates

    def _report(self, waiting: set[TableName]) -> None:
        """A concern about each that waits for a while, until it waits no more."""
        for name in self._since_s.keys() - waiting:
            del self._since_s[name]
            self.concerns.say(_about(name), None)
        for name in waiting:
            since_s = self._since_s.setdefault(name, time.monotonic())
            if time.monotonic() - since_s >= SAYS_AFTER_S:
                self.concerns.say(
                    _about(name),
                    f"rows of table {name} lie behind its DROP TABLE, from commit-ts "
                    f"{self.rows[name].first} on, and wait for a CREATE TABLE. Once changes of a "
                    "minute later have come they are passed over; if the table is there, give its "
                    "CREATE TABLE with --schema-file",
                )

    def close(self) -> None:
        for name in self._since_s:
            self.concerns.withdraw(_about(name))

    def fate(self, name: TableName, dropped_ts: Ts, limit: Ts) -> Fate:
        rows = self.rows.get(name)
        if rows is None:
            return Fate.PASS
        if limit < rows.first + LATE:
            return Fate.WAIT
        is_late = rows.last <= max(dropped_ts, self._again.get(name, 0)) + LATE
        return Fate.PASS if is_late else Fate.STOP


def _about(name: TableName) -> str:
    return f"rows behind the DROP TABLE of {name}"


def is_renamed(state: TargetState | None) -> bool:
    """Whether the table has left its name by a RENAME TABLE: then its rows are those of another."""
    return state is not None and state.left_version is not None
