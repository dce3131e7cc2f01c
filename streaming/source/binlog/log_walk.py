"""Events of the log in their order: where each lies, which transaction it belongs to, and the
commit-ts of that. Pure.

    bytes of a connection ──walk(place)──► `Walked`: events with positions and commit-ts,
                                           statements, pins, and the place behind them
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from coordination.model import Ts
from streaming.source.binlog.commit_clock import Numbers, Pin, numbered
from streaming.source.binlog.format.control.files import format_description
from streaming.source.binlog.format.control.gtids import mysql_gtid
from streaming.source.binlog.format.control.transactions import (
    GroupKind,
    Transactions,
    transactions,
)
from streaming.source.binlog.format.events import (
    HEADER_BYTES,
    Bytes,
    Events,
    Offsets,
    event_at,
    events_of,
    words_of,
)
from streaming.source.binlog.format.faults import BadEvent, Refused
from streaming.source.binlog.format.type_codes import (
    GTIDS,
    INFLATED,
    ROW_EVENTS,
    EventType,
    RowsFlag,
)
from streaming.source.binlog.position import (
    FIRST_OFFSET,
    OFFSET_BITS,
    BinlogPosition,
    file_number,
)

_ARTIFICIAL: Final = 0x20  # flag of an event that stands in no file
MADE_FOR_US: Final = (  # if they say no position
    *(EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.GTID_LIST),
    *(EventType.PREVIOUS_GTIDS, EventType.BINLOG_CHECKPOINT, EventType.START_ENCRYPTION),
)
_HEARTBEATS: Final = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
_OF_ROWS: Final = (
    *(EventType.TABLE_MAP, EventType.TRANSACTION_PAYLOAD, EventType.PARTIAL_UPDATE_ROWS),
    *ROW_EVENTS,
    *INFLATED,
)
_FILE: Final = re.compile(rb"[^\0]*?\.\d{6,}")
_TOLD_BITS: Final = 32  # of an event's own word about where it ends
_NO_END: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where the walk goes on. ``after_ts``: the commit-ts of the last transaction; ``open_ts``: of
    the one that is begun, 0 for none, with the TABLE_MAPs that hold in it. ``checksum``: whether
    events end in a CRC32; None: the file's head comes first, and says so."""

    number: int
    offset: int
    after_ts: int
    open_ts: int = 0
    maps: tuple[bytes, ...] = ()
    checksum: bool | None = None

    @property
    def position(self) -> int:
        return int(BinlogPosition(self.number, self.offset))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walked:
    """The first ``count`` events. ``at``, ``position`` and ``commit_ts`` are of those that are
    about rows; ``statements``: where each stands, with its position and commit-ts. ``maps``:
    TABLE_MAPs that hold where the first begins."""

    count: int
    at: Offsets
    position: Numbers
    commit_ts: Numbers
    statements: list[tuple[int, int, int]]
    maps: tuple[bytes, ...]
    checksum: bool
    pins: tuple[Pin, ...]
    place: LogPlace
    rolled_back: int = 0  # transactions


def walk(
    data: bytes,
    at: Offsets,
    place: LogPlace,
    *,
    pins: Sequence[Pin],
    latest: Ts,
    may_cut: bool = False,
) -> Walked:
    """Walk to the end of the last whole transaction; with ``may_cut`` to the last event.

    ``at``: where each event begins in ``data``. ``pins`` and ``latest`` as for `numbered`. Raises
    BadEvent for bytes that are no event, and Refused."""
    first, checksum = _head(data, at, place)
    if first:  # the server's words before the file's head, and that head
        at, place = at[first:], replace(place, checksum=checksum)
    assert checksum is not None or not len(at)
    events, bad = events_of(data, at, checksum=bool(checksum), checks_crc=False)
    if bad:
        raise bad[0][2]
    if (stop := _checksum_changes(data, events, bool(checksum))) is not None:
        events = events.take(np.arange(stop))
    number, offset, end = _places(events, place)
    groups = transactions(events, is_inside=bool(place.open_ts))
    _refuse_prepared(groups)
    is_inside_end = may_cut and groups.open < len(events)
    count = len(events) if may_cut else _whole(groups, events)
    position = number << OFFSET_BITS | offset
    own_ms, gtids = _own_times(data, events, count)
    ends = _ends(groups, gtids, number, end)
    stamps = numbered(position[gtids], ends, own_ms, after=place.after_ts, pins=pins, latest=latest)
    nth = np.searchsorted(gtids, np.arange(count), side="right") - 1
    commit_ts = np.append(stamps.commit_ts, place.open_ts)[nth]  # -1: the open one
    after_ts = int(stamps.commit_ts[-1]) if len(gtids) else place.after_ts
    is_row = np.isin(events.kind[:count], _OF_ROWS)
    for group in np.flatnonzero(groups.kind == GroupKind.ROLLED_BACK).tolist():
        is_row[groups.first[group] : groups.last[group] + 1] = False
    rows = np.flatnonzero(is_row)
    open_ts = int(commit_ts[-1]) if is_inside_end and count else 0
    return Walked(
        count=first + count,
        at=events.at[rows],
        position=position[rows],
        commit_ts=commit_ts[rows],
        statements=[
            (int(events.at[each]), int(position[each]), int(commit_ts[each]))
            for each in groups.statements[groups.statements < count].tolist()
        ],
        maps=place.maps,
        checksum=bool(checksum),
        pins=tuple(pin for pin in stamps.pins if pin.position < _NO_END),
        place=LogPlace(
            number=int(number[count]),
            offset=int(offset[count]),
            after_ts=after_ts,
            open_ts=open_ts,
            maps=_maps(events, count, place.maps) if open_ts else (),
            checksum=None if stop is not None and count == stop else checksum,
        ),
        rolled_back=int((groups.kind == GroupKind.ROLLED_BACK).sum()),
    )


def seen_to(data: Bytes, at: Offsets, before: BinlogPosition) -> BinlogPosition:
    """Where the last of these events that says so ends: a quick look, before they are walked.
    ``before``: where the events before them end."""
    number, offset = before
    words = words_of(data, "<u4")
    kind, told = data[at + 4], words[at + 13].astype(np.int64)
    here = 0
    for rotate in np.flatnonzero(kind == EventType.ROTATE).tolist():
        begin, size = int(at[rotate]), int(words[at[rotate] + 9])
        body = data[begin + HEADER_BYTES : begin + size].tobytes()
        number, offset = _next_file(body, (number, offset))
        here = rotate + 1
    ends = told[here:][told[here:] > 0]
    if len(ends):
        return BinlogPosition(number, int(_lifted(ends[-1], np.int64(offset))))
    return BinlogPosition(number, offset)


def _head(data: bytes, at: Offsets, place: LogPlace) -> tuple[int, bool | None]:
    """How many events come before the file's head, with it; and what it says of checksums."""
    if place.checksum is not None:
        return 0, place.checksum
    for nth, begin in enumerate(at.tolist()):
        if data[begin + 4] == EventType.FORMAT_DESCRIPTION:
            told = format_description(event_at(data, begin, checksum=False))
            # The head of a file that is read from its beginning lies in it.
            is_first = place.offset == FIRST_OFFSET
            return nth if is_first else nth + 1, told.checksum
    return len(at), None


def _checksum_changes(data: bytes, events: Events, checksum: bool) -> int | None:
    """The first event of a file whose events end otherwise."""
    for nth in np.flatnonzero(events.kind == EventType.FORMAT_DESCRIPTION).tolist():
        told = format_description(event_at(data, int(events.at[nth]), checksum=False))
        if told.checksum != checksum:
            return int(nth)
    return None


def _places(events: Events, place: LogPlace) -> tuple[Numbers, Numbers, Numbers]:
    """File and offset of each event, and of what comes behind the last; and where each ends."""
    count = len(events)
    number = np.full(count + 1, place.number, np.int64)
    begin = np.full(count + 1, place.offset, np.int64)
    end = np.empty(count, np.int64)
    told = words_of(events.data, "<u4")[events.at + 13].astype(np.int64)
    flags = words_of(events.data, "<u2")[events.at + 17]
    size = events.stop - events.at
    is_heartbeat = np.isin(events.kind, _HEARTBEATS)
    is_made = (told == 0) & np.isin(events.kind, MADE_FOR_US) | (flags & _ARTIFICIAL != 0)
    size = np.where(is_made | is_heartbeat, 0, size)
    is_known = (told > 0) & ~is_made
    here, at = 0, (place.number, place.offset)
    for rotate in [*np.flatnonzero(events.kind == EventType.ROTATE).tolist(), count]:
        stop = min(rotate + 1, count)
        some = slice(here, stop)
        number[some] = at[0]
        ends = _ends_in_file(at[1], size[some], told[some], is_known[some])
        end[some] = ends
        begin[some] = ends - size[some]
        at = at[0], int(ends[-1]) if len(ends) else at[1]
        if rotate < count:
            at = _next_file(events.body(rotate), at)
        here = stop
    number[count], begin[count] = at
    return number, begin, end


def _ends_in_file(
    offset: int, size: Numbers, told: Numbers, is_known: npt.NDArray[np.bool_]
) -> Numbers:
    """Where events of one file end: as they say themselves, else by their sizes. They say 32
    bits of it."""
    expected = offset + np.cumsum(size)
    lifted = _lifted(told, expected)
    nth = np.maximum.accumulate(np.where(is_known, np.arange(len(size)), -1))
    moved = np.where(is_known, lifted - expected, 0)
    return expected + np.where(nth >= 0, moved[nth], 0)


def _lifted(told: Any, expected: Any) -> Any:
    """The offset nearest to ``expected`` that has these low bits."""
    return told + ((expected - told + (1 << (_TOLD_BITS - 1))) >> _TOLD_BITS << _TOLD_BITS)


def _next_file(body: bytes, at: tuple[int, int]) -> tuple[int, int]:
    named = _FILE.match(body, 8)
    if named is None:
        raise BadEvent("a ROTATE names no file")
    number = file_number(named[0].decode())
    # The server's word where it begins to send names the place that was asked for.
    return at if number == at[0] else (number, int.from_bytes(body[:8], "little"))


def _refuse_prepared(groups: Transactions) -> None:
    kinds = (GroupKind.XA_PREPARED, GroupKind.XA_COMMIT, GroupKind.XA_ROLLBACK)
    if np.isin(groups.kind, kinds).any():
        raise Refused(
            "the binlog has an XA transaction, which is not read yet: let applications use plain "
            "transactions, and begin behind it"
        )


def _whole(groups: Transactions, events: Events) -> int:
    """How many events come before the transaction that does not end."""
    return min(groups.open, len(events))


def _own_times(data: bytes, events: Events, count: int) -> tuple[Numbers, Offsets]:
    """The own time of each transaction that begins among the first ``count`` events, in ms, and its
    GTID event."""
    gtids = np.flatnonzero(np.isin(events.kind[:count], GTIDS))
    kind, at = events.kind[gtids], events.at[gtids]
    own_ms = words_of(events.data, "<u4")[at].astype(np.int64) * 1_000
    for nth in np.flatnonzero(kind == EventType.GTID_TAGGED).tolist():
        mysql_gtid(event_at(data, int(at[nth]), checksum=False))  # refuses it
    is_mysql = kind != EventType.MARIADB_GTID
    if is_mysql.any():
        words = words_of(events.data, "<u8")
        body, end = at + HEADER_BYTES, events.end[gtids]
        has_times = is_mysql & (body + 42 + 7 <= end)
        immediate = words[np.where(has_times, body + 42, 0)].astype(np.int64) & ((1 << 56) - 1)
        has_original = has_times & (immediate >> 55 == 1) & (body + 49 + 7 <= end)
        original = words[np.where(has_original, body + 49, 0)].astype(np.int64) & ((1 << 56) - 1)
        us = np.where(has_original, original, immediate & ((1 << 55) - 1))
        own_ms = np.where(has_times, us // 1_000, own_ms)
    return own_ms, gtids


def _ends(groups: Transactions, gtids: Offsets, number: Numbers, end: Numbers) -> Numbers:
    """Where the transaction of each GTID ends; `_NO_END` for one that does not end here."""
    ends = np.full(len(gtids), _NO_END, np.int64)
    begun = np.isin(groups.first, gtids)  # one that began earlier has its number
    last = groups.last[begun]
    ends[np.searchsorted(gtids, groups.first[begun])] = number[last] << OFFSET_BITS | end[last]
    return ends


def _maps(events: Events, count: int, before: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The TABLE_MAPs that hold behind these events."""
    rows = np.flatnonzero(np.isin(events.kind[:count], (*ROW_EVENTS, *INFLATED)))
    flags = words_of(events.data, "<u2")[events.at[rows] + HEADER_BYTES + 6]
    ended = rows[(flags & RowsFlag.STATEMENT_END) != 0]
    since = int(ended[-1]) if len(ended) else -1
    maps = np.flatnonzero(events.kind[:count] == EventType.TABLE_MAP)
    held = tuple(events.whole(int(each)) for each in maps[maps > since])
    return held if len(ended) else (*before, *held)
