"""Decide which offsets of which partition are read next, and in which task. Pure.

positions, ends ──cut──► ranges, one per partition at most ──pack──► work lists, one per task

p0 ████████████████████████████▌         list 0: p0 [0, 150)
p1 ██████████▌                   ──►     list 1: p0 [150, 290), p1 [7, 117)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from streaming.source.kafka.topic_partition import TopicPartition

PIECE_MESSAGES: Final = 10_000  # to cut off a smaller piece of a range costs more than it saves

# Keys for sorting: to compare thousands of dataclasses takes ten times as long as tuples.
_BY_PARTITION: Final = attrgetter("topic", "partition")
_BY_OFFSET: Final = attrgetter("topic", "partition", "begin")


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``[begin, end)`` of one partition. Not every offset has a message."""

    topic: str
    topic_id: str  # the topic that the offsets belong to; its name may be used again later
    partition: int
    begin: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def part(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def messages(self) -> int:
        """How many messages the range can have at most."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition} [{self.begin}, {self.end})"


def cut(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    *,
    messages: int,
    first_messages: int = 0,
) -> list[OffsetRange]:
    """The ranges to read next: everything between positions and ends, or about ``messages`` of it.

    If there is more than that, each partition is read in proportion to its backlog, so that the
    partitions' watermarks rise together. ``first_messages`` is the limit of a stream's first read
    when the backlog is large, so that the first commit comes soon; 0: this is not the first read.
    """
    in_order = sorted(positions.items(), key=lambda item: _BY_PARTITION(item[0]))
    sizes = {each: ends.get(each, at) - at for each, at in in_order}
    sizes = {each: size for each, size in sizes.items() if size > 0}
    total = sum(sizes.values())
    if first_messages and total > 2 * first_messages:
        messages = min(messages, first_messages)
    if total > messages:
        sizes = {each: max(1, messages * size // total) for each, size in sizes.items()}
    return [
        OffsetRange(each.topic, topic_ids[each.topic], each.partition, at, at + size)
        for each, size in sizes.items()
        for at in (positions[each],)
    ]


def pack(
    ranges: Iterable[OffsetRange], lists: int, *, piece_messages: int = PIECE_MESSAGES
) -> list[list[OffsetRange]]:
    """Distribute the ranges to at most so many work lists of about equal size, none of them empty.

    The ranges are sorted by partition, and the lists are filled one after the other. So a partition
    tends to be in the same list in each read, and few ranges are cut: at most one for each list.
    """
    line = sorted((each for each in ranges if each.messages > 0), key=_BY_OFFSET)
    left, packed = sum(each.messages for each in line), []
    for lists_left in range(lists, 0, -1):
        if not line:
            break
        room = left if lists_left == 1 else -(-left // lists_left)
        work = list(_fill(line, room, piece_messages))
        left -= sum(each.messages for each in work)
        packed.append(work)
    return packed


def _fill(line: list[OffsetRange], room: int, piece_messages: int) -> Iterator[OffsetRange]:
    """Take ranges, the last one cut if need be, from the front of the line for a list that has
    room for so many messages."""
    begun = False
    while line and room > 0:
        first, over = line[0], line[0].messages - room
        if over > 0:
            piece = room if begun else max(room, piece_messages)
            if piece >= piece_messages and first.messages - piece >= piece_messages:
                middle = first.begin + piece
                line[0] = replace(first, begin=middle)
                yield replace(first, end=middle)
                return
            if begun and over > room:  # less than half of it fits: leave it to the next list
                return
        begun, room = True, -over
        yield line.pop(0)


def joined(read: Iterable[tuple[int, int]], begin: int) -> int:
    """The offset up to which one partition was read from ``begin`` on without a hole. ``read`` has
    the (first, reached) offsets of its pieces, in order."""
    for first, reached in read:
        if first != begin:
            break
        begin = reached
    return begin
