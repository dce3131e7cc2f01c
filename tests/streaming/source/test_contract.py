"""Kafka, a recording, a folder of files and the fake are the same to the program."""

from __future__ import annotations

import base64
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conf.sources.kafka_uri import KafkaSettings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.storage_uri import StorageSettings
from streaming.jobs.on_spark import SparkJobs
from streaming.jobs.on_threads import ThreadJobs
from streaming.source.contract import Reader, Source
from streaming.source.sources import open_source
from streaming.source.storage.survey import survey_of
from tests.contracts.source_contract import Logs, SourceContract
from tests.contracts.topics_contract import Cluster, settings_of
from tests.fakes.memory_broker import MemoryBroker
from tests.fakes.memory_source import MemorySource
from tests.services.kafka_broker import KafkaBroker


def line_of(partition: int, value: bytes) -> dict[str, object]:
    return {"topic": "t", "partition": partition, "value_b64": base64.b64encode(value).decode()}


class TestMemory(SourceContract):
    def make(self, logs: Logs) -> tuple[Source, Reader]:
        self.source = MemorySource({f"t/{number}": log for number, log in logs.items()})
        return self.source, self.source.reader(None, start_ts=0, name="tests")

    def made_again(self, logs: Logs) -> Source:
        self.source.fill({f"t/{number}": log for number, log in logs.items()})
        return self.source


class OnSpark(SourceContract):
    @pytest.fixture(autouse=True)
    def _spark(self, spark: SparkSession) -> Iterator[None]:
        self.spark, self.readers = spark, list[Reader]()
        yield
        for each in self.readers:
            each.close()

    def with_reader(self, source: Source) -> tuple[Source, Reader]:
        reader = source.reader(SparkJobs(self.spark.sparkContext), start_ts=0, name="tests")
        self.readers.append(reader)
        return source, reader


@pytest.mark.spark
class TestRecording(OnSpark):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "messages.jsonl"

    def make(self, logs: Logs) -> tuple[Source, Reader]:
        """The partitions take turns."""
        lines = [
            (
                at,
                {
                    "topic": "t",
                    "partition": int(number),
                    "value_b64": base64.b64encode(value).decode(),
                },
            )
            for number, log in logs.items()
            for at, value in enumerate(log)
        ]
        lines.sort(key=lambda each: each[0])
        self.path.write_text("".join(json.dumps(line) + "\n" for _, line in lines))
        settings = RecordingSettings(path=str(self.path), protocol="canal-json")
        return self.with_reader(open_source(settings))

    def made_again(self, logs: Logs) -> Source:
        source, _ = self.make(logs)
        return source


@pytest.mark.spark
class TestStorage(OnSpark):
    """The partitions of the suite are those of a table."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "cdc"

    def make(self, logs: Logs) -> tuple[Source, Reader]:
        """Three rows a file."""
        for number, log in logs.items():
            at = self.folder / "shop" / "orders" / "470620744162476032" / number
            at.mkdir(parents=True)
            for index, first in enumerate(range(0, len(log), 3), 1):
                text = b"".join(each + b"\r\n" for each in log[first : first + 3])
                (at / f"CDC{index:06}.json").write_bytes(text)
        settings = StorageSettings(
            folder=str(self.folder), protocol="canal-json", date_separator="none"
        )
        return self.with_reader(open_source(settings))

    def made_again(self, logs: Logs) -> Source:
        shutil.rmtree(self.folder)
        survey_of.cache_clear()  # another process: this one would wait for a file that is shorter
        source, _ = self.make(logs)
        return source


def filled(broker: Cluster, topic: str, logs: Logs) -> KafkaSettings:
    broker.create_topic(topic, len(logs))
    broker.produce(topic, [(int(n), None, value) for n, log in logs.items() for value in log])
    return settings_of(broker, topic)


@pytest.mark.spark
@pytest.mark.kafka
class TestKafka(OnSpark):
    @pytest.fixture(autouse=True)
    def _broker(self, broker: KafkaBroker) -> None:
        self.broker, self.topic = broker, f"contract-{uuid.uuid4().hex[:8]}"

    def make(self, logs: Logs) -> tuple[Source, Reader]:
        return self.with_reader(open_source(filled(self.broker, self.topic, logs)))

    def made_again(self, logs: Logs) -> Source:
        self.broker.delete_topic(self.topic)
        source, _ = self.make({**logs, "2": []})
        return source


class TestKafkaInMemory(SourceContract):
    """The same source and reader over a log in memory; tasks are on threads of this process."""

    @pytest.fixture(autouse=True)
    def _broker(self, memory_broker: MemoryBroker) -> Iterator[None]:
        self.broker, self.topic = memory_broker, f"contract-{uuid.uuid4().hex[:8]}"
        self.readers = list[Reader]()
        yield
        for each in self.readers:
            each.close()

    def make(self, logs: Logs) -> tuple[Source, Reader]:
        source = open_source(filled(self.broker, self.topic, logs))
        reader = source.reader(ThreadJobs(), start_ts=0, name="tests")
        self.readers.append(reader)
        return source, reader

    def made_again(self, logs: Logs) -> Source:
        self.broker.delete_topic(self.topic)
        source, _ = self.make({**logs, "2": []})
        return source
