"""Which transactions a stretch of the log has, by their GTIDs. Pure.

All GTIDs of a block are read at once: there may be one for each row.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.control.gtids import mysql_gtid
from streaming.source.binlog.format.control.transactions import Transactions
from streaming.source.binlog.format.events import HEADER_BYTES, Events, Offsets, event_at, words_of
from streaming.source.binlog.format.type_codes import IS_GTID, EventType
from streaming.source.binlog.walk.file_heads import before_file
from streaming.source.resolved.commit_clock import Numbers, Pin
from streaming.source.resolved.gtid_sets import GtidSet, Last, Trail, of_source

_WORD: Final = (1 << 64) - 1
ANONYMOUS: Final = ""  # the source of a transaction without a GTID (MySQL's gtid_mode = OFF)
GTID_HEADS: Final = (EventType.PREVIOUS_GTIDS, EventType.GTID_LIST)

Gtid = tuple[str, int]  # source and number; MariaDB's source is "domain-server"


@dataclass(frozen=True, slots=True, eq=False)
class NamedGroups:
    """Whole transactions in the log's order: the source (its place in ``sources``) and number of
    each, where it ends, and its commit-ts."""

    sources: tuple[str, ...]
    source: Numbers
    number: Numbers
    end: Numbers
    commit_ts: Numbers

    def __len__(self) -> int:
        return len(self.number)

    def gtid(self, nth: int) -> Gtid:
        return self.sources[int(self.source[nth])], int(self.number[nth])

    def of(self, count: int) -> GtidSet | None:
        """The first ``count``; None if one has no GTID."""
        source, number = self.source[:count], self.number[:count]
        found = GtidSet()
        for nth, name in enumerate(self.sources):
            mine = np.flatnonzero(source == nth)
            if not len(mine):
                continue
            if name == ANONYMOUS:
                return None
            if ":" in name or len(name) == 36:
                found = found.plus(of_source(name, number[mine]))
        if found.runs or not count:
            return found
        # MariaDB's: the last one of each domain, of whichever server.
        last: dict[int, tuple[int, Last]] = {}
        for nth, name in enumerate(self.sources):
            mine = np.flatnonzero(source == nth)
            if len(mine):
                domain, server = map(int, name.split("-"))
                one = int(mine[-1]), Last(domain, server, int(number[mine[-1]]))
                last[domain] = max(one, last.get(domain, one))
        return GtidSet(last=tuple(sorted(each for _, each in last.values())))

    def after(self, trail: Trail, count: int | None = None) -> Trail | None:
        """The trail behind the first ``count``, or behind all; None if one has no GTID."""
        count = len(self) if count is None else count
        more = self.of(count)
        if more is None:
            return None
        names = [zlib.crc32(name.encode()) for name in self.sources]
        word = np.array(names, np.uint64)[self.source[:count]] << np.uint64(32)
        word ^= self.number[:count].astype(np.uint64)
        word = _mixed(word) ^ self.commit_ts[:count].astype(np.uint64)
        place = np.arange(trail.count, trail.count + count, dtype=np.uint64)
        mixed = int(np.sum(_mixed(_mixed(word) ^ place), dtype=np.uint64))
        order = (trail.order + mixed) & _WORD
        return Trail(trail.gtids.plus(more), trail.count + count, order)

    def find(self, source: str, number: int) -> int | None:
        """The place of this transaction, if it is there."""
        if source not in self.sources:
            return None
        is_it = (self.source == self.sources.index(source)) & (self.number == number)
        found = np.flatnonzero(is_it)
        return int(found[-1]) if len(found) else None

    def before(self, position: int) -> int:
        """How many of them end at or before the position."""
        return int(np.searchsorted(self.end, position, side="right"))

    def behind(self, count: int) -> NamedGroups:
        """All but the first ``count``."""
        return NamedGroups(
            self.sources,
            self.source[count:],
            self.number[count:],
            self.end[count:],
            self.commit_ts[count:],
        )


class GtidsBefore:
    """What lies before a position of a stretch."""

    def __init__(
        self, named: NamedGroups, known: Trail | None, told: GtidSet, told_at: int | None
    ) -> None:
        """``known``: what lies before the stretch. Where that is not known, ``told`` counts, from
        the position of the file's head on."""
        self._since = 0 if told_at is None else told_at
        self._known = known if known is not None or told_at is None else Trail(told)
        self._named = named if known is not None else named.behind(named.before(self._since))
        if known is not None:
            self._since = 0

    def told(self, *pins: Pin) -> tuple[Pin, ...]:
        """The pins, with what lies before each."""
        return tuple(pin._replace(trail=self(pin.position)) for pin in pins)

    def __call__(self, position: int) -> Trail | None:
        """None where it is not known."""
        if self._known is None or position < self._since:
            return None
        return self._named.after(self._known, self._named.before(position))


def _mixed(word: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each word as another one that shows nothing of it (the finalizer of splitmix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return word ^ (word >> np.uint64(31))


def joined(pieces: list[NamedGroups]) -> NamedGroups:
    """Those of several stretches, one behind the other."""
    sources = tuple(dict.fromkeys(name for each in pieces for name in each.sources))
    place = {name: nth for nth, name in enumerate(sources)}
    empty = np.empty(0, np.int64)
    moved = [
        np.array([place[name] for name in each.sources], np.int64)[each.source]
        for each in pieces
        if len(each)
    ]
    return NamedGroups(
        sources,
        np.concatenate([empty, *moved]),
        np.concatenate([empty, *(each.number for each in pieces)]),
        np.concatenate([empty, *(each.end for each in pieces)]),
        np.concatenate([empty, *(each.commit_ts for each in pieces)]),
    )


class Begun(Protocol):
    """What is known where a stretch begins: what lies before; the GTID of the transaction in which
    the first event lies; whether events end in a CRC32."""

    @property
    def trail(self) -> Trail | None: ...

    @property
    def open_gtid(self) -> Gtid | None: ...

    @property
    def checksum(self) -> bool | None: ...


class Where(NamedTuple):
    """Positions of events, where they end, and the commit-ts of those that were walked."""

    position: Numbers
    ends: Numbers
    commit_ts: Numbers


def named_groups(
    data: bytes,
    events: Events,
    groups: Transactions,
    where: Where,
    before: Begun,
) -> tuple[NamedGroups, GtidsBefore]:
    """Those that end among the events that were walked, and what lies before their positions."""
    position, ends, commit_ts = where
    whole = groups.last < len(commit_ts)
    first, last = groups.first[whole], groups.last[whole]
    is_begun = IS_GTID[events.kind[first]]
    sources, source, number = _gtids(data, events, first[is_begun])
    if len(first) and not is_begun[0]:  # it can only be the first
        name, nth = before.open_gtid or (ANONYMOUS, 0)
        sources = (*sources, name)
        source = np.append(len(sources) - 1, source)
        number = np.append(nth, number)
    named = NamedGroups(sources, source, number, ends[last], commit_ts[last])
    heads = np.flatnonzero(np.isin(events.kind, GTID_HEADS))
    if before.trail is not None or not len(heads):
        return named, GtidsBefore(named, before.trail, GtidSet(), None)
    head = event_at(data, int(events.at[heads[0]]), checksum=bool(before.checksum))
    return named, GtidsBefore(named, None, before_file(head), int(position[heads[0]]))


def gtid_of(data: bytes, events: Events, first: int, before: Begun) -> Gtid | None:
    """The GTID of the transaction that begins with this event, or in which it lies."""
    if first >= len(events) or not IS_GTID[events.kind[first]]:
        return before.open_gtid
    sources, source, number = _gtids(data, events, np.array([first]))
    return sources[int(source[0])], int(number[0])


def _gtids(data: bytes, events: Events, first: Offsets) -> tuple[tuple[str, ...], Numbers, Numbers]:
    kind, body = events.kind[first], events.at[first] + HEADER_BYTES
    high, low = np.zeros(len(first), np.uint64), np.zeros(len(first), np.uint64)
    number = np.zeros(len(first), np.int64)
    numbers, short = words_of(events.data, "<u8"), words_of(events.data, "<u4")
    is_maria = kind == EventType.MARIADB_GTID
    number[is_maria] = numbers[body[is_maria]].astype(np.int64)
    high[is_maria] = short[body[is_maria] + 8]  # the domain
    low[is_maria] = short[events.at[first[is_maria]] + 5]  # the server
    is_mysql = kind == EventType.GTID
    uuids = words_of(events.data, ">u8")
    high[is_mysql], low[is_mysql] = uuids[body[is_mysql] + 1], uuids[body[is_mysql] + 9]
    number[is_mysql] = numbers[body[is_mysql] + 17].astype(np.int64)
    pairs, source = np.unique(np.stack([high, low], axis=1), axis=0, return_inverse=True)
    source = source.reshape(-1).astype(np.int64)
    if is_maria.any():
        return tuple(f"{domain}-{server}" for domain, server in pairs.tolist()), source, number
    names = {str(UUID(int=a << 64 | b)): nth for nth, (a, b) in enumerate(pairs.tolist())}
    for nth in np.flatnonzero(~is_mysql).tolist():  # tagged ones, or anonymous
        name, number[nth] = ANONYMOUS, 0
        if kind[nth] == EventType.GTID_TAGGED:
            told = str(mysql_gtid(event_at(data, int(events.at[first[nth]]), checksum=False)))
            name, _, text = told.rpartition(":")
            number[nth] = int(text)
        source[nth] = names.setdefault(name, len(names))
    return tuple(names), source, number
