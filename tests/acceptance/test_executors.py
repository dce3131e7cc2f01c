"""Executors in other processes, with another Python and none of the driver's environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import STOP_WITHIN_S, Life, Stage, await_, environment
from tests.acceptance.small_tables import A, made, marks, row
from tests.acceptance.test_secrets import SECRET, has_secret, written_with_it
from tests.services.broker_settings import SASL_USER
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import REPOSITORY, KafkaBroker
from tests.services.secured_broker import SecuredBroker
from tests.services.spark_cluster import EXECUTORS, HOME, SparkCluster
from tests.services.wheel import build_wheel, make_python

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]

STANDS_STILL_S = 1.0
TARGET_TS = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as running:
        yield running


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """With what executors need and nothing else."""
    return make_python(tmp_path_factory.mktemp("python"), wheel)


def fill(broker: KafkaBroker) -> str:
    """A topic with one row and one dead letter below TARGET_TS; its name."""
    topic = f"small-{uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=3)
    broker.produce(topic, [*made(10, A), (1, None, row(20, 1, "x")), (2, None, b"{"), *marks(50)])
    return topic


def submit(
    cluster: SparkCluster, python: Path | str, folder: Path, *words: str, **given: str
) -> subprocess.CompletedProcess[str]:
    """As README says it, from the repository's root; ``words``: more for ``spark-submit``, behind
    ``run`` for the program."""
    behind = words.index("run")
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster.master]
    command += ["--properties-file", "conf/spark.conf", *cluster.arguments, *words[:behind]]
    command += ["streaming/job.py", *words[behind:], "--sink-uri", f"delta://{folder / 'lake'}"]
    command += ["--start-ts", "1", "--target-ts", str(TARGET_TS)]
    env = {**environment(folder), "PYSPARK_PYTHON": str(python), **given}
    del env["PYTHONPATH"], env["SPARK_MASTER"]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**env, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def assert_applied(folder: Path) -> None:
    assert [each["v"] for each in read_rows(folder / "lake" / "shop" / "a")] == ["x"]
    letters = read_rows(folder / "lake" / "_tidelake" / "dead_letters")
    assert [each["value"] for each in letters] == [b"{"]


@pytest.mark.more
def test_spark_submit_reads_a_secured_broker_and_shows_no_secret(
    cluster: SparkCluster, python: Path, secured_broker: SecuredBroker, tmp_path: Path
) -> None:
    broker, events = secured_broker, tmp_path / "events"
    events.mkdir()
    login = "&sasl-mechanism=SCRAM-SHA-512&sasl-password=${env:SHOP_PASSWORD}"
    uri = broker.source_uri(
        "sasl_tls", fill(broker), f"{broker.trusted}{login}&sasl-user={SASL_USER}"
    )
    shown = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    conf = [word for pair in shown.items() for word in ("--conf", "=".join(pair))]

    ended = submit(
        cluster, python, tmp_path, *conf, "run", "--source-uri", uri, SHOP_PASSWORD=SECRET
    )

    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr + cluster.said()[-4000:]
    assert_applied(tmp_path)
    assert not has_secret(f"{ended.stdout}{ended.stderr}".encode())
    assert "SparkListenerTaskEnd" in "".join(  # all that Spark's pages are made of
        path.read_text() for path in events.rglob("*") if path.is_file()
    )
    assert written_with_it(tmp_path, but=()) == []
    assert "Executor: Finished task" in cluster.said()
    assert written_with_it(cluster.folder, but=()) == []


@pytest.mark.soak
def test_killed_executors_and_pythons_lose_and_double_nothing(
    cluster: SparkCluster, python: Path, broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    with (
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=11) as feed,
    ):
        life = stage.start("on-a-cluster", given=cluster.environment(python))
        stage.await_checkpoint(1, life)
        await_all(cluster.executors)
        first = cluster.executors()
        assert cluster.pythons()

        freeze_a_read(cluster)
        kill(cluster.pythons())
        stage.await_progress(life)
        assert "Python worker exited unexpectedly" in cluster.said()

        freeze_a_read(cluster)
        kill([*first, *cluster.pythons()])
        stage.await_progress(life)
        assert not set(first) & set(cluster.executors())

        await_all(cluster.executors)
        kill(cluster.executors()[:1])  # at any moment: between two reads, most likely
        stage.await_progress(life)
        await_all(cluster.executors)
        stage.await_progress(life)

        last_ts = feed.close()
        stage.await_checkpoint(last_ts, life)
        life.signal(signal.SIGTERM)
        assert life.await_exit(STOP_WITHIN_S) == 0, life.tail()
        stage.assert_equal(feed.events)


def await_all(executors: Callable[[], list[int]]) -> None:
    await_("all executors", lambda: len(executors()) == EXECUTORS)


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def freeze_a_read(cluster: SparkCluster) -> None:
    """Until a task stands still for a while: the feed is live, so one begins soon."""
    while True:
        for pid in cluster.pythons():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        before = cluster.reading()
        time.sleep(STANDS_STILL_S)
        if before & cluster.reading():
            return


@pytest.mark.soak
@pytest.mark.parametrize("lacks", ["tidelake", "confluent_kafka", "numpy", "pyarrow", "python"])
def test_an_executor_whose_python_lacks_something_is_one_line(
    cluster: SparkCluster, wheel: Path, broker: KafkaBroker, tmp_path: Path, lacks: str
) -> None:
    native = {"confluent_kafka", "numpy", "pyarrow"} - {lacks}
    python = make_python(tmp_path, None if lacks == "tidelake" else wheel, sorted(native))
    named = "python-not-there" if lacks == "python" else str(python)
    folder = tmp_path / "run"
    folder.mkdir()
    uri = (
        f"kafka://{broker.bootstrap}/{fill(broker)}?protocol=canal-json&enable-tidb-extension=true"
    )
    command = [sys.executable, "-m", "streaming.cli.main", "run", "--source-uri", uri]
    command += ["--sink-uri", f"delta://{folder}/lake", "--start-ts", "1"]
    life = Life("run", folder, command, environment(folder) | cluster.environment(named))
    try:
        assert life.await_exit(300) == 1, life.tail()
        says = {"tidelake": "has no module streaming", "python": "cannot be run there"}
        (last,) = life.lines("ERROR tidelake: ")
        assert f"executors, {named}, {says.get(lacks, f'has no module {lacks}')}" in last
        assert life.lines()[-1] == last
        assert life.lines("Traceback") == []
    finally:
        life.end()


@pytest.mark.soak
def test_an_application_that_its_master_ends_is_started_again_by_its_supervisor(
    cluster: SparkCluster, python: Path, broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    with (
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=12) as feed,
    ):
        given = cluster.environment(python)
        ended = stage.start("ended", given=given)
        stage.await_progress(ended)
        cluster.end_application()
        assert ended.await_exit() == 1, ended.tail()
        assert "ERROR tidelake: Spark has ended: " in ended.lines()[-1]
        again = stage.start("again", given=given, target_ts=feed.close())
        assert again.await_exit() == 0, again.tail()
        stage.assert_equal(feed.events)


@pytest.mark.soak
def test_a_packed_environment_is_sent_to_executors_that_have_nothing(
    cluster: SparkCluster, python: Path, broker: KafkaBroker, tmp_path: Path
) -> None:
    """What ``venv-pack`` makes, with all of it copied."""
    packed = tmp_path / "tidelake.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1, dereference=False) as archive:
        home = python.parents[1]
        for path in sorted(home.rglob("*")):
            name = str(path.relative_to(home))
            is_package = path.is_symlink() and "site-packages" in name
            archive.add(path.resolve() if is_package else path, name, recursive=is_package)
    uri = (
        f"kafka://{broker.bootstrap}/{fill(broker)}?protocol=canal-json&enable-tidb-extension=true"
    )
    sent = ("--archives", f"{packed}#environment", "run", "--source-uri", uri)

    ended = submit(cluster, "./environment/bin/python", tmp_path, *sent)

    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr + cluster.said()[-4000:]
    assert_applied(tmp_path)
