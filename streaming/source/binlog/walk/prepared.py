"""XA transactions in the walk: where the rows of each lie, and which event ends it. Pure.

    GTID  XA START  rows  XA END  XA PREPARE   …   GTID  XA COMMIT       in another file, perhaps
    └──────────── `XaRows` ────────────────┘       └── `XaEnd` ──┘

The rows have the COMMIT's commit-ts, and their own positions. So whoever reads the COMMIT must find
the PREPARE before it. `Prepared` knows those that a walk has passed; of a large one it knows the
place alone, and the log keeps the rows. An XA COMMIT ONE PHASE ends as a PREPARE does that is its
own COMMIT: both come, whether a walk has met it whole or in pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.control.gtids import maria_gtid
from streaming.source.binlog.format.control.transactions import (
    GroupKind,
    Transactions,
    statement_of,
)
from streaming.source.binlog.format.control.xa import (
    XaPrepare,
    Xid,
    payload_xa,
    xa_prepare,
    xa_statement,
)
from streaming.source.binlog.format.events import Events, Offsets, event_at, joined
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import IS_GTID, EventType
from streaming.source.resolved.commit_clock import Numbers

MOST_BYTES: Final = 16 << 20  # of the rows that are kept, of all prepared transactions together
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class XaRows:
    """The rows of an XA transaction that one walk has met. ``begin``: the position of its GTID.
    ``xid``: None if it goes on behind them. ``is_whole``: they are all of its rows. ``maps``: the
    TABLE_MAPs that hold where they begin."""

    begin: int
    xid: Xid | None
    is_whole: bool
    at: Offsets
    position: Numbers
    maps: tuple[bytes, ...]
    checksum: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class XaEnd:
    """What ends an XA transaction, at this position. ``commit_ts``: 0 if it was rolled back."""

    xid: Xid
    position: int
    commit_ts: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walking:
    """The first events of a walk, as many as ``commit_ts`` and ``is_row`` have. ``continued`` and
    ``maps``: where the transaction began that goes on in them (0: none does), and what holds in
    it. ``is_open``: one goes on behind them."""

    data: bytes
    events: Events
    groups: Transactions
    position: Numbers
    commit_ts: Numbers
    is_row: Mask
    is_open: bool
    continued: int
    maps: tuple[bytes, ...]
    checksum: bool


def xa_of(walking: Walking) -> tuple[list[XaRows | XaEnd], Mask, int]:
    """The XA transactions among these events; which events are theirs; and where the one began
    that goes on behind them (0: none). Raises BadEvent."""
    data, events, groups = walking.data, walking.events, walking.groups
    position, commit_ts, continued = walking.position, walking.commit_ts, walking.continued
    count = len(commit_ts)
    is_inside = bool(continued) and len(events) > 0 and not IS_GTID[events.kind[0]]
    found: list[XaRows | XaEnd] = []
    is_xa = np.zeros(count, np.bool_)

    def rows(first: int, last: int, begin: int, xid: Xid | None) -> XaRows:
        is_xa[first : last + 1] = True
        here = first + np.flatnonzero(walking.is_row[first : last + 1])
        is_first = not (is_inside and first == 0)
        return XaRows(
            begin=begin,
            xid=xid,
            is_whole=is_first and xid is not None,
            at=events.at[here],
            position=position[here],
            maps=() if is_first else walking.maps,
            checksum=walking.checksum,
        )

    is_prepare = (events.kind[groups.last] == EventType.XA_PREPARE).tolist()
    for nth, kind in enumerate(groups.kind.tolist()):
        first, last = int(groups.first[nth]), int(groups.last[nth])
        goes_on = is_inside and first == 0
        is_one_phase = kind == GroupKind.ROWS and is_prepare[nth]
        is_one_phase = is_one_phase and _begins_xa(data, events, first)
        if last >= count or not (kind in _OF_XA or goes_on or is_one_phase):
            continue
        at = int(position[last])
        if kind in (GroupKind.XA_COMMIT, GroupKind.XA_ROLLBACK):
            told = xa_statement(statement_of(events, last))
            assert told is not None
            ts = int(commit_ts[last]) if kind == GroupKind.XA_COMMIT else 0
            found.append(XaEnd(xid=told[1], position=at, commit_ts=ts))
            continue
        prepare = _prepare(data, events, last)
        found.append(rows(first, last, continued if goes_on else int(position[first]), prepare.xid))
        if prepare.is_one_phase:
            found.append(XaEnd(xid=prepare.xid, position=at, commit_ts=int(commit_ts[last])))
    if not walking.is_open or groups.open >= count:
        return found, is_xa, 0
    begin = int(position[groups.open])
    if is_inside and groups.open == 0:
        begin = continued
    elif not _begins_xa(data, events, groups.open):
        return found, is_xa, 0
    found.append(rows(groups.open, count - 1, begin, None))
    return found, is_xa, begin


_OF_XA: Final = (GroupKind.XA_PREPARED, GroupKind.XA_COMMIT, GroupKind.XA_ROLLBACK)


def _prepare(data: bytes, events: Events, last: int) -> XaPrepare:
    if events.kind[last] == EventType.TRANSACTION_PAYLOAD:
        found = payload_xa(events.body(last))
    elif events.kind[last] == EventType.XA_PREPARE:
        found = xa_prepare(event_at(data, int(events.at[last]), checksum=False))
    else:
        found = None
    if found is None:
        raise BadEvent("an XA transaction ends without an XA PREPARE")
    return found


def _begins_xa(data: bytes, events: Events, gtid: int) -> bool:
    if events.kind[gtid] == EventType.MARIADB_GTID:
        head = event_at(data, int(events.at[gtid]), checksum=False)
        return maria_gtid(head).xa_prepared is not None
    told = None
    if IS_GTID[events.kind[gtid]] and events.kind[gtid + 1] == EventType.QUERY:
        told = xa_statement(statement_of(events, gtid + 1))
    return told is not None and told[0] in ("START", "BEGIN")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptRows:
    """Events about rows, one behind the other."""

    data: bytes
    at: Offsets
    position: Numbers
    checksum: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedAt:
    """``begin``: the position of the GTID. ``rows``: None where they are to be read again."""

    begin: int
    rows: KeptRows | None = None


@dataclass(slots=True, eq=False)
class Prepared:
    """The transactions that are prepared where a walk stands that began at ``since``, as far as it
    can know."""

    since: int = 0
    _at: dict[Xid, PreparedAt] = field(default_factory=dict)
    _ended: set[Xid] = field(default_factory=set)  # whose PREPARE was before ``since``
    _kept_bytes: int = 0

    def take(self, data: bytes, seen: XaRows | XaEnd) -> PreparedAt | None:
        """What was prepared, if this ends it and its PREPARE is known. ``data``: of the walk."""
        if isinstance(seen, XaEnd):
            found = self._pop(seen.xid)
            if found is None:
                self._ended.add(seen.xid)
            return found
        if seen.xid is not None:
            self._pop(seen.xid)
            rows = self._kept(data, seen) if seen.is_whole else None
            self._at[seen.xid] = PreparedAt(begin=seen.begin, rows=rows)
            self._kept_bytes += len(rows.data) if rows else 0
        return None

    def add_earlier(self, earlier: Prepared) -> None:
        """``earlier`` has walked up to where this one began."""
        for xid, at in earlier._at.items():
            if xid not in self._at and xid not in self._ended:
                self._at[xid] = replace(at, rows=None)
        self._ended |= earlier._ended
        self.since = earlier.since

    def find(self, xid: Xid) -> PreparedAt | None:
        return self._at.get(xid)

    def _kept(self, data: bytes, seen: XaRows) -> KeptRows | None:
        sizes = [int.from_bytes(data[at + 9 : at + 13], "little") for at in seen.at.tolist()]
        if self._kept_bytes + sum(sizes) > MOST_BYTES:
            return None
        found = zip(seen.at.tolist(), sizes, strict=True)
        events, at = joined([data[at : at + size] for at, size in found])
        return KeptRows(data=events, at=at, position=seen.position, checksum=seen.checksum)

    def _pop(self, xid: Xid) -> PreparedAt | None:
        found = self._at.pop(xid, None)
        if found is not None and found.rows is not None:
            self._kept_bytes -= len(found.rows.data)
        return found
