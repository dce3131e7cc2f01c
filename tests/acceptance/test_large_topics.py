"""The extremes work: in small lives here, in full size in a process by itself (``make soak``),
where memory is measured too. (Messages of 20 MB:
``tests/streaming/source/kafka/test_read_ranges.py``.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from streaming.apply.carry import Carry
from streaming.stream.role_context import RoleContext
from tests.acceptance import large_topics
from tests.acceptance.large_topics import ManyTables, OneTransaction, WideTable, one_process
from tests.acceptance.one_process import Lives, on_spark
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import Message

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PARTITIONS = 3
ALLOWED_MB = 2_600  # of a driver's Python; 500 of it before the first row


@pytest.fixture
def topic(broker: KafkaBroker) -> Iterator[str]:
    name = f"extremes-{uuid4().hex[:8]}"
    yield name
    broker.delete_topic(name)


@pytest.fixture
def carries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Carry]:
    """Carries that hold little in memory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found: list[Carry] = []

    def carry(_: RoleContext) -> Carry:
        found.append(Carry(folder=tmp_path / f"carry-{len(found)}", memory_bytes=1 << 20))
        return found[-1]

    monkeypatch.setattr(RoleContext, "carry", carry)
    return found


def produce(broker: KafkaBroker, topic: str, messages: Iterable[Message]) -> None:
    broker.create_topic(topic, partitions=PARTITIONS)
    broker.produce(topic, messages)


def source_uri(broker: KafkaBroker, topic: str) -> str:
    parameters = f"protocol=canal-json&partition-num={PARTITIONS}&enable-tidb-extension=true"
    return f"kafka://{broker.bootstrap}/{topic}?{parameters}"


# In make test.


def test_a_transaction_larger_than_memory_is_one_commit(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, topic: str, carries: list[Carry]
) -> None:
    sent = OneTransaction(broker, topic, 50_000, partitions=PARTITIONS)
    lives = Lives(on_spark(spark), broker, tmp_path, topics=[topic], partitions=PARTITIONS)
    sent.send_first()
    lives.finish(start_ts=sent.start_ts, target_ts=sent.target_ts)
    sent.check(lives.warehouse)
    sent.send_second()
    lives.finish(start_ts=sent.start_ts, target_ts=sent.target_ts)
    sent.check(lives.warehouse)
    assert all(carry._bodies._files._made for carry in carries), "nothing was in a file"


def test_a_wide_table(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, topic: str, carries: list[Carry]
) -> None:
    wide = WideTable(columns=300, rows=1_000)
    produce(broker, topic, wide.messages())
    lives = Lives(on_spark(spark), broker, tmp_path, topics=[topic], partitions=PARTITIONS)
    lives.finish(target_ts=large_topics.MARK_TS - 1)
    wide.check(lives.warehouse)
    assert carries


def test_many_tables_in_one_topic(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, topic: str, carries: list[Carry]
) -> None:
    many = ManyTables(tables=80, rows=4)
    produce(broker, topic, many.first())
    lives = Lives(on_spark(spark), broker, tmp_path, topics=[topic], partitions=PARTITIONS)
    lives.finish(target_ts=large_topics.CHANGED_TS - 2)
    before = lives.versions()
    broker.produce(topic, many.second())
    lives.finish(target_ts=large_topics.MARK_TS - 1)
    many.check(lives.warehouse)
    assert lives.versions() == {name: version + 1 for name, version in before.items()}
    assert carries


# In make soak.


@pytest.mark.soak
@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_transactions_of_two_million_rows(
    broker: KafkaBroker, tmp_path: Path, topic: str, partitions: int
) -> None:
    sent = OneTransaction(broker, topic, 2_000_000, partitions=partitions)
    for send in (sent.send_first, sent.send_second):
        send()
        cost = one_process(
            broker,
            tmp_path,
            sent.feed.source_uri,
            start_ts=sent.start_ts,
            target_ts=sent.target_ts,
        )
        assert cost.peak_rss_mb_of["driver"] < ALLOWED_MB
        sent.check(tmp_path / "warehouse")


@pytest.mark.soak
def test_a_table_of_a_thousand_columns(broker: KafkaBroker, tmp_path: Path, topic: str) -> None:
    wide = WideTable(columns=1_000, rows=20_000)
    produce(broker, topic, wide.messages())
    uri = source_uri(broker, topic)
    cost = one_process(broker, tmp_path, uri, start_ts=1, target_ts=large_topics.MARK_TS - 1)
    assert cost.peak_rss_mb_of["driver"] < ALLOWED_MB
    wide.check(tmp_path / "warehouse")


@pytest.mark.soak
def test_a_thousand_tables_in_one_topic(broker: KafkaBroker, tmp_path: Path, topic: str) -> None:
    many = ManyTables(tables=1_000, rows=5)
    produce(broker, topic, many.first())
    uri = source_uri(broker, topic)
    one_process(broker, tmp_path, uri, start_ts=1, target_ts=large_topics.CHANGED_TS - 2)
    broker.produce(topic, many.second())
    cost = one_process(broker, tmp_path, uri, start_ts=1, target_ts=large_topics.MARK_TS - 1)
    assert cost.peak_rss_mb_of["driver"] < ALLOWED_MB
    many.check(tmp_path / "warehouse")
