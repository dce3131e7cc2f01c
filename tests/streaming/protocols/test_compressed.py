"""Compressed messages mean what their texts mean, and none costs more than it may."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from streaming.protocols import compressed
from streaming.protocols.compressed import MAX_BYTES, text_of, texts_of
from streaming.protocols.contract import Block, Kind, Messages, with_key
from streaming.protocols.decoders import decoder_of, disguise_of
from streaming.protocols.open.compressed_events import are_texts, messages_of_texts
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable, message
from tests.streaming.protocols.simple.avro_reading import watermark

HEAD = b"\x04\x22\x4d\x18\x64\x70\xb9"  # of TiCDC's frames: no size, a checksum, blocks of 4 MiB


def lz4(text: bytes) -> bytes:
    """Arrow's frame, which has no checksum."""
    return bytes(pa.Codec("lz4").compress(text, asbytes=True))


def snappy(text: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(text, asbytes=True))


Squeeze = Callable[[bytes], bytes]
BOTH = pytest.mark.parametrize("squeeze", [lz4, snappy])


def chunk(values: Sequence[bytes | None]) -> Messages:
    return Messages(
        part="wire/0",
        positions=pa.array(range(len(values)), pa.int64()),
        values=pa.array(values, pa.binary()),
    )


def read(protocol: str, values: Sequence[bytes | None]) -> list[Block]:
    return list(decoder_of(protocol)(chunk(values), EveryTable(None)))


def content(blocks: Sequence[Block]) -> list[object]:
    """All that they say, sizes aside."""
    found = []
    for block in blocks:
        body = None if block.body is None else block.table().to_pylist()
        found.append((repr(replace(block, body=None, message_bytes=0)), body))
    return found


def letters(blocks: Sequence[Block]) -> list[dict[str, object]]:
    return [row for b in blocks if b.kind is Kind.BAD for row in b.table().to_pylist()]


@pytest.mark.parametrize("variant", ["canal-json-lz4", "canal-json-snappy"])
def test_every_recorded_message_is_its_text(variant: str) -> None:
    counts: Counter[Kind] = Counter()
    for sent in wire.partitions(variant).values():
        values = [each.value for each in sent]
        texts = list(texts_of(values))
        assert texts == [text_of(each or b"") for each in values]
        assert all((text or b"").startswith(b'{"id":0,') for text in texts)
        blocks = read("canal-json", values)
        assert content(blocks) == content(read("canal-json", texts))
        for block in blocks:
            counts[block.kind] += block.rows
    assert {k.value: n for k, n in counts.items()} == wire.config(variant)["counts"]


def with_values(sent: bytes, change: Squeeze) -> bytes:
    """A message of open-protocol whose events' values are changed."""
    texts, found = list[bytes](), b""
    at = 4 + int.from_bytes(sent[:4], "little")
    head = sent[:at]
    while at < len(sent):
        end = at + 8 + int.from_bytes(sent[at : at + 8], "big")
        texts.append(sent[at + 8 : end])
        at = end
    for text in texts:
        value = change(text) if text else text
        found += len(value).to_bytes(8, "big") + value
    return head + found


@BOTH
@pytest.mark.parametrize("variant", ["open-protocol", "simple-json", "canal-json"])
def test_every_protocol_reads_them(variant: str, squeeze: Squeeze) -> None:
    """Some are compressed and some are not, as when the setting is changed."""
    protocol = {"simple-json": "simple"}.get(variant, variant)
    for sent in wire.partitions(variant).values():
        if protocol == "open-protocol":
            plain = [with_key(each.key, each.value) or b"" for each in sent]
            small = [with_values(each, squeeze) for each in plain]
            assert list(messages_of_texts(small)) == plain
            assert are_texts(pa.array(plain)).all()
        else:
            plain = [each.value or b"" for each in sent]
            small = [squeeze(each) for each in plain]
        mixed = [pair[n % 2] for n, pair in enumerate(zip(plain, small, strict=True))]
        expected = content(read(protocol, plain))
        assert content(read(protocol, small)) == expected
        assert content(read(protocol, mixed)) == expected


def test_pieces_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "PIECE_BYTES", 1_000)
    texts = [message(_tidb={"commitTs": 10 + n}) for n in range(40)]
    decode = decoder_of("canal-json")
    pieces = list(decode.texts(chunk([*map(lz4, texts), None])))
    assert len(pieces) > 5
    assert [v for each in pieces for v in each.values.to_pylist()] == [*texts, None]
    assert [p for each in pieces for p in each.positions.to_pylist()] == list(range(41))
    assert all(each.values.nbytes < 3_000 for each in pieces)


@BOTH
def test_a_torn_or_broken_message_is_a_letter_as_it_was_sent(squeeze: Squeeze) -> None:
    """Its neighbours are read."""
    dice = random.Random(5)
    good = [message(_tidb={"commitTs": 10 + n}) for n in range(30)]
    values = [squeeze(each) for each in good]
    for n in (3, 11, 12, 29):
        cut = dice.randrange(5, len(values[n]))
        values[n] = values[n][:cut]
    blocks = read("canal-json", values)
    found = letters(blocks)
    assert [(each["position"], each["value"]) for each in found] == [
        (n, values[n]) for n in (3, 11, 12, 29)
    ]
    rows = [r for b in blocks if b.kind is Kind.ROW for r in b.table()["position"].to_pylist()]
    assert sorted(rows) == [n for n in range(30) if n not in (3, 11, 12, 29)]
    if squeeze is lz4:
        assert {each["error_class"] for each in found} == {"compression"}


def recorded_frames() -> list[bytes]:
    sent = wire.messages("canal-json-lz4")
    return [each.value for each in sent if each.value is not None and len(each.value) < 2_000]


def test_a_stream_of_frames_says_what_single_frames_say() -> None:
    """Bits are flipped, frames cut and put together, and line feeds within."""
    dice = random.Random(20)
    frames = recorded_frames()
    for _ in range(150):
        some = dice.sample(frames, 6)
        broken = bytearray(some[2])
        broken[dice.randrange(7, len(broken))] ^= 1 << dice.randrange(8)
        some[2] = dice.choice(
            [bytes(broken), some[2][: dice.randrange(7, len(some[2]))], some[2] + some[3]]
        )
        some[4] = dice.choice([some[4], b"", b"\n", lz4(b'{"a":\n1}'), HEAD, some[4][:7]])
        assert list(texts_of(some)) == [text_of(each) for each in some]


def test_a_bomb_is_a_letter_and_costs_little() -> None:
    """More than ``MAX_BYTES`` of text; a size that lies; and one that is just small enough."""
    text = b'{"' + b" " * MAX_BYTES
    bombs = [lz4(text), snappy(text), b"\xff\xff\xff\xff\x0f\x00a", b"\x80\x80\x80\x01\x00a"]
    begun_s = time.process_time()
    found = letters(read("canal-json", bombs))
    assert time.process_time() - begun_s < 5
    assert [each["value"] for each in found] == bombs
    assert "more than 128 MiB of text" in str(found[0]["error_message"])
    assert "more than 128 MiB of text" in str(found[1]["error_message"])
    assert len(text_of(lz4(text[:MAX_BYTES]))) == MAX_BYTES


def test_a_batch_has_no_more_text_than_a_message() -> None:
    sent = next(each for each in wire.messages("open-protocol") if "row" in each.note)
    whole = with_key(sent.key, sent.value) or b""
    event = with_values(whole, lambda _: lz4(b" " * (MAX_BYTES // 2 + 1)))
    value = event[4 + int.from_bytes(event[:4], "little") :]
    (key,) = list(messages_of_texts([event]))[:1]
    assert key is not None
    batch = event[: -len(value)] + value * 2
    assert list(messages_of_texts([batch])) == [batch]


@BOTH
def test_a_disguised_message_is_its_text(squeeze: Squeeze) -> None:
    disguise = disguise_of("canal-json", 7)
    assert disguise(squeeze(message())) == disguise(message())


def test_avro_is_a_text_that_no_block_begins_like() -> None:
    """Compressed or not, in one chunk: a block may be of 22 bytes, as Avro begins with 22."""
    marks = [watermark(n) for n in range(1, 40)]
    blocks = read("simple", [*marks, *map(lz4, marks), *map(snappy, marks)])
    assert [(each.kind, each.rows) for each in blocks] == [(Kind.WATERMARK, 3 * len(marks))]
    for size in range(1, 80):
        for text in (b'{"' + b"a" * size, b"\x16\x06\x06" + b"\x16" * size, watermark(9) * size):
            squeezed = snappy(text)
            assert text_of(squeezed) == text
            assert not compressed.begin_as_texts(pa.array([squeezed])).any()


@BOTH
def test_a_message_tells_its_time(squeeze: Squeeze) -> None:
    """By which messages without a commit-ts are numbered."""
    own_ms = decoder_of("canal-json").own_ms
    assert own_ms is not None
    values = [message(es=7), message(es=8), None, b"", b"{}", message(es="x")]
    small = [each and squeeze(each) for each in values]
    expected = [7, 8, None, None, None, None]
    for each in (values, small, [values[0], small[1], *small[2:]]):
        assert own_ms(pa.array(each, pa.binary())).to_pylist() == expected
