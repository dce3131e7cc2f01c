"""Looks for GTIDs in a server's log: by the heads of its files, then transaction by transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from streaming.source.binlog.database import Database
from streaming.source.binlog.failover.decision import (
    Standing,
    count_before,
    places,
)
from streaming.source.binlog.log_tail import LogTail, file_head
from streaming.source.binlog.position import FIRST_OFFSET, BinlogPosition
from streaming.source.binlog.walk.file_heads import before_file
from streaming.source.binlog.walk.named_groups import NamedGroups, joined
from streaming.source.contract import SourceLost
from streaming.source.resolved.commit_clock import Pin
from streaming.source.resolved.gtid_sets import GtidSet, parse_gtids

_STRETCH_BYTES: Final = 16 << 20


class LogSearch:
    """The log of one server, as it is now. Every call blocks; raises SourceAway, and what reading
    the log raises."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._facts = database.facts()
        self._purged = GtidSet() if self._facts.is_mariadb else self._variable("gtid_purged")

    def standing(self) -> Standing:
        is_mariadb = self._facts.is_mariadb
        told = self._database.variables("log_slave_updates", "log_replica_updates")
        logs = (told.get("log_slave_updates"), told.get("log_replica_updates"))
        numbers = self._numbers()
        return Standing(
            address=self._database.address,
            executed=self._maria_executed() if is_mariadb else self._variable("gtid_executed"),
            lost=self.head(numbers[0]) if is_mariadb else self._purged,
            has_gtids=self._has_gtids(),
            logs_replicated=any(each is not None and each.upper() == "ON" for each in logs),
        )

    def _has_gtids(self) -> bool:
        told = self._database.variables("gtid_mode")  # MariaDB lacks it, and always has them
        return told.get("gtid_mode", "ON").upper() == "ON"

    def _maria_executed(self) -> GtidSet:
        logged, replicated = self._variable("gtid_binlog_pos"), self._variable("gtid_slave_pos")
        newer = {each.domain for each in replicated.minus(logged).last}
        return logged.plus(
            GtidSet(last=tuple(each for each in replicated.last if each.domain in newer))
        )

    def _variable(self, name: str) -> GtidSet:
        ((text,),) = self._database.ask(f"SELECT @@GLOBAL.{name}")
        return parse_gtids(str(text or ""))

    def _numbers(self) -> list[int]:
        files = self._facts.files
        numbers = sorted(files.number(name) for name, _ in self._database.files())
        if not numbers:
            raise SourceLost(f"{self._database.address} has no binlog file")
        return numbers

    def head(self, number: int) -> GtidSet:
        """What lies before this file."""
        head = file_head(self._database.settings, self._facts, number)
        return before_file(head).plus(self._purged)

    def file_of(self, gtids: GtidSet) -> tuple[int, GtidSet] | None:
        """The newest file whose head has none but these, and its head; None: there is none."""
        numbers = self._numbers()
        low, high, found = 0, len(numbers), None
        while low < high:  # heads grow from file to file
            middle = (low + high) // 2
            head = self.head(numbers[middle])
            if head.minus(gtids):
                high = middle
            else:
                low, found = middle + 1, (numbers[middle], head)
        return found

    def named(
        self,
        begin: Pin,
        end: int,
        *,
        pins: Sequence[Pin] = (),
        enough: Callable[[NamedGroups], bool] = lambda _: False,
    ) -> NamedGroups:
        """The transactions from there on up to the position ``end``, or until there are enough."""
        tail, found = LogTail(self._database.settings, self._facts, begin), list[NamedGroups]()
        try:
            while (stretch := tail.next(end, pins, _STRETCH_BYTES)) is not None:
                found.append(stretch.walked.named)
                if enough(joined(found)):
                    break
        finally:
            tail.close()
        return joined(found)

    def position_of(self, gtids: GtidSet) -> int:
        """Where exactly these lie before. Raises SourceLost where there is no such place."""
        (position,) = self.positions_of([gtids])
        return position

    def positions_of(self, sets: Sequence[GtidSet]) -> list[int]:
        """Where exactly each of these sets lies before; each has all of the one before it. Raises
        SourceLost where there is no such place."""
        address, first, last = self._database.address, sets[0], sets[-1]
        file = self.file_of(first)
        if file is None:
            oldest = self.head(self._numbers()[0])
            raise SourceLost(
                f"{address} has deleted what is needed of its binlog: {oldest.minus(first)}. Let "
                "servers keep their binlogs for longer (binlog_expire_logs_seconds)"
            )
        number, head = file
        begin = int(BinlogPosition(number, FIRST_OFFSET))
        named = self.named(
            Pin(begin, 0),
            int(self._database.end()),
            enough=lambda found: count_before(last, head, found) is not None,
        )
        return places(sets, head, named, begin=begin, address=address)

    def before(self, position: int) -> GtidSet | None:
        """What lies before a position; None where it cannot be told."""
        at = BinlogPosition.of(position)
        if self._facts.is_mariadb:
            name = self._facts.files.name(at.number)
            ((told,),) = self._database.ask("SELECT BINLOG_GTID_POS(%s, %s)", name, at.offset)
            return None if told is None else parse_gtids(str(told))
        if not self._has_gtids():
            return None
        head = self.head(at.number)
        if at.offset <= FIRST_OFFSET:
            return head
        begin = int(BinlogPosition(at.number, FIRST_OFFSET))
        more = self.named(Pin(begin, 0), position).of(1 << 62)
        return None if more is None else head.plus(more)
