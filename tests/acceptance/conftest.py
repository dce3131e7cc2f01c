"""Lives of the program in this process, over topics of their own.

Most are on threads, over topics in memory. What is about Spark, executors, Kafka or a client of it
lives on these (docs/contributing.md, What stays on Spark).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordination.etcd.embedded import EmbeddedEtcd
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.copied_database import make_account
from tests.acceptance.one_process import on_spark
from tests.acceptance.reloading_captures import Captures, captures_of
from tests.acceptance.small_tables import MakeLives, new_topics
from tests.acceptance.topics_of_tables import Topics
from tests.fakes.memory_broker import MemoryBroker
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7
from tests.services.database_server import DatabaseServer, needs
from tests.services.kafka_broker import KafkaBroker
from tests.services.second_editions import second


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lives look what is left in it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def new_lives(
    memory_broker: MemoryBroker,
    tmp_path: Path,
    own_temporary_folder: None,  # noqa: ARG001
) -> Iterator[MakeLives]:
    with new_topics(ThreadsOfProcess, memory_broker, tmp_path) as make:
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


@pytest.fixture(
    scope="module", params=[MARIADB_10_11, *second(MYSQL_9_7)], ids=lambda each: each.name
)
def own_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Of a module's tests, with the account of docs/mysql.md."""
    needs(request.param)
    with DatabaseServer(request.param) as server:
        make_account(server)
        yield server


@pytest.fixture
def server(own_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """Its database ``c`` is this test's."""
    with own_server.database("c"):
        yield own_server


@pytest.fixture
def captures(mariadb: DatabaseServer, etcd: EmbeddedEtcd, tmp_path: Path) -> Iterator[Captures]:
    with captures_of(mariadb, etcd, tmp_path) as found:
        yield found


@pytest.fixture
def topics(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Topics]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Topics(broker)
    yield made
    for each in made.made:
        broker.delete_topic(each)
