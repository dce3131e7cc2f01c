"""XA transactions made by hand: names of every length, and one that is read whole and in pieces."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coordination.model import Ts
from streaming.source.binlog import log_scan
from streaming.source.binlog.format.control.transactions import GroupKind, transactions
from streaming.source.binlog.format.control.xa import Xid, xa_statement
from streaming.source.binlog.format.events import events_of
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import EventType
from streaming.source.binlog.log_tail import Stretch
from streaming.source.binlog.position import BinlogPosition
from streaming.source.binlog.walk.log_walk import LogPlace, Walked, walk
from streaming.source.binlog.walk.prepared import KeptRows, PreparedAt, XaEnd, XaRows
from streaming.source.block_job import ReadFailed

LONGEST = Xid(2_147_483_647, b"\xab" * 64, b"\xcd" * 64)
FIRST = 1_000
COMMON = {"is_mariadb": False, "charsets": {}}


@dataclass
class Log:
    """A MySQL log without GTIDs, in one file."""

    data: bytes = b""
    at: list[int] = field(default_factory=list)

    def add(self, kind: int, body: bytes) -> None:
        size = 19 + len(body) + 4
        end = FIRST + len(self.data) + size
        raw = struct.pack("<IBIIIH", 1000, kind, 7, size, end, 0) + body
        self.at.append(len(self.data))
        self.data += raw + struct.pack("<I", zlib.crc32(raw))

    def gtid(self) -> None:
        self.add(EventType.ANONYMOUS_GTID, b"\1" + bytes(24) + b"\2" + bytes(16) + bytes([9] * 7))

    def query(self, sql: bytes) -> None:
        self.add(EventType.QUERY, bytes(8) + b"\0" + bytes(4) + b"\0" + sql)

    def rows(self, count: int = 1) -> None:
        for _ in range(count):
            self.add(EventType.TABLE_MAP, bytes(60))
            self.add(EventType.WRITE_ROWS, bytes(60))

    def prepare(self, xid: Xid, *, one_phase: bool) -> None:
        sizes = struct.pack("<?iII", one_phase, xid.format_id, len(xid.gtrid), len(xid.bqual))
        self.add(EventType.XA_PREPARE, sizes + xid.gtrid + xid.bqual)

    def xa(self, xid: Xid, *, one_phase: bool = False, count: int = 1) -> None:
        self.gtid()
        self.query(f"XA START {xid}".encode())
        self.rows(count)
        self.query(f"XA END {xid}".encode())
        self.prepare(xid, one_phase=one_phase)

    def walked(self, *, piece: int | None = None) -> Iterator[tuple[bytes, Walked]]:
        """As a connection brings it; ``piece``: so many events at a time."""
        place = LogPlace(number=1, offset=FIRST, after_ts=1, checksum=True)
        done = 0
        while done < len(self.at):
            stop = min(done + (piece or len(self.at)), len(self.at))
            while True:
                end = self.at[stop] if stop < len(self.at) else len(self.data)
                data, at = self.data[:end], np.array(self.at[done:stop], np.int64)
                walked = walk(data, at, place, pins=(), latest=Ts(1 << 62), may_cut=bool(piece))
                if walked.count or stop == len(self.at):
                    break
                stop += 1
            assert walked.count
            place, done = walked.place, done + walked.count
            yield data, walked


@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("size", [0, 1, 50, 59, 60, 63, 64])
def test_names_of_every_length_end_their_transaction(verb: str, size: int) -> None:
    for format_id in (1, -1, 2_147_483_647):
        xid = Xid(format_id, b"\xab" * max(size, 1), b"\xcd" * size)
        log = Log()
        log.xa(xid)
        log.gtid()
        log.query(f"XA {verb} {xid}".encode())
        ((_, walked),) = log.walked()
        rows, end = walked.xa
        assert isinstance(rows, XaRows)
        assert isinstance(end, XaEnd)
        assert rows.xid == end.xid == xid
        assert bool(end.commit_ts) == (verb == "COMMIT")
        assert not len(walked.at)
        assert not walked.statements


def test_a_large_one_with_the_longest_name_is_known_by_its_first_piece() -> None:
    log = Log()
    log.xa(LONGEST, count=9)
    pieces = [walked for _, walked in log.walked(piece=4)]
    assert len(pieces) > 2
    assert not any(len(walked.at) for walked in pieces), "its rows do not count yet"
    assert all(walked.place.xa_begin for walked in pieces[:-1])


BAD_NAMES = [b"'a','b',1", b"X'abc',X'',1", b"X'ab',X''", b"X'" + b"ab" * 65 + b"',X'',1"]


@pytest.mark.parametrize("verb", [b"COMMIT", b"ROLLBACK", b"START", b"BEGIN", b"END", b"PREPARE"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_cannot_be_read_is_an_error(verb: bytes, name: bytes) -> None:
    sql = b"xa  " + verb.lower() + b"\n" + name
    with pytest.raises(BadEvent, match=r"name of an XA transaction cannot be read: ['\"]xa  "):
        xa_statement(sql)
    log = Log()
    log.gtid()
    log.query(sql)
    log.rows()
    log.query(b"COMMIT")
    with pytest.raises(BadEvent, match="XA transaction cannot be read"):
        list(log.walked())


def test_other_statements_are_no_xa_ones() -> None:
    for sql in (b"XA RECOVER", b"XARRAY COMMIT", b"COMMIT", b"INSERT INTO t VALUES ('XA COMMIT')"):
        assert xa_statement(sql) is None


def test_one_phase_is_the_same_whole_and_in_pieces() -> None:
    log = Log()
    log.xa(LONGEST, one_phase=True, count=9)
    log.gtid()
    log.query(b"BEGIN")
    log.rows()
    log.query(b"COMMIT")
    events, _ = events_of(log.data, np.array(log.at), checksum=True, checks_crc=True)
    assert transactions(events).kind.tolist() == [GroupKind.ROWS, GroupKind.ROWS]
    found: list[Any] = []
    for piece in (None, 3, 4, 7):
        seen = [walked for _, walked in log.walked(piece=piece)]
        xa = [each for walked in seen for each in walked.xa]
        rows = [each for each in xa if isinstance(each, XaRows)]
        (end,) = (each for each in xa if isinstance(each, XaEnd))
        assert {each.begin for each in rows} == {int(BinlogPosition(1, FIRST))}
        assert rows[-1].xid == end.xid == LONGEST
        found.append(
            (
                [at for each in rows for at in each.position.tolist()],
                [at for walked in seen for at in walked.position.tolist()],
                end,
            )
        )
    assert all(each == found[0] for each in found)
    assert [len(each) for each in found[0][:2]] == [18, 2]


def stretches(log: Log, piece: int | None) -> Iterator[Stretch]:
    return (Stretch(data, walked) for data, walked in log.walked(piece=piece))


@pytest.mark.parametrize("pieces", [(4, None), (None, None), (None, 4), (3, 5)])
def test_a_large_one_phase_has_its_rows_however_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch, pieces: tuple[int | None, int | None]
) -> None:
    log = Log()
    log.xa(LONGEST, one_phase=True, count=9)
    monkeypatch.setattr(log_scan, "LogTail", Replayed.of(log, pieces[1]))
    monkeypatch.setattr("streaming.source.binlog.walk.prepared.MOST_BYTES", 10)
    amid = int(BinlogPosition(1, FIRST + log.at[9]))  # where a read has ended before a restart
    xa_log = log_scan.XaLog(database())
    slices = [
        each
        for stretch in stretches(log, pieces[0])
        for each in xa_log.committed(stretch, (), first=amid, above_ts=0)
    ]
    assert sum(len(each.at) for each in slices) == 18


def test_rows_that_do_not_come_again_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = Log(), Log()
    log.xa(LONGEST)
    other.gtid()
    other.query(b"BEGIN")
    other.rows()
    other.query(b"COMMIT")
    monkeypatch.setattr(log_scan, "LogTail", Replayed.of(other, None))
    xa_log = log_scan.XaLog(database())
    end = XaEnd(xid=LONGEST, position=99, commit_ts=5)
    with pytest.raises(ReadFailed, match=rf"at the-file:4.*{LONGEST}.*again"):
        list(xa_log._rows(end, PreparedAt(begin=4)))
    kept = KeptRows(data=b"", at=np.array([], np.int64), position=np.array([]), checksum=True)
    assert len(list(xa_log._rows(end, PreparedAt(begin=4, rows=kept)))) == 1


class Replayed:
    """A `LogTail` of a made log."""

    def __init__(self, seen: Iterator[Stretch]) -> None:
        self._seen = seen

    @staticmethod
    def of(log: Log, piece: int | None) -> Any:
        return lambda *_: Replayed(stretches(log, piece))

    def next(self, *_: object) -> Stretch | None:
        return next(self._seen, None)

    def close(self) -> None:
        pass


def database() -> Any:
    return SimpleNamespace(
        settings=None,
        facts=lambda: SimpleNamespace(**COMMON),
        name_of=lambda position: f"the-file:{position}",
    )
