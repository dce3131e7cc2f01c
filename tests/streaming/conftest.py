"""A stage per test: a topic, a warehouse, and captures that are gone when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.services.kafka_broker import KafkaBroker
from tests.streaming.hand_owner import Stage


@pytest.fixture
def stage(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    topic = f"cluster-{uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=3)
    made = Stage(spark, broker, tmp_path, topic)
    yield made
    made.close()
    broker.delete_topic(topic)
