"""Rows are found whole, however their bytes come."""

from __future__ import annotations

import random

import pytest

from streaming.source.dump.packets import LONGEST, GarbledRows, PacketBuffer
from streaming.source.dump.text_rows import texts_of

END = b"\xfe\x00\x00\x02\x00"
ERROR = b"\xff\x28\x04#42000You have an error"


def packet(payload: bytes, number: int = 0) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number % 256]) + payload


def text(value: bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + value
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little") + value
    return b"\xfe" + size.to_bytes(8, "little") + value


def row(values: list[bytes | None]) -> bytes:
    """The packets of a row: several from 16 MiB on."""
    payload = b"".join(map(text, values))
    parts = [payload[at : at + LONGEST] for at in range(0, len(payload), LONGEST)]
    if len(parts[-1]) == LONGEST:
        parts.append(b"")
    return b"".join(packet(part, number) for number, part in enumerate(parts))


def read(stream: bytes, columns: int, size: int, sizes: random.Random) -> list[list[bytes | None]]:
    """All rows, received in pieces of random sizes."""
    buffer = PacketBuffer(size)
    at, found = 0, []
    while True:
        while not buffer.is_full and not buffer.is_over:
            space = buffer.space()
            count = min(len(space), sizes.randint(1, size), len(stream) - at)
            assert count, "it waits for bytes that do not come"
            space[:count] = stream[at : at + count]
            at += count
            buffer.received(count)
        if (rows := buffer.take()) is None:
            assert buffer.is_over
            assert at == len(stream)
            return found
        found += zip(*(each.to_pylist() for each in texts_of(rows, columns)), strict=True)


@pytest.mark.seeds(60)
def test_random_rows_in_random_pieces(seed: int):
    chance = random.Random(seed)
    columns = chance.randint(1, 5)
    sizes = [0, 1, 5, 250, 251, 252, 300, 65_535, 65_536]

    def value() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice(sizes))

    rows = [[value() for _ in range(columns)] for _ in range(chance.randint(0, 40))]
    stream = b"".join(map(row, rows)) + packet(END)
    found = read(stream, columns, chance.choice([16, 1000, 100_000, 1 << 20]), chance)
    assert found == [tuple(each) for each in rows]


@pytest.mark.parametrize("short_of", [7, 6, 5, 4, 3, 0, -1])
def test_rows_around_the_longest_packet(short_of: int):
    """The row's size falls on both sides of 16 MiB less one byte: it has one, two, or an empty last
    packet."""
    long = b"x" * (LONGEST - short_of)
    rows = [[b"a", b"b"], [long, None], [b"c", long], [b"", b"d"]]
    found = read(b"".join(map(row, rows)) + packet(END), 2, 1 << 20, random.Random(1))
    assert [[len(value or b"") for value in each] for each in found] == [
        [len(value or b"") for value in each] for each in rows
    ]
    assert found == [tuple(each) for each in rows]


def test_a_row_of_three_packets():
    rows = [[b"x" * (2 * LONGEST + 5)], [b"y"]]
    assert read(row(rows[0]) + row(rows[1]) + packet(END), 1, 1 << 16, random.Random(2)) == [
        (rows[0][0],),
        (b"y",),
    ]


def test_the_buffer_stays_as_large_as_it_is_told():
    buffer = PacketBuffer(1000)
    stream = row([b"x" * 90]) * 500 + packet(END)
    at, rows = 0, 0
    while not buffer.is_over:
        space = buffer.space()
        count = min(len(space), len(stream) - at)
        space[:count] = stream[at : at + count]
        at += count
        buffer.received(count)
        if (taken := buffer.take()) is not None:
            rows += len(taken)
    assert rows == 500
    assert len(buffer._bytes) < 1100


def test_an_error_in_the_midst_ends_the_result():
    buffer = PacketBuffer(1000)
    stream = row([b"1"]) + packet(ERROR)
    buffer.space()[: len(stream)] = stream
    buffer.received(len(stream))
    assert buffer.is_over
    assert buffer.error == ERROR
    taken = buffer.take()
    assert taken is not None
    assert [each.to_pylist() for each in texts_of(taken, 1)] == [[b"1"]]


def test_a_first_byte_of_a_row_is_no_end():
    """0xFE begins a text of eight bytes of length, too."""
    rows = [[b"\xfe" * (1 << 24)], [b"\xfe"]]
    found = read(b"".join(map(row, rows)) + packet(END), 1, 1 << 20, random.Random(3))
    assert found == [tuple(each) for each in rows]


@pytest.mark.parametrize(
    ("payload", "columns", "why"),
    [
        (b"\x01a", 2, "ends before its column 2"),
        (b"\x05a", 1, "passes the end"),
        (b"\x01a\x01b", 1, "goes on behind its 1 columns"),
        (b"\xfd\xff\xff\xff", 1, "passes the end"),
        (b"\xfe" + b"\xff" * 8 + b"a", 1, "passes the end"),
    ],
)
def test_garbage_is_refused_within_its_row(payload: bytes, columns: int, why: str):
    buffer = PacketBuffer(100)
    stream = packet(payload) + packet(b"\x01z")
    buffer.space()[: len(stream)] = stream
    buffer.received(len(stream))
    rows = buffer.take()
    assert rows is not None
    with pytest.raises(GarbledRows, match=why):
        texts_of(rows, columns)


def test_an_empty_packet_is_no_row():
    buffer = PacketBuffer(100)
    stream = packet(b"") + packet(b"\x01z")
    buffer.space()[: len(stream)] = stream
    with pytest.raises(GarbledRows, match="empty"):
        buffer.received(len(stream))
