"""What Spark runs on an executor: the task of a work list. Neither Spark nor gRPC in it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaException

from coordination.model import TableName
from streaming.protocols.contract import BLOCK, Block, Decoder, Wanted, WantedTable, to_batch
from streaming.source.consumer import Settings, consumer_for, discard
from streaming.source.ranges import OffsetRange
from streaming.source.reading import TASK_BYTES, ReadError, read_list

BATCH_BYTES: Final = 32 << 20  # of bodies that travel together
# Kinds of a row that is no block: why the list could not be read. A task that raises is tried again
# by Spark, which cannot tell what is worth it, and brings a stack trace through two languages.
UNREADABLE: Final = "unreadable"  # the driver asks the broker what is the matter
FAILED: Final = "failed"

_plain = attrgetter(*(each.name for each in fields(OffsetRange)))


@dataclass(frozen=True, slots=True)
class ReadTask:
    """For ``mapInArrow`` over the numbers of work lists."""

    settings: Settings = field(repr=False)  # a password may be in them
    lists: Sequence[Sequence[OffsetRange]]
    decode: Decoder
    wanted: Wanted
    budget_bytes: int = TASK_BYTES

    def __reduce__(self) -> tuple[Callable[..., ReadTask], tuple[Any, ...]]:
        """In tuples: thousands of small objects take Spark's pickler several times as long."""
        lists = [[_plain(each) for each in work] for work in self.lists]
        wanted = [
            (name.schema, name.table, each.above_ts, each.key) for name, each in self.wanted.items()
        ]
        plain = pickle.dumps((lists, wanted))
        return _task, (self.settings, plain, self.decode, self.budget_bytes)

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)  # the other cores have tasks of their own
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                if ranges := self.lists[number]:
                    yield from self.read(ranges)

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Rows of ``contract.BLOCK``; after an error a row of UNREADABLE or FAILED ends them."""
        consumer = None
        try:
            consumer = consumer_for(self.settings, ranges)
            for blocks in read_list(consumer, ranges, self.decode, self.wanted, self.budget_bytes):
                yield from _batches(blocks)
        except Exception as error:  # noqa: BLE001  # raised again in the driver
            if consumer is not None:
                discard(consumer)
            kind = UNREADABLE if isinstance(error, ReadError | KafkaException) else FAILED
            yield _failure(kind, error)


def _task(settings: Settings, plain: bytes, decode: Decoder, budget_bytes: int) -> ReadTask:
    lists, wanted = pickle.loads(plain)
    return ReadTask(
        settings,
        [[OffsetRange(*each) for each in work] for work in lists],
        decode,
        {
            TableName(schema, table): WantedTable(above_ts=above_ts, key=key)
            for schema, table, above_ts, key in wanted
        },
        budget_bytes,
    )


def _batches(blocks: Sequence[Block]) -> Iterator[pa.RecordBatch]:
    """Together, but for large ones."""
    if sum(len(each.body or b"") for each in blocks) <= BATCH_BYTES:
        if blocks:
            yield to_batch(blocks)
    else:
        yield from (to_batch([each]) for each in blocks)


def _failure(kind: str, error: Exception) -> pa.RecordBatch:
    text = str(error) if kind == UNREADABLE else f"{type(error).__name__}: {error}"
    row: Mapping[str, object] = {"kind": kind, "body": text.encode()}
    return pa.RecordBatch.from_pylist([row], schema=BLOCK)
