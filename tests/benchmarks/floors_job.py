"""The process of (d): the steps of the data plane one after the other, three times each, told as
events: wall and CPU seconds (of all its threads).

    consume ► decode ► carry ► cast and last change ► the commit's own parts
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.target.engine_port import TableWrite
from streaming.apply.carry import Carry
from streaming.apply.changes import changes
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.contract import Block, Kind, Messages, WantedTable
from streaming.source.kafka.consumer import READING, WAIT_S
from tests.benchmarks.commit_parts import part_times
from tests.benchmarks.commit_workload import target_at
from tests.benchmarks.measure import tell
from tests.benchmarks.targets import copy_warehouse

REPEATS = 3
CHUNK = 8_000  # messages: 8 MiB, what a task reads before it decodes
BATCH = 200_000  # changes of a commit
RULES = ChangeRules(time_zone="UTC", zero_date="null", protocol="canal-json")
FAR = 2**62


@contextmanager
def timed(step: str, messages: int) -> Iterator[None]:
    """Tell what the block took."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tell("floor", step=step, wall_s=wall, cpu_s=cpu, messages=messages)


class Floors:
    """All steps over one topic and one table."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._name = TableName(args.schema, args.table)
        self._begin = {int(p): o for p, o in json.loads(args.start).items()}
        self._end = {int(p): o for p, o in json.loads(args.end).items()}
        self._messages = sum(self._end.values()) - sum(self._begin.values())

    def run(self) -> None:
        chunks: list[Messages] = []
        for _ in range(REPEATS):
            with timed("consume", self._messages):
                chunks = list(self._consumed())
        blocks: list[Block] = []
        for _ in range(REPEATS):
            with timed("decode", self._messages):
                blocks = [block for chunk in chunks for block in self._decoded(chunk)]
        del chunks
        for number in range(REPEATS):
            self._apply(blocks, self._args.folder / f"floor-{number}")

    def _consumed(self) -> Iterator[Messages]:
        consumer = Consumer(
            {
                **READING,
                "bootstrap.servers": self._args.bootstrap,
                "group.id": "floor",
                "enable.partition.eof": False,
            }
        )
        topic = self._args.topic
        for partition, end in self._end.items():
            at = self._begin[partition]
            consumer.assign([TopicPartition(topic, partition, at)])
            while at < end:
                got = consumer.consume(min(CHUNK, end - at), WAIT_S)
                if got:
                    at = got[-1].offset() + 1
                    positions = pa.array([message.offset() for message in got], pa.int64())
                    values = pa.array([message.value() for message in got], pa.binary())
                    part = f"{topic}/{partition}"
                    yield Messages(part=part, positions=positions, values=values)
        consumer.close()

    def _decoded(self, chunk: Messages) -> Iterator[Block]:
        wanted = {self._name: WantedTable(above_ts=Ts(0), key=("id",))}
        return (block for block in decode(chunk, wanted) if block.kind is Kind.ROW)

    def _apply(self, blocks: list[Block], folder: Path) -> None:
        """By slices of BATCH changes, as they follow each other in time."""
        copy_warehouse(self._args.base, folder / "t")
        target = target_at(folder / "t", "integer")
        engine = MergeOnWriteEngine({}, keeps_up=False)
        carry = Carry(folder=folder)
        with timed("carry", self._messages):
            for block in blocks:
                carry.add(block)
        below, parts = 0, defaultdict(float)
        begun = time.process_time()
        cast_s = 0.0
        with part_times(time.process_time) as times:
            for limit in _limits(blocks):
                started = time.process_time()
                due = carry.due(self._name, below, limit)
                task = TableTask(name=self._name, schema=target.schema, checkpoint=Ts(below))
                rows = changes(task, due, Ts(limit), RULES).rows
                cast_s += time.process_time() - started
                engine.apply(
                    TableWrite(
                        target=target,
                        checkpoint=Ts(below),
                        limit=Ts(limit),
                        changes=rows,
                        user_metadata="{}",
                        before_commit=lambda: None,
                    )
                )
                carry.drop_applied(self._name, limit)
                below = limit
            for part, seconds in times.take().items():
                parts[f"commit: {part}"] += seconds
        whole = time.process_time() - begun
        parts["commit: rest"] = whole - cast_s - sum(parts.values())
        for step, cpu in {"cast and last change per key": cast_s, **parts}.items():
            tell("floor", step=step, wall_s=None, cpu_s=cpu, messages=self._messages)
        carry.close()
        engine.close()


def _limits(blocks: list[Block]) -> Iterator[int]:
    """Commit-ts that part the rows into slices of about BATCH, the last one above all."""
    rows = 0
    by_time = sorted(blocks, key=lambda block: block.max_ts or 0)
    for block in by_time:
        rows += block.rows
        if rows >= BATCH and block is not by_time[-1]:
            yield block.max_ts or 0
            rows = 0
    yield FAR


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "start", "end", "schema", "table"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("folder", "base"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    Floors(parser.parse_args()).run()


if __name__ == "__main__":
    main()
