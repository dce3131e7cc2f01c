"""XA transactions: their rows come with the XA PREPARE, and count when an XA COMMIT comes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.events import Event, event_at
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.inflate import payload_events
from streaming.source.binlog.format.type_codes import EventType

_XA_STATEMENT: Final = re.compile(
    rb"\s*XA\s+(?P<verb>COMMIT|ROLLBACK|START|BEGIN|END|PREPARE)\b\s*", re.IGNORECASE
)
_NAME: Final = re.compile(  # no part has more than 64 bytes
    rb"X'(?P<gtrid>(?:[0-9a-f]{2}){0,64})'\s*,\s*X'(?P<bqual>(?:[0-9a-f]{2}){0,64})'\s*,"
    rb"\s*(?P<format>-?\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of an XA transaction."""

    format_id: int
    gtrid: bytes
    bqual: bytes

    @staticmethod
    def read(body: ByteReader, width: int = 1) -> Xid:
        """``width``: bytes of each size."""
        format_id = int.from_bytes(body.take(4), "little", signed=True)
        gtrid, bqual = body.number(width), body.number(width)
        return Xid(format_id, body.take(gtrid), body.take(bqual))

    def __str__(self) -> str:
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id}"


def xa_statement(sql: bytes) -> tuple[str, Xid] | None:
    """COMMIT, ROLLBACK, START, BEGIN, END or PREPARE, and of which transaction; None for another
    statement. Both servers write the name in hexadecimal digits, whatever its session wrote. Raises
    BadEvent for another name."""
    found = _XA_STATEMENT.match(sql)
    if found is None:
        return None
    name = _NAME.match(sql, found.end())
    if name is None:
        raise BadEvent(f"the name of an XA transaction cannot be read: {sql.decode('latin-1')!r}")
    gtrid, bqual = (bytes.fromhex(name[each].decode()) for each in ("gtrid", "bqual"))
    return found["verb"].decode().upper(), Xid(int(name["format"]), gtrid, bqual)


@dataclass(frozen=True, slots=True)
class XaPrepare:
    xid: Xid
    is_one_phase: bool  # it is a commit


def xa_prepare(event: Event) -> XaPrepare:
    body = ByteReader(event.body)
    is_one_phase = bool(body.number(1))
    return XaPrepare(Xid.read(body, 4), is_one_phase)


def payload_xa(body: bytes) -> XaPrepare | None:
    """The XA PREPARE in the body of a TRANSACTION_PAYLOAD; None if its transaction is no XA one.
    Raises BadEvent. Only an XA transaction is inflated further than its first statement."""
    first, last = None, b""
    for last, _ in payload_events(body):
        if first is None:
            first = event_at(last, 0, checksum=False)
            if first.kind != EventType.QUERY or b"XA START " not in first.body:
                return None
    if not last or last[4] != EventType.XA_PREPARE:
        return None
    return xa_prepare(event_at(last, 0, checksum=False))
