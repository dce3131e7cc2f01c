"""Which offsets of which partition are read next, and in which task. Pure.

positions, ends ──cut──► ranges, at most one a partition ──pack──► work lists, one a task

p0 ████████████████████████████▌         list 0: p0 [0, 150)
p1 ██████████▌                   ──►     list 1: p0 [150, 290), p1 [7, 117)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

PIECE_MESSAGES: Final = 10_000  # a smaller part of a range costs more to begin than it saves

# Thousands of dataclasses are compared ten times slower than tuples.
_BY_PARTITION: Final = attrgetter("topic", "partition")
_BY_OFFSET: Final = attrgetter("topic", "partition", "begin")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic; ``str()`` is its key in Delta's map columns."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @staticmethod
    def parse(text: str) -> TopicPartition:
        topic, _, partition = text.rpartition("/")
        return TopicPartition(topic, int(partition))


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``[begin, end)`` of one partition; gaps in it are normal."""

    topic: str
    topic_id: str  # of the topic that the offsets belong to: a name can be used again
    partition: int
    begin: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def messages(self) -> int:
        """At most so many are in it."""
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
    """What is read next: all there is, or about ``messages`` of it.

    Of a backlog every partition gives its share, so that their watermarks rise together.
    ``first_messages``: of a first read, which is small where the backlog is large, so that
    something is seen soon; 0 where this is not the first one.
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
    """At most so many work lists of about equal size, none of them empty.

    The ranges stand in a line that is cut where a list is full, so that a list goes on where it
    went on before and few ranges are cut: at most one for each list.
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
    """Take from the line's beginning what belongs in a list with so much room."""
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
            if begun and over > room:  # most of it would be too much: the next list's first
                return
        begun, room = True, -over
        yield line.pop(0)


def joined(read: Iterable[tuple[int, int]], begin: int) -> int:
    """How far pieces of one partition, in order, were read from ``begin`` on without a hole."""
    for first, reached in read:
        if first != begin:
            break
        begin = reached
    return begin
