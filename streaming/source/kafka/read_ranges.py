"""Read a work list and decode it chunk by chunk: the work of a task, without Spark.

A range has been read when a message at or behind its end comes, when the partition ends there, or
when the consumer's position has passed its end. It is not enough to wait for the range's last
offset: transaction markers and messages that compaction removed are never delivered.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from streaming.protocols.clocks import LATEST_MS, latest_ts
from streaming.protocols.contract import (
    Block,
    Decoder,
    Kind,
    Messages,
    Wanted,
    reads_keys,
    reads_times,
    with_key,
)
from streaming.source.kafka.consumer import RangeConsumer
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.topic_partition import TopicPartition

# The messages that are decoded at once. Large, since each table in a chunk costs some milliseconds
# besides its rows.
CHUNK_BYTES: Final = 16 << 20
CHUNK_MESSAGES: Final = 50_000
SIDE_BY_SIDE: Final = 1_000  # ranges of at most so many messages are read at the same time
TASK_BYTES: Final = 64 << 20  # a task's budget: it stops after so many bytes of messages
NO_PROGRESS_S: Final = 30.0

# Errors that librdkafka does not try again, or that trying again does not mend soon.
_FINAL: Final = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._LOG_TRUNCATION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
}


class ReadError(Exception):
    """A range cannot be read now. The driver asks the broker whether it can be read at all."""

    def __init__(self, unread: OffsetRange, offset: int, reason: str) -> None:
        super().__init__(
            f"topic {unread.topic} partition {unread.partition} offset {offset}: {reason}"
        )


def read_list(
    consumer: RangeConsumer,
    ranges: Sequence[OffsetRange],
    decode: Decoder,
    wanted: Wanted,
    budget_bytes: int = TASK_BYTES,
) -> Iterator[list[Block]]:
    """The blocks of these ranges, one list per chunk; the last list has a DONE block per range.

    The next read takes the messages beyond the budget: the ``last`` of a DONE block says how far
    its range was read. Raises ReadError. Blocks while it waits for messages.
    """
    cursors = [Cursor(each, each.begin, each.begin) for each in ranges]
    left = budget_bytes
    for group in _groups(cursors, consumer):
        if left <= 0:
            break
        for chunk in _read_group(consumer, group, reads_keys(decode), reads_times(decode)):
            yield list(decode(chunk, wanted))
            left -= size_of(chunk.values)
            if left <= 0:
                break
        _leave(consumer, group)
    yield [each.done() for each in cursors]


def _read_group(
    consumer: RangeConsumer, group: Sequence[Cursor], with_keys: bool, with_times: bool
) -> Iterator[Messages]:
    """Read ranges of different partitions at the same time, and yield their messages in chunks."""
    consumer.assign([each.range for each in group])
    by_partition = {each.range.topic_partition: each for each in group}
    progress_s, held, held_bytes = time.monotonic(), 0, 0
    while left := sum(each.left for each in group):
        room = max(0, CHUNK_BYTES - held_bytes) // consumer.message_bytes + 1
        messages = consumer.fetch(min(left, CHUNK_MESSAGES - held, room))
        if messages:
            size = sum(map(len, messages))
            held, held_bytes = held + len(messages), held_bytes + size
            consumer.message_bytes = max(1, size // len(messages))
        value_of = _keyed if with_keys else _value
        has_come = _take(by_partition, messages, value_of, with_times=with_times)
        if has_come or (not messages and _passed(consumer, by_partition)):
            progress_s = time.monotonic()
        elif time.monotonic() - progress_s > NO_PROGRESS_S:
            stuck = next(each for each in group if not each.is_read)
            reason = f"nothing came for {NO_PROGRESS_S:.0f} s {consumer.trouble}".strip()
            raise ReadError(stuck.range, stuck.position, reason)
        if held_bytes >= CHUNK_BYTES or held >= CHUNK_MESSAGES:
            held, held_bytes = 0, 0
            for each in group:
                yield from each.chunks()
    for each in group:
        yield from each.chunks()


def _take(
    cursors: Mapping[TopicPartition, Cursor],
    messages: list[Any],
    value_of: Callable[[Any], bytes | None],
    *,
    with_times: bool,
) -> bool:
    """Hand messages and events to their cursors; returns whether there was progress."""
    events = [each for each in messages if each.error() is not None]
    if events:
        messages = [each for each in messages if each.error() is None]
    if len(cursors) == 1 and messages:
        (only,) = cursors.values()
        offsets = [each.offset() for each in messages]
        times = [_time_ms(each) for each in messages] if with_times else None
        only.take(offsets, [value_of(each) for each in messages], times)
        only.see(messages[-1])
    elif messages:
        sorted_out: dict[tuple[str, int], list[Any]] = {}
        for each in messages:
            sorted_out.setdefault((each.topic(), each.partition()), []).append(each)
        for (topic, partition), some in sorted_out.items():
            cursor = cursors[TopicPartition(topic, partition)]
            times = [_time_ms(each) for each in some] if with_times else None
            cursor.take([each.offset() for each in some], [value_of(each) for each in some], times)
            cursor.see(some[-1])
    return any([_heed(cursors, each) for each in events]) or bool(messages)


def _value(message: Any) -> bytes | None:
    found: bytes | None = message.value()
    return found


def _keyed(message: Any) -> bytes | None:
    return with_key(message.key(), message.value())


def _time_ms(message: Any) -> int:
    at_ms: int = message.timestamp()[1]
    return max(0, at_ms)


def _heed(cursors: Mapping[TopicPartition, Cursor], event: Any) -> bool:
    """Handle an event: a partition's end was reached (returns whether that is progress), reading
    fails for good (raises ReadError), or an error that librdkafka tries again by itself (False)."""
    error, cursor = event.error(), None
    if event.topic() is not None and event.partition() is not None:
        cursor = cursors.get(TopicPartition(event.topic(), event.partition()))
    if error.code() == KafkaError._PARTITION_EOF:
        return cursor is not None and cursor.reach(event.offset())
    if error.code() in _FINAL:
        cursor = cursor or next(each for each in cursors.values() if not each.is_read)
        raise ReadError(cursor.range, cursor.position, error.str())
    return False


def _passed(consumer: RangeConsumer, cursors: Mapping[TopicPartition, Cursor]) -> bool:
    """Ask the consumer for its positions, since it passes transaction markers without an event.
    Returns whether that was progress."""
    waiting = [each.range for each in cursors.values() if not each.is_read]
    positions = consumer.positions(waiting)
    return any([cursors[each].reach(position) for each, position in positions.items()])


def _leave(consumer: RangeConsumer, group: Sequence[Cursor]) -> None:
    """After a group: a single range that was read exactly to its end may go on in the next read, so
    the consumer stays there. Else it is unassigned."""
    last = group[-1]
    if len(group) == 1 and last.at == last.range.end and not last.passed:
        consumer.finish(last.range, last.at, last.position)
    else:
        consumer.rest()


def _groups(cursors: Sequence[Cursor], consumer: RangeConsumer) -> list[list[Cursor]]:
    """The cursors in groups that are read at the same time. Small ranges of different partitions
    share a group, since each assignment takes milliseconds. The range at which the consumer already
    is comes first.
    """
    small: dict[int, list[Cursor]] = {}
    seen: Counter[TopicPartition] = Counter()
    large: list[list[Cursor]] = []
    for each in cursors:
        if each.range.messages > SIDE_BY_SIDE:
            large.append([each])
        elif each.range.messages > 0:
            small.setdefault(seen[each.range.topic_partition], []).append(each)
            seen[each.range.topic_partition] += 1
    return sorted(
        [*small.values(), *large],
        key=lambda group: not (len(group) == 1 and consumer.continues(group[0].range)),
    )


@dataclass(slots=True)
class Cursor:
    """How far a range has been read, and its messages that are held until they fill a chunk."""

    range: OffsetRange
    at: int  # all messages before this offset were handed on, in chunks
    position: int  # all messages between ``at`` and here are held
    is_read: bool = False
    passed: bool = False  # messages behind the end came, and were thrown away
    messages: int = 0  # the number that was handed on, and their bytes
    message_bytes: int = 0
    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    times: list[int] | None = None  # None: they are not asked for
    newest_ms: float = 0.0  # of the messages that were looked at; 0: no timestamp

    @property
    def left(self) -> int:
        """How many messages are still to come at most."""
        return 0 if self.is_read else max(1, self.range.end - self.position)

    def take(
        self, offsets: list[int], values: list[bytes | None], times: list[int] | None = None
    ) -> None:
        """Hold messages of this partition, by rising offset; those behind the end are left out."""
        assert offsets[0] >= self.position, f"{self.range}: {offsets[0]} after {self.position}"
        end = self.range.end
        if offsets[-1] >= end:
            count = next(index for index, each in enumerate(offsets) if each >= end)
            offsets, values = offsets[:count], values[:count]
            self.passed = True
        self.offsets += offsets
        self.values += values
        if times is not None:
            self.times = [*(self.times or ()), *times[: len(offsets)]]
        if offsets:
            self.position = offsets[-1] + 1
        self.is_read |= self.passed or self.position >= end

    def see(self, message: Any) -> None:
        """Looks at the timestamp of the last message of those that came together, not of each, to
        know the broker's clock."""
        at_ms = message.timestamp()[1]
        if at_ms < LATEST_MS:
            self.newest_ms = max(self.newest_ms, at_ms)

    def reach(self, position: int) -> bool:
        """No more messages come before this position; returns whether that is progress."""
        if self.passed or position <= self.position:
            return False
        self.position = position
        self.is_read |= position >= self.range.end
        return True

    def chunks(self) -> Iterator[Messages]:
        """Hand on the held messages in chunks; a message larger than a chunk is one by itself."""
        times = self.times
        for first, last in _cuts(self.values):
            self.at = self.offsets[last - 1] + 1
            offsets = pa.array(self.offsets[first:last], pa.int64())
            values = _binary(self.values[first:last])
            self.messages += len(values)
            self.message_bytes += size_of(values)
            yield Messages(
                part=self.range.part,
                positions=offsets,
                values=values,
                latest_ts=latest_ts(time.time() * 1e3, self.newest_ms),
                times_ms=None if times is None else pa.array(times[first:last], pa.int64()),
            )
        self.offsets, self.values, self.times = [], [], None
        if self.is_read:
            self.at = self.range.end

    def done(self) -> Block:
        return Block(
            kind=Kind.DONE,
            part=self.range.part,
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


def _binary(values: Sequence[bytes | None]) -> pa.Array:
    """By one copy of each, unless there are tombstones."""
    whole = [each for each in values if each]
    if len(whole) < len(values):
        return pa.array(values, pa.binary())
    offsets = np.zeros(len(whole) + 1, np.int32)
    np.cumsum([len(each) for each in whole], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(whole))]
    return pa.Array.from_buffers(pa.binary(), len(whole), buffers)


def size_of(values: pa.Array) -> int:
    """The bytes of all values of a binary array."""
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)
