"""The real services, started when a test first asks for one.

One of each a run serves all of xdist's workers (`run_services`). A database starts in 0.2 s, and is
a worker's own: tests read its log to the end, purge it, or count its transactions.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from conf import masking
from sinks.spark import session_settings
from tests.seeds import end_in_time, give_seeds
from tests.shared_services import (
    close_services,
    lend_services,
    name_the_gone,
    need_services,
    open_services,
    shared,
)
from tests.shares import Shares, in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordination.etcd.embedded import EmbeddedEtcd
    from tests.fakes.memory_broker import MemoryBroker
    from tests.services.database_server import DatabaseServer
    from tests.services.kafka_broker import KafkaBroker
    from tests.services.s3_server import S3Server
    from tests.services.secured_broker import SecuredBroker

ROOT = Path(__file__).resolve().parents[1]
# Serial GC, and less of C2, which compiles for a longer life than this one.
JVM_OPTIONS = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=5000 "
    "-XX:Tier4CompileThreshold=40000 -XX:Tier4BackEdgeThreshold=200000"
)
# A MERGE of a few rows takes less time than to compile it.
COMPILED = dict(session_settings.COMPILED)
session_settings.COMPILED.clear()
SPARK_JARS = (ROOT / ".jars" / "spark").resolve()  # as the class archive has them


def pytest_configure(config: pytest.Config) -> None:
    open_services(config)


def pytest_configure_node(node: WorkerController) -> None:
    lend_services(node)


def pytest_unconfigure(config: pytest.Config) -> None:
    close_services(config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    report = yield
    if report.failed:
        name_the_gone(item.config, report)
    return report


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shares:
    return Shares(config, log)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    give_seeds(metafunc)


def pytest_runtest_setup(item: pytest.Item) -> None:
    end_in_time(item)
    need_services(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_turn(items)


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage: not to be looked through again and again."""
    gc.freeze()
    logging.getLogger("py4j").setLevel(logging.ERROR)  # of a JVM that another test has ended


@pytest.fixture(autouse=True)
def secrets_of_one_test() -> Iterator[None]:
    """What one test calls a secret is masked in no other's output."""
    before = set(masking._hidden)
    yield
    masking._hidden.intersection_update(before)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session with Delta and the Kafka source."""
    from pyspark.sql import SparkSession

    from streaming.spark.session import use_this_python
    from streaming.spark.spark_conf import CHECKPOINT_CONF, RUNTIME_CONF, STATIC_CONF, jvm_conf

    jars = sorted(map(str, SPARK_JARS.glob("*.jar")))
    assert jars, "no jars in .jars/spark: run make setup"
    conf = jvm_conf(jars)
    java = "spark.driver.extraJavaOptions"
    settings = {
        **conf,
        java: f"{conf.get(java, '')} {JVM_OPTIONS}",
        **STATIC_CONF,
        **RUNTIME_CONF,
        **CHECKPOINT_CONF,
        # VACUUM makes a task of each of as many partitions, 10,000 unless told.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").appName("tidelake-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    use_this_python(session.sparkContext)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> KafkaBroker:
    """One Kafka broker; use a topic name of your own. Tests that break a broker start theirs."""
    return shared(request.config, "broker")  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def memory_broker() -> Iterator[MemoryBroker]:
    """A Kafka cluster in this process's memory; use a topic name of your own. The product's clients
    take its ``bootstrap`` as they take a real broker's, if they are in this process."""
    from tests.fakes.memory_broker import MemoryBroker

    with MemoryBroker() as running:
        yield running


@pytest.fixture(scope="session")
def secured_broker(request: pytest.FixtureRequest) -> SecuredBroker:
    """One broker that asks for certificates and logins; use a topic name of your own."""
    return shared(request.config, "secured_broker")  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def etcd(request: pytest.FixtureRequest) -> EmbeddedEtcd:
    """One etcd; use a cluster ID of your own. Tests that break or compact one start theirs."""
    return shared(request.config, "etcd")  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest) -> S3Server:
    """One S3 server with a bucket; use a prefix of your own."""
    return shared(request.config, "s3")  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    """A MariaDB 10.11; use a database of your own. Tests that break a server start theirs."""
    from tests.services.database_editions import MARIADB_10_11
    from tests.services.database_server import DatabaseServer

    with DatabaseServer(MARIADB_10_11) as running:
        yield running


@pytest.fixture(scope="session")
def mysql() -> Iterator[DatabaseServer]:
    """A MySQL 9.7, where it can be had; use a database of your own."""
    from tests.services.database_editions import MYSQL_9_7
    from tests.services.database_server import DatabaseServer

    with DatabaseServer(MYSQL_9_7) as running:
        yield running
