"""The real services, one of each per test session, started when a test first asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordination.etcd.embedded import EmbeddedEtcd
    from tests.services.kafka_broker import KafkaBroker

SPARK_JARS = Path(__file__).resolve().parents[1] / ".jars" / "spark"


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is Spark's in one worker: a second JVM would load and compile everything again.

    For the other worker the longest come first: processes.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: item.get_closest_marker("acceptance") is None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session with Delta and the Kafka source."""
    from pyspark.sql import SparkSession

    from streaming.session import CHECKPOINT_CONF, RUNTIME_CONF, STATIC_CONF, jvm_conf

    jars = sorted(map(str, SPARK_JARS.glob("*.jar")))
    assert jars, "no jars in .jars/spark: run make setup"
    conf = jvm_conf(jars)
    java = "spark.driver.extraJavaOptions"
    settings = {
        **conf,
        java: f"{conf.get(java, '')} -XX:+UseSerialGC",  # two workers share two cores
        **STATIC_CONF,
        **RUNTIME_CONF,
        **CHECKPOINT_CONF,
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").appName("tidelake-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """One Kafka broker; use a topic name of your own. Tests that break a broker start theirs."""
    from tests.services.kafka_broker import KafkaBroker

    with KafkaBroker() as running:
        yield running


@pytest.fixture(scope="session")
def etcd() -> Iterator[EmbeddedEtcd]:
    """One etcd; use a cluster ID of your own. Tests that break an etcd start theirs."""
    from coordination.etcd.embedded import EmbeddedEtcd

    with EmbeddedEtcd() as running:
        yield running
