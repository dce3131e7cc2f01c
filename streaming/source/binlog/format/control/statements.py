"""A QUERY event: a statement, and what of its session an event tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.charsets import BINARY, UTF_8, Charsets, text_of, text_replaced
from streaming.source.binlog.format.events import Event
from streaming.source.binlog.format.inflate import inflated
from streaming.source.binlog.format.type_codes import EventType

_FLAGS: Final = 0
_EXPLICIT_DEFAULTS: Final = 16  # of MySQL
_OF_MARIADB: Final = 1 << 24  # the same, among its flags
_SQL_MODE: Final = 1
_CHARSET: Final = 4
_TIME_ZONE: Final = 5
_MICROSECONDS: Final = (13, 128)  # MySQL's, MariaDB's
_ALTER_FLAGS: Final = 130  # MariaDB's GTID has them too
_MANY_SCHEMAS: Final = 254  # so many that their names are left out


class AlterPhase(IntEnum):
    """MariaDB may write an ALTER TABLE twice (``binlog_alter_two_phase``): where it begins, and
    where it ends, with the same statement. Rows in between have the old shape."""

    START = 2
    COMMIT = 4
    ROLLBACK = 8


_PHASES: Final = sum(AlterPhase)
_NUMBERED: Final = AlterPhase.COMMIT | AlterPhase.ROLLBACK  # by the GTID of the START


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A statement as a session ran it. What the event does not tell is None."""

    schema: str  # the session's own; empty: none
    sql: str
    time_s: int  # when it began, as its session's clock says
    thread_id: int
    error_code: int  # with which the statement ended on the server; 0: without
    sql_mode: int | None = None
    time_zone: str | None = None
    client_collation: int | None = None  # in whose character set the statement was written
    alter_phase: AlterPhase | None = None
    explicit_defaults: bool | None = None  # explicit_defaults_for_timestamp, as MySQL tells it
    flags: int = 0

    micros: int = 0  # beside ``time_s``, where they matter to the statement
    garbled: str = ""  # the character set in which it is not written, with U+FFFD where it is not

    def has_explicit_defaults(self, *, is_mariadb: bool) -> bool:
        """``explicit_defaults_for_timestamp``, which is on where nothing else is told."""
        if is_mariadb:
            return bool(self.flags & _OF_MARIADB)
        return self.explicit_defaults is not False


def query(event: Event, charsets: Charsets) -> Query:
    """A QUERY event, or MariaDB's compressed one. Raises BadEvent."""
    body = ByteReader(event.body)
    thread_id, _, schema_size = body.number(4), body.number(4), body.number(1)
    error_code, status_size = body.number(2), body.number(2)
    status = _Status()
    status.read(body.sized(status_size))
    schema = body.text(schema_size)
    body.take(1)
    raw = body.rest()
    if event.kind == EventType.QUERY_COMPRESSED:
        raw = inflated(raw)
    sql, garbled = _text(raw, status.client_collation, charsets)
    return Query(
        schema=schema,
        sql=sql,
        garbled=garbled,
        time_s=event.time_s,
        thread_id=thread_id,
        error_code=error_code,
        sql_mode=status.sql_mode,
        time_zone=status.time_zone,
        client_collation=status.client_collation,
        alter_phase=status.alter_phase,
        micros=status.micros,
        explicit_defaults=status.explicit_defaults,
        flags=status.flags or 0,
    )


def _text(raw: bytes, collation: int | None, charsets: Charsets) -> tuple[str, str]:
    """Clients may write anything in a comment, a routine or a text: the server looks at none of
    them."""
    charset = charsets.get(collation) if collation is not None else None
    codec = UTF_8 if charset is None or charset.codec == BINARY else charset.codec
    try:
        return text_of(raw, codec), ""
    except UnicodeDecodeError:
        return text_replaced(raw, codec), codec


class _Status:
    """The status variables. A variable of a later server ends the reading: where it ends is not
    known."""

    def __init__(self) -> None:
        self.sql_mode: int | None = None
        self.time_zone: str | None = None
        self.client_collation: int | None = None
        self.alter_phase: AlterPhase | None = None
        self.micros = 0
        self.flags: int | None = None
        self.explicit_defaults: bool | None = None

    def read(self, body: ByteReader) -> None:
        while body.left:
            code = body.number(1)
            if code == _FLAGS:
                self.flags = body.number(4)
            elif code == _EXPLICIT_DEFAULTS:
                self.explicit_defaults = bool(body.number(1))
            elif code == _SQL_MODE:
                self.sql_mode = body.number(8)
            elif code == _CHARSET:
                self.client_collation = body.number(2)
                body.take(4)
            elif code == _TIME_ZONE:
                self.time_zone = body.text(body.number(1))
            elif code in _MICROSECONDS:
                self.micros = body.number(3)
            elif code == _ALTER_FLAGS:
                flags = body.number(1)
                phase = flags & _PHASES
                self.alter_phase = AlterPhase(phase) if phase in list(AlterPhase) else None
                body.take(8 if flags & _NUMBERED else 0)
            elif code in _SKIPPED:
                _SKIPPED[code](body)
            else:
                return


def _fixed(width: int) -> Callable[[ByteReader], object]:
    return lambda body: body.take(width)


def _sized(body: ByteReader) -> None:
    body.take(body.number(1))


def _catalog(body: ByteReader) -> None:
    body.take(body.number(1) + 1)


def _invoker(body: ByteReader) -> None:
    _sized(body)
    _sized(body)


def _updated_schemas(body: ByteReader) -> None:
    count = body.number(1)
    for _ in range(count if count != _MANY_SCHEMAS else 0):
        while body.number(1):
            pass


def _collations(body: ByteReader) -> None:
    body.take(4 * body.number(1))


_SKIPPED: Final[Mapping[int, Callable[[ByteReader], object]]] = {
    2: _catalog,
    3: _fixed(4),  # auto-increment
    6: _sized,  # catalog
    7: _fixed(2),  # lc_time_names
    8: _fixed(2),  # collation_database
    9: _fixed(8),  # tables for update
    10: _fixed(4),  # bytes written
    11: _invoker,
    12: _updated_schemas,
    17: _fixed(8),  # XID of a DDL
    18: _fixed(2),  # default_collation_for_utf8mb4
    19: _fixed(1),  # sql_require_primary_key
    20: _fixed(1),  # default_table_encryption
    129: _fixed(8),  # XID
    131: _collations,
}
