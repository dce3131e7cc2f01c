"""What is compressed: payloads made of real events, in pieces, and garbage in them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from streaming.protocols.contract import Kind
from streaming.source.binlog.format import inflate
from streaming.source.binlog.format.blocks import Slice, row_blocks
from streaming.source.binlog.format.control.xa import payload_xa
from streaming.source.binlog.format.events import joined
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.inflate import inflated, payload_events
from streaming.source.binlog.format.type_codes import EventType
from tests.streaming.source.binlog.binlogs import made_event, rows_by_place, wanted
from tests.streaming.source.binlog.recorded import TABLES, binlog

MYSQL = "mysql-9.7"


def bare_events() -> list[bytes]:
    """The row events of MySQL's recording, and their maps, without checksums."""
    each = binlog(MYSQL).each()
    kept = [event for event in each if event.kind == 19 or 30 <= event.kind <= 32]
    return [made_event(event.kind, event.body, checksum=False) for event in kept]


def payload(events: Sequence[bytes], *, is_zstd: bool = True) -> bytes:
    raw = b"".join(events)
    packed = pa.Codec("zstd").compress(raw, asbytes=True) if is_zstd else raw
    number = b"\xfd" + len(raw).to_bytes(3, "little")
    method = b"\0" if is_zstd else b"\xfc\xff\0"
    fields = b"\2" + bytes([len(method)]) + method + b"\3\4" + number
    return fields + b"\1\4\xfd" + len(packed).to_bytes(3, "little") + b"\0" + packed


def slice_of(*events: bytes) -> Slice:
    data, at = joined(events)
    return replace(
        binlog(MYSQL).slice(),
        data=data,
        at=at,
        position=np.arange(len(at)),
        commit_ts=np.full(len(at), 1),
    )


def rows_of(one: Slice) -> list[object]:
    found = rows_by_place(row_blocks(one, "0", wanted(*TABLES)))
    return sorted(((name, row["data"], row["old"]) for name, row in found), key=str)


@pytest.mark.parametrize("is_zstd", [True, False])
@pytest.mark.parametrize("piece_bytes", [1, 300, 2000, inflate.PIECE_BYTES])
def test_a_payload_holds_the_same_rows(
    is_zstd: bool, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inflate, "PIECE_BYTES", piece_bytes)
    bare = bare_events()
    plain = [made_event(event[4], event[19:]) for event in bare]
    expected = rows_of(slice_of(*plain))
    assert len(expected) > 10
    packed = made_event(EventType.TRANSACTION_PAYLOAD, payload(bare, is_zstd=is_zstd))
    assert rows_of(slice_of(packed)) == expected
    around = slice_of(*plain[:4], packed, *plain[4:])
    assert rows_of(around) == sorted([*expected, *expected], key=str)


@pytest.mark.parametrize("piece_bytes", [300, inflate.PIECE_BYTES])
def test_the_numbers_of_rows_rise_over_a_payload(piece_bytes: int, monkeypatch: pytest.MonkeyPatch):
    """They do not depend on which tables are wanted."""
    monkeypatch.setattr(inflate, "PIECE_BYTES", piece_bytes)
    one = slice_of(made_event(EventType.TRANSACTION_PAYLOAD, payload(bare_events())))
    found = rows_by_place(row_blocks(one, "0", wanted(*TABLES)))
    places = [(row["position"], row["index"]) for _, row in found]
    assert len(set(places)) == len(places)
    assert {position for position, _ in places} == {0}
    for name in TABLES:
        some = row_blocks(one, "0", wanted(name))
        alone = rows_by_place([block for block in some if block.body is not None])
        assert alone == [(table, row) for table, row in found if str(table) == name]


@pytest.mark.seeds(60)
def test_a_payload_of_garbage_is_one_bad_event(seed: int):
    rng = random.Random(seed)
    body = bytearray(payload(bare_events()))
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    packed = made_event(EventType.TRANSACTION_PAYLOAD, bytes(body[: rng.randrange(len(body) + 1)]))
    follows = [made_event(event[4], event[19:]) for event in bare_events()[:2]]
    blocks = list(row_blocks(slice_of(packed, *follows), "0", wanted(*TABLES)))
    assert {block.kind for block in blocks} <= {Kind.ROW, Kind.BAD}
    assert any(block.last == 2 and block.kind == Kind.ROW for block in blocks)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"\2\1\7\3\1\x05\0abcde", "compressed by method 7"),
        (
            b"\2\1\0\3\x09\xfe" + (1 << 40).to_bytes(8, "little") + b"\0abc",
            "has 1099511627776 bytes",
        ),
        (b"\2\3\xfc\xff\0\0" + bytes(25), "event without an end"),
        (b"\2\1\0\3\1\x28\0abc", "cannot be inflated"),
        (payload([b"abc"], is_zstd=False), "has not the size"),
        (payload([b"abc"])[:-1], "(has not the size|cannot be inflated)"),
        (b"\2\1", "ends 0 bytes on"),
    ],
)
def test_payloads_that_are_refused(body: bytes, match: str):
    with pytest.raises(BadEvent, match=match):
        list(payload_events(body))


def test_a_payload_is_read_no_further_than_is_asked_for():
    begin = made_event(EventType.QUERY, bytes(14) + b"BEGIN", checksum=False)
    rows = [
        made_event(EventType.WRITE_ROWS, random.Random(n).randbytes(9000), checksum=False)
        for n in range(9)
    ]
    body = payload([begin, *rows])
    assert payload_xa(body[: len(body) // 2]) is None
    first, base = next(payload_events(body[: len(body) // 2]))
    assert (first, base) == (begin, 0)


def test_the_compressed_part_of_an_event_of_mariadb():
    text = b"text " * 100
    packed = zlib.compress(text)
    assert inflated(b"\x82" + len(text).to_bytes(2, "big") + packed) == text
    for raw, match in [
        (b"\x82\0\1" + packed, "has not the 1 bytes"),
        (b"\x82\xff\xff" + packed, "has not the 65535 bytes"),
        (b"\x82\1\0garbage", "cannot be inflated"),
        (b"\x12\1\0" + packed, "begins with byte 18"),
        (b"\x85" + b"\xff" * 5, "says that it has"),
        (b"\x82", "ends 0 bytes on"),
    ]:
        with pytest.raises(BadEvent, match=match):
            inflated(raw)
