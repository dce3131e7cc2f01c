"""The driver's side of a read: one Spark job that reads and decodes ranges, wholly or not at all.

    ranges ──pack──► work lists ──one stage of as many tasks──► blocks ──► topic still the same?

The blocks of a job count only if the broker afterwards still has the topics under the IDs that the
ranges name, and all messages from the beginnings of the ranges on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Final, NoReturn

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException

from conf.kafka_uri import KafkaSettings
from coordination.errors import TryAgain
from sinks.spark.jvm_errors import line
from streaming.protocols.contract import Block, Decoder, Kind, Wanted
from streaming.source.body_files import BodyFolder
from streaming.source.contract import Identities, SourceAway
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.offset_ranges import OffsetRange, cut, joined, pack
from streaming.source.kafka.read_ranges import TASK_BYTES
from streaming.source.kafka.read_task import ReadFailure, ReadTask, Result
from streaming.source.kafka.topic_partition import TopicPartition
from streaming.source.positions import Positions
from streaming.spark.executors import unfit
from streaming.spark.spark_conf import is_within

_DESCRIPTION: Final = "spark.job.description"
FEW_MESSAGES: Final = 500  # one task reads so few as fast as several tasks would


class ReadFailed(TryAgain):
    """A read failed for a reason that is not Kafka's, or was cancelled. It is tried again for a
    while."""


class SparkReader:
    """Reads the topics of one changefeed. For one thread, but for ``cancel``. ``name`` is shown in
    Spark's UI."""

    def __init__(
        self, spark: SparkContext, kafka: KafkaSettings, decode: Decoder, *, name: str = "tidelake"
    ) -> None:
        self._spark = spark
        self._kafka = kafka
        self._decode = decode
        self._name = name
        self._tag = f"read-{name}"
        self._broker = Broker(kafka)
        self._numbers: dict[int, RDD[int]] = {}  # an empty RDD by its number of partitions
        self._bodies = BodyFolder(is_shared=is_within(spark.master or ""))
        self._message_bytes = 1_000.0  # the average size; a guess until messages have been read

    def close(self) -> None:
        self._broker.close()
        self._bodies.close()

    def cancel(self) -> None:
        """Called from another thread: cancels the job of ``read``, which then raises ReadFailed
        soon."""
        self._spark.cancelJobsWithTag(self._tag)

    @property
    def tasks(self) -> int:
        return max(1, self._spark.defaultParallelism)

    @property
    def messages(self) -> int:
        """About how many messages one read can hold before its tasks stop at their budgets."""
        return max(1, int(self.tasks * TASK_BYTES / self._message_bytes))

    def read(
        self,
        begin: Positions,
        ends: Positions,
        wanted: Wanted,
        *,
        identities: Identities,
        messages: int,
        first_messages: int = 0,
    ) -> list[Block]:
        """See `contract.Reader`."""
        if all(ends.get(part, at) <= at for part, at in begin.items()):
            return []  # without asking the JVM how much a read can hold
        ranges = cut(
            {TopicPartition.parse(part): at for part, at in begin.items()},
            {TopicPartition.parse(part): at for part, at in ends.items()},
            {TopicPartition.parse(part).topic: each for part, each in identities.items()},
            messages=min(self.messages, messages),
            first_messages=first_messages,
        )
        return self.read_ranges(ranges, wanted)

    def read_ranges(self, ranges: Sequence[OffsetRange], wanted: Wanted) -> list[Block]:
        """Read and decode the ranges; blocks until the job has ended. The blocks are ordered by
        partition and offset, with a DONE block at the end of each range.

        ``ranges``: at most one of each partition. A DONE block's ``last`` is where the next range
        begins: a budget may end a range early. Raises SourceLost, TopicMissing, ExecutorsUnfit; or
        SourceAway and ReadFailed, after which the read may be tried again.
        """
        if not ranges:
            return []
        partitions = [each.topic_partition for each in ranges]
        assert len(set(partitions)) == len(partitions), "two ranges of one partition"
        total = sum(each.messages for each in ranges)
        lists = pack(ranges, self.tasks if total > FEW_MESSAGES else 1)
        found = self._job(lists, wanted, total) if lists else []
        for each in found:
            if isinstance(each, ReadFailure):
                self._raise(each, ranges)
        self.check(ranges)
        blocks = list(_in_order(ranges, lists, (b for b in found if isinstance(b, Block))))
        done = [each for each in blocks if each.kind is Kind.DONE]
        if messages := sum(each.rows for each in done):
            self._message_bytes = max(1.0, sum(each.message_bytes for each in done) / messages)
        return blocks

    def check(self, ranges: Sequence[OffsetRange]) -> None:
        """Raise SourceLost or TopicMissing unless the broker still has these topics, by ID, and
        the messages from the ranges' beginnings on. Raises SourceAway too."""
        self._broker.check_topic_ids({each.topic: each.topic_id for each in ranges})
        self._broker.check_beginnings({each.topic_partition: each.begin for each in ranges})

    def _job(
        self, lists: Sequence[Sequence[OffsetRange]], wanted: Wanted, total: int
    ) -> list[Block | ReadFailure]:
        """Run the job, on an RDD. A DataFrame would cost three times as much: each job of one is
        analysed and planned anew, and its results are copied row by row."""
        settings, folder = librdkafka_settings(self._kafka), self._bodies.path
        task = ReadTask(settings, lists, self._decode, wanted, TASK_BYTES, folder)
        context, count = self._spark, len(lists)
        try:
            with self._described(lists, total):
                if count not in self._numbers:
                    self._numbers[count] = context.parallelize([], count)
                found = self._numbers[count].mapPartitionsWithIndex(task).collect()
            return self._whole(found)
        except (PySparkException, Py4JError) as error:
            if lack := unfit(str(error), context.pythonExec):
                raise lack from error
            raise ReadFailed(f"reading {self._kafka.topic} failed: {line(error)}") from error
        finally:
            self._bodies.clear()

    def _whole(self, found: list[Result]) -> list[Block | ReadFailure]:
        try:
            return self._bodies.whole(found)
        except OSError as error:
            raise ReadFailed(f"what was read of {self._kafka.topic} is gone: {error}") from error

    @contextmanager
    def _described(self, lists: Sequence[Sequence[OffsetRange]], total: int) -> Iterator[None]:
        """Put the offsets into the job's description, for Spark's UI, and tag the job so that it
        can be cancelled."""
        context = self._spark
        before = context.getLocalProperty(_DESCRIPTION)
        more = " and others" if sum(map(len, lists)) > 1 else ""
        context.setJobDescription(f"{self._name}: {total} offsets, {lists[0][0]}{more}")
        context.addJobTag(self._tag)
        try:
            yield
        finally:
            context.removeJobTag(self._tag)
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]

    def _raise(self, failure: ReadFailure, ranges: Sequence[OffsetRange]) -> NoReturn:
        if not failure.is_unreadable:
            raise ReadFailed(f"reading {self._kafka.topic} failed: {failure.reason}")
        self._broker.check_topic_ids({each.topic: each.topic_id for each in ranges})
        self._broker.check_offsets({each.topic_partition: each.begin for each in ranges})
        raise SourceAway(f"cannot read {failure.reason}")


def _in_order(
    ranges: Sequence[OffsetRange], lists: Sequence[Sequence[OffsetRange]], blocks: Iterator[Block]
) -> Iterator[Block]:
    """The blocks of each range that were read without a hole, and its DONE block.

    ``pack`` may have cut a range into pieces for several tasks, and a task may stop early at its
    budget: what was read behind such a hole is left out. The pieces and blocks of a partition come
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
