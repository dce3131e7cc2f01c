"""Events made by hand: what no server here writes, and events that end too early."""

from __future__ import annotations

import struct

import pytest

from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.charsets import Charset
from streaming.source.binlog.format.control.files import (
    Rotate,
    format_description,
    heartbeat,
    rotate,
)
from streaming.source.binlog.format.control.gtids import AlterStep, maria_gtid, mysql_gtid, xid
from streaming.source.binlog.format.control.statements import query
from streaming.source.binlog.format.control.xa import Xid, xa_prepare, xa_statement
from streaming.source.binlog.format.events import Event, check_crc, event_at
from streaming.source.binlog.format.faults import BadEvent, Refused
from streaming.source.binlog.format.type_codes import EventType
from tests.streaming.source.binlog.binlogs import made_event


def event(kind: int, body: bytes, end_offset: int = 0) -> Event:
    return Event(kind, time_s=1000, server_id=7, end_offset=end_offset, flags=0, body=body)


def test_an_event_and_its_checksum():
    raw = made_event(EventType.XID, struct.pack("<Q", 5))
    found = event_at(b"junk" + raw + b"junk", 4, checksum=True)
    assert (xid(found), found.time_s, found.server_id, found.end_offset) == (5, 1000, 7, 99)
    check_crc(raw)
    for place in range(len(raw)):
        bad = bytearray(raw)
        bad[place] ^= 0x10
        with pytest.raises(BadEvent):
            event_at(bytes(bad), 0, checksum=True)
    for size in range(len(raw)):
        with pytest.raises(BadEvent, match="begins"):
            event_at(raw[:size], 0, checksum=True)


MARIA = struct.pack("<QIB", 12, 3, 0x29)


def test_gtids_of_mariadb():
    found = maria_gtid(event(EventType.MARIADB_GTID, MARIA + bytes(6)))
    assert str(found) == "3-7-12"
    assert (found.is_standalone, found.is_ddl, found.is_transactional) == (True, True, False)
    grouped = struct.pack("<QIBQ", 12, 3, 0x02 | 0x40, 77) + struct.pack("<iBB", 1, 2, 1) + b"abc"
    found = maria_gtid(event(EventType.MARIADB_GTID, grouped + b"\x08" + bytes(8)))
    assert found.xa_prepared == Xid(1, b"ab", b"c")
    assert found.alter == AlterStep.ROLLBACK


def test_gtids_of_mysql():
    head = b"\x01" + bytes(range(16)) + struct.pack("<q", 9)
    found = mysql_gtid(event(EventType.GTID, head))  # as MySQL 5.6 writes it
    assert str(found) == "00010203-0405-0607-0809-0a0b0c0d0e0f:9"
    assert (found.original_us, found.length) == (None, None)
    clock = b"\x02" + bytes(16)
    times = (5 | 1 << 55).to_bytes(7, "little") + (4).to_bytes(7, "little") + b"\xfc\x00\x10"
    found = mysql_gtid(event(EventType.GTID, head + clock + times))
    assert (found.immediate_us, found.original_us, found.length) == (5, 4, 0x1000)
    found = mysql_gtid(event(EventType.ANONYMOUS_GTID, head + clock + (5).to_bytes(7, "little")))
    assert (str(found), found.original_us) == ("anonymous", 5)


def variable(number: int) -> bytes:
    size = next(n for n in range(1, 9) if number < 1 << 7 * n)
    return (number << size | (1 << size - 1) - 1).to_bytes(size, "little")


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 1 << 40, (1 << 56) - 1])
def test_numbers_of_varying_size(number: int) -> None:
    assert ByteReader(variable(number)).variable() == number


def test_numbers_of_nine_bytes() -> None:
    assert ByteReader(b"\xff" + (1 << 63).to_bytes(8, "little")).variable() == 1 << 63


def tagged(version: int = 1, **fields: bytes) -> bytes:
    names = (
        "flags",
        "uuid",
        "number",
        "tag",
        "last",
        "sequence",
        "immediate",
        "original",
        "length",
    )
    parts = [variable(names.index(name)) + value for name, value in fields.items()]
    body = b"\0" + b"".join(parts)
    size = 2 + len(body)
    return variable(version) + variable(size) + body


def test_gtids_of_mysql_with_a_tag() -> None:
    given = {
        "flags": variable(0),
        "uuid": b"".join(map(variable, range(0xF0, 0x100))),
        "number": variable(9 << 1),
        "tag": variable(3) + b"tag",
        "last": variable(0),
        "immediate": variable(1_795_699_921_000_000),
    }
    found = mysql_gtid(event(EventType.GTID_TAGGED, tagged(**given) + b"crc!"))
    assert str(found) == "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff:tag:9"
    assert (found.original_us, found.length) == (1_795_699_921_000_000, None)
    more = {"original": variable(5), "length": variable(300)}
    found = mysql_gtid(event(EventType.GTID_TAGGED, tagged(**given, **more) + variable(99)))
    assert (found.original_us, found.length) == (5, 300)
    for cut in range(len(tagged(**given))):
        with pytest.raises(BadEvent):
            mysql_gtid(event(EventType.GTID_TAGGED, tagged(**given)[:cut]))
    with pytest.raises(Refused, match="form 2"):
        mysql_gtid(event(EventType.GTID_TAGGED, tagged(2)))


def status(*parts: bytes) -> bytes:
    return b"".join(parts)


SQL_MODE = b"\x01" + struct.pack("<Q", 1 << 22)
CHARSETS = b"\x04" + struct.pack("<HHH", 28, 28, 8)
EVERY_VARIABLE = [
    b"\x00" + bytes(4),
    b"\x02\x03std\x00",
    b"\x03" + bytes(4),
    b"\x05\x06+05:30",
    b"\x06\x03std",
    b"\x07\x00\x00",
    b"\x08\x00\x00",
    b"\x09" + bytes(8),
    b"\x0a" + bytes(4),
    b"\x0b\x04user\x04host",
    b"\x0c\x02one\x00two\x00",
    b"\x0c\xfe",
    b"\x0d" + bytes(3),
    b"\x10\x00",
    b"\x11" + bytes(8),
    b"\x12\x00\x00",
    b"\x13\x00",
    b"\x14\x00",
    b"\x80" + bytes(3),
    b"\x81" + bytes(8),
    b"\x82\x00",
    b"\x82\x04" + bytes(8),
    b"\x83\x02" + bytes(8),
]


def query_body(variables: bytes, sql: bytes, schema: bytes = b"db") -> bytes:
    head = struct.pack("<IIBHH", 5, 0, len(schema), 1146, len(variables))
    return head + variables + schema + b"\x00" + sql


def test_a_statement():
    sets = {28: Charset("gbk", 2)}
    body = query_body(b"".join([*EVERY_VARIABLE, SQL_MODE, CHARSETS]), "表".encode("gbk"))
    found = query(event(EventType.QUERY, body), sets)
    assert (found.sql, found.schema, found.thread_id, found.error_code) == ("表", "db", 5, 1146)
    assert (found.sql_mode, found.time_zone, found.client_collation) == (1 << 22, "+05:30", 28)


def test_a_variable_of_a_later_server_ends_the_variables():
    body = query_body(SQL_MODE + b"\xf0\x01\x02\x03" + CHARSETS, b"SELECT 1")
    found = query(event(EventType.QUERY, body), {})
    assert (found.sql, found.sql_mode, found.client_collation) == ("SELECT 1", 1 << 22, None)


def test_a_statement_that_is_not_written_in_its_character_set():
    body = query_body(CHARSETS, b"DROP TABLE t /* \xff */")
    found = query(event(EventType.QUERY, body), {28: Charset("gbk", 2)})
    assert (found.sql, found.garbled) == ("DROP TABLE t /* \ufffd */", "gbk")


def test_names_of_xa_transactions():
    assert xa_statement(b"XA COMMIT X'7469',X'',1") == ("COMMIT", Xid(1, b"ti", b""))
    assert xa_statement(b"xa rollback x'00FF',x'01',-5") == ("ROLLBACK", Xid(-5, b"\0\xff", b"\1"))
    assert xa_statement(b"XA RECOVER") is None
    body = b"\x01" + struct.pack("<iII", 7, 2, 1) + b"abc"
    told = xa_prepare(event(EventType.XA_PREPARE, body))
    assert (told.xid, told.is_one_phase) == (Xid(7, b"ab", b"c"), True)


def test_files():
    body = struct.pack("<Q", 4) + b"binlog.000002"
    assert rotate(event(EventType.ROTATE, body)) == Rotate("binlog.000002", 4)
    beat = event(EventType.HEARTBEAT, b"binlog.000002", end_offset=900)
    assert heartbeat(beat) == Rotate("binlog.000002", 900)
    fields = b"\x01\x0dbinlog.000002" + b"\x02\x09\xfe" + struct.pack("<Q", 5 << 32) + b"\x00"
    assert heartbeat(event(EventType.HEARTBEAT_V2, fields)) == Rotate("binlog.000002", 5 << 32)


@pytest.mark.parametrize(
    ("version", "header", "algorithm", "match"),
    [(3, 19, 1, "format 3"), (4, 13, 1, "headers of 13"), (4, 19, 7, "checksums are of kind 7")],
)
def test_formats_that_are_not_read(version: int, header: int, algorithm: int, match: str):
    body = struct.pack("<H50sIB", version, b"5.0", 0, header) + bytes(30) + bytes([algorithm])
    with pytest.raises(Refused, match=match):
        format_description(event(EventType.FORMAT_DESCRIPTION, body + bytes(4)))


@pytest.mark.parametrize(
    ("read", "kind", "body"),
    [
        (maria_gtid, EventType.MARIADB_GTID, MARIA),
        (mysql_gtid, EventType.GTID, bytes(25)),
        (xid, EventType.XID, bytes(8)),
        (rotate, EventType.ROTATE, bytes(8)),
        (xa_prepare, EventType.XA_PREPARE, b"\x00" + struct.pack("<iII", 7, 2, 1) + b"abc"),
        (lambda e: query(e, {}), EventType.QUERY, query_body(b"".join(EVERY_VARIABLE), b"")),
        (heartbeat, EventType.HEARTBEAT_V2, b"\x01\x03abc\x02\x01\x05"),
        (
            format_description,
            EventType.FORMAT_DESCRIPTION,
            bytes([4, 0]) + bytes(54) + b"\x13" + bytes(5),
        ),
    ],
)
def test_an_event_that_ends_too_early(read, kind: int, body: bytes):
    read(event(kind, body))
    for size in range(len(body)):
        try:
            read(event(kind, body[:size]))
        except (BadEvent, Refused):
            continue
        assert kind == EventType.HEARTBEAT_V2  # between two of its fields
