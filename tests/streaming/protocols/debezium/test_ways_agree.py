"""Whatever the messages, read many at a time or one by one they mean the same, and none is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from streaming.protocols.contract import Block, Kind, with_key
from streaming.protocols.debezium import decoder
from streaming.protocols.debezium.envelope import keyed
from streaming.protocols.decoders import decoder_of
from streaming.protocols.rows import alike
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable, chunk, plain
from tests.streaming.protocols.debezium.reading import DIALECTS, RandomRows, read

EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS)


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "FEW", 2)


def check(values: Sequence[bytes | None], number: int, *, is_numbered: bool) -> list[Block]:
    tables = EveryTable((None, ("id",), ())[number % 3])
    blocks = read(values, tables, is_numbered=is_numbered)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "FEW", 1 << 40)
        one_by_one = read(values, tables, is_numbered=is_numbered)
        count = sum(block.rows for block in read(values, {}, is_numbered=is_numbered))
    assert plain(blocks) == plain(one_by_one), number
    assert sum(b.rows for b in read(values, {}, is_numbered=is_numbered)) == count
    return blocks


def read_alone(values: Sequence[bytes | None], *, is_numbered: bool) -> int:
    """How many of them the strict parser reads, without the samples of templates."""
    calls, reading = 0, decoder.read

    def counting(message: bytes, number: int | None) -> object:
        nonlocal calls
        calls += 1
        return reading(message, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "read", counting)
        read(values, EveryTable(None), is_numbered=is_numbered)
    return calls


@EVERY_DIALECT
@pytest.mark.seeds(1, 1)
def test_random_messages(dialect: str, seed: int) -> None:
    calls = count = 0
    for number in range(seed * 100, seed * 100 + 3):
        source = RandomRows(number, dialect)
        values = source.messages(200)
        check(values, number, is_numbered=source.numbered)
        if "g" not in [name for names in source.tables.values() for name in names]:
            count += len(values)
            calls += read_alone(values, is_numbered=source.numbered)
    assert calls < 0.6 * count or not count


@EVERY_DIALECT
@pytest.mark.seeds(1, 1)
def test_garbage(dialect: str, seed: int) -> None:
    for number in range(seed * 100, seed * 100 + 6):
        source = RandomRows(number, dialect)
        share = (0.05, 0.3, 1.0)[number % 3]
        values = [
            source.mutated(each or b"?") if source.random.random() < share else each
            for each in source.messages(200)
        ]
        check(values, number, is_numbered=source.numbered)


@pytest.mark.parametrize("variant", ["debezium", "debezium-noschema"])
def test_what_was_recorded_of_ticdc(variant: str) -> None:
    sent = wire.messages(variant)
    values = [with_key(each.key, each.value) for each in sent]
    blocks = check(values, 1, is_numbered=False)
    rows = sum(block.rows for block in blocks if block.kind is Kind.ROW)
    others = len(values) - rows
    assert read_alone(values, is_numbered=False) - others < 0.5 * rows


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_compressed_values_are_read_as_their_texts(codec: str) -> None:
    """TiCDC compresses values, and no key."""
    source = RandomRows(3, "ticdc")
    values = source.messages(100)
    compressed = []
    for value in values:
        key, text = keyed(value or b"")
        made = pa.Codec(codec).compress(text, asbytes=True)
        compressed.append(with_key(key, bytes(made)))
    torn = (compressed[5] or b"")[:-3]
    decode, tables = decoder_of("debezium"), EveryTable(("id",))
    mixed = [*compressed[:50], *values[50:]]

    def told(messages: Sequence[bytes | None]) -> list[tuple[object, ...]]:
        blocks = decode(chunk(messages), tables)
        return [(*each[:2], each[2][:3], each[3]) for each in plain(list(blocks))]

    assert told(mixed) == told(values) == told(compressed)
    (bad,) = decode(chunk([torn]), tables)
    assert (bad.kind, bad.table()["value"].to_pylist()) == (Kind.BAD, [torn])
