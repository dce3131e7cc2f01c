"""Reading by a Spark job: whole and in order, or one error that says what is the matter."""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import TopicMissing
from coordination.model import TableName, Ts
from streaming.jobs.on_spark import SparkJobs
from streaming.protocols.contract import Block, Kind, WantedTable
from streaming.source.block_job import ReadFailed
from streaming.source.body_files import BodyFolder, InFile
from streaming.source.contract import SourceAway, SourceLost
from streaming.source.kafka import spark_reader
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.offset_ranges import OffsetRange, cut
from streaming.source.kafka.read_task import ReadTask
from streaming.source.kafka.spark_reader import SparkReader
from streaming.source.task_results import Result
from tests.services.kafka_broker import KafkaBroker
from tests.streaming.source.kafka.tiny_decoder import FAIL, ImpatientTask, decode, decoded, done

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    name = f"ranges-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def kafka(broker: KafkaBroker, topic: str) -> KafkaSettings:
    return KafkaSettings(
        brokers=(broker.bootstrap,),
        topic=topic,
        topics=(topic,),
        protocol="canal-json",
        partition_num=None,
    )


@pytest.fixture
def reader(spark: SparkSession, kafka: KafkaSettings) -> Iterator[SparkReader]:
    one = SparkReader(SparkJobs(spark.sparkContext), kafka, decode, name="tests")
    yield one
    one.close()


def topic_ids(kafka: KafkaSettings) -> Mapping[str, str]:
    source = Broker(kafka)
    try:
        return source.shape().topic_ids
    finally:
        source.close()


def everything(kafka: KafkaSettings) -> list[OffsetRange]:
    source = Broker(kafka)
    try:
        shape = source.shape()
        ends = source.ends(shape.partitions)
        return cut(dict.fromkeys(ends, 0), ends, shape.topic_ids, messages=1_000_000)
    finally:
        source.close()


def test_all_of_a_topic(broker: KafkaBroker, topic: str, kafka: KafkaSettings, reader: SparkReader):
    broker.produce(topic, ((each % 2, None, b"%d" % each) for each in range(60_000)))
    wanted = {TableName("a", "b"): WantedTable(above_ts=Ts(1), key=("id",))}
    blocks = reader.read_ranges(everything(kafka), wanted)
    for partition in range(2):
        expected = [(n, b"%d" % (2 * n + partition)) for n in range(30_000)]
        assert decoded(blocks, partition) == expected
        mine = [each for each in blocks if each.part == f"{topic}/{partition}"]
        assert mine[-1] is done(blocks, partition)
        assert (mine[-1].first, mine[-1].last, mine[-1].rows) == (0, 30_000, 30_000)


def test_one_partition_is_read_in_pieces_and_comes_as_one(
    broker: KafkaBroker, topic: str, kafka: KafkaSettings, reader: SparkReader
):
    broker.produce(topic, ((0, None, b"%d" % each) for each in range(60_000)))
    assert reader.tasks == 2
    blocks = reader.read_ranges(everything(kafka), {})
    assert decoded(blocks) == [(each, b"%d" % each) for each in range(60_000)]
    assert (done(blocks).last, done(blocks).rows) == (60_000, 60_000)


def test_bodies_come_by_files_that_go_with_the_job(
    broker: KafkaBroker,
    kafka: KafkaSettings,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broker.produce(kafka.topic, ((each % 2, None, b"%d" % each) for each in range(20_000)))
    reader, came = SparkReader(SparkJobs(spark.sparkContext), kafka, decode, name="tests"), []
    monkeypatch.setattr(BodyFolder, "whole", lambda _self, found: came.extend(found) or found)
    reader.read_ranges(everything(kafka), {})
    assert sum(isinstance(each, InFile) for each in came) >= 2
    assert not any(isinstance(each, Block) and each.body for each in came)
    (folder,) = tmp_path.iterdir()
    assert list(folder.iterdir()) == []
    reader.close()
    assert not folder.exists()


class KilledOnce:
    """A ReadTask whose first worker is killed when it has written a body to its file, and has told
    nobody."""

    def __init__(self, *arguments: Any) -> None:
        self._task = ReadTask(*arguments)

    def __call__(self, number: int) -> Iterator[Result]:
        assert self._task.folder is not None
        told = Path(self._task.folder).with_name("killed")
        for result in self._task(number):
            if isinstance(result, InFile) and not told.exists():
                told.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield result


def test_a_worker_is_killed_behind_its_body(
    broker: KafkaBroker,
    kafka: KafkaSettings,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(spark_reader, "ReadTask", KilledOnce)
    broker.produce(kafka.topic, ((0, None, b"%d" % each) for each in range(20_000)))
    reader = SparkReader(SparkJobs(spark.sparkContext), kafka, decode, name="tests")
    with closing(reader):
        with pytest.raises(ReadFailed, match="exited unexpectedly") as caught:
            reader.read_ranges(everything(kafka), {})
        assert "\n" not in str(caught.value)
        (folder,) = (each for each in tmp_path.iterdir() if each.is_dir())
        assert list(folder.iterdir()) == []
        blocks = reader.read_ranges(everything(kafka), {})
        assert decoded(blocks) == [(each, b"%d" % each) for each in range(20_000)]


def test_pieces_behind_a_budget_do_not_count(
    broker: KafkaBroker,
    topic: str,
    kafka: KafkaSettings,
    reader: SparkReader,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(spark_reader, "TASK_BYTES", 10 << 20)
    broker.produce(topic, ((0, None, b"x" * 1_000) for _ in range(150_000)))
    (whole,) = everything(kafka)
    blocks = reader.read_ranges([whole], {})
    reached = done(blocks).last
    assert 10_000 < reached < 75_000
    assert [offset for offset, _ in decoded(blocks)] == list(range(reached))
    assert done(blocks).rows == reached
    rest = OffsetRange(whole.topic, whole.topic_id, 0, reached, whole.end)
    assert decoded(reader.read_ranges([rest], {}))[0][0] == reached
    assert reader.messages == pytest.approx(2 * (10 << 20) / 1_000, rel=0.01)


def test_an_empty_range_is_done_without_a_job(kafka: KafkaSettings, reader: SparkReader):
    (name, topic_id) = next(iter(topic_ids(kafka).items()))
    (block,) = reader.read_ranges([OffsetRange(name, topic_id, 1, 0, 0)], {})
    assert (block.kind, block.first, block.last, block.rows) == (Kind.DONE, 0, 0, 0)


def test_a_topic_that_was_made_again_is_lost(
    broker: KafkaBroker, topic: str, kafka: KafkaSettings, reader: SparkReader
):
    broker.produce(topic, [(0, None, b"x")] * 10)
    ranges = everything(kafka)
    reader.read_ranges(ranges, {})
    broker.delete_topic(topic)
    with pytest.raises(TopicMissing, match=topic):
        reader.check(ranges)
    broker.create_topic(topic, 2)
    broker.produce(topic, [(0, None, b"y")] * 10)
    with pytest.raises(SourceLost, match="deleted and made again"):
        reader.read_ranges(ranges, {})


def test_what_was_deleted_is_lost(
    broker: KafkaBroker, topic: str, kafka: KafkaSettings, reader: SparkReader
):
    broker.produce(topic, [(0, None, b"x")] * 100)
    ranges = everything(kafka)
    broker.delete_records(topic, {0: 60})
    with pytest.raises(SourceLost, match="offset 0 is needed and Kafka begins at 60"):
        reader.read_ranges(ranges, {})


def test_what_the_broker_does_not_have_is_worth_another_try(
    kafka: KafkaSettings, reader: SparkReader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(spark_reader, "ReadTask", ImpatientTask)
    (name, topic_id) = next(iter(topic_ids(kafka).items()))
    with pytest.raises(SourceAway):
        reader.read_ranges([OffsetRange(name, topic_id, 9, 0, 5)], {})


def test_a_decoder_that_fails_is_one_line(
    broker: KafkaBroker, topic: str, kafka: KafkaSettings, reader: SparkReader
):
    broker.produce(topic, [(0, None, FAIL)])
    with pytest.raises(ReadFailed, match="ValueError: a decoder that fails") as caught:
        reader.read_ranges(everything(kafka), {})
    assert "\n" not in str(caught.value)


def test_a_read_is_given_up_when_it_is_told_to(kafka: KafkaSettings, reader: SparkReader):
    (name, topic_id) = next(iter(topic_ids(kafka).items()))
    with ThreadPoolExecutor(1) as other:
        nothing_there = OffsetRange(name, topic_id, 0, 0, 5)
        reading = other.submit(reader.read_ranges, [nothing_there], {})
        with pytest.raises(NotYet):
            reading.result(2)
        reader.cancel()
        with pytest.raises(ReadFailed, match="cancelled") as caught:
            reading.result(20)
        assert "\n" not in str(caught.value)
    assert reader.read_ranges([OffsetRange(name, topic_id, 0, 0, 0)], {})
