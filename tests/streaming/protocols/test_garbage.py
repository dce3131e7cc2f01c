"""No message is lost, and none costs more than it may, whatever its bytes are."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from streaming.protocols.contract import Block, Kind
from streaming.protocols.decoders import decoder_of
from streaming.protocols.json_text import strict_json
from streaming.protocols.json_text.strict_json import Malformed, parse
from tests.streaming.protocols.canal_json import reading as canal_rows
from tests.streaming.protocols.canal_json.random_messages import RandomMessages
from tests.streaming.protocols.canal_json.reading import EveryTable, chunk
from tests.streaming.protocols.open import reading as open_rows
from tests.streaming.protocols.simple import reading as simple_rows

SIZE = 1 << 18  # of a hostile message
MOST_S = 1.0  # ten times what the slowest shape takes
MOST_TIMES = 64  # its size, of memory
PROTOCOLS = ("canal-json", "open-protocol", "simple")


def read(protocol: str, values: Sequence[bytes | None]) -> list[Block]:
    return list(decoder_of(protocol)(chunk(values), EveryTable(None)))


class Garbage:
    """Mutated messages of one protocol, some compressed before or after that."""

    def __init__(self, protocol: str, seed: int) -> None:
        self.dice = random.Random(seed)
        self.mutated: Callable[[bytes], bytes | None]
        self.good: list[bytes | None]
        if protocol == "canal-json":
            canal = RandomMessages(seed)
            self.mutated, self.good = canal.mutated, canal.chunk(200)
        else:
            rows = open_rows if protocol == "open-protocol" else simple_rows
            source = rows.RandomRows(seed)
            self.mutated, self.good = source.mutated, source.messages(200)

    def messages(self, count: int) -> list[bytes | None]:
        return [self._any(self.dice.choice(self.good) or b"?") for _ in range(count)]

    def _any(self, value: bytes) -> bytes | None:
        kind, codec = self.dice.random(), pa.Codec(self.dice.choice(("lz4", "snappy")))
        if kind < 0.1:
            return self.mutated(bytes(codec.compress(value, asbytes=True)))
        found = self.mutated(value)
        return bytes(codec.compress(found, asbytes=True)) if found and kind < 0.15 else found


def assert_each_is_there(
    protocol: str, values: Sequence[bytes | None], blocks: list[Block]
) -> None:
    if protocol == "open-protocol":
        open_rows.assert_accounted(blocks, len(values))
    else:
        assert canal_rows.accounted(blocks, len(values))
    sent = dict(zip(chunk(values).positions.to_pylist(), values, strict=True))
    for block in blocks:
        if block.kind is Kind.BAD:
            for row in block.table().to_pylist():
                assert row["value"] == sent[row["position"]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_mutated_message_is_in_one_block(protocol: str) -> None:
    for seed in range(6):
        values = Garbage(protocol, seed).messages(1_000)
        assert_each_is_there(protocol, values, read(protocol, values))


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_million_mutated_messages(protocol: str) -> None:
    for seed in range(1_000, 2_000):
        values = Garbage(protocol, seed).messages(1_000)
        assert_each_is_there(protocol, values, read(protocol, values))


def hostile(text: bytes) -> Iterator[tuple[str, bytes]]:
    """So much of what parsers dislike, within a message's text."""
    head = text[:-1] + b',"x":'
    yield "deep", head + b"[" * SIZE
    yield "deep objects", head + b'{"a":' * (SIZE // 5)
    yield "wide", head + b"[" + b"[]," * (SIZE // 3) + b"[]]}"
    yield "numbers", head + b"[" + b"1," * (SIZE // 2) + b"1]}"
    yield "a long number", head + b"9" * SIZE + b"}"
    yield "a high number", head + b"1e" + b"9" * SIZE + b"}"
    yield "a long ts", text.replace(b"10", b"1" + b"0" * SIZE)
    yield "quotes", head + b'"' * SIZE
    yield "escapes", head + b'"' + b'\\"' * (SIZE // 2) + b'"}'
    yield "backslashes", head + b'"' + b"\\" * SIZE
    yield "half pairs", head + b'"' + b"\\ud800" * (SIZE // 6) + b'"}'
    yield "names", head + b"1," + b",".join(b'"%x":1' % n for n in range(SIZE // 10)) + b"}"
    yield "equal names", head + b"1" + b',"a":1' * (SIZE // 6) + b"}"
    yield "no end", head[:12] + b"a" * SIZE
    yield "zeros", b"\0" * SIZE


def hostile_messages(protocol: str) -> Iterator[tuple[str, bytes]]:
    if protocol == "canal-json":
        yield from hostile(canal_rows.message())
        yield "head", b'{"id":0,"database":"' + b'\\"' * (SIZE // 2)
    elif protocol == "simple":
        yield from hostile(simple_rows.row())
    else:
        key = open_rows.text_of(open_rows.key())
        value = open_rows.text_of({"u": open_rows.side({"id": 1})})
        for name, text in hostile(value):
            yield f"value: {name}", open_rows.message((key, text))
        for name, text in hostile(key):
            yield f"key: {name}", open_rows.message((text, value))
        yield "events", open_rows.message(*[(b"1", b"")] * (SIZE // 17))
        good = open_rows.message((key, value))
        for at in (0, 12, len(good) - len(value) - 8):  # of the key, of its event, of the value
            for length in (b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\0\0\0\0\xff\xff\xff\xff"):
                yield f"length at {at}", good[:at] + length + good[at + 8 :]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_message_costs_more_than_it_may(protocol: str) -> None:
    for name, value in hostile_messages(protocol):
        begun_s = time.process_time()
        blocks = read(protocol, [value])
        assert time.process_time() - begun_s < MOST_S, name
        assert_each_is_there(protocol, [value], blocks)
        if len(value) >= SIZE // 2:
            tracemalloc.start()
            read(protocol, [value])
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < MOST_TIMES * len(value), name


@pytest.mark.parametrize("part", [b"[],", b"1,", b'"a":1,', b'"\\\\":null,', b"{},"])
def test_a_large_text_of_many_parts_is_none(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a text of 128 MiB takes no gigabytes. One large value may be what it is."""
    monkeypatch.setattr(strict_json, "_LARGE", 1_000)
    monkeypatch.setattr(strict_json, "MAX_PARTS", 500)
    opening, ending = (b'{"x":[', b"0]}") if b":" not in part else (b"{", b'"x":0}')
    assert parse(opening + part * 100 + ending)
    with pytest.raises(Malformed):
        parse(opening + part * 600 + ending)
    assert parse(b'{"x":"' + b'\\"a\\":[1,2],' * 600 + b'"}')
