"""Random chunks: every kind of message, any text, names in any order, and bytes gone wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from coordination.model import TableName

ALPHABET = "aé中😀\"\\/\b\f\n\r\t\x00\x01\x1f\x7f\x85\u2028\u2029\ufeff\uffff{}[]:,' <>&0"
TABLES = {
    TableName("shop", "t"): (["id", "v", "w"], ["id"]),
    TableName("shop", 'od"d\\'): (["k", 'q"', "b\\", "列名", "data", "old"], ["k", "列名"]),
    TableName("other", "t"): (["id"], []),
}
TYPES = ("bigint", "varchar", "decimal", "int unsigned", "datetime")
FLAGS: Mapping[str, Any] = {"onlyHandleKey": True, "claimCheckLocation": "s3://x"}
_PIECES = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"NaN", b"1", b"-", b"e9"),
    *(b"\n", b" ", b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b'"data":[{', b"}{"),
    *(b'"id":"1"', b'"_tidb":{"commitTs":5}', b'"type":"DELETE",', b'":null', b'\\":null', b"0x1f"),
)


class RandomMessages:
    """One chunk after the other, by a seed."""

    def __init__(self, seed: int, *, well_formed: bool = False) -> None:
        self.random = random.Random(seed)
        self.well_formed = well_formed

    def chunk(self, size: int) -> list[bytes | None]:
        """Stretches of plain rows of a table, and others among them."""
        odd = self.random.choice((0.0, 0.02, 0.5))
        found: list[bytes | None] = []
        while len(found) < size:
            name = self.random.choice([*TABLES])
            types = {column: self.random.choice(TYPES) for column in TABLES[name][0]}
            write = self._writer()
            for _ in range(self.random.randrange(1, 60)):
                is_odd = self.random.random() < odd
                message = self._any_message() if is_odd else self.row(name, types)
                found.append(self._written_oddly(message) if is_odd else write(message))
        return found[:size]

    def mutated(self, value: bytes) -> bytes | None:
        """With one to three bytes or pieces that do not belong there."""
        mutate = self.mutation(len(value))
        return mutate(value) if self.random.random() < 0.99 else None

    def mutation(self, length: int) -> Callable[[bytes], bytes]:
        """The same change of any message of about this length."""
        edits = [self._edit(length) for _ in range(self.random.choice((1, 1, 1, 2, 3)))]

        def mutate(value: bytes) -> bytes:
            for at, upto, piece in edits:
                value = value[:at] + piece + value[upto:]
            return value

        return mutate

    def _edit(self, length: int) -> tuple[int, int, bytes]:
        """What to put in place of which bytes."""
        at = self.random.randrange(length + 1)
        kind = self.random.random()
        if kind < 0.05:
            return at, length + 99, b""
        upto = at + self.random.choice((0, 0, 0, 1, 1, 2, 9, 300))
        some_piece, any_byte = self.random.choice(_PIECES), bytes([self.random.randrange(256)])
        return at, upto, self.random.choice((b"", some_piece, some_piece, any_byte))

    def row(self, name: TableName, types: Mapping[str, str]) -> dict[str, Any]:
        op = self.random.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
        columns = [*types]
        cells = {column: self._cell() for column in columns}
        old = None
        if op == "UPDATE":
            kept = columns if self.random.random() < 0.7 else self._some(columns)
            old = [{c: cells[c] if self.random.random() < 0.7 else self._cell() for c in kept}]
        return {
            "id": 0,
            "database": name.schema,
            "table": name.table,
            "pkNames": TABLES[name][1],
            "isDdl": False,
            "type": op,
            "es": 1700000000000 + self.random.randrange(9),
            "ts": 1700000000000,
            "sql": "",
            "sqlType": {column: self.random.choice((-5, 12)) for column in columns},
            "mysqlType": self._shuffled(types),
            "old": old,
            "data": [cells],
            "_tidb": {"commitTs": self.random.randrange(2**60)},
        }

    def _any_message(self) -> dict[str, Any]:
        name = self.random.choice([*TABLES])
        message = self.row(name, {column: "bigint" for column in TABLES[name][0]})
        columns = [*message["data"][0]]
        kind = self.random.randrange(8 if self.well_formed else 9)
        if kind == 0:
            message |= {"type": "TIDB_WATERMARK", "database": "", "table": "", "data": None}
            message["_tidb"] = {"watermarkTs": self.random.randrange(2**60)}
        elif kind == 1:
            message |= {"type": "ALTER", "isDdl": True, "data": None, "sql": self._text()}
        elif kind == 2:
            message["_tidb"] |= {flag: FLAGS[flag] for flag in self._some([*FLAGS])}
        elif kind == 3:
            message["data"] = [{c: self._cell() for c in self._some(columns)}]
        elif kind == 4:
            message["data"][0] |= {self._text(): self._cell()}
        elif kind == 5:
            message["data"][0] |= {columns[0]: self.random.choice((1, 1.5, True, False, 10**30))}
        elif kind == 6:
            message["rowkey"] = self._text()
        elif kind == 8:
            message[self.random.choice([*message])] = self.random.choice((None, 1, "x", [], {}))
        return message

    def _writer(self) -> Callable[[Mapping[str, Any]], bytes]:
        """As a program writes JSON: this one or that."""
        ascii_only = self.random.random() < 0.5
        return lambda message: json.dumps(
            message, separators=(",", ":"), ensure_ascii=ascii_only
        ).encode()

    def _written_oddly(self, message: Mapping[str, Any]) -> bytes:
        kind = self.random.randrange(3 if self.well_formed else 4)
        if kind == 0:
            message = self._shuffled(message)
        separators = (" ,\n", ": ") if kind == 1 else (",", ":")
        value = json.dumps(message, separators=separators, ensure_ascii=kind > 1).encode()
        return self.mutated(value) or b"" if kind == 3 else value

    def _cell(self) -> str | None:
        return None if self.random.random() < 0.2 else self._text()

    def _text(self) -> str:
        return "".join(self.random.choices(ALPHABET, k=self.random.randrange(6)))

    def _some(self, names: list[str]) -> list[str]:
        return [name for name in names if self.random.random() < 0.6]

    def _shuffled(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        names = [*mapping]
        self.random.shuffle(names)
        return {name: mapping[name] for name in names}
