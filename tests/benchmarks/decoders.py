"""``python -m tests.benchmarks.decoders``: the same changes in several protocols, decoded alone.

A process's own seconds, the least of some tries. Beside avro stands fastavro, if it is installed:
it makes dicts of Python, which are then made Arrow.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from coordination.model import TableName, Ts
from streaming.protocols.avro.decoder import decode as decode_avro
from streaming.protocols.canal_json.decoder import decode as decode_canal_json
from streaming.protocols.contract import Block, Messages, Wanted, WantedTable
from streaming.protocols.simple.decoder import decode as decode_simple
from tests.benchmarks import messages as canal_json
from tests.benchmarks.printing import new_table, number
from tests.benchmarks.rows import CHANGING, SCHEMA, Cells
from tests.benchmarks.workload import DELETE, INSERT, UPDATE
from tests.services.avro_writer import branch, double, long, octets, text
from tests.streaming.protocols.avro.reading import (
    ID,
    KEY,
    VALUE,
    extension,
    field,
    framed,
    message,
    schema,
)
from tests.streaming.protocols.simple import avro_reading as simple_avro

CHANGES = 16_000  # a chunk
TRIES = 7
NAME = TableName("shop", "t")
KINDS = {
    "id": "BIGINT",
    "cust": "BIGINT",
    "amount": "DECIMAL",
    "name": "TEXT",
    "ts": "DATETIME",
    "status": "TEXT",
    "note": "TEXT",
    "flag": "INT",
    "x": "DOUBLE",
    "ver": "INT",
}
OPS = {INSERT: "INSERT", UPDATE: "UPDATE", DELETE: "DELETE"}
VALUE_HEAD = framed(VALUE, b"")
Decode = Callable[[Messages, Wanted], Sequence[Block]]


class Changes:
    """The same changes for all protocols."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.ids = np.arange(CHANGES) + 1
        self.vers = rng.integers(1, 9, CHANGES)
        self.ops = rng.choice([INSERT, UPDATE, DELETE], CHANGES, p=[0.4, 0.55, 0.05])
        self.commits = canal_json.commit_ts(0, CHANGES)
        new, old = Cells(self.ids, self.vers), Cells(self.ids, self.vers - 1)
        self.new = {n: [each.decode() for each in new.text(n)] for n in SCHEMA.names}
        changed = {n: [each.decode() for each in old.text(n)] for n in CHANGING}
        self.old = self.new | changed

    def canal_json(self) -> list[bytes]:
        told = self.ids, self.vers, self.ops, self.commits
        made = canal_json.encode(*told, schema="shop", tables=np.full(CHANGES, b"t"))
        return list(made)

    def simple_avro(self) -> list[bytes]:
        dice = random.Random(1)

        def values(of: dict[str, list[str]], at: int) -> dict[str, bytes]:
            names = [*SCHEMA.names]
            dice.shuffle(names)  # as Go's maps are
            return {name: _simple(name, of[name][at]) for name in names}

        made = []
        for at, kind in enumerate(OPS[each] for each in self.ops.tolist()):
            data = None if kind == "DELETE" else values(self.new, at)
            old = None if kind == "INSERT" else values(self.old, at)
            made.append(simple_avro.row(kind, int(self.commits[at]), data=data, old=old))
        return made

    def avro(self) -> list[bytes]:
        made = []
        for at, kind in enumerate(self.ops.tolist()):
            key, ts = framed(KEY, long(int(self.ids[at]))), int(self.commits[at])
            if kind == DELETE:
                made.append(message(key, b"\x03" + ts.to_bytes(8, "big")))
                continue
            row = b"".join(_value(name, self.new[name][at]) for name in SCHEMA.names)
            data = row + extension("c" if kind == INSERT else "u", ts)
            made.append(message(key, framed(VALUE, data)))
        return made


def _simple(name: str, value: str) -> bytes:
    if KINDS[name] in ("BIGINT", "INT"):
        return simple_avro.whole(int(value))
    if KINDS[name] == "DOUBLE":
        return branch(3, double(float(value)))
    return simple_avro.of_text(value)


def _value(name: str, value: str) -> bytes:
    kind = KINDS[name]
    if kind in ("BIGINT", "INT"):
        made = long(int(value))
    elif kind == "DOUBLE":
        made = double(float(value))
    elif kind == "DECIMAL":
        whole = int(Decimal(value).scaleb(2))
        made = octets(whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True))
    else:
        made = text(value)
    return made if name == "id" else branch(1, made)


def schemas() -> dict[int, str]:
    digits = {"amount": {"precision": 18, "scale": 2}}
    fields = [
        field(name, kind, nullable=name != "id", **digits.get(name, {}))
        for name, kind in KINDS.items()
    ]
    return {KEY: schema([ID], is_key=True), VALUE: schema(fields)}


def micros(work: Callable[[], object]) -> float:
    """CPU-µs a message."""
    best = float("inf")
    for _ in range(TRIES):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return 1e6 * best / CHANGES


def decoded(decode: Decode, values: Sequence[bytes]) -> float:
    wanted: Wanted = {NAME: WantedTable(above_ts=Ts(0), key=("id",))}
    positions = pa.array(np.arange(len(values)))
    chunk = Messages(part="t/0", positions=positions, values=pa.array(values, pa.binary()))
    assert sum(each.rows for each in decode(chunk, wanted)) == CHANGES
    return micros(lambda: list(decode(chunk, wanted)))


def by_fastavro(values: Sequence[bytes], *, as_arrow: bool) -> float:
    fastavro: Any = import_module("fastavro")
    parsed = fastavro.parse_schema(json.loads(schemas()[VALUE]))
    head = 4 + len(framed(KEY, b"")) + 5
    rows = [
        each[head + len(long(at + 1)) :] for at, each in enumerate(values) if b"\0\0\0\2" in each
    ]

    def work() -> None:
        dicts = [fastavro.schemaless_reader(io.BytesIO(each), parsed) for each in rows]
        if as_arrow:
            pa.Table.from_pylist(dicts)

    return micros(work)


def main() -> None:
    changes = Changes()
    avro = changes.avro()
    decode = partial(decode_avro, schemas=schemas())
    table = new_table("Decoding, ten columns", "contender", "bytes", "CPU-µs a message")
    for name, of, values in (
        ("canal-json", decode_canal_json, changes.canal_json()),
        ("simple, Avro", decode_simple, changes.simple_avro()),
        ("avro", decode, avro),
    ):
        size = sum(map(len, values)) / CHANGES
        table.add_row(name, number(size, 0), number(decoded(of, values)))
    if find_spec("fastavro") is not None:
        table.add_row("fastavro, dicts", "", number(by_fastavro(avro, as_arrow=False)))
        table.add_row("fastavro, Arrow", "", number(by_fastavro(avro, as_arrow=True)))
    Console().print(table)


if __name__ == "__main__":
    main()
