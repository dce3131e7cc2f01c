"""What an owner holds of what it reads: DDLs and where rows begin, never the rows."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conf.settings import FilterSettings
from coordination.clock import SystemClock
from coordination.model import TableName, Ts
from coordination.watchdog import Watchdog
from streaming.apply.shape import WholeRow
from streaming.cluster.owners_reader import Known, OwnersReader
from streaming.cluster.reads import Offsets, Read
from streaming.filter import TableFilter
from streaming.protocols.contract import Block, Wanted
from streaming.source.ranges import TopicPartition
from streaming.watermark import Watermarks
from tests.streaming.apply.blocks import A, Row, block_of

PARTITIONS = TopicPartition("shop", 0), TopicPartition("shop", 1)
READS = 6
STEP = Watchdog(SystemClock()).watch("the reader", 60.0)


class Body(bytes):
    """Rows of a block; how many of them are in memory."""

    alive = 0
    most = 0

    def __new__(cls, of: bytes) -> Body:
        Body.alive += 1
        Body.most = max(Body.most, Body.alive)
        return super().__new__(cls, of)

    def __del__(self) -> None:
        Body.alive -= 1


def read_of(begin: Offsets, end: Offsets, *rows: Row) -> Read:
    """One block with these rows."""
    block = block_of(rows)
    assert isinstance(block.body, bytes)
    return Read(
        begin=begin,
        end=end,
        position=dict(end),
        watermarks=Watermarks(partitions=frozenset(PARTITIONS)),
        blocks=(replace(block, body=Body(block.body)),),
        job_ms=0.0,
    )


def row(at: int, partition: int = 0, **types: str) -> Row:
    types = {"id": "bigint", **types}
    return Row(
        op="INSERT",
        ts=100 + at,
        data=dict.fromkeys(types, "1"),
        types=types,
        partition=partition,
        offset=at,
    )


class _Made(dict[TableName, Any]):
    """Tables, and what told their columns."""

    def __init__(self) -> None:
        self.told: dict[TableName, Any] = {}

    def schemas(self) -> dict[TableName, Any]:
        return {}

    def make_from_rows(self, name: TableName, told: Any, start: Ts) -> None:  # noqa: ARG002
        self.told[name] = told
        self[name] = SimpleNamespace(name=name)


class Ground:
    """A reader, and its stream: what lies between is read when it is asked for."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.position: Offsets = dict.fromkeys(PARTITIONS, 0)
        self.resolved = Ts(0)
        self.between: Sequence[tuple[Offsets, Offsets, Row]] = ()
        self.asked: list[Offsets] = []
        self.known: list[Known] = []
        self.failures: list[BaseException] = []
        self.spans = _Made()
        self.buried: list[Block] = []
        nothing: Any = SimpleNamespace(check=lambda: None, add_messages=self.buried.extend)
        rows: Any = SimpleNamespace(
            spans=self.spans,
            dead_letters=nothing,
            row=SimpleNamespace(start_ts=0, checkpoint_ts=0),
        )
        context: Any = SimpleNamespace(
            filter=TableFilter(FilterSettings()), trust=nothing, stream=self
        )
        self.reader = OwnersReader(
            context, rows, on_known=self.known.append, on_failed=self.failures.append
        )

    def wake(self) -> None:
        pass

    def resolved_ts(self) -> Ts:
        return self.resolved

    def read_between(self, begin: Offsets, _end: Offsets, _wanted: Wanted) -> Iterator[Read]:
        self.asked.append(begin)
        return (read_of(*each) for each in self.between)

    def backlog(self) -> None:
        """Reads of the first partition, a row in each."""
        first, _ = PARTITIONS
        self.between = [({first: at}, {first: at + 1}, row(at)) for at in range(READS)]

    def resolve(self) -> Known:
        self.resolved = Ts(1_000)
        self.reader.apply_due()
        assert not self.failures
        return self.known[-1]


@pytest.fixture
def ground() -> Ground:
    gc.collect()
    Body.alive = Body.most = 0
    return Ground()


def test_what_lies_before_is_held_read_by_read(ground: Ground) -> None:
    ground.backlog()
    ground.reader.submit(dict.fromkeys(PARTITIONS, READS))
    ground.reader.catch_up(dict.fromkeys(PARTITIONS, 0), STEP)
    assert 0 < Body.most <= 2  # one is asked for while the one before still has its name
    (made,) = ground.resolve().made
    assert made.low_water[PARTITIONS[0]] == 0


def test_no_read_of_the_stream_is_held_until_the_reader_has_caught_up(ground: Ground) -> None:
    first, second = PARTITIONS
    ground.reader.submit({first: READS, second: 0})
    for at in range(READS, 2 * READS):
        ground.reader.take(read_of({first: at}, {first: at + 1, second: 0}, row(at)))
    assert Body.alive == 0
    ground.resolved = Ts(1_000)
    ground.reader.apply_due()
    assert not ground.known, "nothing is known while a part is missing"

    ground.backlog()
    ground.reader.catch_up({first: 0, second: 0}, STEP)
    (made,) = ground.resolve().made
    assert made.low_water == {first: 0, second: 0}


def test_of_a_table_that_nobody_made_the_newest_whole_row_alone_is_held(ground: Ground) -> None:
    first, _ = PARTITIONS
    here = dict.fromkeys(PARTITIONS, 0)
    ground.reader.submit(here)
    ground.reader.catch_up(here, STEP)
    ground.reader.take(read_of({first: 0}, dict.fromkeys(PARTITIONS, READS), row(0)))
    rows = [row(at, **({"w": "int"} if at == READS - 2 else {})) for at in range(READS)]
    rows[-2] = replace(rows[-2], ts=900)
    rows[0] = replace(rows[0], ts=1_001, data={"x": "1"}, types={"x": "int"})  # not resolved yet
    ground.between = [({first: at}, {first: at + 1}, each) for at, each in enumerate(rows)]

    (made,) = ground.resolve().made

    assert made.table.name == A
    assert ground.spans.told[A] == WholeRow({"id": "bigint", "w": "int"}, ("id",))
    assert 0 < Body.most <= 2


def test_rows_of_an_unknown_table_are_looked_for_in_every_partition_that_has_some(
    ground: Ground,
) -> None:
    """What was read beside the stream tells of the partitions alone that were read."""
    first, second = PARTITIONS
    ground.reader.submit({first: READS, second: 0})
    ground.backlog()
    ground.reader.catch_up({first: 0}, STEP)
    later = row(READS, partition=1)
    ground.reader.take(read_of({second: 3}, {first: READS, second: 4}, later))
    (made,) = ground.resolve().made
    assert made.low_water == ground.asked[-1] == {first: 0, second: 3}
