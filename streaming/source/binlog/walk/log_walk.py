"""Events of the log in their order: where each lies, which transaction it belongs to, and the
commit-ts of that. Pure.

    bytes of a connection ──walk(place)──► `Walked`: events with positions and commit-ts,
                                           statements, pins, and the place behind them
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from coordination.model import Ts
from streaming.source.binlog.format.control.files import format_description
from streaming.source.binlog.format.control.transactions import (
    GroupKind,
    Transactions,
    transactions,
)
from streaming.source.binlog.format.events import (
    HEADER_BYTES,
    Events,
    Offsets,
    event_at,
    events_of,
    words_of,
)
from streaming.source.binlog.format.faults import CHECKSUM, BadEvent, Refused
from streaming.source.binlog.format.type_codes import (
    INFLATED,
    ROW_EVENTS,
    EventType,
    RowsFlag,
)
from streaming.source.binlog.position import (
    FIRST_OFFSET,
    OFFSET_BITS,
    BinlogPosition,
)
from streaming.source.binlog.walk.event_places import places
from streaming.source.binlog.walk.named_groups import (
    Gtid,
    NamedGroups,
    Where,
    gtid_of,
    named_groups,
)
from streaming.source.binlog.walk.own_times import own_times
from streaming.source.binlog.walk.prepared import Mask, Walking, XaEnd, XaRows, xa_of
from streaming.source.resolved.commit_clock import (
    Numbered,
    Numbers,
    Pin,
    needed_pins,
    numbered,
    pin_at,
)
from streaming.source.resolved.gtid_sets import Trail

_OF_ROWS: Final = (
    *(EventType.TABLE_MAP, EventType.TRANSACTION_PAYLOAD, EventType.PARTIAL_UPDATE_ROWS),
    *ROW_EVENTS,
    *INFLATED,
)
_NO_END: Final = 1 << 62


_TORN: Final = (
    "a transaction of more than 64 MiB was torn when the server was killed, and a part of it is "
    "read already: begin behind it, in the server's next binlog file"
)


class RefusedAt(Refused):
    def __init__(self, what: str, position: int) -> None:
        super().__init__(what)
        self.what = what
        self.position = position


class Damaged(BadEvent):
    """An event that tells how the log goes on was changed."""

    def __init__(self, position: int) -> None:
        super().__init__("the CRC32 of its event is wrong: its bytes were changed", CHECKSUM)
        self.position = position


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where the walk goes on. ``after_ts``: the commit-ts of the last transaction; ``open_ts``: of
    the one that is begun, 0 for none, with the TABLE_MAPs that hold in it; ``is_unbelieved``: its
    own time is not believed; ``xa_begin``: if it is an XA transaction, the position of its GTID.
    ``checksum``: whether events end in a CRC32; None: the file's head comes first, and says so, and
    ``made_s``: when the file was begun. ``trail``: of all whole transactions before; None: not
    known; ``open_gtid``: of the one that is begun."""

    number: int
    offset: int
    after_ts: int
    open_ts: int = 0
    is_unbelieved: bool = False
    xa_begin: int = 0
    maps: tuple[bytes, ...] = ()
    checksum: bool | None = None
    made_s: int = 0
    lift: int = 0
    trail: Trail | None = None
    open_gtid: Gtid | None = None

    @property
    def position(self) -> int:
        return int(BinlogPosition(self.number, self.offset))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walked:
    """The first ``count`` events. ``at``, ``position`` and ``commit_ts`` are of those that are
    about rows; ``xa``: rows that count later, and what ends them, in their order. ``statements``:
    where each stands, with its position and commit-ts. ``maps``: TABLE_MAPs that hold where the
    first begins."""

    count: int
    at: Offsets
    position: Numbers
    commit_ts: Numbers
    xa: list[XaRows | XaEnd]
    statements: list[tuple[int, int, int]]
    maps: tuple[bytes, ...]
    checksum: bool
    made_s: int  # when the file was begun in which the first event lies
    pins: tuple[Pin, ...]
    place: LogPlace
    named: NamedGroups
    rolled_back: int = 0  # transactions


def walk(
    data: bytes,
    at: Offsets,
    place: LogPlace,
    *,
    pins: Sequence[Pin],
    latest: Ts,
    end: int = _NO_END,
    may_cut: bool = False,
    is_torn_file: bool = False,
) -> Walked:
    """Walk to the end of the last whole transaction; with ``may_cut`` to the last event. Nothing
    from the position ``end`` on is walked, where a transaction begins.

    ``at``: where each event begins. ``is_torn_file``: nothing more of the file can be read. Raises
    BadEvent for bytes that are no event, and Refused. ``pins``, ``latest``: as for `numbered`."""
    first, place, events, is_file_end = _events(data, at, place)
    number, offset, ends = places(events, BinlogPosition(place.number, place.offset), place.lift)
    position = number << OFFSET_BITS | offset
    if place.checksum:
        _check_control(data, events, position)
    groups = transactions(events, is_inside=bool(place.open_ts))
    _refuse_incidents(events, position)
    is_torn = _torn(groups, events, is_last=is_torn_file or is_file_end)
    if is_torn[:1].any() and place.open_ts and not place.xa_begin:
        raise Refused(_TORN)
    is_open, count = _count(events, groups, is_torn, may_cut=may_cut)
    count = min(count, int(np.searchsorted(position[:-1], end)))
    own_ms, gtids = own_times(data, events, count)
    own_ms[is_torn[gtids]] = 0
    stamps = numbered(position[gtids], own_ms, after=place.after_ts, pins=pins, latest=latest)
    nth = np.searchsorted(gtids, np.arange(count), side="right") - 1
    commit_ts = np.append(stamps.commit_ts, place.open_ts)[nth]  # -1: the open one
    last_ts = int(stamps.commit_ts[-1]) if len(gtids) else place.after_ts
    last_pin = pin_at(pins, int(position[count])) or Pin(0, 0)  # of an idle log, say
    rows, xa, xa_begin = _rows(
        data, events, groups, position=position, commit_ts=commit_ts, is_torn=is_torn, place=place
    )
    open_ts = int(commit_ts[-1]) if is_open and count > groups.open else 0
    open_ts = open_ts if count else place.open_ts  # the one that is begun still is
    where = Where(position, number[:-1] << OFFSET_BITS | ends, commit_ts)
    named, before = named_groups(data, events, groups, where, place)
    return Walked(
        count=first + count,
        at=events.at[rows],
        position=position[rows],
        commit_ts=commit_ts[rows],
        xa=xa,
        statements=_statements(events, groups, position, commit_ts),
        maps=place.maps,
        checksum=bool(place.checksum),
        made_s=place.made_s,
        pins=before.told(
            *_end_of_open(place, groups, number, ends),
            *needed_pins(_ends(groups, gtids, number, ends), stamps, own_ms, _NO_END),
        ),
        place=replace(
            _behind(place, events, count, open_ts),
            number=int(number[count]),
            offset=int(offset[count]),
            after_ts=max(last_ts, last_pin.floor_ts),
            xa_begin=xa_begin,
            is_unbelieved=bool(open_ts) and _is_open_unbelieved(place, stamps, len(gtids)),
            checksum=None if is_file_end and count == len(events) else place.checksum,
            trail=before(int(position[count])),
            open_gtid=gtid_of(data, events, groups.open, place) if open_ts else None,
        ),
        named=named,
        rolled_back=int((groups.kind == GroupKind.ROLLED_BACK).sum()),
    )


def _count(
    events: Events, groups: Transactions, is_torn: Mask, *, may_cut: bool
) -> tuple[bool, int]:
    """Whether the last transaction goes on, and how many events are walked then. The event behind a
    GTID says whether it begins a statement, or an XA transaction."""
    is_open = groups.open < len(events) and not is_torn[groups.open]
    is_cut = is_open and not (may_cut and groups.open < len(events) - 1)
    return is_open, groups.open if is_cut else len(events)


def _behind(place: LogPlace, events: Events, count: int, open_ts: int) -> LogPlace:
    """What is known of the place behind the first events by themselves."""
    maps = _maps(events, count, place.maps) if open_ts else ()
    made_s = _made_s(events, count, place.made_s)
    return replace(place, open_ts=open_ts, maps=maps, made_s=made_s)


def _statements(
    events: Events, groups: Transactions, position: Numbers, commit_ts: Numbers
) -> list[tuple[int, int, int]]:
    """The statements among the first events. One that rows of the same transaction follow (CREATE
    TABLE … SELECT) counts right below them, as a table begins above its DDL. (At worst that is the
    commit-ts of the transaction before, which cannot be about that table.)"""
    count = len(commit_ts)
    found = groups.statements[groups.statements < count]
    nth = np.searchsorted(groups.first, found, side="right") - 1
    kinds = np.append(groups.kind, GroupKind.ROWS)[nth]  # -1: one that is open
    is_inside = found <= np.append(groups.last, count)[nth]
    is_before_rows = ~is_inside | (kinds == GroupKind.ROWS)
    stamps = commit_ts[found] - is_before_rows
    return list(
        zip(events.at[found].tolist(), position[found].tolist(), stamps.tolist(), strict=True)
    )


def _rows(
    data: bytes,
    events: Events,
    groups: Transactions,
    *,
    position: Numbers,
    commit_ts: Numbers,
    is_torn: Mask,
    place: LogPlace,
) -> tuple[Offsets, list[XaRows | XaEnd], int]:
    """The first events, as many as ``commit_ts`` has, that are about rows, which count where they
    were committed; the XA transactions; and where the one began that goes on (0: none does)."""
    count = len(commit_ts)
    is_row: Mask = np.isin(events.kind[:count], _OF_ROWS) & ~is_torn[:count]
    for group in np.flatnonzero(groups.kind == GroupKind.ROLLED_BACK).tolist():
        is_row[groups.first[group] : groups.last[group] + 1] = False
    walking = Walking(
        data=data,
        events=events,
        groups=groups,
        position=position,
        commit_ts=commit_ts,
        is_row=is_row,
        is_open=groups.open < len(events) and not is_torn[groups.open],
        continued=place.xa_begin,
        maps=place.maps,
        checksum=bool(place.checksum),
    )
    xa, is_xa, xa_begin = xa_of(walking)
    return np.flatnonzero(is_row & ~is_xa), xa, xa_begin if count else place.xa_begin


def _events(data: bytes, at: Offsets, place: LogPlace) -> tuple[int, LogPlace, Events, bool]:
    """How many of the events come before those of the file; the place with what the file's head
    says; the events, and whether the next file begins behind them, whose events end otherwise."""
    first, checksum, made_s = _head(data, at, place)
    place = replace(place, checksum=checksum, made_s=made_s)
    assert checksum is not None or first == len(at)
    events, bad = events_of(data, at[first:], checksum=bool(checksum), checks_crc=False)
    if bad:
        raise bad[0][2]
    stop = _checksum_changes(data, events, bool(checksum))
    if stop is None:
        return first, place, events, False
    return first, place, events.take(np.arange(stop)), True


def _head(data: bytes, at: Offsets, place: LogPlace) -> tuple[int, bool | None, int]:
    """How many events come before the file's head, with it; what it says of checksums, and when the
    file was begun."""
    if place.checksum is not None:
        return 0, place.checksum, place.made_s
    for nth, begin in enumerate(at.tolist()):
        if data[begin + 4] == EventType.FORMAT_DESCRIPTION:
            head = event_at(data, begin, checksum=False)
            # The head of a file that is read from its beginning lies in it.
            is_first = place.offset == FIRST_OFFSET
            count = nth if is_first else nth + 1
            return count, format_description(head).checksum, head.time_s
    return len(at), None, 0


def _made_s(events: Events, count: int, before_s: int) -> int:
    heads = np.flatnonzero(events.kind[:count] == EventType.FORMAT_DESCRIPTION)
    if not len(heads):
        return before_s
    at = int(events.at[heads[-1]])
    return int.from_bytes(events.data[at : at + 4].tobytes(), "little")


def _checksum_changes(data: bytes, events: Events, checksum: bool) -> int | None:
    """The first event of a file whose events end otherwise."""
    for nth in np.flatnonzero(events.kind == EventType.FORMAT_DESCRIPTION).tolist():
        told = format_description(event_at(data, int(events.at[nth]), checksum=False))
        if told.checksum != checksum:
            return int(nth)
    return None


def _refuse_incidents(events: Events, position: Numbers) -> None:
    found = np.flatnonzero(events.kind == EventType.INCIDENT)
    if len(found):
        raise RefusedAt(
            "the server's word that its binlog has lost events (INCIDENT): copy the tables anew "
            "into another warehouse, and begin behind it",
            int(position[found[0]]),
        )


def _torn(groups: Transactions, events: Events, *, is_last: bool) -> Mask:
    """Events of transactions that do not end, though the log goes on behind them: the server was
    killed while it wrote them, and has rolled them back. ``is_last``: behind these events the next
    file begins."""
    kind = events.kind
    depth = np.zeros(len(events) + 1, np.int64)
    np.add.at(depth, groups.first, 1)
    np.add.at(depth, groups.last + 1, -1)
    is_torn: Mask = np.cumsum(depth[:-1]) == 0
    if not (is_last or (kind[groups.open :] == EventType.FORMAT_DESCRIPTION).any()):
        is_torn[groups.open :] = False
    return is_torn


def _check_control(data: bytes, events: Events, position: Numbers) -> None:
    """Raise Damaged for an event that tells how the log goes on, and has a wrong checksum. Rows are
    looked at where they are decoded."""
    view, crc = memoryview(data), zlib.crc32
    is_row = np.isin(events.kind, (*_OF_ROWS, EventType.FORMAT_DESCRIPTION))
    control = np.flatnonzero(~is_row)
    ranges = zip(events.at[control].tolist(), events.end[control].tolist(), strict=True)
    found = np.array([crc(view[at:end]) for at, end in ranges], np.uint32)
    wrong = control[found != words_of(events.data, "<u4")[events.end[control]]]
    if len(wrong):
        raise Damaged(int(position[wrong[0]]))


def _ends(groups: Transactions, gtids: Offsets, number: Numbers, end: Numbers) -> Numbers:
    """Where the transaction of each GTID ends; `_NO_END` for one that does not end here."""
    ends = np.full(len(gtids), _NO_END, np.int64)
    begun = np.isin(groups.first, gtids)  # one that began earlier has its number
    last = groups.last[begun]
    ends[np.searchsorted(gtids, groups.first[begun])] = number[last] << OFFSET_BITS | end[last]
    return ends


def _end_of_open(place: LogPlace, groups: Transactions, number: Numbers, end: Numbers) -> list[Pin]:
    """The pin behind the transaction that was open, if its own time is not believed."""
    if not place.is_unbelieved or not len(groups.first) or groups.first[0] != 0:
        return []
    last = groups.last[0]
    at = int(number[last]) << OFFSET_BITS | int(end[last])
    return [Pin(at, place.open_ts, is_needed=True)]


def _is_open_unbelieved(place: LogPlace, stamps: Numbered, count: int) -> bool:
    if not count:
        return place.is_unbelieved
    return bool(len(stamps.unbelieved)) and int(stamps.unbelieved[-1]) == count - 1


def _maps(events: Events, count: int, before: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The TABLE_MAPs that hold behind these events."""
    rows = np.flatnonzero(np.isin(events.kind[:count], (*ROW_EVENTS, *INFLATED)))
    flags = words_of(events.data, "<u2")[events.at[rows] + HEADER_BYTES + 6]
    ended = rows[(flags & RowsFlag.STATEMENT_END) != 0]
    since = int(ended[-1]) if len(ended) else -1
    maps = np.flatnonzero(events.kind[:count] == EventType.TABLE_MAP)
    held = tuple(events.whole(int(each)) for each in maps[maps > since])
    return held if len(ended) else (*before, *held)
