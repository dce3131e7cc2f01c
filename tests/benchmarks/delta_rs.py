"""delta-rs in its best honest form: confluent-kafka, pyarrow.json, merge, decode and merge side
by side.

A thread polls and decodes the next batch (C++: JSON, group-by, casts) while the main thread
merges this one; handles are kept; offsets ride along as transaction identities. What it lacks
beside the product: DDL, a fence, one state of all tables, any schema but this one. Runs as
``python -m tests.benchmarks.delta_rs``.
"""

from __future__ import annotations

import argparse
import gc
import json
import queue
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from confluent_kafka import Consumer, TopicPartition
from deltalake import CommitProperties, DeltaTable, Transaction

from tests.benchmarks.measure import tell
from tests.benchmarks.rows import SCHEMA

_MESSAGE = pa.schema(
    [
        ("database", pa.string()),
        ("table", pa.string()),
        ("type", pa.string()),
        ("data", pa.list_(pa.struct([(name, pa.string()) for name in SCHEMA.names]))),
    ]
)
_PARSE = pj.ParseOptions(
    explicit_schema=_MESSAGE, newlines_in_values=False, unexpected_field_behavior="ignore"
)
_READ = pj.ReadOptions(use_threads=True, block_size=8 << 20)
_ROW_TYPES = pa.array(["INSERT", "UPDATE", "DELETE"])
_POLL_S = 0.05  # following: what came in this time is a batch


@dataclass(frozen=True, slots=True)
class Batch:
    """The last change per key of each table, and where reading stands after it."""

    changes: dict[str, pa.Table]
    end: dict[int, int]


def decode(values: list[bytes]) -> dict[str, pa.Table]:
    """canal-json to the last change per table and key: SCHEMA's columns and ``op``."""
    read = pj.read_json(pa.BufferReader(b"\n".join(values)), _READ, _PARSE).combine_chunks()
    read = read.filter(pc.is_in(read.column("type"), _ROW_TYPES))
    data = pa.chunked_array(
        [chunk.flatten() for chunk in read.column("data").chunks],
        type=_MESSAGE.field("data").type.value_type,
    )
    keyed = pa.table(
        {
            "table": read.column("table"),
            "id": pc.cast(pc.struct_field(data, "id"), pa.int64()),
            "n": np.arange(read.num_rows),
        }
    )
    last = keyed.group_by(["table", "id"]).aggregate([("n", "max")]).column("n_max")
    read, data = read.take(last), data.take(last)
    rows = pa.table(
        [pc.cast(pc.struct_field(data, f.name), f.type) for f in SCHEMA] + [read.column("type")],
        names=[*SCHEMA.names, "op"],
    )
    tables = read.column("table")
    names = pc.unique(tables).to_pylist()
    if len(names) == 1:
        return {names[0]: rows}
    return {name: rows.filter(pc.equal(tables, name)) for name in names}


class Reader(threading.Thread):
    """Polls and decodes one batch ahead. In the queue ``None`` is the end, an error its cause."""

    def __init__(self, args: argparse.Namespace, stop: threading.Event) -> None:
        super().__init__(name="reader", daemon=True)
        self._args, self._stop_event = args, stop
        self.batches: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=1)
        self._next = {int(p): o for p, o in json.loads(args.start).items()}
        self._ends = {int(p): o for p, o in json.loads(args.end).items()} if args.end else None

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self.batches.put(error)
        else:
            self.batches.put(None)

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._args.bootstrap,
                "group.id": "delta-rs",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 8 << 20,
                "fetch.max.bytes": 64 << 20,
                "fetch.wait.max.ms": 20,
                "fetch.queue.backoff.ms": 20,  # the default is a second without fetching
                "queued.min.messages": 200_000,
                "queued.max.messages.kbytes": 256 << 10,
            }
        )
        consumer.assign([TopicPartition(self._args.topic, p, o) for p, o in self._next.items()])
        while not self._stop_event.is_set() and not self._at_end():
            values = self._poll(consumer)
            if values:
                self.batches.put(Batch(decode(values), dict(self._next)))
        consumer.close()

    def _poll(self, consumer: Consumer) -> list[bytes]:
        """Up to a batch of messages; the next offsets move with them."""
        values: list[bytes] = []
        while len(values) < self._args.batch and not self._at_end():
            got = consumer.consume(
                min(self._args.batch - len(values), 50_000), _POLL_S if self._ends is None else 0.5
            )
            for message in got:
                if message.error():
                    raise RuntimeError(str(message.error()))
                values.append(message.value())
                self._next[message.partition()] = message.offset() + 1
            if self._ends is None and not (values and len(got) == 50_000):
                break
        return values

    def _at_end(self) -> bool:
        return self._ends is not None and all(self._next[p] >= o for p, o in self._ends.items())


def merge(table: DeltaTable, changes: pa.Table, end: dict[int, int]) -> None:
    """One commit. Key bounds and an unstreamed source were 10 to 30 % better than the defaults."""
    bounds = pc.min_max(changes.column("id"))
    values: dict[str, Any] = {f'"{name}"': f's."{name}"' for name in SCHEMA.names}
    (
        table.merge(
            changes,
            f"t.id = s.id AND t.id BETWEEN {bounds['min']} AND {bounds['max']}",
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(f"bench-{p}", offset) for p, offset in end.items()]
            ),
        )
        .when_matched_delete("s.op = 'DELETE'")
        .when_matched_update(values)
        .when_not_matched_insert(values, "s.op <> 'DELETE'")
        .execute()
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "warehouse"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--tables", required=True, type=lambda text: text.split(","))
    parser.add_argument("--start", required=True, help="JSON: partition -> first offset")
    parser.add_argument("--end", help="JSON: partition -> offset to end before; else follow")
    parser.add_argument("--batch", type=int, default=200_000)
    parser.add_argument("--threads", type=int, default=2, help="tables merged side by side")
    args = parser.parse_args()
    gc.disable()
    handles = {name: DeltaTable(f"{args.warehouse}/shop/{name}") for name in args.tables}
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    tell("ready")
    reader = Reader(args, stop)
    reader.start()
    number = 0
    with ThreadPoolExecutor(args.threads) as pool:
        while (batch := reader.batches.get()) is not None:
            if isinstance(batch, BaseException):
                raise batch
            work = [(name, rows) for name, rows in batch.changes.items() if name in handles]
            if len(work) == 1:
                merge(handles[work[0][0]], work[0][1], batch.end)
            else:
                list(pool.map(lambda w, end=batch.end: merge(handles[w[0]], w[1], end), work))
            tell("applied", batch=number)
            tell("read", batch=number, end=batch.end)
            number += 1


if __name__ == "__main__":
    main()
