"""The session that is started by whoever needs it first."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, Stop, TidelakeError
from streaming.spark import spark_conf
from streaming.spark.python_worker import first_task
from streaming.spark.session import CONTEXT_GONE, SparkOnDemand, use_this_python
from streaming.spark.spark_conf import COLLECTOR, STATIC_CONF, conf_of_jvm
from tests.own_lines import own_text

ROOT = Path(__file__).resolve().parents[3]


def test_threads_that_ask_at_once_get_one_session():
    session, together = Mock(), threading.Barrier(3, timeout=60)
    start = Mock(return_value=session)
    spark, found = SparkOnDemand(start), []

    def ask() -> None:
        together.wait()
        found.append(spark())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [session] * 3
    start.assert_called_once_with()
    spark.stop()
    session.stop.assert_called_once_with()


def test_what_was_never_started_is_not_stopped():
    start = Mock()
    spark = SparkOnDemand(start)
    spark.stop()
    assert spark.started is None
    start.assert_not_called()


def test_who_waits_for_it_can_be_asked_to_stop():
    begun, go_on, stopping = threading.Event(), threading.Event(), threading.Event()
    session = Mock()

    def start() -> object:
        begun.set()
        stopping.set()
        go_on.wait(60)
        return session

    spark = SparkOnDemand(start)
    with pytest.raises(Stop, match="while Spark was starting"):
        spark(stopping)
    assert begun.is_set()
    assert spark.started is None
    go_on.set()
    assert spark() is session  # a capture that is back finds the one that was coming


def test_a_stop_amid_a_start_ends_its_jvm_and_waits_for_it():
    """A process that ends while a thread builds a session may crash."""
    begun, jvm_ended, steps = threading.Event(), threading.Event(), list[str]()

    def start() -> SparkSession:
        begun.set()
        assert jvm_ended.wait(60)
        time.sleep(0.1)
        steps.append("the start has failed")
        raise Py4JNetworkError("Answer from Java side is empty")

    spark = SparkOnDemand(start, Mock(stop=lambda _: jvm_ended.set()))
    spark.begin()
    assert begun.wait(60)
    spark.stop()
    assert steps == ["the start has failed"]
    with pytest.raises(TidelakeError, match="does not start"):
        spark._coming.session.result(0)


def test_jobs_can_run_before_the_session_is_there():
    go_on, context = threading.Event(), Mock(master="spark://elsewhere:7077")
    session = Mock(sparkContext=context)

    def start() -> object:
        spark._can_run_jobs(context)
        go_on.wait(60)
        return session

    spark = SparkOnDemand(start)
    assert spark.context() is context
    assert spark.started is None
    go_on.set()
    assert spark() is session


def test_the_context_of_a_session_that_was_there_already():
    session = Mock()
    assert SparkOnDemand(lambda: session).context() is session.sparkContext


def test_after_a_start_that_failed_the_next_one_has_a_context_of_its_own():
    session = Mock()
    spark = SparkOnDemand(Mock(side_effect=[OSError("no room"), session]))
    with pytest.raises(TidelakeError, match="no room"):
        spark()
    assert spark.context() is session.sparkContext


def test_what_spark_leaves_is_in_the_temporary_folder_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    conf = conf_of_jvm("local[2]")
    assert conf["spark.local.dir"] == str(tmp_path)
    assert f'"-Djava.io.tmpdir={tmp_path}"' in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.local.dir" not in conf_of_jvm("spark://elsewhere:7077")


@pytest.mark.parametrize(("folder", "has"), [("/tmp/short", "true"), ("/" + "long" * 20, "false")])
def test_sockets_are_files_where_their_paths_are_short_enough(
    folder: str, has: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", folder)
    assert conf_of_jvm("local[2]")["spark.python.unix.domain.socket.enabled"] == has


@pytest.mark.parametrize("named", ["", "-XX:+UseG1GC -Xss1m", "-XX:+UseParallelGC"])
def test_the_jvm_has_one_collector_whoever_names_it(named: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", named)
    java = conf_of_jvm("local[2]")["spark.driver.extraJavaOptions"]
    assert len(COLLECTOR.findall(f"{java} {named}")) == 1


def test_jars_that_must_be_fetched_are_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(spark_conf, "jar_files", list)
    conf = conf_of_jvm("local[2]")
    assert "delta-spark" in conf["spark.jars.packages"]
    assert "`tidelake jars DIR` fetches them into a folder" in own_text(caplog)


def test_jars_without_that_of_delta_are_refused_before_a_jvm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "unitycatalog-client-0.6.0.jar").touch()
    monkeypatch.setenv("TIDELAKE_JARS", str(tmp_path))
    with pytest.raises(ConfigError, match=r"but not Delta's .* `tidelake jars DIR`"):
        conf_of_jvm("local[2]")


def test_spark_submit_gets_what_we_give_ourselves():
    lines = (ROOT / "conf" / "spark.conf").read_text().splitlines()
    told = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    assert (ROOT / told["spark.driver.extraJavaOptions"].partition("=")[2]).is_file()
    assert {name: told[name] for name in STATIC_CONF} == STATIC_CONF


def test_a_start_that_fails_is_one_line_without_a_way_out_that_is_not_known():
    failure = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    spark = SparkOnDemand(Mock(side_effect=failure))
    with pytest.raises(TidelakeError, match=r"Spark does not start: .*Java gateway[^.]*$"):
        spark()
    assert spark.started is None


def test_the_way_out_of_a_start_that_fails_when_the_jvm_is_up_already():
    spark = SparkOnDemand(Mock(side_effect=Py4JError("NoClassDefFoundError: io/delta/Log")))
    with pytest.raises(TidelakeError, match=r"start: NoClass.* missing: `tidelake jars DIR`"):
        spark()


@pytest.mark.spark
def test_a_worker_is_there_before_the_first_read(spark: SparkSession):
    assert spark.sparkContext.parallelize([], 2).mapPartitionsWithIndex(first_task).collect() == []


@pytest.mark.parametrize(("master", "jobs"), [("local[2]", 1), ("spark://elsewhere:7077", 0)])
@pytest.mark.parametrize("failure", [None, *CONTEXT_GONE])
def test_a_session_ends_after_its_workers_have_started(
    master: str, jobs: int, failure: type[Exception] | None
):
    """Workers of executors elsewhere are not ours to start."""
    go_on, order = threading.Event(), []

    def parallelize(*_: object) -> Mock:
        go_on.wait(60)
        order.append("workers")
        if failure is not None:
            raise failure
        return Mock()

    context = Mock(master=master, defaultParallelism=2, parallelize=Mock(side_effect=parallelize))
    session = Mock(stop=lambda: order.append("session"))

    def start() -> Mock:
        spark._can_run_jobs(context)
        return session

    spark = SparkOnDemand(start)
    assert spark() is session
    ending = threading.Thread(target=spark.stop)
    ending.start()
    if jobs:
        assert order == []
    go_on.set()
    ending.join(60)
    assert order == ["workers", "session"][1 - jobs :]
    assert context.parallelize.call_count == jobs


def test_naming_this_python_twice_changes_nothing():
    """Workers are found again by their environment."""
    context = Mock(master="local[2]", environment={"PYTHONPATH": "/else/where"})
    use_this_python(context)
    first = dict(context.environment)
    use_this_python(context)
    assert context.environment == first == {"PYTHONPATH": f"{ROOT}:/else/where"}
