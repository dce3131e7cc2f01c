"""The real services, one of each per test session, started when a test first asks for one."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from conf import masking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordination.etcd.embedded import EmbeddedEtcd
    from tests.services.kafka_broker import KafkaBroker
    from tests.services.s3_server import S3Server
    from tests.services.secured_broker import SecuredBroker

ROOT = Path(__file__).resolve().parents[1]
# Serial GC, and less of C2, which compiles for a longer life than this one.
TWO_WORKERS_SHARE_TWO_CORES = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=5000 "
    "-XX:Tier4CompileThreshold=40000 -XX:Tier4BackEdgeThreshold=200000"
)
SPARK_JARS = ROOT / ".jars" / "spark"


def marked_spark() -> Iterator[str]:
    """Node IDs: of a module, or of a test or class in one that is not Spark's as a whole."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        module, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if re.search(r"^pytestmark = .*mark\.spark\b", text, re.MULTILINE):
            yield module
        marked = r"^@pytest\.mark\.spark\n(?:@.*\n)*(?:def|class) (\w+)"
        for name in re.findall(marked, text, re.MULTILINE):
            yield f"{module}::{name}"


SPARKS = frozenset(marked_spark())


class OneSpark(LoadScopeScheduling):
    """All that is Spark's in one worker: a second JVM would load and compile everything again.

    (xdist's own groups do not reach pytest 9's node IDs.)
    """

    def _split_scope(self, nodeid: str) -> str:
        module, _, test = nodeid.partition("::")
        (name,) = re.findall(r"^\w+", test)
        return "spark" if SPARKS & {module, f"{module}::{name}"} else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSpark:
    return OneSpark(config, log)


# What needs the whole machine runs beside what needs the least of it.
LAST = ("tests/acceptance/test_cluster.py", "tests/simulation/test_simulation.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For the worker without Spark the longest come first: processes."""

    def turn(item: pytest.Item) -> int:
        module = item.nodeid.partition("::")[0]
        if module in LAST:
            return 2 + LAST.index(module)
        return int(item.get_closest_marker("acceptance") is None)

    items.sort(key=turn)


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage: not to be looked through again and again."""
    gc.freeze()


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

    from streaming.session import (
        CHECKPOINT_CONF,
        RUNTIME_CONF,
        STATIC_CONF,
        jvm_conf,
        use_this_python,
    )

    jars = sorted(map(str, SPARK_JARS.glob("*.jar")))
    assert jars, "no jars in .jars/spark: run make setup"
    conf = jvm_conf(jars)
    java = "spark.driver.extraJavaOptions"
    settings = {
        **conf,
        java: f"{conf.get(java, '')} {TWO_WORKERS_SHARE_TWO_CORES}",
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
    use_this_python(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """One Kafka broker; use a topic name of your own. Tests that break a broker start theirs."""
    from tests.services.kafka_broker import KafkaBroker

    with KafkaBroker() as running:
        yield running


@pytest.fixture(scope="session")
def secured_broker() -> Iterator[SecuredBroker]:
    """One broker that asks for certificates and logins; use a topic name of your own."""
    from tests.services.secured_broker import SecuredBroker

    with SecuredBroker() as running:
        yield running


@pytest.fixture(scope="session")
def etcd() -> Iterator[EmbeddedEtcd]:
    """One etcd; use a cluster ID of your own. Tests that break an etcd start theirs."""
    from coordination.etcd.embedded import EmbeddedEtcd

    with EmbeddedEtcd() as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One S3 server with a bucket; use a prefix of your own."""
    from tests.services.s3_server import S3Server

    with S3Server() as running:
        yield running
