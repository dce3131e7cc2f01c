"""Readings beside the stream's own: a stretch without its rows, and what was prepared earlier.

scan ─────► which commit-ts its positions have, and its DDLs
XaLog ────► the rows of an XA transaction that is committed now, from wherever its PREPARE is
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from coordination.model import Ts
from sinks.ddl.effects import Effect
from sinks.ddl.statements import read_ddl
from streaming.source.binlog.database import Database
from streaming.source.binlog.format.blocks import Slice
from streaming.source.binlog.format.control.statements import query
from streaming.source.binlog.format.control.xa import Xid
from streaming.source.binlog.format.events import event_at
from streaming.source.binlog.log_tail import LogTail, Stretch
from streaming.source.binlog.position import FIRST_OFFSET
from streaming.source.binlog.statement_effect import ddl_of
from streaming.source.binlog.walk.log_walk import Walked
from streaming.source.binlog.walk.prepared import KeptRows, Prepared, PreparedAt, XaEnd, XaRows
from streaming.source.block_job import ReadFailed
from streaming.source.contract import SourceLost
from streaming.source.resolved.commit_clock import Pin, with_pins

STRETCH_BYTES: Final = 16 << 20
LEAST_BYTES: Final = 1 << 20  # that are worth a connection


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlAt:
    position: int
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """``ts_at``: by position, the commit-ts of the last transaction before it. ``pins``: those
    without which a later reading would number otherwise, and one of the last position, with the
    GTIDs before it where those before ``begin`` are known."""

    ts_at: Mapping[int, Ts]
    ddls: tuple[DdlAt, ...]
    pins: tuple[Pin, ...]


def scan(
    database: Database,
    begin: Pin,
    positions: Iterable[int],
    known: Iterable[Pin] = (),
) -> Scanned:
    """From ``begin`` up to the last of these positions, each between two transactions. ``known``:
    pins that are stored already. Blocks; raises SourceAway, SourceLost, BadEvent and Refused."""
    wanted = sorted({begin.position, *positions})
    latest = dict.fromkeys(wanted, begin.ts)
    ddls: list[DdlAt] = []
    pins, found = sorted({begin, *known}, key=lambda pin: pin.position), list[Pin]()
    tail = LogTail(database.settings, database.facts(), begin)
    try:
        while (stretch := tail.next(wanted[-1], pins, STRETCH_BYTES)) is not None:
            walked = stretch.walked
            found += walked.pins
            pins = sorted([*pins, *walked.pins])
            ddls += _ddls(stretch.data, walked, database)
            for at, ts in _last_before(walked, wanted):
                latest[at] = max(latest[at], ts)
    finally:
        tail.close()
    end = Pin(wanted[-1], latest[wanted[-1]], trail=tail.place.trail)
    return Scanned(
        ts_at={at: Ts(ts) for at, ts in latest.items()},
        ddls=tuple(ddls),
        pins=with_pins(found, [end]),
    )


def _last_before(walked: Walked, wanted: list[int]) -> Iterable[tuple[int, int]]:
    stamps = dict(zip(walked.position.tolist(), walked.commit_ts.tolist(), strict=True))
    stamps |= {position: ts for _, position, ts in walked.statements}
    stamps |= {each.position: each.commit_ts for each in _commits(walked)}
    places = sorted(stamps)
    for at in wanted:
        if count := bisect_left(places, at):
            yield at, stamps[places[count - 1]]


def _commits(walked: Walked) -> Iterable[XaEnd]:
    return (each for each in walked.xa if isinstance(each, XaEnd) and each.commit_ts)


def _ddls(data: bytes, walked: Walked, database: Database) -> Iterable[DdlAt]:
    facts = database.facts()
    for at, position, _ in walked.statements:
        told = query(event_at(data, at, checksum=walked.checksum), facts.charsets)
        ddl = ddl_of(
            told,
            is_mariadb=facts.is_mariadb,
            lower_names=facts.lower_names,
            omits_generated=facts.omits_generated,
        )
        if ddl is not None:
            yield DdlAt(position=position, effects=read_ddl(ddl.text, ddl.kind, "", "").effects)


class XaLog:
    """The XA transactions that are prepared where a reading stands. Those that were prepared before
    it began are looked for in the log, backwards. For one thread, except for ``cancel``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prepared = Prepared()
        self._tail: LogTail | None = None

    def begin_at(self, position: int) -> None:
        """The reading begins there, between two transactions."""
        self._prepared = Prepared(since=position)

    def cancel(self) -> None:
        tail = self._tail
        if tail is not None:
            tail.cancel()

    def committed(
        self, stretch: Stretch, pins: Sequence[Pin], *, first: int, above_ts: int
    ) -> Iterator[Slice]:
        """The rows that are committed in this stretch, from the position ``first`` on and above
        ``above_ts``. ``pins``: between two transactions each. Blocks; raises SourceLost if a
        PREPARE is not there any more, ReadFailed if its rows do not come again, and what a reading
        raises."""
        for seen in stretch.walked.xa:
            found = self._prepared.take(stretch.data, seen)
            if isinstance(seen, XaEnd) and seen.commit_ts > above_ts and seen.position >= first:
                found = found or self._sought(seen, pins)
                yield from self._rows(seen, found)

    def _rows(self, end: XaEnd, found: PreparedAt) -> Iterator[Slice]:
        if found.rows is not None:
            yield self._slice(found.rows, end.commit_ts)
            return
        for stretch in self._stretches(found.begin, end.position + 1):
            for seen in stretch.walked.xa:
                if isinstance(seen, XaRows) and seen.begin == found.begin:
                    rows = KeptRows(
                        data=stretch.data,
                        at=seen.at,
                        position=seen.position,
                        checksum=seen.checksum,
                    )
                    yield self._slice(rows, end.commit_ts, seen.maps)
                    if seen.xid is not None:
                        return
        raise ReadFailed(
            f"the binlog has at {self._database.name_of(found.begin)} the rows of the XA "
            f"transaction {end.xid}, and they did not come when they were read again"
        )

    def _slice(self, rows: KeptRows, commit_ts: int, maps: tuple[bytes, ...] = ()) -> Slice:
        facts = self._database.facts()
        return Slice(
            data=rows.data,
            at=rows.at,
            position=rows.position,
            commit_ts=np.full(len(rows.at), commit_ts, np.int64),
            maps=maps,
            checksum=rows.checksum,
            is_mariadb=facts.is_mariadb,
            charsets=facts.charsets,
        )

    def _sought(self, end: XaEnd, pins: Sequence[Pin]) -> PreparedAt:
        for begin in self._earlier_places(pins):
            earlier = Prepared(since=begin)
            for stretch in self._stretches(begin, self._prepared.since):
                for seen in stretch.walked.xa:
                    earlier.take(stretch.data, seen)
            found = earlier.find(end.xid)
            self._prepared.add_earlier(earlier)
            if found is not None:
                return found
        raise SourceLost(_prepare_is_gone(end.xid, self._database.name_of(end.position)))

    def _earlier_places(self, pins: Sequence[Pin]) -> Iterator[int]:
        """Places between two transactions, from the reading's beginning backwards."""
        names = [name for name, _ in self._database.files()]
        files = {int(self._database.position(name, FIRST_OFFSET)) for name in names}
        for place in sorted({*files, *(pin.position for pin in pins)}, reverse=True):
            distance = self._prepared.since - place
            if distance > 0 and (place in files or distance >= LEAST_BYTES):
                yield place
            if place == min(files):  # pins before it are of an earlier server, or of deleted files
                return

    def _stretches(self, begin: int, end: int) -> Iterator[Stretch]:
        """The log between two positions. Its numbers do not count."""
        tail = self._tail = LogTail(self._database.settings, self._database.facts(), Pin(begin, 0))
        try:
            while (stretch := tail.next(end, (), STRETCH_BYTES)) is not None:
                yield stretch
        finally:
            self._tail = None
            tail.close()


def _prepare_is_gone(xid: Xid, where: str) -> str:
    return (
        f"the binlog has at {where} XA COMMIT {xid}, and its XA PREPARE, with the rows, is in no "
        "file that the server still has: it was deleted before its transaction ended, or its "
        "session had sql_log_bin = 0. Let the server keep its binlog for longer "
        "(binlog_expire_logs_seconds), and copy the tables anew into another warehouse"
    )
