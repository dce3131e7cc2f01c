"""One partition of messages without a commit-ts, read by several tasks: the numbers are those that
one task gives."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain

import pytest
from pyspark.sql import SparkSession

from conf.sources.kafka_uri import KafkaSettings
from coordination.model import TableName, Ts
from streaming.jobs.on_spark import SparkJobs
from streaming.protocols.contract import Block, Kind, WantedTable
from streaming.protocols.decoders import decoder_of
from streaming.source.contract import ReadOrder
from streaming.source.kafka import spark_reader
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.spark_reader import SparkReader
from streaming.source.resolved.pinned_limits import PinnedLimits
from streaming.stream.read import marks_of, reached
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MESSAGES = 50_000
WANTED = {TableName("shop", "t"): WantedTable(above_ts=Ts(0), key=("id",))}


def message(n: int, at_ms: int) -> bytes:
    return (
        b'{"id":0,"database":"shop","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT",'
        b'"es":%d,"ts":0,"sql":"","sqlType":{},"mysqlType":{"id":"bigint","v":"varchar(99)"},'
        b'"old":null,"data":[{"id":"%d","v":"%s"}]}' % (at_ms, n, b"x" * 60)
    )


class Log:
    """A topic of one partition."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, ms_each: float) -> None:
        self.topic = f"slices-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.topic, 1)
        begin_ms = int(time.time() * 1e3) - 3_600_000
        broker.produce(
            self.topic,
            ((0, None, message(n, begin_ms + int(n * ms_each))) for n in range(MESSAGES)),
        )
        self.part = f"{self.topic}/0"
        self._spark = spark
        self._kafka = KafkaSettings(
            brokers=(broker.bootstrap,),
            topic=self.topic,
            topics=(self.topic,),
            protocol="canal-json",
            partition_num=None,
            is_numbered=True,
        )

    def identities(self) -> Mapping[str, str]:
        with closing(Broker(self._kafka)) as found:
            return {self.part: found.shape().topic_ids[self.topic]}

    def reader(self) -> SparkReader:
        decode = decoder_of("canal-json")
        return SparkReader(
            SparkJobs(self._spark.sparkContext), self._kafka, decode, own_ms=decode.own_ms
        )

    def read(self, reader: SparkReader) -> Iterator[list[Block]]:
        """All of it."""
        position, identities = {self.part: 0}, self.identities()
        limits = PinnedLimits.of(frozenset(position), {}).advance({}, position)
        while position[self.part] < MESSAGES:
            blocks = reader.read(
                ReadOrder(
                    begin=position,
                    ends={self.part: MESSAGES},
                    wanted=WANTED,
                    identities=identities,
                    limits=limits,
                    messages=MESSAGES,
                )
            )
            yield blocks
            position = reached(blocks)
            limits = limits.advance(marks_of(tuple(blocks)), position)


def numbers_in(reads: list[list[Block]]) -> dict[int, int]:
    tables = [each.table() for blocks in reads for each in blocks if each.kind is Kind.ROW]
    places = (each["position"].to_pylist() for each in tables)
    numbers = (each["commit_ts"].to_pylist() for each in tables)
    return dict(zip(chain(*places), chain(*numbers), strict=True))


@pytest.mark.parametrize("ms_each", [1.0, 0.0])
def test_slices_of_a_partition(
    spark: SparkSession, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, ms_each: float
) -> None:
    """Where all messages are of one time, no slice knows its numbers: then the partition is read by
    one task."""
    log = Log(spark, broker, ms_each)
    with closing(log.reader()) as reader:
        assert reader.tasks == 2
        sliced = list(log.read(reader))
    monkeypatch.setattr(spark_reader, "PIECE_MESSAGES", 1 << 62)
    with closing(log.reader()) as reader:
        whole = list(log.read(reader))
    numbers = numbers_in(whole)
    assert sorted(numbers) == list(range(MESSAGES))
    assert numbers_in(sliced) == numbers
    assert [len(whole), len(sliced)] == ([1, 1] if ms_each else [1, 2])
    ends = [marks_of(tuple(reads[-1]))[log.part] for reads in (whole, sliced)]
    assert ends[0].ts == ends[1].ts == numbers[MESSAGES - 1] + 1
