"""No message of avro is lost, none changes another one, and none costs more than it may."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from streaming.protocols.avro.decoder import Schemas, decode
from streaming.protocols.avro.letters import decode_letters, letter_of
from streaming.protocols.contract import LETTER_HEAD, OP_DELETE, UNTIMED, Block, Kind, Wanted
from tests.seeds import hunted_seeds
from tests.services.avro_writer import branch, long, text
from tests.streaming.protocols.avro import reading
from tests.streaming.protocols.avro.reading import (
    ID,
    KEY,
    SCHEMAS,
    TS,
    VALUE,
    RandomRows,
    chunk,
    extension,
    framed,
    message,
    read,
    row,
    schema,
)
from tests.streaming.protocols.canal_json.reading import EveryTable
from tests.streaming.protocols.test_garbage import MOST_S, MOST_TIMES, SIZE, hostile

TABLES = (None, ("id",), ())


def accounted(blocks: list[Block], count: int) -> bool:
    """Each of ``count`` messages is in exactly one block."""
    places: list[int] = []
    for block in blocks:
        if block.body is not None and block.kind is not Kind.WATERMARK:
            places += block.table()["position"].to_pylist()
    rest = sum(b.rows for b in blocks if b.body is None)
    unique = len(places) == len(set(places))
    return unique and len(places) + rest == count == sum(block.rows for block in blocks)


@dataclass(frozen=True)
class Found:
    """A row, as text: a number that is none equals nothing."""

    row: str
    op: int
    commit_ts: int
    head: bytes = field(compare=False)


def rows_of(blocks: list[Block]) -> dict[int, Found]:
    """By position; a DELETE that waits for its time depends on its neighbours."""
    found = {}
    for block in blocks:
        if block.kind is not Kind.ROW or block.body is None or block.token == UNTIMED:
            continue
        head = block.table().schema.metadata[LETTER_HEAD]
        for each in block.table().to_pylist():
            row = f"{block.name}: {dict(sorted({'old': None, **each}.items()))}"
            found[each["position"]] = Found(row, each["op"], each["commit_ts"], head)
    return found


def test_good_rows_are_rows() -> None:
    for number in range(20):
        source = RandomRows(number)
        values = [source.message() for _ in range(200)]
        blocks = read(values, EveryTable(None), source.schemas)
        assert {block.kind for block in blocks} <= {*Kind} - {Kind.BAD}
        assert accounted(blocks, len(values))


def mutated(source: RandomRows, seed: int) -> list[bytes | None]:
    good = [source.message() for _ in range(200)]
    values = [source.mutated(each) for each in good for _ in range(25)]
    begun = time.process_time()
    blocks = read(values, EveryTable(TABLES[seed % 3]), source.schemas)
    assert accounted(blocks, len(values)), seed
    assert sum(b.message_bytes for b in blocks) == sum(len(v or b"") for v in values)
    assert accounted(read(values, {}, source.schemas), len(values)), seed
    assert time.process_time() - begun < 0.002 * len(values)
    return values


def alone(values: Sequence[bytes | None], tables: Wanted, schemas: Schemas) -> dict[int, Found]:
    """The rows, each message read by itself."""
    found = {}
    whole = chunk(values)
    for at in range(len(values)):
        blocks = decode(whole.part_of(at, 1), tables, schemas=schemas)
        found |= rows_of(list(blocks))
    return found


def assert_none_changes_another(
    source: RandomRows, values: Sequence[bytes | None], count: int
) -> None:
    """Good and bad ones side by side, and each by itself; and each row from its letter."""
    tables = EveryTable(None)
    dice = source.random
    some = [dice.choice(values) if dice.random() < 0.5 else source.message() for _ in range(count)]
    blocks = read(some, tables, source.schemas)
    together = rows_of(blocks)
    by_itself = alone(some, tables, source.schemas)
    is_delete = {at for at, each in together.items() if each.op == OP_DELETE}
    for at in together.keys() - is_delete:
        assert together[at] == by_itself[at]
    assert together.keys() - is_delete == by_itself.keys() - is_delete
    letters: list[bytes | None] = [None] * len(some)
    for number, at in enumerate(chunk(some).positions.to_pylist()):
        if at in together:
            each = together[at]
            letters[number] = letter_of(each.head, some[number] or b"", each.commit_ts)
    assert rows_of(list(decode_letters(chunk(letters), tables))) == together


def test_100_000_mutated_messages() -> None:
    for seed in range(20):
        source = RandomRows(seed)
        values = mutated(source, seed)
        if seed % 4 == 0:
            assert_none_changes_another(source, values, 100)


@pytest.mark.soak
def test_a_million_mutated_messages() -> None:
    for seed in hunted_seeds():
        source = RandomRows(seed)
        assert_none_changes_another(source, mutated(source, seed), 300)


def hostile_messages() -> Iterator[tuple[str, bytes]]:
    ddl = b'{"query":"DROP TABLE t","type":4,"schema":"shop","table":"t","commitTs":10}'
    for name, told in hostile(ddl):
        yield f"DDL: {name}", message(None, b"\x01" + told)
    for piece in ("`", "'", "/* ", "`a`.", "`a`.`b-`", "'a", "IF EXISTS "):
        query = "ALTER DATABASE " + piece * (SIZE // 4 // len(piece)) + "x"
        told = {"query": query, "type": 5, "schema": "s", "table": "a-b", "commitTs": 10}
        yield f"names in a DDL: {piece}", message(None, b"\x01" + json.dumps(told).encode())
    for name, length in (("long", 2**62), ("below zero", -1), ("a little", SIZE + 99)):
        for where, of in (("key", KEY), ("value", VALUE)):
            data = long(1) + branch(1, long(length) + b"a" * SIZE) + extension("c", TS)
            parts = framed(KEY, long(1)), framed(of, data)
            yield (
                f"length {name} of {where}",
                message(*(parts if where == "value" else parts[::-1])),
            )
    yield "a number without an end", message(framed(KEY, long(1)), framed(VALUE, b"\xff" * SIZE))
    yield "zeros", message(framed(KEY, long(1)), framed(VALUE, b"\0" * SIZE))
    yield "an op", message(framed(KEY, long(1)), framed(VALUE, long(1) + b"\0" + text("c" * SIZE)))
    yield "a key", message(b"\0" * SIZE, framed(VALUE, long(1)))
    yield "an id and no more", framed(VALUE, b"")
    yield "a watermark", message(None, b"\x02" + b"\xff" * SIZE)
    yield "a DELETE", message(framed(KEY, long(1)), b"\x03" * SIZE)


def test_no_message_costs_more_than_it_may() -> None:
    for name, value in hostile_messages():
        begun_s = time.process_time()
        blocks = read([value], EveryTable(None))
        assert time.process_time() - begun_s < MOST_S, name
        assert accounted(blocks, 1), name
        if len(value) >= SIZE // 2:
            tracemalloc.start()
            read([value], EveryTable(None))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < MOST_TIMES * len(value), name


def test_many_ids_and_many_fields_cost_little() -> None:
    """Ids that no schema has; a schema of 2,000 columns whose rows are all cut off."""
    count = 20_000

    def told(number: int) -> bytes:
        return message(framed(KEY, long(1)), framed(10 + number, long(1)))

    class NoMore(dict[int, str | None]):
        def __missing__(self, _number: int) -> None:
            return None

        def __contains__(self, _number: object) -> bool:
            return True

    wide = [reading.field(f"c{n}", "TEXT", nullable=n % 2 == 0) for n in range(2_000)]
    schemas: Mapping[int, str | None] = {**SCHEMAS, 5: schema([ID, *wide])}
    cut = [message(framed(KEY, long(1)), framed(5, long(1) + b"\x00"))] * count
    for values, of in (
        ([told(n) for n in range(count)], SCHEMAS),
        ([told(n) for n in range(count)], NoMore(SCHEMAS)),
        (cut, schemas),
    ):
        begun_s = time.process_time()
        blocks = read(values, EveryTable(None), of)
        assert accounted(blocks, count)
        assert time.process_time() - begun_s < 2


def test_one_bad_value_costs_its_column_no_more_than_a_walk() -> None:
    """A text that is not UTF-8 among 50,000, and a decimal of too many digits."""
    price = reading.field("p", "DECIMAL")
    schemas = {**SCHEMAS, 5: schema([ID, price])}

    def put(number: int, data: bytes) -> bytes:
        value = framed(5, long(number) + long(len(data)) + data + extension("c", TS))
        return message(framed(KEY, long(number)), value)

    prices = [put(n, b"\x01") for n in range(50_000)] + [put(1, b"\x7f" * 16)]
    texts: list[bytes | None] = [row(n) for n in range(50_000)]
    texts.append(row(1).replace(text("a"), b"\x02\xff"))
    for values in (prices, texts):
        begun_s = time.process_time()
        blocks = read(values, EveryTable(None), schemas)
        assert accounted(blocks, len(values))
        assert [b.rows for b in blocks if b.kind is Kind.BAD] == [1]
        assert time.process_time() - begun_s < 5
