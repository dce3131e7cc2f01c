"""What Spark runs on an executor: the task of a work list. Neither Spark nor gRPC in it."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException

from coordination.model import TableName
from streaming.protocols.contract import Block, Decoder, Wanted, WantedTable
from streaming.source.consumer import Settings, consumer_for, discard
from streaming.source.ranges import OffsetRange
from streaming.source.reading import TASK_BYTES, ReadError, read_list

_plain = attrgetter(*(each.name for each in fields(OffsetRange)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """Why a list could not be read to its end. It comes as a result: a task that raises is tried
    again by Spark, which cannot tell what is worth it, and brings a stack trace through two
    languages."""

    is_unreadable: bool  # the driver asks the broker what is the matter
    reason: str


@dataclass(frozen=True, slots=True)
class ReadTask:
    """For ``mapPartitionsWithIndex`` over as many partitions as there are work lists."""

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

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterator[Block | ReadFailure]:
        """The blocks of one list, or what was read of it and a failure."""
        list(nothing)  # Spark keeps a worker only if it has read its input
        _settle()
        yield from self.read(self.lists[number])

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Block | ReadFailure]:
        consumer = None
        try:
            consumer = consumer_for(self.settings, ranges)
            for blocks in read_list(consumer, ranges, self.decode, self.wanted, self.budget_bytes):
                yield from blocks
        except Exception as error:  # noqa: BLE001  # raised again in the driver
            if consumer is not None:
                discard(consumer)
            is_unreadable = isinstance(error, ReadError | KafkaException)
            reason = str(error) if is_unreadable else f"{type(error).__name__}: {error}"
            yield ReadFailure(is_unreadable=is_unreadable, reason=reason)


@cache
def _settle() -> None:
    """Once in each worker. Spark has it collect all garbage after every task: what was imported
    before the first one is no garbage, and to look through it took longer than a small read."""
    pa.set_cpu_count(1)  # the other cores have tasks of their own
    gc.freeze()


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
