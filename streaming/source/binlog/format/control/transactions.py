"""Where the transactions of a block begin and end, by the codes of its events.

    GTID  [QUERY BEGIN]  (TABLE_MAP rows…)…  XID | QUERY COMMIT | XA_PREPARE | PAYLOAD     a group
    GTID  QUERY                                                              a statement of its own

Every group begins with a GTID event (an anonymous one where MySQL has GTIDs off). Nothing else is
looked at than codes, and the statements of QUERY events that are not ``BEGIN``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.control.xa import payload_xa, xa_statement
from streaming.source.binlog.format.events import HEADER_BYTES, Bytes, Events, Offsets, words_of
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import IS_GTID, EventType

_QUERY_HEAD: Final = 13  # bytes before the status variables of a QUERY
_STANDALONE: Final = 1  # flag of MariaDB's GTID


class GroupKind(IntEnum):
    ROWS = 1  # committed
    STATEMENT = 2  # one QUERY: a DDL, or another statement that stands alone
    XA_PREPARED = 3  # its rows count when an XA COMMIT comes
    XA_COMMIT = 4
    XA_ROLLBACK = 5
    ROLLED_BACK = 6  # only what tables without transactions took of it is in the server's tables


@dataclass(frozen=True, slots=True, eq=False)
class Transactions:
    """The groups that end in a block, each from event ``first`` to ``last`` (both inclusive).

    ``statements``: QUERY events that are no ``BEGIN``, ``COMMIT``, ``ROLLBACK`` or savepoint, in
    whichever group. In a group of kind ROWS such a statement is a CREATE TABLE … SELECT, or a
    change in statement format. ``open``: the first event of a group that does not end in the block,
    or the number of events."""

    first: Offsets
    last: Offsets
    kind: npt.NDArray[np.int8]
    statements: Offsets
    open: int


_ENDS: Final = {  # a QUERY that is exactly this -> the group that it ends
    b"COMMIT": GroupKind.ROWS,
    b"ROLLBACK": GroupKind.ROLLED_BACK,
}
_INSIDE: Final = (b"SAVEPOINT", b"ROLLBACK TO", b"RELEASE SAVEPOINT")
_XA_ENDS: Final = {"COMMIT": GroupKind.XA_COMMIT, "ROLLBACK": GroupKind.XA_ROLLBACK}
_SHOWN: Final = 512  # bytes of a statement: its first words, or XA ROLLBACK and a name of 128 bytes


def transactions(events: Events, *, is_inside: bool = False) -> Transactions:
    """``is_inside``: the block begins within a group. A GTID is not to be cut off from the event
    behind it: the two together tell a statement of its own from a transaction. Raises BadEvent for
    an XA statement whose name cannot be read."""
    kind = events.kind
    ends = np.zeros(len(events), np.int8)
    ends[kind == EventType.XID] = GroupKind.ROWS
    for payload in np.flatnonzero(kind == EventType.TRANSACTION_PAYLOAD).tolist():
        ends[payload] = _kind_of_payload(events.body(payload))
    prepares = np.flatnonzero(kind == EventType.XA_PREPARE)
    is_one_phase = events.data[events.at[prepares] + HEADER_BYTES] != 0
    ends[prepares] = np.where(is_one_phase, GroupKind.ROWS, GroupKind.XA_PREPARED)
    is_gtid = IS_GTID[kind]
    begins = np.flatnonzero(is_gtid)
    statements = _read_queries(events, begins, ends, is_inside=is_inside)
    if is_inside and not (len(begins) and begins[0] == 0):
        begins = np.append(0, begins)
    stops = np.flatnonzero(ends)
    # A group ends at the first end behind its beginning, if that is before the next beginning.
    nth = np.searchsorted(stops, begins)
    last = np.append(stops, len(events))[nth]
    is_whole = last < np.append(begins[1:], len(events))
    left = np.flatnonzero(~is_whole)
    opened = int(begins[left[-1]]) if len(left) and left[-1] == len(begins) - 1 else len(events)
    first, last = begins[is_whole], last[is_whole]
    return Transactions(first, last, ends[last], statements, opened)


def _kind_of_payload(body: bytes) -> GroupKind:
    """A whole transaction stands in it, which may be an XA one. What is garbage is noticed where
    its rows are read."""
    try:
        prepare = payload_xa(body)
    except BadEvent:
        prepare = None
    is_prepared = prepare is not None and not prepare.is_one_phase
    return GroupKind.XA_PREPARED if is_prepared else GroupKind.ROWS


def _read_queries(
    events: Events, begins: Offsets, ends: npt.NDArray[np.int8], *, is_inside: bool
) -> Offsets:
    """Notes in ``ends`` which QUERY ends a group; returns those that are statements."""
    queries = np.flatnonzero(
        (events.kind == EventType.QUERY) | (events.kind == EventType.QUERY_COMPRESSED)
    )
    if not len(queries):
        return queries
    begin, size = _statements_at(events, queries)
    is_begin = (size == 5) & _is(events.data, begin, b"BEGIN")
    begun = queries[is_begin]
    found = []
    for nth in np.flatnonzero(~is_begin).tolist():
        event, at = int(queries[nth]), int(begin[nth])
        text = events.data[at : at + min(int(size[nth]), _SHOWN)].tobytes()
        is_packed = events.kind[event] == EventType.QUERY_COMPRESSED
        words = b"" if is_packed else b" ".join(text.split()).upper()
        if words in _ENDS:
            ends[event] = _ENDS[words]
        elif words.startswith(_INSIDE):
            continue
        elif xa := xa_statement(text):
            ends[event] = _XA_ENDS.get(xa[0], 0)
        else:
            found.append(event)
            if _stands_alone(events, event, begins, begun, is_inside=is_inside):
                ends[event] = GroupKind.STATEMENT
    return np.array(found, np.int64)


def _stands_alone(
    events: Events, event: int, begins: Offsets, begun: Offsets, *, is_inside: bool
) -> bool:
    """MariaDB's GTID says it. In MySQL a transaction begins with BEGIN."""
    nth = int(np.searchsorted(begins, event)) - 1
    if nth < 0:
        return not is_inside
    gtid = int(begins[nth])
    if events.kind[gtid] == EventType.MARIADB_GTID:
        return bool(events.data[events.at[gtid] + HEADER_BYTES + 12] & _STANDALONE)
    before = int(np.searchsorted(begun, event)) - 1
    return before < 0 or begun[before] < gtid


def statement_of(events: Events, query: int) -> bytes:
    """The first bytes of a QUERY event's statement."""
    begin, size = _statements_at(events, np.array([query], np.int64))
    return events.data[int(begin[0]) : int(begin[0]) + min(int(size[0]), _SHOWN)].tobytes()


def _statements_at(events: Events, queries: Offsets) -> tuple[Offsets, Offsets]:
    """Where the statements begin, and how long they are. A garbage event has none."""
    body, end = events.at[queries] + HEADER_BYTES, events.end[queries]
    read_at = np.minimum(body, end)  # what is read there beyond an end is not used
    schema = events.data[read_at + 8].astype(np.int64)
    status = words_of(events.data, "<u2")[read_at + 11].astype(np.int64)
    begin = np.minimum(body + _QUERY_HEAD + status + schema + 1, end)
    return begin, end - begin


def _is(data: Bytes, at: Offsets, text: bytes) -> npt.NDArray[np.bool_]:
    same = np.ones(len(at), np.bool_)
    for place, byte in enumerate(text):
        same &= data[at + place] == byte
    return same
