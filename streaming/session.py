"""The Spark session of the program, and the settings that it needs.

``tidelake run`` starts Spark here. Under spark-submit or on Databricks Spark runs already, and only
the settings that can still be changed are set. Settings that the JVM needs at its start are in
``conf/spark.conf`` too.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, Stop, TidelakeError
from sinks.jvm_errors import line
from sinks.spark_engine import SESSION_CONF
from streaming.jvm import NEEDS, STOP_S, DriverJvm, in_time

logger = logging.getLogger(__name__)

JARS_VARIABLE = "TIDELAKE_JARS"
MASTER_VARIABLE = "SPARK_MASTER"
MEMORY_VARIABLE = "SPARK_DRIVER_MEMORY"  # Spark's variable; if not set, we use 4 GB
PACKAGES = ("io.delta:delta-spark_4.2_2.13:4.4.0",)
ARCHIVE_NAME = "classes.jsa"
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOG_CONF = Path(__file__).resolve().parents[1] / "conf" / "log4j2.properties"
# For a driver whose executors are its own threads: it listens on the loopback address only.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
POLL_S = 0.1
SOCKET_FOLDER_BYTES = 60  # the whole path of a Unix socket has at most 107
STATIC_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.speculation": "false",  # a second reader of the same messages only takes their time
    "spark.driver.maxResultSize": "0",  # a read has its own budget: 64 MiB of messages a task
    "spark.ui.showConsoleProgress": "false",
    # What matches is not shown in Spark's UI, event log or plans.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
}
RUNTIME_CONF = {
    **SESSION_CONF,
    # A read is one stage of a few rows: writing and compiling code for it costs more than running.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # its extra stages cost time in every small batch
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|jaas|keystore[.]key",
}
# For the disposable checkpoint on a local disk: Spark's default manager starts some twenty
# processes (readlink, chmod) in each batch there.
CHECKPOINT_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    )
}


def spark_session(jvm: DriverJvm, archive_to: Path | None = None) -> SparkSession:
    """The session that runs, or a new one, with all settings that it needs. Blocks while Spark
    starts. Raises ConfigError if Delta is missing.

    ``archive_to``: a JVM that is started writes a class archive there when it ends
    (``class_archive.py``).
    """
    active = SparkSession.getActiveSession()
    session = active or _build(jvm, archive_to)
    _check(session)
    configure(session)
    use_this_python(session)
    cores = session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", str(max(2, cores)))
    session.sparkContext.setLogLevel("ERROR")
    return session


class SparkOnDemand:
    """One session for all threads of a process, started when the first of them needs it. What needs
    no Spark is done, or fails, without the seconds that its start takes. Thread-safe.
    """

    def __init__(self, start: Callable[[], SparkSession] | None = None) -> None:
        self._jvm = DriverJvm()
        self._start = start or (lambda: spark_session(self._jvm))
        self._lock = threading.Lock()
        self._coming: Future[SparkSession] | None = None

    def __call__(self, stopping: threading.Event | None = None) -> SparkSession:
        """The session; blocks while Spark starts. Raises TidelakeError if it does not start, and
        Stop as soon as ``stopping`` is set while it waits."""
        coming = self._begin()
        while True:
            with suppress(NotYet):
                return coming.result(POLL_S)
            if stopping is not None and stopping.is_set():
                raise Stop("asked to stop while Spark was starting")

    def begin(self) -> None:
        self._begin()

    @property
    def started(self) -> SparkSession | None:
        coming = self._coming
        is_up = coming is not None and coming.done() and coming.exception() is None
        return coming.result() if coming is not None and is_up else None

    def stop(self) -> None:
        """End the session and its JVM, whether Spark is up or starting, or the JVM is gone already:
        a service manager sends SIGTERM to the whole process group, so to the JVM too."""
        session = self.started
        answers = session is None or in_time(session.stop, STOP_S)
        self._jvm.stop(STOP_S if answers else 0.0)

    def _begin(self) -> Future[SparkSession]:
        """Start Spark on a thread of its own, so that a thread that waits for it can be asked to
        stop. If the last start has failed, begin another one."""
        with self._lock:
            coming = self._coming
            if coming is None or (coming.done() and coming.exception() is not None):
                coming = self._coming = Future()
                threading.Thread(
                    target=self._run, args=(coming,), name="spark-starts", daemon=True
                ).start()
            return coming

    def _run(self, coming: Future[SparkSession]) -> None:
        try:
            session = self._start()
            context = session.sparkContext
            logger.info("spark is up version=%s master=%s", context.version, context.master)
        except (PySparkException, Py4JError, OSError) as error:
            failure = TidelakeError(f"Spark does not start: {line(error).rstrip('.')}. {NEEDS}")
            failure.__cause__ = error
            coming.set_exception(failure)
        except BaseException as error:  # noqa: BLE001  # raised in the threads that wait
            coming.set_exception(error)
        else:
            coming.set_result(session)


class OwnSession:
    """The session of one stream. Each stream has its own, since queries of the same name cannot
    share one. Spark starts with the first call."""

    def __init__(self, spark: SparkOnDemand) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self, stopping: threading.Event | None = None) -> SparkSession:
        """The session; blocks while Spark starts. Raises Stop as soon as ``stopping`` is set while
        it waits."""
        base = self._spark(stopping)
        with self._lock:
            if self._session is None:
                session = base.newSession()
                configure(session)
                self._session = session
            return self._session

    def cancel(self, tag: str) -> None:
        """Cancel the Spark jobs of that tag. Does nothing if the JVM is gone or never started."""
        session = self._session
        if session is not None:
            with suppress(*CONTEXT_GONE):
                session.sparkContext.cancelJobsWithTag(tag)


# What a call may raise while Spark ends. AttributeError: a stopped context has no Java object.
CONTEXT_GONE = (Py4JError, OSError, AttributeError)


def configure(session: SparkSession) -> None:
    """Set our runtime settings, which every session needs, also one made by ``newSession``."""
    conf = RUNTIME_CONF if _is_databricks(session) else RUNTIME_CONF | CHECKPOINT_CONF
    for name, value in conf.items():
        session.conf.set(name, value)


def use_this_python(session: SparkSession) -> None:
    """Let executors within the driver use this process's Python and code, not those on the PATH.

    Executors elsewhere use PYSPARK_PYTHON, which must have the packages.
    """
    context = session.sparkContext
    if is_within(context.master or ""):
        context.pythonExec = sys.executable
        code = [str(Path(__file__).resolve().parents[1]), context.environment.get("PYTHONPATH")]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, code)))


def compiling(session: SparkSession) -> SparkSession:
    """A new session that compiles its queries, for work on many rows: the Spark engine's
    commits."""
    other = session.newSession()
    configure(other)
    other.conf.set("spark.sql.codegen.wholeStage", "true")
    other.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    return other


def _build(jvm: DriverJvm, archive_to: Path | None) -> SparkSession:
    builder = SparkSession.Builder().appName("tidelake")
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started the JVM: its settings stand
        return builder.getOrCreate()
    conf = _conf(os.environ.get(MASTER_VARIABLE, "local[*]"), archive_to)
    jvm.start(conf)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _conf(master: str, archive_to: Path | None) -> dict[str, str]:
    """The settings of a JVM that is started here."""
    is_here = is_within(master)
    conf = {"spark.master": master, **STATIC_CONF, **RUNTIME_CONF}
    if MEMORY_VARIABLE not in os.environ:
        conf["spark.driver.memory"] = "4g"
    jars = jar_files()
    java = [f"-Dlog4j2.configurationFile={LOG_CONF.as_uri()}"]
    if jars and is_here:
        archived = jvm_conf(jars, archive_to)
        java += filter(None, [archived.pop(JAVA_OPTIONS, "")])
        conf |= archived
    elif jars:
        conf["spark.jars"] = ",".join(jars)
    else:
        conf["spark.jars.packages"] = ",".join(PACKAGES)
        logger.warning(
            "no jars of Delta are here: Spark looks for them in "
            "~/.ivy2.5.2 and fetches what is missing, some 200 MB. TIDELAKE_JARS names a folder "
            "that has them packages=%s",
            conf["spark.jars.packages"],
        )
    if is_here:
        conf["spark.python.daemon.module"] = "streaming.source.worker_daemon"
        folder = tempfile.gettempdir()  # this process's own (``scratch.py``)
        # The JVM only moves bytes and starts jobs: its optimizing compiler would cost more CPU.
        java += ["-XX:TieredStopAtLevel=1", f'"-Djava.io.tmpdir={folder}"']
        conf |= {"spark.local.dir": folder, **LOOPBACK}
        # Unix sockets between JVM and workers: TCP would add needless waits of 40 ms.
        is_short = len(os.fsencode(folder)) <= SOCKET_FOLDER_BYTES
        conf["spark.python.unix.domain.socket.enabled"] = str(is_short).lower()
    return conf | {JAVA_OPTIONS: " ".join(java)}


def is_within(master: str) -> bool:
    """Whether the executors are threads of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def jvm_conf(jars: Sequence[str], archive_to: Path | None = None) -> dict[str, str]:
    """Settings of a local JVM: all jars are on its class path, so that a class archive can be used
    (or made, with ``archive_to``)."""
    conf = {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    archive = Path(jars[0]).parent / ARCHIVE_NAME
    if archive_to is not None:
        conf[JAVA_OPTIONS] = f"-XX:ArchiveClassesAtExit={archive_to} {_QUIET}"
    elif archive.exists():
        conf[JAVA_OPTIONS] = f"-XX:SharedArchiveFile={archive} {_QUIET}"
    return conf


def archive_folder() -> Path | None:
    """The folder of the class archive, beside the jars; None if there is no folder of jars."""
    jars = jar_files()
    return Path(jars[0]).parent if jars else None


def jar_files() -> list[str]:
    """The jars that ``make setup`` fetched; empty if Spark has to fetch them itself. Raises
    ConfigError if TIDELAKE_JARS names a folder without jars."""
    given = os.environ.get(JARS_VARIABLE)
    if given is not None and not list(Path(given).glob("*.jar")):
        raise ConfigError(f"{JARS_VARIABLE}={given} holds no jars: run `make setup`, or unset it")
    places = [Path(given)] if given else [Path(), Path(__file__).resolve().parents[1]]
    for place in places:
        folder = place if given else place / ".jars" / "spark"
        found = sorted(str(jar.resolve()) for jar in folder.glob("*.jar"))
        if found:
            return found
    return []


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
