"""Messages as TiCDC and Debezium's own connectors write them, at random, and how chunks of them are
read. A *dialect* is one of the four ways in which they are written."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from streaming.protocols.contract import Block, Messages, Wanted, with_key
from streaming.protocols.debezium.decoder import decode
from tests.streaming.protocols.canal_json.reading import chunk

DIALECTS: Final = ("ticdc", "ticdc-noschema", "own", "own-noschema")
TS: Final = 400_000_000_000_000_000
_CONNECT, _TIME = "org.apache.kafka.connect.data", "io.debezium.time"
# Columns by name: the type, and the name of it, in a schema.
_KINDS: Final = {
    "id": ("int64", None), "f": ("double", None), "s": ("string", None), "t": ("boolean", None),
    "m": ("int64", f"{_TIME}.MicroTime"), "ts": ("int64", f"{_TIME}.Timestamp"),
    "us": ("int64", f"{_TIME}.MicroTimestamp"), "ns": ("int64", f"{_TIME}.NanoTimestamp"),
    "tm": ("int32", f"{_CONNECT}.Time"), "iso": ("string", f"{_TIME}.IsoTimestamp"),
    "d": ("bytes", f"{_CONNECT}.Decimal"), "b": ("bytes", None), "op": ("string", None),
    "z": ("string", f"{_TIME}.ZonedTimestamp"), "g": ("struct", "io.debezium.data.geometry.Point"),
    "nt": ("int64", f"{_TIME}.NanoTime"),
}  # fmt: skip
_TEXTS: Final = ("", "c", 'q"q', "\\", "中文,", "<b>&", "\x00\x1f", "😀", "{}", "null", "AAE=")
_VALUES: Final = {
    f"{_TIME}.IsoTimestamp": ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05.6Z", "2020"),
    f"{_TIME}.ZonedTimestamp": ("2020-01-02T03:04:05Z",),
    "boolean": (True, False),
    "double": (0.0, 1e300, -2.5, 3, 1e-7, -0.0),
    "int64": (0, 1, -1, 2**63 - 1, -(2**63), 123_456_789),
    "string": _TEXTS,
    "bytes": _TEXTS,
}


def text_of(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class RandomRows:
    def __init__(self, seed: int, dialect: str | None = None) -> None:
        self.random = random.Random(seed)
        self.dialect = dialect or self.random.choice(DIALECTS)
        self.is_ticdc = self.dialect.startswith("ticdc")
        self.has_schema = not self.dialect.endswith("noschema")
        self.numbered = not self.is_ticdc
        others = self.random.sample([name for name in _KINDS if name != "id"], 5)
        self.tables = {name: ["id", *others[at : at + 4]] for at, name in enumerate(("t", "u ü"))}
        self.has_key = self.random.random() < 0.8

    def value(self, name: str) -> Any:
        dice = self.random
        if name != "id" and dice.random() < 0.2:
            return None
        if dice.random() < 0.02:  # of another kind than the schema says
            return dice.choice((7, -1, True, "x", 1.5, 0))
        kind, named = _KINDS[name]
        if name in ("d", "g"):
            text = base64.b64encode(dice.randbytes(dice.choice((1, 2, 7, 8, 8, 9, 17)))).decode()
            return text if name == "d" else {"wkb": text, "srid": None}
        if named is None or kind == "string":
            return dice.choice(_VALUES[named or kind])
        far = (10**17, -(10**17), 253_402_300_799_999_999, 253_402_300_800_000_000)
        near = (0, 1_000, 1_577_934_245_000, 1_577_934_245_000_123, -62_135_596_800_000, -1)
        return dice.choice(far if dice.random() < 0.05 else near)

    def side(self, table: str) -> dict[str, Any]:
        return {name: self.value(name) for name in self.tables[table]}

    def schema(self, table: str) -> dict[str, Any]:
        fields = []
        for name in self.tables[table]:
            kind, named = _KINDS[name]
            more = {} if named is None else {"name": named, "version": 1}
            if name == "d":
                more["parameters"] = {"scale": "2", "connect.decimal.precision": "10"}
            fields.append({"type": kind, "optional": True, **more, "field": name})
        sides = [
            {"type": "struct", "fields": fields, "optional": True, "field": side}
            for side in ("before", "after")
        ]
        return {"type": "struct", "fields": sides, "optional": False, "name": f"x.{table}.Value"}

    def source(self, table: str, number: int) -> dict[str, Any]:
        dice = self.random
        ms = 1_795_275_665_745 + number
        if self.is_ticdc:
            return {
                "version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": ms,
                "snapshot": "false", "db": "shop", "table": table, "server_id": 0, "gtid": None,
                "file": "", "pos": 0, "row": 0, "thread": 0, "query": None,
                "commit_ts": TS + number, "cluster_id": "default",
            }  # fmt: skip
        return {
            "version": "3.0.0.Final", "connector": "mysql", "name": "x", "ts_ms": ms,
            "snapshot": dice.choice(("false", "false", "first")), "db": "shop", "sequence": None,
            "ts_us": ms * 1_000, "table": table, "server_id": 1, "gtid": f"0-1-{number}",
            "file": "binlog.000001", "pos": 4 * number, "row": dice.randrange(3),
            "thread": dice.choice((None, 5)), "query": None,
        }  # fmt: skip

    def row(self, number: int) -> bytes | None:
        dice = self.random
        table = "t" if self.numbered or dice.random() < 0.7 else "u ü"
        op = dice.choice("ccuudr" if self.numbered else "ccuud")
        before = self.side(table) if op in "ud" else None
        if op == "u" and dice.random() < 0.1:
            before = None
        after = None if op == "d" else self.side(table)
        sides = {"before": before, "after": after}
        if op == "u" and before is None and self.is_ticdc:  # without output-old-value
            del sides["before"]
        head = {"source": self.source(table, number)}
        tail = {"ts_ms": 1_795_275_665_799, "transaction": None, "op": op}
        payload = {**head, **tail, **sides} if self.is_ticdc else {**sides, **head, **tail}
        inner = {"id": (after or before or {}).get("id")}
        key: Any = inner
        value: Any = payload
        if self.has_schema:
            told = {"type": "struct", "name": f"x.{table}.Key"}
            key, value = self.whole(inner, told), self.whole(payload, self.schema(table))
        elif self.is_ticdc:
            key, value = {"payload": inner}, {"payload": payload}
        return with_key(text_of(key) if self.has_key else None, text_of(value))

    def whole(self, payload: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
        members = {"payload": payload, "schema": schema}
        return members if self.is_ticdc else dict(reversed(members.items()))

    def other(self, number: int) -> bytes | None:
        """A watermark or a tombstone."""
        if self.numbered:
            return with_key(b'{"id":1}', None)
        source = self.source("", number) | {"db": ""}
        return with_key(b'{"payload":{}}', text_of({"payload": {"source": source, "op": "m"}}))

    def messages(self, count: int) -> list[bytes | None]:
        return [
            self.other(number) if self.random.random() < 0.03 else self.row(number)
            for number in range(count)
        ]

    def mutated(self, value: bytes) -> bytes | None:
        """With something wrong, perhaps."""
        dice, data = self.random, bytearray(value)
        at, kind = dice.randrange(len(data)), dice.randrange(7)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            del data[at : at + dice.randrange(1, 30)]
        elif kind == 2:
            more = (b'"', b"\\", b"}", b"{", b"\x00", b"null", b"1e", b",", b"-", bytes(data))
            data[at:at] = dice.choice(more)
        elif kind == 3:
            names = (b"after", b"before", b"source", b"op", b"payload", b"schema", b"commit_ts",
                     b"table", b"id", b"null", b"0", b"false", b'"')  # fmt: skip
            other = dice.choice((b"x", b"op", b"after", b"", b'ddl":1,"a', b"01", b"1.", b"tru"))
            data = bytearray(data.replace(dice.choice(names), other, dice.randrange(1, 3)))
        elif kind == 4:
            return dice.choice((None, b"", b"{}", b"\0\0\0\0{}", dice.randbytes(40)))
        elif kind == 5:
            data[at] ^= 1 << dice.randrange(8)
        else:  # amid the row, not in what is alike
            begin = max(data.find(b'"after"'), 0)
            at = min(len(data) - 1, begin + dice.randrange(120))
            data[at : at + 1] = dice.choice((b"", b"0", b'"', b",", b"\\n", b"e", b".", b"n"))
        return bytes(data)


def numbered(values: Sequence[bytes | None]) -> Messages:
    """With a commit-ts for each, as their reader gives it."""
    made = chunk(values)
    return Messages(
        part=made.part,
        positions=made.positions,
        values=made.values,
        commit_ts=pa.array(range(TS, TS + len(values)), pa.int64()),
    )


def read(
    values: Sequence[bytes | None], tables: Wanted, *, is_numbered: bool = False
) -> list[Block]:
    return list(decode(numbered(values) if is_numbered else chunk(values), tables))
