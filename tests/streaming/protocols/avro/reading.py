"""Messages as TiCDC writes them in avro, with the schemas that it registers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streaming.protocols.avro.decoder import Schemas, decode
from streaming.protocols.contract import Block, Messages, Wanted, with_key
from tests.services import avro_checksums
from tests.services.avro_writer import boolean, branch, double, long, octets, single, text

FIRST_OFFSET = 100
KEY, VALUE = 1, 2
TS = 470_620_744_121_057_280

# TiDB's type -> Avro's, with what stands beside it.
TYPES: Mapping[str, dict[str, Any]] = {
    "BIGINT": {"type": "long"},
    "INT": {"type": "int"},
    "BIGINT UNSIGNED": {"type": "long"},
    "FLOAT": {"type": "float"},
    "DOUBLE": {"type": "double"},
    "TEXT": {"type": "string"},
    "BLOB": {"type": "bytes"},
    "BIT": {"type": "bytes", "length": "64"},
    "DECIMAL": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
}


def field(name: str, kind: str, *, nullable: bool = False, **more: Any) -> dict[str, Any]:
    of = {**TYPES.get(kind, {"type": "string"}), **more}
    parameters = {"tidb_type": kind, **{n: of.pop(n) for n in ("length", "allowed") if n in of}}
    written = {**of, "connect.parameters": parameters}
    return {"name": name, "type": ["null", written] if nullable else written}


EXTENSION: Sequence[dict[str, Any]] = (
    {"name": "_tidb_op", "type": "string", "default": ""},
    {"name": "_tidb_commit_ts", "type": "long", "default": 0},
    {"name": "_tidb_commit_physical_time", "type": "long", "default": 0},
)


def before(fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The old row of TiCDC's new architecture."""
    told = {"type": "record", "name": "t_before", "fields": [*fields]}
    return {"name": "_ticdc_before", "type": ["null", told]}


def schema(
    fields: Sequence[dict[str, Any]],
    *,
    name: str = "t",
    is_key: bool = False,
    more: Sequence[Mapping[str, Any]] = (),
) -> str:
    every = [*fields, *(() if is_key else EXTENSION), *more]
    told = {"type": "record", "name": name, "namespace": "default.shop", "fields": every}
    return json.dumps(told)


def extension(op: str, ts: int) -> bytes:
    return text(op) + long(ts) + long(ts >> 18)


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


ID, V = field("id", "BIGINT"), field("v", "TEXT", nullable=True)
SCHEMAS: Schemas = {KEY: schema([ID], is_key=True), VALUE: schema([ID, V])}


def row(number: int = 1, v: str | None = "a", *, op: str = "c", ts: int = TS) -> bytes:
    value = branch(0) if v is None else branch(1, text(v))
    data = long(number) + value + extension(op, ts)
    return message(framed(KEY, long(number)), framed(VALUE, data))


def message(key: bytes | None, value: bytes | None) -> bytes:
    made = with_key(key, value)
    assert made is not None
    return made


def deleted(number: int, ts: int | None = None) -> bytes:
    value = None if ts is None else b"\x03" + ts.to_bytes(8, "big")
    return message(framed(KEY, long(number)), value)


def watermark(ts: int) -> bytes:
    return message(None, b"\x02" + ts.to_bytes(8, "big"))


def ddl(ts: int, query: str, *, table: str = "t", kind: int = 5, base: str = "shop") -> bytes:
    told = {"query": query, "type": kind, "schema": base, "table": table, "commitTs": ts}
    return message(None, b"\x01" + json.dumps(told).encode())


def chunk(values: Sequence[bytes | None]) -> Messages:
    """At every third offset from ``FIRST_OFFSET`` on."""
    offsets = range(FIRST_OFFSET, FIRST_OFFSET + 3 * len(values), 3)
    return Messages(
        part="shop_t/1",
        positions=pa.array(offsets, pa.int64()),
        values=pa.array(values, pa.binary()),
    )


def read(values: Sequence[bytes | None], tables: Wanted, schemas: Schemas = SCHEMAS) -> list[Block]:
    return list(decode(chunk(values), tables, schemas=schemas))


class RandomRows:
    """Rows of a random schema, and what they become by a mistake."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        kinds = [*TYPES, "ENUM", "JSON", "DATETIME"]
        self.fields = [
            field(f"c{n}", self.random.choice(kinds), nullable=self.random.random() < 0.5)
            for n in range(6)
        ]
        self.has_sums = self.random.random() < 0.3
        self.has_before = self.random.random() < 0.3
        extras = [before([ID, *self.fields])] if self.has_before else []
        sums = avro_checksums.EXTENSION if self.has_sums else ()
        self.schemas: Schemas = {
            KEY: schema([ID], is_key=True),
            VALUE: schema([ID, *self.fields, *extras], more=sums),
            3: None,
            4: "{}",
        }

    def value(self, of: dict[str, Any]) -> bytes:
        dice, kind = self.random, of["type"]
        if isinstance(kind, list):
            return branch(0) if dice.random() < 0.2 else branch(1, self.value({"type": kind[1]}))
        number = dice.choice((0, -1, 63, 2**31 - 1, -(2**31)))
        return {
            "long": long(dice.choice((number, 2**63 - 1, -(2**63)))),
            "int": long(number),
            "float": single(1.5),
            "double": double(-0.1),
            "string": text(dice.choice(("", "中文", "x" * 70))),
            "bytes": octets(dice.randbytes(dice.randrange(1, 9))),
        }[kind["type"]]

    def columns(self) -> bytes:
        return b"".join(self.value(each) for each in self.fields)

    def message(self) -> bytes:
        dice = self.random
        kind, ts = dice.random(), TS + dice.randrange(10**6)
        if kind < 0.1:
            return deleted(dice.randrange(9), ts if dice.random() < 0.5 else None)
        if kind < 0.15:
            return watermark(ts)
        if kind < 0.18:
            return ddl(ts, "ALTER TABLE t ADD x INT")
        number = dice.randrange(9)
        data = long(number) + self.columns()
        if self.has_before:
            is_there = dice.random() < 0.5
            data += branch(1, long(dice.randrange(9)) + self.columns()) if is_there else branch(0)
        data += extension(dice.choice("cu"), ts)
        if self.has_sums:
            told = text(dice.choice(("", "0", "7", "4294967295")))
            data += told + boolean(dice.random() < 0.1) + long(1)
        return message(framed(KEY, long(number)), framed(VALUE, data))

    def mutated(self, value: bytes) -> bytes | None:
        """With something wrong, perhaps: ids, lengths and numbers that lie, parts that are gone."""
        dice, data = self.random, bytearray(value)
        at, kind = dice.randrange(len(data)), dice.randrange(7)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            del data[at : at + dice.randrange(1, 30)]
        elif kind == 2:
            data[at:at] = dice.choice((b"\xff" * 12, b"\x80" * 9 + b"\x01", b"\x01", bytes(data)))
        elif kind == 3:
            lies = (b"\x80\x00", b"\xfe\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01")
            data[at : at + 1] = dice.choice(lies)
        elif kind == 4:
            odd = (None, b"", b"\0", b"\xff\xff\xff\xff", dice.randbytes(40), watermark(2**64 - 1))
            return dice.choice(odd)
        elif kind == 5:
            data = data.replace(b"\0\0\0\0\x02", bytes((0, 0, 0, 0, dice.choice((1, 3, 4, 5)))))
        else:
            del data[at:]
        return bytes(data)
