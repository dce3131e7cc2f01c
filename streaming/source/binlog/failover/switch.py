"""Where a changefeed goes on in the log of another server.

stored pins ─► fit? (GTIDs) ─► the pins' places there ─► the same numbers there? ─► `NewPlace`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.errors import ConfigError, TidelakeError
from streaming.source.binlog.database import Database
from streaming.source.binlog.failover.decision import (
    Lags,
    known_of,
    refuse_beyond,
    refuse_otherwise,
    refuse_unfit,
    shown,
)
from streaming.source.binlog.failover.log_search import LogSearch
from streaming.source.binlog.position import BinlogPosition, LogIdentity
from streaming.source.contract import SourceAway, SourceLost
from streaming.source.resolved.commit_clock import Pin, with_pins
from streaming.source.resolved.gtid_sets import parse_gtids

# The server before may have begun files since the last position was stored.
_UNSTORED_FILES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """``identity``: of the other log, ``position``: from which on it is read; ``pins``: there."""

    identity: str
    position: int
    pins: tuple[Pin, ...]


def switched(database: Database, pins: Sequence[Pin], low_water: int, reached_ts: int) -> NewPlace:
    """The place in the log of the server that the database is, which is then kept to.

    ``pins``: those that are stored; before ``low_water`` everything is applied; ``reached_ts``: no
    table has changes above it. Raises SourceLost where it cannot go on there, Lags where waiting
    may help, and SourceAway."""
    address = database.address
    known = known_of(pins, low_water, address)
    # Positions must rise.
    newest = max(low_water, *(pin.position for pin in pins))
    lift = BinlogPosition.of(newest).number + _UNSTORED_FILES
    database.keep_to(str(LogIdentity(database.facts().server, lift)))
    search = LogSearch(database)
    refuse_unfit(known, search.standing())
    found = _moved(search, (known.start, *known.later))
    start, last = found[0], found[-1]
    end = int(database.end())
    named = search.named(start, last.position, pins=found)
    refuse_otherwise(address, found, named)
    if reached_ts > known.reached_ts:
        refuse_beyond(address, reached_ts, known, search.named(start, end, pins=found))
    return NewPlace(identity=database.facts().identity, position=start.position, pins=found)


def first_fit(
    database: Database, switch: Callable[[Database], NewPlace]
) -> tuple[Database, NewPlace]:
    """The first of the servers with which it goes on, that of ``database`` before the others. If
    there is none, raises Lags if one may become fit, else the first one's error."""
    problems: list[TidelakeError] = []
    for settings in (database.settings, *database.others):
        each = Database(settings)
        try:
            found = switch(each)
        except (SourceLost, SourceAway, ConfigError) as error:
            problems.append(error)
            each.close()
            continue
        database.use(settings, found.identity)
        each.close()
        return database, found
    if len(problems) == 1:
        raise problems[0]
    said = ". ".join(map(str, problems))
    raise (SourceLost if all(isinstance(each, SourceLost) for each in problems) else Lags)(said)


def place_of_gtids(database: Database, text: str) -> int:
    """The position where exactly these lie before. Raises SourceLost and ConfigError, which name
    what is wrong, and SourceAway."""
    gtids, search = parse_gtids(text), LogSearch(database)
    standing = search.standing()
    if bool(gtids.last) != database.facts().is_mariadb:
        raise ConfigError(
            f"source-uri: binlog-gtid={text} is no place of this server: MySQL has GTIDs like "
            "<uuid>:1-90, MariaDB like 0-1-90"
        )
    if not standing.has_gtids:
        raise ConfigError(
            f"source-uri: binlog-gtid: {database.address} has gtid_mode = OFF: give binlog-name "
            "and binlog-pos"
        )
    if missing := gtids.minus(standing.executed):
        raise ConfigError(
            f"source-uri: binlog-gtid: {database.address} has no transactions {shown(missing)}"
        )
    return search.position_of(gtids)


def _moved(search: LogSearch, pins: Sequence[Pin]) -> tuple[Pin, ...]:
    """The pins in the other log."""
    sets = [pin.gtids for pin in pins if pin.gtids is not None]
    positions = search.positions_of(sets)
    return with_pins(
        [
            pin._replace(position=position, made_s=0)
            for pin, position in zip(pins, positions, strict=True)
        ],
        (),
    )
