"""For tests of reading: a decoder that tells which messages it was given, and a task that does not
wait long for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from streaming.protocols.contract import Block, Kind, Messages, Wanted, ipc
from streaming.source.kafka import read_ranges
from streaming.source.kafka.read_ranges import size_of
from streaming.source.kafka.read_task import ReadTask
from streaming.source.task_results import ReadFailure

FAIL = b"fail"  # what no decoder may do


def decode(messages: Messages, wanted: Wanted) -> Iterator[Block]:  # noqa: ARG001
    """One BAD block of all messages."""
    if FAIL in messages.values.to_pylist():
        raise ValueError("a decoder that fails")
    columns = {"offset": messages.positions, "value": messages.values.cast(pa.large_binary())}
    yield Block(
        kind=Kind.BAD,
        part=messages.part,
        rows=len(messages),
        first=messages.positions[0].as_py(),
        last=messages.positions[-1].as_py(),
        message_bytes=size_of(messages.values),
        body=ipc(pa.table(columns)),
    )


class ImpatientTask:
    """A ReadTask that gives up after a second."""

    def __init__(self, *arguments: Any) -> None:
        self._task = ReadTask(*arguments)

    def __call__(self, number: int) -> Iterator[Block | ReadFailure]:
        with patch.object(read_ranges, "NO_PROGRESS_S", 1.0):
            yield from self._task(number)


def decoded(blocks: Sequence[Block], partition: int = 0) -> list[tuple[int, bytes | None]]:
    """The messages of a partition, as they came."""
    return [
        (row["offset"], row["value"])
        for block in blocks
        if block.kind is Kind.BAD and block.part.endswith(f"/{partition}")
        for row in block.table().to_pylist()
    ]


def done(blocks: Sequence[Block], partition: int = 0) -> Block:
    """Of the only range of a partition."""
    (found,) = (
        each for each in blocks if each.kind is Kind.DONE and each.part.endswith(f"/{partition}")
    )
    return found
