"""Lives of the program in this process, over topics of their own.

Most are on threads, over topics in memory. What is about Spark, executors, Kafka or a client of it
lives on these (docs/contributing.md, What stays on Spark).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import on_spark
from tests.acceptance.small_tables import MakeLives, new_topics
from tests.services.kafka_broker import KafkaBroker


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lives look what is left in it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def new_lives(
    broker: KafkaBroker,
    tmp_path: Path,
    own_temporary_folder: None,  # noqa: ARG001
) -> Iterator[MakeLives]:
    with new_topics(ThreadsOfProcess, broker, tmp_path) as make:
        yield make


@pytest.fixture
def new_lives_on_spark(
    spark: SparkSession,
    broker: KafkaBroker,
    tmp_path: Path,
    own_temporary_folder: None,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[MakeLives]:
    # Else a table's first try, which compiles for seconds, is made again after ten times as long.
    monkeypatch.setattr("streaming.apply.applier.FAILED_MAX_S", 2.0)
    with new_topics(on_spark(spark), broker, tmp_path) as make:
        yield make
