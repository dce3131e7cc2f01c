"""simple in Avro means what it means in JSON; read many at a time or one by one it means the
same, and no message is lost."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from streaming.protocols.contract import (
    Block,
    Cells,
    Kind,
    Messages,
    cells_of,
    tables_told,
    version_of,
)
from streaming.protocols.simple import avro_decoder, claims, decoder
from tests.services import wire
from tests.services.avro_writer import branch, double, long, octets, text
from tests.streaming.protocols.canal_json.reading import EveryTable, accounted, cells
from tests.streaming.protocols.simple import reading as in_json
from tests.streaming.protocols.simple.avro_reading import (
    RandomRows,
    bootstrap,
    ddl,
    message,
    moment,
    of_text,
    one_by_one,
    row,
    table,
    watermark,
    whole,
)
from tests.streaming.protocols.simple.reading import read

NAME = TableName("shop", "t")
VARIANTS = ("simple-avro", "simple-avro-claim-check")
BOTH_WAYS = pytest.mark.parametrize("few", [2, 1 << 40])


def data_of(values: list[bytes], monkeypatch: pytest.MonkeyPatch, few: int) -> pa.Table:
    monkeypatch.setattr(avro_decoder, "FEW", few)
    (block,) = read(values, EveryTable(None))
    assert block.kind is Kind.ROW
    return block.table()


@BOTH_WAYS
def test_cells_have_the_types_of_their_branches(few: int, monkeypatch: pytest.MonkeyPatch):
    located = moment("2020-01-02 03:04:05", "Asia/Shanghai")
    data = {
        "id": whole(-(2**63)),
        "u": branch(7, long(-1)),
        "f": branch(2, b"\x00\x00\xc0\x3f"),
        "d": branch(3, double(0.1)),
        "s": of_text("文\x00"),
        "b": branch(5, octets(b"\xff\x00")),
        "t": located,
        "n": branch(0),
    }
    nothing = {name: branch(0) for name in data}
    found = data_of([row(data=each) for each in (data, nothing, data)], monkeypatch, few)
    assert (version_of(found.schema), cells_of(found.schema)) == (7, Cells.ENCODED)
    row_of = {
        "id": -(2**63),
        "u": 2**64 - 1,
        "f": 1.5,
        "d": 0.1,
        "s": "文\x00",
        "b": b"\xff\x00",
        "t": '{"location":"Asia/Shanghai","value":"2020-01-02 03:04:05"}',
        "n": None,
    }
    assert found["data"].to_pylist() == [row_of, dict.fromkeys(row_of), row_of]
    types = {each.name: str(each.type) for each in found.schema.field("data").type}
    assert types == {
        **dict.fromkeys(("n", "s", "t"), "string"),
        "id": "int64",
        "u": "uint64",
        "f": "float",
        "d": "double",
        "b": "binary",
    }


def test_names_of_any_length_are_read_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of 64 bytes and more has its length in two."""
    left = list[int]()

    def keep(_self: object, positions: list[int], _events: object) -> None:
        left.extend(positions)

    for lengths in ((1, 7, 8), (6, 14, 15, 16), (63, 64, 65), (3, 127, 128, 256)):
        names = [chr(97 + n) * length for n, length in enumerate(lengths)]
        names += [name[:-1] + "_" for name in names]
        data = {name: whole(n * 10**9) for n, name in enumerate(names)}
        turned = dict(reversed(data.items()))
        values = [row("UPDATE", 11, data=data, old=turned), row(data=turned)] * 2
        alone = data_of(values, monkeypatch, 1 << 40)
        with monkeypatch.context() as patch:
            patch.setattr(avro_decoder.Collector, "keep_each", keep)
            together = data_of(values, patch, 2)
        assert left == []
        for column in ("data", "old"):
            assert alone[column].to_pylist() == together[column].to_pylist()


@BOTH_WAYS
def test_a_delete_has_its_old_row(few: int, monkeypatch: pytest.MonkeyPatch):
    found = data_of([row(), row("UPDATE", 11), row("DELETE", 12)], monkeypatch, few)
    assert found["op"].to_pylist() == [1, 2, 0]
    assert found["data"].to_pylist() == [
        {"id": 1, "v": "a"},
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]
    assert found["old"].to_pylist() == [None, {"id": 2, "v": "b"}, None]


def test_schemas_are_told_as_in_json():
    told = ddl(9, "ALTER", after=table(8), before=table(7, "before"))
    schema, altered, made = read([bootstrap(), told, ddl(5, "CREATE DATABASE d")], {})
    more = in_json.ddl(
        9, "ALTER", tableSchema=in_json.table(8), preTableSchema=in_json.table(7, "before")
    )
    theirs, other, _ = in_json.read(
        [in_json.bootstrap(), more, in_json.ddl(5, "CREATE DATABASE d")], {}
    )
    assert tables_told(schema) == tables_told(theirs)
    assert tables_told(altered) == tables_told(other)
    assert (made.name, made.max_ts) == (TableName("d", ""), 5)


def test_both_encodings_in_one_topic():
    blocks = read(
        [watermark(5), in_json.watermark(9), row(), in_json.row(), b"\x16"], EveryTable(None)
    )
    kinds = [(block.kind, block.rows) for block in blocks]
    assert kinds == [(Kind.WATERMARK, 2), (Kind.ROW, 1), (Kind.ROW, 1), (Kind.BAD, 1)]


@pytest.mark.parametrize(
    ("reduced", "error"),
    [({"is_cut": True}, "handle-key-only"), ({"is_cut": True, "claim": "x/y.json"}, "claim-check")],
)
def test_rows_that_were_cut(reduced: dict[str, Any], error: str):
    block, gone = (
        read([row(kind, **reduced)], EveryTable(None))[0] for kind in ("INSERT", "DELETE")
    )
    assert block.table()["error_class"].to_pylist() == [error]
    assert "error_class" not in gone.table().column_names


def test_a_claim_is_found_and_filled():
    value, body = row(claim="a/b.json", is_cut=True), row()
    assert claims.MARKER in value
    assert claims.find(value) == {"a/b.json": NAME}
    assert claims.fill(value, {"a/b.json": body}) == body
    assert claims.fill(value, {}) == value
    for other in (row(), watermark(5), b"\x16", b"{"):
        assert claims.find(other) == {}
        assert claims.fill(other, {"a/b.json": body}) == other


@pytest.mark.parametrize(
    "value",
    [
        b"\x16",
        row(ts=0),
        row(ts=-5),
        row(table=""),
        row(data={}),
        row(data={"id": moment("x", "Nowhere/Land")}),
        row(data={"id": moment('x"')}),
        row(data={"id": branch(4, octets(b"\xff"))}),
        row(data={"id": branch(8)}),
        row("UPDATE", data={"id": whole(1)}, old={"id": of_text("1")}),
        row("UPDATE", old={"id": whole(1)})[:-1],
        row() + b"\x00",
        message(3, b""),
        message(2, long(9) + text("x") + long(5) + long(5) + branch(0) + branch(0)),
        message(1, long(5) + text("shop") + text("t") + long(1) + long(1) + long(2**40)),
        message(0, long(0) + long(1)),
        watermark(5).replace(b"\x16\x00\x00", b"\x16\x00\x02"),
    ],
)
def test_garbage_is_bad(value: bytes):
    (block,) = read([value], EveryTable(None))
    assert block.kind is Kind.BAD
    (found,) = block.table().to_pylist()
    assert (found["position"], found["value"]) == (100, value)


@BOTH_WAYS
def test_a_bad_row_among_good_ones(few: int, monkeypatch: pytest.MonkeyPatch):
    """Each of them by itself: by its texts, its types, its columns."""
    monkeypatch.setattr(avro_decoder, "FEW", few)
    twice = branch(1, long(2) + (text("id") + whole(1)) * 2 + b"\x00")
    wrong = [
        row(data={"id": whole(1), "v": branch(4, octets(b"\xff"))}),
        row().replace(
            branch(1, long(2) + text("id") + whole(1) + text("v") + of_text("a") + b"\x00"), twice
        ),
        row("UPDATE", old={"id": whole(1), "v": branch(4, octets(b"\xc0"))}),
    ]
    other = [row(data={"id": of_text("1"), "v": of_text("a")}), row(data={"id": whole(3)})]
    good = [row(ts=10 + n) for n in range(20)]
    kinds = [each["kind"] for each in in_order_of([*good, *wrong, *other, *good])]
    assert kinds == [Kind.ROW] * 20 + [Kind.BAD] * 3 + [Kind.ROW] * 22


def in_order_of(values: list[bytes]) -> list[dict[str, Any]]:
    found = cells(read(values, EveryTable(None)))
    return [found[100 + 3 * place] for place in range(len(values))]


def test_a_size_before_a_block_is_passed_over():
    inner = text("id") + whole(1)
    told = branch(1, long(-1) + long(len(inner)) + inner + b"\x00")
    plain = branch(1, long(1) + inner + b"\x00")
    value = row(data={"id": whole(1)})
    (block,) = read([value.replace(plain, told)], EveryTable(None))
    assert block.table()["data"].to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_message_is_understood(variant: str, monkeypatch: pytest.MonkeyPatch):
    kinds: dict[Kind, int] = {}
    for partition, sent in wire.partitions(variant).items():
        messages = Messages(
            part=f"wire/{partition}",
            positions=pa.array([each.offset for each in sent], pa.int64()),
            values=pa.array([each.value for each in sent], pa.binary()),
        )
        blocks = list(decoder.decode(messages, EveryTable(None)))
        for block in blocks:
            kinds[block.kind] = kinds.get(block.kind, 0) + block.rows
        with monkeypatch.context() as patch:
            patch.setattr(avro_decoder, "FEW", 2)
            assert cells(list(decoder.decode(messages, EveryTable(None)))) == cells(blocks)
    counts = wire.config(variant)["counts"]
    assert kinds == {
        Kind.ROW: counts["row"],
        Kind.DDL: counts["ddl"],
        Kind.WATERMARK: counts["watermark"],
        Kind.SCHEMA: counts["bootstrap"],
    }


@pytest.mark.parametrize("few", [1, 9])
def test_checksums_are_told(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at a time and one by one: of a DELETE that of the old row."""
    monkeypatch.setattr(avro_decoder, "FEW", few)
    rows = [
        row("INSERT", checksum=(1, False, 2**32 - 1, 0)),
        row("UPDATE", checksum=(1, False, 5, 6)),
        row("DELETE", checksum=(1, False, 0, 7)),
        row("INSERT", checksum=(1, True, 5, 0)),
        row("INSERT", checksum=(1, False, 2**32, 0)),
        row("INSERT"),
        row("DELETE", checksum=(1, False, -1, 8)),
    ]
    found = cells(read(rows, EveryTable(None))).values()
    assert [each["kind"] for each in found].count(Kind.BAD) == 1
    told = {each["position"]: each.get("checksum", 0) for each in found}
    first = min(told)
    assert {(at - first) // 3: each for at, each in told.items()} == {
        0: 2**32 - 1, 1: 5, 2: 7, 3: -1, 4: 0, 5: 0, 6: 8,
    }  # fmt: skip


def comparable(blocks: list[Block]) -> str:
    """By message; NaN too. A column of a block may be there for another row alone."""
    found = sorted(cells(blocks).items())
    return repr(
        [
            {n: v for n, v in each.items() if v is not None and (n, v) != ("checksum", 0)}
            for _, each in found
        ]
    )


def check(values: list[bytes | None], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = EveryTable((None, ("id",), ())[number % 3])
    blocks = read(values, tables)
    slowly = one_by_one(values, tables, monkeypatch)
    assert comparable(blocks) == comparable(slowly), number
    assert sum(b.message_bytes for b in blocks) == sum(len(v or b"") for v in values)
    assert accounted(blocks, len(values))
    assert accounted(read(values, {}), len(values))


@pytest.mark.seeds(1, 2)
def test_random_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, calls, count = avro_decoder.read, 0, 0

    def reading(value: bytes) -> object:
        nonlocal calls
        calls += 1
        return slow(value)

    monkeypatch.setattr(avro_decoder, "FEW", 2)
    for number in range(seed * 100, seed * 100 + 5):
        values: list[bytes | None] = [*RandomRows(number).messages(200)]
        check(values, number, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(avro_decoder, "read", reading)
            count += sum(block.rows for block in read(values, EveryTable(None)))
    assert calls < 0.4 * count


@pytest.mark.seeds(1, 2)
def test_garbage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_decoder, "FEW", 2)
    for number in range(seed * 100, seed * 100 + 12):
        source = RandomRows(number)
        share = (0.05, 0.3, 1.0)[number % 3]
        values: list[bytes | None] = [
            source.mutated(each) if source.random.random() < share else each
            for each in source.messages(200)
        ]
        check(values, number, monkeypatch)


def garbage(rounds: int) -> None:
    for number in range(rounds):
        source = RandomRows(number)
        good = source.messages(200)
        values = [source.mutated(each) for each in good for _ in range(25)]
        begun = time.process_time()
        assert accounted(read(values, EveryTable(None)), len(values))
        assert time.process_time() - begun < 0.002 * len(values)


def test_mutated_messages() -> None:
    """Every one in exactly one block, in bounded time."""
    garbage(2)


@pytest.mark.more
def test_100_000_mutated_messages() -> None:
    garbage(20)


@pytest.mark.soak
def test_a_million_mutated_messages() -> None:
    garbage(200)


def test_lengths_that_lie_cost_nothing() -> None:
    """A count or length that promises more than there is."""
    for size in (2**20, 2**31, 2**62, -(2**63)):
        lies = [
            message(1, long(5) + text("shop") + text("t") + long(1) + long(1) + long(size)),
            message(3, long(size)),
            row().replace(text("a"), long(size) + b"a"),
            row().replace(branch(1, long(2) + text("id")), branch(1, long(size) + text("id"))),
        ]
        begun = time.process_time()
        blocks = read([each for each in lies for _ in range(100)], EveryTable(None))
        assert {block.kind for block in blocks} == {Kind.BAD}
        assert time.process_time() - begun < 1
