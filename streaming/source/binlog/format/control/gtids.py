"""The names of transactions.

Each function takes one event (`events.event_at`) and raises BadEvent where its body is not what its
type says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final
from uuid import UUID

from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.control.xa import Xid
from streaming.source.binlog.format.events import Event
from streaming.source.binlog.format.faults import BadEvent, Refused
from streaming.source.binlog.format.type_codes import EventType

_ORIGINAL_FOLLOWS: Final = 1 << 55  # in MySQL's immediate commit time
_LOGICAL_CLOCK_BYTES: Final = 17


class AlterStep(StrEnum):
    """MariaDB may log an ALTER TABLE twice (``binlog_alter_two_phase``): it counts at COMMIT."""

    START = "start"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class MariaGtid:
    """A GTID event of MariaDB. ``time_s``: when the transaction was committed, as its session's
    clock says."""

    domain: int
    server_id: int
    sequence: int
    time_s: int
    is_standalone: bool  # one statement, without an event that ends it
    is_ddl: bool
    is_transactional: bool
    xa_prepared: Xid | None = None  # the transaction ends in an XA PREPARE
    xa_completed: Xid | None = None  # an XA COMMIT or XA ROLLBACK follows
    alter: AlterStep | None = None

    def __str__(self) -> str:
        return f"{self.domain}-{self.server_id}-{self.sequence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLGtid:
    """A GTID event of MySQL. An anonymous one (``gtid_mode = OFF``) has no ``uuid``. Commit times
    in microseconds, of the server that committed first; None before MySQL 8.0."""

    uuid: str | None
    number: int
    tag: str = ""
    original_us: int | None = None
    immediate_us: int | None = None
    length: int | None = None  # bytes of the whole transaction in the file

    def __str__(self) -> str:
        if not self.uuid:
            return "anonymous"
        return f"{self.uuid}:{self.tag}:{self.number}" if self.tag else f"{self.uuid}:{self.number}"


def maria_gtid(event: Event) -> MariaGtid:
    body = ByteReader(event.body)
    sequence, domain, flags = body.number(8), body.number(4), body.number(1)
    if flags & 0x02:  # of a group commit: its ID
        body.take(8)
    prepared = Xid.read(body) if flags & 0x40 else None
    completed = Xid.read(body) if flags & 0x80 else None
    more = body.number(1) if body.left else 0
    alter = next(
        (step for step, bit in zip(AlterStep, (0x02, 0x04, 0x08), strict=True) if more & bit), None
    )
    return MariaGtid(
        domain=domain,
        server_id=event.server_id,
        sequence=sequence,
        time_s=event.time_s,
        is_standalone=bool(flags & 0x01),
        is_ddl=bool(flags & 0x20),
        is_transactional=bool(flags & 0x04),
        xa_prepared=prepared,
        xa_completed=completed,
        alter=alter,
    )


def mysql_gtid(event: Event) -> MySQLGtid:
    if event.kind == EventType.GTID_TAGGED:
        return _tagged_gtid(event)
    body = ByteReader(event.body)
    body.take(1)  # flags
    uuid, number = body.take(16), body.number(8)
    name = None if event.kind == EventType.ANONYMOUS_GTID else str(UUID(bytes=uuid))
    if body.left < _LOGICAL_CLOCK_BYTES + 7:
        return MySQLGtid(uuid=name, number=number)
    body.take(_LOGICAL_CLOCK_BYTES)
    told = body.number(7)
    immediate = told & ~_ORIGINAL_FOLLOWS
    original = body.number(7) if told & _ORIGINAL_FOLLOWS else immediate
    length = body.length_encoded() if body.left else None
    return MySQLGtid(
        uuid=name, number=number, original_us=original, immediate_us=immediate, length=length
    )


def _tagged_gtid(event: Event) -> MySQLGtid:
    """One with a tag (MySQL 8.3 and later): fields with numbers, which rise; one that says nothing
    new may be missing. Those behind the last that is read here are not looked at."""
    whole = ByteReader(event.body)
    version, size = whole.variable(), whole.variable()
    if version != 1:
        raise Refused(f"the binlog has GTIDs with tags in form {version}; form 1 is read")
    body = whole.sized(size - whole.at)
    body.variable()  # the last field that a reader has to know
    told: dict[int, int] = {}
    uuid, tag, last = b"", "", -1
    while body.left:
        number = body.variable()
        if not last < number <= _Field.LENGTH:
            break
        last = number
        if number == _Field.UUID:
            uuid = bytes(body.variable() & 0xFF for _ in range(16))
        elif number == _Field.TAG:
            tag = body.text(body.variable())
        else:
            told[number] = body.variable()
    if not uuid or _Field.NUMBER not in told:
        raise BadEvent("a GTID with a tag does not tell its UUID or its number")
    immediate = told.get(_Field.IMMEDIATE_US)
    return MySQLGtid(
        uuid=str(UUID(bytes=uuid)),
        tag=tag,
        number=told[_Field.NUMBER] >> 1,  # behind its sign
        original_us=told.get(_Field.ORIGINAL_US, immediate),
        immediate_us=immediate,
        length=told.get(_Field.LENGTH),
    )


class _Field(IntEnum):
    """The fields of a GTID event with a tag. Numbers with a sign have it in their lowest bit."""

    FLAGS = 0
    UUID = 1
    NUMBER = 2
    TAG = 3
    LAST_COMMITTED = 4
    SEQUENCE = 5
    IMMEDIATE_US = 6
    ORIGINAL_US = 7
    LENGTH = 8


def xid(event: Event) -> int:
    """The number of a transaction in the server; an XID event commits it."""
    return ByteReader(event.body).number(8)
