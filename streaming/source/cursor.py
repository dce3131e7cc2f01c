"""How far a range has been read, and what of it is held until it makes a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.contract import Block, Kind, Messages
from streaming.source.ranges import OffsetRange

CHUNK_BYTES: Final = 8 << 20  # of messages that are decoded at once
CHUNK_MESSAGES: Final = 25_000


@dataclass(slots=True)
class Cursor:
    range: OffsetRange
    at: int  # everything before it was handed on
    position: int  # nothing is left between ``at`` and here but what is held
    is_read: bool = False
    passed: bool = False  # messages behind the end were thrown away
    messages: int = 0  # that were handed on
    message_bytes: int = 0
    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)

    @property
    def left(self) -> int:
        """At most so many are still to come."""
        return 0 if self.is_read else max(1, self.range.end - self.position)

    def take(self, offsets: list[int], values: list[bytes | None]) -> None:
        """By rising offset, all of this partition."""
        assert offsets[0] >= self.position, f"{self.range}: {offsets[0]} after {self.position}"
        end = self.range.end
        if offsets[-1] >= end:
            count = next(index for index, each in enumerate(offsets) if each >= end)
            offsets, values = offsets[:count], values[:count]
            self.passed = True
        self.offsets += offsets
        self.values += values
        if offsets:
            self.position = offsets[-1] + 1
        self.is_read |= self.passed or self.position >= end

    def reach(self, position: int) -> bool:
        """Nothing more is before this; returns whether that is news."""
        if self.passed or position <= self.position:
            return False
        self.position = position
        self.is_read |= position >= self.range.end
        return True

    def chunks(self) -> Iterator[Messages]:
        """What is held; a message that is larger than a chunk is one by itself."""
        for first, last in _cuts(self.values):
            self.at = self.offsets[last - 1] + 1
            offsets = pa.array(self.offsets[first:last], pa.int64())
            values = pa.array(self.values[first:last], pa.binary())
            self.messages += len(values)
            self.message_bytes += size_of(values)
            yield Messages(
                topic=self.range.topic,
                partition=self.range.partition,
                offsets=offsets,
                values=values,
            )
        self.offsets, self.values = [], []
        if self.is_read:
            self.at = self.range.end

    def done(self) -> Block:
        return Block(
            kind=Kind.DONE,
            topic=self.range.topic,
            partition=self.range.partition,
            rows=self.messages,
            first=self.range.begin,
            last=self.at,
            message_bytes=self.message_bytes,
        )


def _cuts(values: Sequence[bytes | None]) -> Iterator[tuple[int, int]]:
    ends = np.cumsum([len(each or b"") for each in values], dtype=np.int64)
    first, before = 0, 0
    while first < len(values):
        last = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))
        last = min(max(last, first + 1), first + CHUNK_MESSAGES)
        yield first, last
        first, before = last, int(ends[last - 1])


def size_of(values: pa.Array) -> int:
    """The bytes of an array that is no slice."""
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)
