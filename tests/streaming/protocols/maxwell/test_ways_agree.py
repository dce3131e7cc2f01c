"""Whatever the messages, read many at a time or one by one they mean the same, and none is lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.decoders import decoder_of
from streaming.protocols.json_text.strict_json import GO_ESCAPED
from streaming.protocols.maxwell import decoder
from streaming.protocols.rows import alike
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable, plain

TEXTS = ("", "a", 'q"', "\\", "7", "-1.50e3", "05", "true", "null", "[", '{"a":1}', "x\n", "\x01",
         "}{", '"}{"database":"', "2020-01-02", "é中😀", "<&>\u2028", "\x7f", "0")  # fmt: skip
NAMES = ("id", "v", "w", "列", "a b", "<", "old", "data", "ts", 'q"')


class RandomRows:
    """Of a few tables, of both senders."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tables = [self._table(n) for n in range(3)]

    def _table(self, number: int) -> dict[str, Any]:
        dice = self.random
        names = sorted({"id", *dice.sample(NAMES, dice.randint(1, 5))})
        kinds = {name: dice.choice(("text", "number", "both")) for name in names}
        return {"name": f"t{number}", "kinds": kinds, "ticdc": number % 2 == 0,
                "more": dice.sample(("position", "server_id", "keys", "push_ts"), 2)}  # fmt: skip

    def messages(self, count: int) -> list[bytes | None]:
        found = [self._message() for _ in range(count)]
        return [each if self.random.random() < 0.98 else None for each in found]

    def _message(self) -> bytes:
        table = self.random.choice(self.tables)
        count = self.random.choice((1, 1, 1, 3)) if table["ticdc"] else 1
        return b"".join(self._row(table) for _ in range(count))

    def _value(self, kind: str) -> Any:
        dice = self.random
        if dice.random() < 0.1:
            return None
        if kind == "number" or (kind == "both" and dice.random() < 0.5):
            return dice.choice((0, 7, -1, 1.5, 1e300, 2**64 - 1, 1e-7))
        return dice.choice(TEXTS)

    def _row(self, table: dict[str, Any]) -> bytes:
        dice = self.random
        kind = dice.choice(("insert", "update", "delete"))
        data = {name: self._value(of) for name, of in table["kinds"].items()}
        if dice.random() < 0.03:
            data["v"] = dice.choice((["a"], {"b": [1]}, True, []))
        told = {"database": "shop", "table": table["name"], "type": kind, "ts": dice.randrange(99)}
        if not table["ticdc"]:
            told |= {"xid": dice.randrange(9), **({"commit": True} if dice.random() < 0.5 else {})}
            more = {"position": f"m.{dice.randrange(9)}:4", "server_id": 3, "push_ts": 1.25}
            told |= {name: more[name] for name in table["more"] if name != "keys"}
            if "keys" in table["more"]:
                told |= {"primary_key": [data["id"]], "primary_key_columns": ["id"]}
        side = "old" if kind == "delete" and table["ticdc"] else "data"
        told[side] = data
        if kind == "update" and dice.random() < 0.9:
            changed = [n for n in table["kinds"] if dice.random() < 0.4]
            told["old"] = {name: self._value(table["kinds"][name]) for name in changed}
        text = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
        return (text.translate(GO_ESCAPED) if table["ticdc"] else text).encode()

    def mutated(self, value: bytes) -> bytes:
        found, dice = bytearray(value), self.random
        for _ in range(dice.randint(1, 3)):
            at, size = dice.randrange(len(found) + 1), dice.choice((1, 1, 2, 8))
            match dice.randrange(3):
                case 0:
                    found[at : at + size] = dice.randbytes(size)
                case 1:
                    del found[at : at + size]
                case _:
                    marks = (b'"', b"{", b"}", b",", b"null", b"-1", b"0", b"\\", b"}{", b"e")
                    found[at : at + dice.randrange(2)] = dice.choice(marks)
        return bytes(found)


def read(values: list[bytes | None], wanted: Wanted, part: str = "m/0") -> list[Block]:
    chunk = Messages(
        part=part,
        positions=pa.array(range(0, 3 * len(values), 3), pa.int64()),
        values=pa.array(values, pa.binary()),
        commit_ts=pa.array(range(100, 100 + len(values)), pa.int64()),
    )
    return list(decoder_of("maxwell")(chunk, wanted))


def check(values: list[bytes | None], number: int) -> None:
    tables = EveryTable((None, ("id",), ())[number % 3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "FEW", 2)
        blocks, counted = read(values, tables), read(values, {})
        patch.setattr(alike, "FEW", 1 << 40)
        assert plain(blocks) == plain(read(values, tables)), number
        assert [(b.name, b.kind, b.rows, b.first, b.last) for b in counted] == [
            (b.name, b.kind, b.rows, b.first, b.last) for b in read(values, {})
        ], number
    assert sum(b.message_bytes for b in blocks) == sum(len(v or b"") for v in values)


@pytest.mark.seeds(2, 2)
def test_random_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, slow = list[int](), decoder.read
    for number in range(seed * 100, seed * 100 + 4):
        values = RandomRows(number).messages(150)
        check(values, number)
        with monkeypatch.context() as patch:
            patch.setattr(alike, "FEW", 2)
            patch.setattr(decoder, "read", lambda *a, **b: calls.append(1) or slow(*a, **b))
            read(values, EveryTable(None))
    assert len(calls) < 0.7 * 600  # some tables have names that are read one by one


@pytest.mark.seeds(2, 2)
def test_garbage(seed: int) -> None:
    for number in range(seed * 100, seed * 100 + 10):
        source = RandomRows(number)
        share = (0.05, 0.3, 1.0)[number % 3]
        check(
            [
                source.mutated(each or b"") if source.random.random() < share else each
                for each in source.messages(60)
            ],
            number,
        )


def test_the_recording_is_read_side_by_side() -> None:
    values = [
        each.value for each in wire.messages("maxwell") if b'"sql"' not in (each.value or b"")
    ]
    calls = []
    slow = decoder.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "read", lambda *a, **b: calls.append(1) or slow(*a, **b))
        blocks = read(values * 20, EveryTable(None))
    assert len(calls) < 0.15 * 20 * len(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "FEW", 1 << 40)
        assert plain(blocks) == plain(read(values * 20, EveryTable(None)))
