"""The Spark session of the program.

``tidelake run`` starts Spark here. Under spark-submit or on Databricks Spark runs already, and only
the settings that can still be changed are set.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, Stop
from sinks.spark.jvm_errors import line
from sinks.spark.session_settings import COMPILED
from streaming.spark.jvm import STOP_S, DriverJvm, does_not_start, in_time
from streaming.spark.python_worker import first_task
from streaming.spark.spark_conf import (
    CHECKPOINT_CONF,
    RUNTIME_CONF,
    asked_master,
    conf_of_jvm,
    is_within,
)

logger = logging.getLogger(__name__)

POLL_S = 0.1
START_ENDS_S = 5.0  # a start whose JVM was ended
T = TypeVar("T")


def spark_session(
    jvm: DriverJvm,
    *,
    archive_to: Path | None = None,
    with_context: Callable[[SparkContext], None] = lambda _context: None,
) -> SparkSession:
    """The session that runs, or a new one, with all settings that it needs. Blocks while Spark
    starts. Raises ConfigError if Delta is missing.

    ``archive_to``: a JVM that is started writes a class archive there when it ends
    (``class_archive.py``). ``with_context`` is called as soon as its context can run jobs, some
    time before the session is there.
    """
    session = SparkSession.getActiveSession() or _build(jvm, archive_to, with_context)
    _check(session)
    configure(session)
    use_this_python(session.sparkContext)
    cores = session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", str(max(2, cores)))
    session.sparkContext.setLogLevel("ERROR")
    return session


class SparkOnDemand:
    """One session for all threads of a process, started when the first of them needs it. Work that
    needs no Spark is done, or fails, without the seconds of its start. Thread-safe."""

    def __init__(
        self, start: Callable[[], SparkSession] | None = None, jvm: DriverJvm | None = None
    ) -> None:
        self._jvm = jvm or DriverJvm()
        self._start = start or (lambda: spark_session(self._jvm, with_context=self._can_run_jobs))
        self._starting: threading.Thread | None = None
        self._workers: threading.Thread | None = None
        self._lock = threading.Lock()
        self._coming: _Coming | None = None

    def __call__(self, stopping: threading.Event | None = None) -> SparkSession:
        """The session; blocks while Spark starts. Raises TidelakeError if it does not start, and
        Stop as soon as ``stopping`` is set while it waits."""
        return _result(self._begin().session, stopping)

    def context(self, stopping: threading.Event | None = None) -> SparkContext:
        """The session's context, as soon as it can run jobs: about a second before the session is
        there. Blocks and raises as a call does."""
        return _result(self._begin().context, stopping)

    def begin(self) -> None:
        self._begin()

    @property
    def started(self) -> SparkSession | None:
        session = self._coming.session if self._coming is not None else None
        is_up = session is not None and session.done() and session.exception() is None
        return session.result() if session is not None and is_up else None

    def stop(self) -> None:
        """End the session and its JVM, whether Spark is up or starting, or the JVM is gone already:
        a service manager sends SIGTERM to the whole process group, so to the JVM too."""
        answers = self.started is None or in_time(self._stop_session, STOP_S)
        self._jvm.stop(STOP_S if answers else 0.0)
        if self._starting is not None:  # its calls fail now; a process must not end amid them
            self._starting.join(START_ENDS_S)

    def _stop_session(self) -> None:
        if self._workers is not None:
            self._workers.join()  # a job that is under way would fail, with a stack trace
        if (session := self.started) is not None:
            session.stop()

    def _can_run_jobs(self, context: SparkContext) -> None:
        if self._coming is not None:
            self._coming.context.set_result(context)
        if is_within(context.master or ""):
            self._workers = threading.Thread(
                target=_run_first_tasks, args=(context,), name="workers-start", daemon=True
            )
            self._workers.start()

    def _begin(self) -> _Coming:
        """Start Spark on a thread of its own, so that a thread that waits for it can be asked to
        stop. If the last start has failed, begin another one."""
        with self._lock:
            coming = self._coming
            if coming is None or coming.has_failed:
                coming = self._coming = _Coming()
                self._starting = threading.Thread(
                    target=self._run, args=(coming,), name="spark-starts", daemon=True
                )
                self._starting.start()
            return coming

    def _run(self, coming: _Coming) -> None:
        try:
            session = self._start()
            context = session.sparkContext
            logger.info("spark is up version=%s master=%s", context.version, context.master)
        except (PySparkException, Py4JError, OSError) as error:
            failure = does_not_start(line(error).rstrip("."))
            failure.__cause__ = error
            coming.fail(failure)
        except BaseException as error:  # noqa: BLE001  # raised in the threads that wait
            coming.fail(error)
        else:
            if not coming.context.done():
                coming.context.set_result(context)
            coming.session.set_result(session)


@dataclass(frozen=True, slots=True, eq=False)
class _Coming:
    """One start of Spark."""

    context: Future[SparkContext] = field(default_factory=Future)
    session: Future[SparkSession] = field(default_factory=Future)

    @property
    def has_failed(self) -> bool:
        return self.session.done() and self.session.exception() is not None

    def fail(self, error: BaseException) -> None:
        if not self.context.done():
            self.context.set_exception(error)
        self.session.set_exception(error)


def _result(coming: Future[T], stopping: threading.Event | None) -> T:
    while True:
        with suppress(NotYet):
            return coming.result(POLL_S)
        if stopping is not None and stopping.is_set():
            raise Stop("asked to stop while Spark was starting")


# What a call may raise while Spark ends. AttributeError: a stopped context has no Java object.
CONTEXT_GONE = (Py4JError, OSError, AttributeError)


def configure(session: SparkSession) -> None:
    """Set our runtime settings, which every session needs, also one made by ``newSession``."""
    conf = RUNTIME_CONF if _is_databricks(session) else RUNTIME_CONF | CHECKPOINT_CONF
    for name, value in conf.items():
        session.conf.set(name, value)


def use_this_python(context: SparkContext) -> None:
    """Let executors within the driver use this process's Python and code, not those on the PATH.
    Idempotent.

    Executors elsewhere use PYSPARK_PYTHON, which must have the packages.
    """
    if is_within(context.master or ""):
        context.pythonExec = sys.executable
        asked = context.environment.get("PYTHONPATH", "").split(os.pathsep)
        code = [str(Path(__file__).resolve().parents[2]), *filter(None, asked)]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(code))


def _run_first_tasks(context: SparkContext) -> None:
    """Start the Pythons of executors within the driver. They import for most of a second, for which
    the first read would wait; meanwhile the session is made."""
    with suppress(PySparkException, *CONTEXT_GONE):  # what is wrong, the first read says
        nothing = context.parallelize(list[object](), context.defaultParallelism)
        nothing.mapPartitionsWithIndex(first_task).collect()


def compiling(session: SparkSession) -> SparkSession:
    """A new session that compiles its queries, for work on many rows: the Spark engine's
    commits."""
    other = session.newSession()
    configure(other)
    for name, value in COMPILED.items():
        other.conf.set(name, value)
    return other


def _build(
    jvm: DriverJvm, archive_to: Path | None, with_context: Callable[[SparkContext], None]
) -> SparkSession:
    builder = SparkSession.Builder().appName("tidelake")
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started the JVM: its settings stand
        return builder.getOrCreate()
    if not jvm.is_launched:
        jvm.launch(conf_of_jvm(asked_master(), archive_to))
    conf = jvm.start()
    context = SparkContext.getOrCreate(SparkConf().setAppName("tidelake").setAll([*conf.items()]))
    use_this_python(context)
    with_context(context)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _is_databricks(session: SparkSession) -> bool:
    return session.conf.get("spark.databricks.clusterUsageTags.clusterId", None) is not None


def _check(session: SparkSession) -> None:
    """Raise ConfigError if the session has no Delta: without this check the error would be a stack
    trace later.
    """
    extensions = session.conf.get("spark.sql.extensions", "") or ""
    if "delta" not in extensions.lower() and not _is_databricks(session):
        raise ConfigError(
            "the Spark session has no Delta extension: start it with --properties-file "
            "conf/spark.conf"
        )
