"""A stretch of the log, read without its rows: which commit-ts its positions have, and its DDLs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from conf.sources.binlog_uri import BinlogSettings
from coordination.model import Ts
from sinks.ddl.effects import Effect
from sinks.ddl.statements import read_ddl
from streaming.source.binlog.database import Database
from streaming.source.binlog.format.control.statements import query
from streaming.source.binlog.format.events import event_at
from streaming.source.binlog.log_tail import LogTail
from streaming.source.binlog.statement_effect import ddl_of
from streaming.source.binlog.walk.commit_clock import Pin
from streaming.source.binlog.walk.log_walk import Walked

STRETCH_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlAt:
    position: int
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """``ts_at``: by position, the commit-ts of the last transaction before it. ``pins``: those
    without which a later reading would number otherwise."""

    ts_at: Mapping[int, Ts]
    ddls: tuple[DdlAt, ...]
    pins: tuple[Pin, ...]


def scan(
    settings: BinlogSettings, database: Database, begin: Pin, positions: Iterable[int]
) -> Scanned:
    """From ``begin`` up to the last of these positions, each between two transactions. Blocks;
    raises SourceAway, SourceLost, BadEvent and Refused."""
    wanted = sorted({begin.position, *positions})
    latest = dict.fromkeys(wanted, begin.ts)
    ddls: list[DdlAt] = []
    pins = [begin]
    tail = LogTail(settings, database.facts(), begin)
    try:
        while (stretch := tail.next(wanted[-1], pins, STRETCH_BYTES)) is not None:
            walked = stretch.walked
            pins += walked.pins
            ddls += _ddls(stretch.data, walked, database)
            for at, ts in _last_before(walked, wanted):
                latest[at] = max(latest[at], ts)
    finally:
        tail.close()
    return Scanned(
        ts_at={at: Ts(ts) for at, ts in latest.items()}, ddls=tuple(ddls), pins=tuple(pins[1:])
    )


def _last_before(walked: Walked, wanted: list[int]) -> Iterable[tuple[int, int]]:
    stamps = dict(zip(walked.position.tolist(), walked.commit_ts.tolist(), strict=True))
    stamps |= {position: ts for _, position, ts in walked.statements}
    places = sorted(stamps)
    for at in wanted:
        if count := bisect_left(places, at):
            yield at, stamps[places[count - 1]]


def _ddls(data: bytes, walked: Walked, database: Database) -> Iterable[DdlAt]:
    facts = database.facts()
    for at, position, _ in walked.statements:
        told = query(event_at(data, at, checksum=walked.checksum), facts.charsets)
        ddl = ddl_of(told, is_mariadb=facts.is_mariadb, lower_names=facts.lower_names)
        if ddl is not None:
            yield DdlAt(position=position, effects=read_ddl(ddl.text, ddl.kind, "", "").effects)
