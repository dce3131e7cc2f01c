"""What Spark runs on an executor: the task of a work list. Neither Spark nor gRPC in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from streaming.protocols.contract import BLOCK, Block, Decoder, Wanted, to_batch
from streaming.source.consumer import Settings, consumer_for, discard
from streaming.source.ranges import Range
from streaming.source.reading import TASK_BYTES, ReadError, read_list

BATCH_BYTES: Final = 32 << 20  # of bodies that travel together
# Kinds of a row that is no block: why the list could not be read. A task that raises is tried again
# by Spark, which cannot tell what is worth it, and brings a stack trace through two languages.
UNREADABLE: Final = "unreadable"  # the driver asks the broker what is the matter
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class ReadTask:
    """For ``mapInArrow`` over the numbers of work lists."""

    settings: Settings
    lists: Sequence[Sequence[Range]]
    decode: Decoder
    wanted: Wanted
    budget_bytes: int = TASK_BYTES

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)  # the other cores have tasks of their own
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                if ranges := self.lists[number]:
                    yield from self.read(ranges)

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Rows of ``contract.BLOCK``; after an error a row of UNREADABLE or FAILED ends them."""
        consumer = None
        try:
            consumer = consumer_for(self.settings, ranges)
            for blocks in read_list(consumer, ranges, self.decode, self.wanted, self.budget_bytes):
                yield from _batches(blocks)
        except Exception as error:  # noqa: BLE001  # raised again in the driver
            if consumer is not None:
                discard(consumer)
            kind = UNREADABLE if isinstance(error, ReadError) else FAILED
            yield _failure(kind, error)


def _batches(blocks: Sequence[Block]) -> Iterator[pa.RecordBatch]:
    """Together, but for large ones."""
    if sum(len(each.body or b"") for each in blocks) <= BATCH_BYTES:
        if blocks:
            yield to_batch(blocks)
    else:
        yield from (to_batch([each]) for each in blocks)


def _failure(kind: str, error: Exception) -> pa.RecordBatch:
    text = str(error) if isinstance(error, ReadError) else f"{type(error).__name__}: {error}"
    row: Mapping[str, object] = {"kind": kind, "body": text.encode()}
    return pa.RecordBatch.from_pylist([row], schema=BLOCK)
