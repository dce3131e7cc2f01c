"""Lives of the program in this process, over topics of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.one_process import on_spark
from tests.acceptance.small_tables import MakeLives, new_topics
from tests.services.kafka_broker import KafkaBroker


@pytest.fixture
def new_lives(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeLives]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # Else a table's first try, which compiles for seconds, is made again after ten times as long.
    monkeypatch.setattr("streaming.apply.applier.FAILED_MAX_S", 2.0)
    with new_topics(on_spark(spark), broker, tmp_path) as make:
        yield make
