"""The driver's side of a read: one Spark job that reads and decodes ranges, wholly or not at all.

    ranges ──pack──► work lists ──one stage of as many tasks──► blocks ──► topic still the same?

The blocks of a job count only if the broker afterwards still has the topics under the IDs that the
ranges name, and all messages from the beginnings of the ranges on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Final, NoReturn

from conf.sources.kafka_uri import KafkaSettings
from streaming.jobs.port import Jobs
from streaming.protocols.contract import Block, Decoder, Kind, Wanted
from streaming.protocols.decoders import DdlMask, OwnTimes
from streaming.source.block_job import BlockJob, ReadFailed
from streaming.source.contract import ReadOrder, SourceAway
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.offset_ranges import PIECE_MESSAGES, OffsetRange, cut, joined, pack
from streaming.source.kafka.read_ranges import TASK_BYTES
from streaming.source.kafka.read_task import ReadTask
from streaming.source.kafka.topic_partition import TopicPartition
from streaming.source.resolved.commit_clock import Pin, from_token, with_pins
from streaming.source.resolved.numbering import (
    NumberedDecoder,
    alike,
    joined_marks,
    lead,
)
from streaming.source.resolved.pinned_limits import PinnedLimits
from streaming.source.task_results import ReadFailure

_WHOLE: Final = 1 << 62  # messages: no range is cut
LEAD_MESSAGES: Final = 2_000  # with which the numbers of a slice begin
WHOLE_READS: Final = 16  # after a slice whose numbers are not known from so few
FEW_MESSAGES: Final = 500  # one task reads so few as fast as several tasks would


class SparkReader:
    """Reads the topics of one changefeed. For one thread, except for ``cancel``. ``name`` is shown
    in Spark's UI."""

    def __init__(
        self,
        jobs: Jobs,
        kafka: KafkaSettings,
        decode: Decoder,
        *,
        name: str = "tidelake",
        own_ms: OwnTimes | None = None,
        are_ddls: DdlMask | None = None,
    ) -> None:
        self._job = BlockJob(jobs, name=name, source=kafka.topic)
        self._kafka = kafka
        self._decode = decode
        self._own_ms = own_ms  # None: the messages have a commit-ts
        self._are_ddls = are_ddls
        self._broker = Broker(kafka)
        self._whole_reads = 0
        self._message_bytes = 1_000.0  # the average size; a guess until messages have been read

    def close(self) -> None:
        self._broker.close()
        self._job.close()

    def use(self, decode: Decoder) -> None:
        """From the next read on."""
        self._decode = decode

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        found = self._broker.beginnings([TopicPartition.parse(each) for each in parts])
        return {str(partition): at for partition, at in found.items()}

    def cancel(self) -> None:
        """Called from another thread: the job of ``read`` is cancelled, which then raises
        ReadFailed soon."""
        self._job.cancel()

    @property
    def tasks(self) -> int:
        return self._job.tasks

    @property
    def messages(self) -> int:
        """About how many messages one read can hold before its tasks stop at their budgets."""
        return max(1, int(self.tasks * TASK_BYTES / self._message_bytes))

    def read(self, order: ReadOrder) -> list[Block]:
        """See `contract.Reader`."""
        if not order.there:
            return []  # without asking the JVM how much a read can hold
        ranges = cut(
            {TopicPartition.parse(part): at for part, at in order.begin.items()},
            {TopicPartition.parse(part): at for part, at in order.ends.items()},
            {TopicPartition.parse(part).topic: each for part, each in order.identities.items()},
            messages=min(self.messages, order.messages),
            first_messages=order.first_messages,
        )
        if self._own_ms is None:
            return self.read_ranges(ranges, order.wanted)
        assert isinstance(order.limits, PinnedLimits)
        pins = {each.part: order.limits.numbering(each.part) for each in ranges}
        return list(self._numbered(ranges, order.wanted, pins, self._own_ms))

    def _numbered(
        self,
        ranges: Sequence[OffsetRange],
        wanted: Wanted,
        pins: dict[str, tuple[Pin, ...]],
        own_ms: OwnTimes,
    ) -> Iterator[Block]:
        """Each range is read from the last pin before it on. Where that is far, it takes several
        reads. A slice that was numbered otherwise than the one before says is read again, and some
        reads are not cut then."""
        left = {each.part: each for each in ranges}
        while left:
            begin = {part: each.begin for part, each in left.items()}
            first = lead(pins, begin)
            self._whole_reads = max(0, self._whole_reads - 1)
            lists = self._lists(left.values(), _WHOLE if self._whole_reads else PIECE_MESSAGES)
            slices = [(each.part, each.begin) for work in lists for each in work]
            reads = {
                (part, at): first[part] if at == begin[part] else at - LEAD_MESSAGES
                for part, at in slices
            }
            decode = NumberedDecoder(self._decode, own_ms, pins, begin, reads, self._are_ddls)
            found = self.read_ranges([*left.values()], wanted, decode, lists)
            done = {block.part: block.last for block in found if block.kind is Kind.DONE}
            short = {part for part, last in done.items() if last < begin[part]}
            if any(at != begin[part] and at == done[part] for part, at in slices):
                self._whole_reads = WHOLE_READS
            marks: defaultdict[str, list[Block]] = defaultdict(list)
            for block in found:
                if block.kind is Kind.WATERMARK:
                    marks[block.part].append(block)
                elif block.part not in short:
                    if block.kind is Kind.DONE and marks[block.part]:
                        yield joined_marks(marks[block.part])
                    yield block
            for part in short:
                told = (from_token(each.token) for each in marks[part])
                pins[part] = with_pins(pins[part], [*chain(*told)])
            left = {part: each for part, each in left.items() if part in short}

    def _lists(
        self, ranges: Iterable[OffsetRange], piece_messages: int = PIECE_MESSAGES
    ) -> list[list[OffsetRange]]:
        """The work of each task. A range is not cut into smaller pieces than so many messages."""
        ranges = list(ranges)
        total = sum(each.messages for each in ranges)
        tasks = self.tasks if total > FEW_MESSAGES else 1
        return pack(ranges, tasks, piece_messages=piece_messages)

    def read_ranges(
        self,
        ranges: Sequence[OffsetRange],
        wanted: Wanted,
        decode: NumberedDecoder | None = None,
        lists: Sequence[Sequence[OffsetRange]] | None = None,
    ) -> list[Block]:
        """Read and decode the ranges; blocks until the job has ended. The blocks are ordered by
        partition and offset, with a DONE block at the end of each range. ``decode``: in the place
        of the reader's own. ``lists``: what each task reads of the ranges.

        ``ranges``: at most one of each partition. A DONE block's ``last`` is where the next range
        begins: a budget may end a range early. Raises SourceLost, TopicMissing, ExecutorsUnfit; or
        SourceAway and ReadFailed, after which the read may be tried again.
        """
        if not ranges:
            return []
        partitions = [each.topic_partition for each in ranges]
        assert len(set(partitions)) == len(partitions), "two ranges of one partition"
        total = sum(each.messages for each in ranges)
        lists = self._lists(ranges) if lists is None else lists
        reads = {} if decode is None else decode.reads
        asked = [replace(r, begin=reads.get((r.part, r.begin), r.begin)) for r in ranges]
        found: list[Block | ReadFailure] = []
        if lists:
            task = ReadTask(
                librdkafka_settings(self._kafka),
                lists,
                decode or self._decode,
                wanted,
                TASK_BYTES,
                self._job.folder,
            )
            more = " and others" if sum(map(len, lists)) > 1 else ""
            found = self._job.run(task, len(lists), f"{total} offsets, {lists[0][0]}{more}")
        for each in found:
            if isinstance(each, ReadFailure):
                self._raise(each, asked)
        self.check(asked)
        made = (each for each in found if isinstance(each, Block))
        blocks = list(_in_order(ranges, lists, made, is_numbered=decode is not None))
        done = [each for each in blocks if each.kind is Kind.DONE]
        if messages := sum(each.rows for each in done):
            self._message_bytes = max(1.0, sum(each.message_bytes for each in done) / messages)
        return blocks

    def check(self, ranges: Sequence[OffsetRange]) -> None:
        """Raise SourceLost or TopicMissing unless the broker still has these topics, by ID, and
        the messages from the ranges' beginnings on. Raises SourceAway too."""
        self._broker.check_topic_ids({each.topic: each.topic_id for each in ranges})
        self._broker.check_beginnings({each.topic_partition: each.begin for each in ranges})

    def _raise(self, failure: ReadFailure, ranges: Sequence[OffsetRange]) -> NoReturn:
        if not failure.is_unreadable:
            raise ReadFailed(f"reading {self._kafka.topic} failed: {failure.reason}")
        self._broker.check_topic_ids({each.topic: each.topic_id for each in ranges})
        self._broker.check_offsets({each.topic_partition: each.begin for each in ranges})
        raise SourceAway(f"cannot read {failure.reason}")


def _in_order(
    ranges: Sequence[OffsetRange],
    lists: Sequence[Sequence[OffsetRange]],
    blocks: Iterator[Block],
    *,
    is_numbered: bool,
) -> Iterator[Block]:
    """The blocks of each range that were read without a hole, and its DONE block.

    ``pack`` may have cut a range into pieces for several tasks, and a task may stop early at its
    budget: what was read behind such a hole is left out. So is a slice that was numbered otherwise
    than the one before it says, and what is behind it. The pieces and blocks of a partition come
    in the order of their offsets, since work lists have that order and tasks keep it.
    """
    pieces: defaultdict[TopicPartition, list[OffsetRange]] = defaultdict(list)
    for piece in (each for work in lists for each in work):
        pieces[piece.topic_partition].append(piece)
    found: defaultdict[TopicPartition, list[Block]] = defaultdict(list)
    done: dict[tuple[TopicPartition, int], Block] = {}
    for block in blocks:
        partition = TopicPartition.parse(block.part)
        if block.kind is Kind.DONE:
            done[partition, block.first] = block
        else:
            found[partition].append(block)
    for each in sorted(ranges, key=attrgetter("topic", "partition")):
        partition = each.topic_partition
        ends = [done[partition, piece.begin] for piece in pieces[partition]]
        if is_numbered:
            marks = {b.first: b for b in found[partition] if b.kind is Kind.WATERMARK}
            ends = ends[: alike([marks.get(end.first) for end in ends])]
        reached = joined([(end.first, end.last) for end in ends], each.begin)
        yield from (block for block in found[partition] if block.first < reached)
        counted = [end for end in ends if end.first < reached]
        yield Block(
            kind=Kind.DONE,
            part=each.part,
            rows=sum(end.rows for end in counted),
            first=each.begin,
            last=reached,
            message_bytes=sum(end.message_bytes for end in counted),
        )
