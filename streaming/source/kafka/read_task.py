"""The task that Spark runs on an executor: read and decode one work list. Imports neither Spark nor
gRPC."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from confluent_kafka import KafkaException

from coordination.model import TableName
from streaming.protocols.contract import Block, Decoder, Kind, Wanted, WantedTable
from streaming.source.body_files import BodyFile
from streaming.source.kafka.consumer import ConsumerConfig, consumer_for, discard
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.read_ranges import TASK_BYTES, ReadError, read_list
from streaming.source.resolved.numbering import NumberedDecoder, Numbering
from streaming.source.task_results import ReadFailure, Result

_plain = attrgetter(*(each.name for each in fields(OffsetRange)))


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A `Task`; its number is that of a work list."""

    settings: ConsumerConfig = field(repr=False)  # a password may be in them
    lists: Sequence[Sequence[OffsetRange]]
    decode: Decoder | NumberedDecoder
    wanted: Wanted
    budget_bytes: int = TASK_BYTES
    folder: str | None = None  # for the bodies of blocks (``BodyFile``)

    def __reduce__(self) -> tuple[Callable[..., ReadTask], tuple[Any, ...]]:
        """Pickle the lists as plain tuples: Spark's pickler takes several times as long for
        thousands of small objects."""
        lists = [[_plain(each) for each in work] for work in self.lists]
        wanted: Any = self.wanted
        if isinstance(wanted, dict):  # else it is asked, and knows how it is pickled
            wanted = [(n.schema, n.table, each.above_ts, each.key) for n, each in wanted.items()]
        plain = pickle.dumps((lists, wanted))
        return _task, (self.settings, plain, self.decode, self.budget_bytes, self.folder)

    def __call__(self, number: int) -> Iterator[Result]:
        """The blocks of work list ``number``; after a failure the blocks read so far, then it."""
        yield from self.read(self.lists[number])

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Result]:
        consumer, bodies, decode = None, BodyFile(self.folder), self.decode
        numbers = None
        if isinstance(decode, NumberedDecoder):
            begin, reads = {each.part: each.begin for each in ranges}, decode.reads
            decode = numbers = decode.started(begin)
            ranges = [
                replace(each, begin=reads.get((each.part, each.begin), each.begin))
                for each in ranges
            ]
        try:
            consumer = consumer_for(self.settings, ranges)
            read = read_list(consumer, ranges, decode, self.wanted, self.budget_bytes)
            for blocks in read:
                found = blocks if numbers is None else _marked(blocks, numbers)
                yield from map(bodies.put, found)
        except Exception as error:
            if consumer is not None:
                discard(consumer)
            if isinstance(error, ImportError):  # by its words the driver knows what executors lack
                raise
            is_unreadable = isinstance(error, ReadError | KafkaException)
            reason = str(error) if is_unreadable else f"{type(error).__name__}: {error}"
            yield ReadFailure(is_unreadable=is_unreadable, reason=reason)
        finally:
            bodies.close()


def _marked(blocks: Iterable[Block], numbers: Numbering) -> Iterator[Block]:
    """With the marks of what was read, which begin where their slices do. One that was read up to
    its begin alone has what lies before."""
    for each in blocks:
        if each.kind is not Kind.DONE:
            yield each
            continue
        begin = numbers.begin[each.part]
        yield numbers.mark(each.part, begin if each.last > begin else each.first, each.last)
        yield replace(each, first=begin)


def _task(
    settings: ConsumerConfig,
    plain: bytes,
    decode: Decoder | NumberedDecoder,
    budget_bytes: int,
    folder: str | None,
) -> ReadTask:
    lists, wanted = pickle.loads(plain)
    return ReadTask(
        settings,
        [[OffsetRange(*each) for each in work] for work in lists],
        decode,
        {
            TableName(schema, table): WantedTable(above_ts=above_ts, key=key)
            for schema, table, above_ts, key in wanted
        }
        if isinstance(wanted, list)
        else wanted,
        budget_bytes,
        folder,
    )
