"""Bytes of a socket, cut anywhere."""

from __future__ import annotations

import random
import struct

import pytest

from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.packets import (
    LONG_PACKET,
    Stop,
    long_event,
    packet_starts,
    server_error,
)


def packet(payload: bytes, sequence: int = 0) -> bytes:
    return struct.pack("<I", len(payload) | (sequence & 0xFF) << 24) + payload


def event(size: int, fill: int = 1) -> bytes:
    return bytes([fill]) * size


def test_where_events_begin():
    events = [event(19 + n, n + 1) for n in range(5)]
    data = b"before" + b"".join(packet(b"\0" + each, n) for n, each in enumerate(events))
    found = packet_starts(data, 6, len(data))
    assert (found.end, found.stop) == (len(data), None)
    assert [data[at : at + 19 + n] for n, at in enumerate(found.at.tolist())] == events


@pytest.mark.seeds(20)
def test_bytes_may_end_anywhere(seed: int):
    rng = random.Random(seed)
    data = b"".join(packet(b"\0" + event(rng.randrange(19, 60))) for _ in range(6))
    whole = packet_starts(data, 0, len(data)).at.tolist()
    cut = rng.randrange(len(data))
    first = packet_starts(data, 0, cut)
    second = packet_starts(data, first.end, len(data))
    assert [*first.at.tolist(), *second.at.tolist()] == whole


def test_the_end_of_the_log_and_an_error():
    head = packet(b"\0" + event(19))
    found = packet_starts(head + packet(b"\xfe\0\0\2\0"), 0, len(head) + 9)
    assert (found.end, found.stop) == (len(head), Stop.END_OF_LOG)
    error = packet(b"\xff" + struct.pack("<H", 1236) + b"#HY000Could not find first log file")
    data = head + error
    found = packet_starts(data, 0, len(data))
    assert found.stop == Stop.ERROR
    assert server_error(data, found.end) == (1236, "Could not find first log file")
    assert packet_starts(data, 0, len(data) - 1).stop is None  # not whole yet
    with pytest.raises(BadEvent, match="begins with byte 7"):
        packet_starts(packet(b"\7" + event(30)), 0, 35)
    with pytest.raises(BadEvent, match="holds no event"):
        packet_starts(packet(b"\0" + event(3)), 0, 8)


@pytest.mark.parametrize(
    "size", [LONG_PACKET - 1, LONG_PACKET, 2 * LONG_PACKET - 1, 2 * LONG_PACKET]
)
def test_an_event_of_several_packets(size: int):
    payload = b"\0" + random.Random(size).randbytes(size)
    parts = [payload[at : at + LONG_PACKET] for at in range(0, len(payload) + 1, LONG_PACKET)]
    framed = b"".join(packet(part, n) for n, part in enumerate(parts))
    data = packet(b"\0" + event(19)) + framed
    found = packet_starts(data, 0, len(data))
    assert (len(found.at), found.stop) == (1, Stop.LONG_EVENT)
    assert long_event(data, found.end, len(data)) == (payload[1:], len(data))
    for end in (found.end + 3, found.end + LONG_PACKET, len(data) - 1):
        assert long_event(data, found.end, end) is None
