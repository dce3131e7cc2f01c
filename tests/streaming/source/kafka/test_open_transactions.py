"""A transaction that stays open holds its partition back, and that is told."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from streaming.source.kafka import open_transactions
from streaming.source.kafka.open_transactions import SAYS_AFTER_S, OpenTransactions
from streaming.source.kafka.source import KafkaSource
from streaming.source.kafka.topic_partition import TopicPartition
from tests.contracts.topics_contract import Cluster

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = SAYS_AFTER_S + 1


def test_one_that_stays_open_is_told_with_its_place() -> None:
    seen = OpenTransactions()
    assert seen.look({ONE: 3, TWO: 9}, {ONE: 5, TWO: 9}, 0.0) is None
    said = seen.look({ONE: 3, TWO: 9}, {ONE: 7, TWO: 9}, LONG_S) or ""
    assert said.startswith(
        "topic t partition 0: a transaction of a producer has been open for 45 s"
    )
    assert "from offset 3 on" in said
    assert "kafka-transactions.sh find-hanging" in said
    assert seen.look({ONE: 9, TWO: 9}, {ONE: 9, TWO: 9}, LONG_S + 1) is None


def test_transactions_that_come_and_go_hold_nothing() -> None:
    seen = OpenTransactions()
    for each in range(20):
        assert seen.look({ONE: 3 + each}, {ONE: 5 + each}, each * 10.0) is None


def test_messages_that_came_between_the_two_questions_are_no_transaction() -> None:
    assert OpenTransactions().look({ONE: 7}, {ONE: 5}, 0.0) is None


def test_a_real_one(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "SAYS_AFTER_S", 0.0)
    topic = f"open-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 1)
    settings: Any = parse_source_uri(
        f"kafka://{cluster.bootstrap}/{topic}?protocol=canal-json&enable-tidb-extension=true"
    )
    source, parts = KafkaSource(settings), [f"{topic}/0"]
    producer = cluster.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    cluster.produce(topic, [(0, None, b"before")])
    assert source.held_back(parts) is None
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    assert "from offset 1 on" in (source.held_back(parts) or "")
    producer.abort_transaction(30)
    while source.held_back(parts) is not None:  # its marker is written a little later
        pass
    source.close()
