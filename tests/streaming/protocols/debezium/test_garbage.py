"""No message of any dialect is lost, and none costs more than it may, whatever its bytes are."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from coordination.model import TableName, Ts
from streaming.protocols.contract import Block, Kind, Messages, Wanted, WantedTable, with_key
from streaming.protocols.debezium.envelope import keyed
from streaming.protocols.debezium.strict_parser import read as read_one
from streaming.protocols.decoders import decoder_of
from streaming.protocols.json_text.strict_json import Malformed
from streaming.protocols.rows import alike
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable, chunk, plain
from tests.streaming.protocols.debezium.reading import DIALECTS, TS, RandomRows, numbered, text_of
from tests.streaming.protocols.test_garbage import MOST_S, MOST_TIMES, SIZE, hostile

DECODE = decoder_of("debezium")
BAD_TYPES = (7, None, [], {}, "no type", "decimal(", "enum('", "bit(x)", "\ud83d\ude00", "é" * 99)


class Garbage:
    """Mutated messages of one dialect, the recorded ones of TiCDC too; some are compressed before
    or after that, and some have another schema."""

    def __init__(self, seed: int, dialect: str) -> None:
        self.rows = RandomRows(seed, dialect)
        self.dice = random.Random(seed)
        self.good = [each or b"?" for each in self.rows.messages(200)]
        if self.rows.is_ticdc:
            sent = wire.messages("debezium" if self.rows.has_schema else "debezium-noschema")
            some = self.dice.sample(sent, 100)
            self.good += [with_key(each.key, each.value) or b"?" for each in some]

    def messages(self, count: int) -> list[bytes | None]:
        """A third of them good, so that many are read side by side."""
        return [
            value if self.dice.random() < 0.33 else self._mutated(value)
            for value in self.dice.choices(self.good, k=count)
        ]

    def _mutated(self, value: bytes) -> bytes | None:
        kind = self.dice.random()
        if kind < 0.1:
            return self.rows.mutated(self._compressed(value))
        if kind < 0.3:
            return self._with_another_schema(value)
        found = self.rows.mutated(value)
        return self._compressed(found) if found and kind < 0.35 else found

    def _compressed(self, value: bytes) -> bytes:
        codec = pa.Codec(self.dice.choice(("lz4", "snappy")))
        try:
            key, text = keyed(value)
        except Malformed:
            return bytes(codec.compress(value, asbytes=True))
        return with_key(key, bytes(codec.compress(text, asbytes=True))) or b""

    def _with_another_schema(self, value: bytes) -> bytes:
        """A schema that is JSON, and says something odd of a column."""
        names = (b'"type":"int64"', b'"type":"double"', b'"type":"string"', b'"name":"io.debezium')
        odd = text_of(self.dice.choice(BAD_TYPES[:-2]))
        name = self.dice.choice(names)
        member = name.partition(b":")[0]
        other = self.dice.choice((b'"tidb_type":', b'"parameters":', member + b":"))
        return value.replace(name, other + odd + b"," + name, self.dice.randrange(1, 4))


def positions(blocks: Sequence[Block]) -> list[int]:
    """Of all that blocks have a body for: not of watermarks, nor of rows that are counted."""
    found: list[int] = []
    for block in blocks:
        if block.body is not None:
            found += block.table()["position"].to_pylist()
    return found


def assert_each_is_there(messages: Messages, blocks: Sequence[Block]) -> None:
    """Each message is in exactly one block, but for those that are about no table; and those that
    cannot be read are there with their bytes."""
    sent = dict(zip(messages.positions.to_pylist(), messages.values.to_pylist(), strict=True))
    found = Counter(positions(blocks))
    assert not [at for at, count in found.items() if count > 1]
    marks = sum(block.rows for block in blocks if block.body is None)
    number = None if messages.commit_ts is None else TS
    (texts,) = DECODE.texts(messages) if len(messages) else (messages,)
    read = texts.values.to_pylist()
    told = [value is not None and read_one(value, number) is not None for value in read]
    assert sum(found.values()) + marks == sum(told)
    for block in blocks:
        if block.kind is Kind.BAD:
            for row in block.table().to_pylist():
                assert row["value"] == sent[row["position"]]


def look_at(seed: int, dialect: str, count: int, tables: Wanted) -> None:
    garbage = Garbage(seed, dialect)
    values = garbage.messages(count)
    messages = numbered(values) if garbage.rows.numbered else chunk(values)
    blocks = list(DECODE(messages, tables))
    assert_each_is_there(messages, blocks)
    if isinstance(tables, EveryTable):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(alike, "FEW", 1 << 40)
            assert plain(blocks) == plain(list(DECODE(messages, tables))), seed


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_mutated_message_is_in_one_block(dialect: str) -> None:
    for seed in range(2):
        look_at(seed, dialect, 600, EveryTable((None, ("id",))[seed % 2]))


@pytest.mark.soak
@pytest.mark.parametrize("first", [1_000, 1_125])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_million_mutated_messages(dialect: str, first: int) -> None:
    """A quarter of it in each dialect."""
    for seed in range(first, first + 125):
        look_at(seed, dialect, 1_000, EveryTable((None, ("id",))[seed % 2]))


def hostile_messages(dialect: str) -> Iterator[tuple[str, bytes]]:
    good = next(
        each for each in RandomRows(5, dialect).messages(50) if each and b'"op":"u"' in each
    )
    key, value = keyed(good)
    for name, text in hostile(value):
        yield f"value: {name}", with_key(key, text) or b""
    for name, text in hostile(key or b'{"id":1}') if dialect == "ticdc" else ():
        yield f"key: {name}", with_key(text, value) or b""
    for name, before, behind in (
        ("payloads", b'{"schema":', b',"payload":{' * (SIZE // 12)),
        ("schemas", b'{"payload":{', b',"schema":{' * (SIZE // 11)),
        ("sources", b'{"source":{', b'"source":{"a":"' * (SIZE // 15)),
        ("times", b'{"source":{},', b'"ts_ms":' * (SIZE // 8)),
    ):
        yield name, with_key(key, before + behind + b"}}") or b""
    for length in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xfe", b"\0\0\0\x80", b"\x01\0\0\0"):
        yield "length of the key", length + good[4:]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_message_costs_more_than_it_may(dialect: str) -> None:
    is_numbered = dialect.startswith("own")
    for name, value in hostile_messages(dialect):
        messages = numbered([value]) if is_numbered else chunk([value])
        begun_s = time.process_time()
        blocks = list(DECODE(messages, EveryTable(None)))
        own_ms = DECODE.own_ms
        assert own_ms is not None
        own_ms(messages.values)
        assert DECODE.are_ddls is not None
        DECODE.are_ddls(messages.values)
        assert time.process_time() - begun_s < MOST_S, name
        assert_each_is_there(messages, blocks)
        if len(value) >= SIZE // 2:
            tracemalloc.start()
            list(DECODE(messages, EveryTable(None)))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < MOST_TIMES * len(value), name


def test_rows_of_tables_that_nobody_wants_are_counted() -> None:
    """Another capture has the other table."""
    wanted = {TableName("shop", "t"): WantedTable(above_ts=Ts(0), key=("id",))}
    for seed in range(4):
        look_at(seed, DIALECTS[seed], 300, wanted)
