"""The settings of Spark: those that its JVM starts with, and those that every session gets.

It imports nothing of Spark's, so that the JVM can be launched before anything else is done.
Settings that the JVM needs at its start are in ``conf/spark.conf`` too.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coordination.errors import ConfigError
from sinks.spark.session_settings import SESSION_CONF

logger = logging.getLogger(__name__)

JARS_VARIABLE = "TIDELAKE_JARS"
MASTER_VARIABLE = "SPARK_MASTER"
MEMORY_VARIABLE = "SPARK_DRIVER_MEMORY"  # Spark's variable; if not set, we use 4 GB
PACKAGES = ("io.delta:delta-spark_4.2_2.13:4.4.0",)
ARCHIVE_NAME = "classes.jsa"
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOG_CONF = Path(__file__).resolve().parents[2] / "conf" / "log4j2.properties"
# For a driver whose executors are its own threads: it listens on the loopback address only.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Where a user may name the JVM's options; two collectors would be one too many.
OPTIONS_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")
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


def asked_master() -> str:
    return os.environ.get(MASTER_VARIABLE, "local[*]")


def conf_of_jvm(master: str, archive_to: Path | None = None) -> dict[str, str]:
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
            "~/.ivy2.5.2 and fetches the missing ones, some 200 MB. `tidelake jars DIR` fetches "
            "them into a folder, which TIDELAKE_JARS then names packages=%s",
            conf["spark.jars.packages"],
        )
    if is_here:
        conf["spark.python.daemon.module"] = "streaming.source.worker_daemon"
        folder = tempfile.gettempdir()  # this process's own (``temporary_folder.py``)
        # The JVM only moves bytes and starts jobs: its optimizing compiler would cost more CPU.
        java += ["-XX:TieredStopAtLevel=1", f'"-Djava.io.tmpdir={folder}"']
        # What it drops is young: G1 would let the heap grow to twice as much, for no more speed.
        asked = " ".join(os.environ.get(name, "") for name in OPTIONS_VARIABLES)
        java += [] if COLLECTOR.search(asked) else ["-XX:+UseSerialGC"]
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
    """The jars that ``make setup`` or ``tidelake jars`` fetched; empty if Spark has to fetch them
    itself. Raises ConfigError for a folder without jars, or without that of Delta."""
    given = os.environ.get(JARS_VARIABLE)
    if given is not None and not list(Path(given).glob("*.jar")):
        raise ConfigError(
            f"{JARS_VARIABLE}={given} holds no jars: `tidelake jars {given}` fetches them"
        )
    places = [Path(given)] if given else [Path(), Path(__file__).resolve().parents[2]]
    for place in places:
        folder = place if given else place / ".jars" / "spark"
        found = sorted(str(jar.resolve()) for jar in folder.glob("*.jar"))
        if found and not any(Path(jar).name.startswith("delta-spark") for jar in found):
            raise ConfigError(
                f"{folder} holds jars, but not Delta's (delta-spark…): `tidelake jars DIR` fetches "
                f"all of them into an empty folder, which {JARS_VARIABLE} then names"
            )
        if found:
            return found
    return []
