"""A Spark cluster whose executors know nothing of the driver: Spark's own master and worker, with
an environment, a folder and a Python of their own.

    driver, of a test ──spark://──► master ──► worker ──► executors ──► their Python
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlencode
from urllib.request import urlopen

import pyspark

from tests.services.child_process import end_child, start_child

START_PATIENCE_S: Final = 180.0  # 5 on a quiet machine
EXECUTORS: Final = 2  # of one core each
SMALL: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
HOME: Final = Path(pyspark.__file__).parent
_BEGUN: Final = re.compile(r"Running task .*\(TID (\d+)\)")
_ENDED: Final = re.compile(r"(?:Finished|Exception in) task .*\(TID (\d+)\)")
_LISTENS: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED: Final = re.compile(r"Successfully registered with master")


class SparkCluster:
    """A context manager. Start it on a thread that outlives it (see ``child_process``)."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tidelake-spark-"))
        self.master = ""
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        try:
            ports = ("--host", "127.0.0.1", "--webui-port", "0")
            self._start("master.Master", *ports, "--port", "0")
            self.master = self._await("master.Master", _LISTENS)
            size = ("--cores", str(EXECUTORS), "--memory", "2g", "--work-dir", str(self.work))
            self._start("worker.Worker", *ports, *size, self.master)
            self._await("worker.Worker", _JOINED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for process in reversed(self._running):
            end_child(process)
        for pid in [*self.executors(), *self.pythons()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def work(self) -> Path:
        """Where executors stand, and log."""
        return self.folder / "work"

    @property
    def arguments(self) -> list[str]:
        """Of ``spark-submit``: this cluster's executors, small ones."""
        conf = {
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SMALL,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        return [word for pair in conf.items() for word in ("--conf", "=".join(pair))]

    def environment(self, python: str | Path, *more: str) -> dict[str, str]:
        """Of ``tidelake run``: this cluster, that Python for its executors, and more for
        ``spark-submit``.
        """
        return {
            "SPARK_MASTER": self.master,
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_SUBMIT_ARGS": shlex.join([*self.arguments, *more, "pyspark-shell"]),
        }

    # Its processes.

    def executors(self) -> list[int]:
        """Their JVMs."""
        return self._find(b"CoarseGrainedExecutorBackend")

    def pythons(self) -> list[int]:
        """Of executors: daemons, and the workers that these have forked."""
        return self._find(b"pyspark.daemon")

    def reading(self) -> set[str]:
        """Numbers of the tasks that the newest application's executors are at."""
        logs = self._newest().glob("*/stderr")
        said = "".join(path.read_text(errors="replace") for path in logs)
        return set(_BEGUN.findall(said)) - set(_ENDED.findall(said))

    def end_application(self) -> None:
        """As an operator does, on the master's page."""
        page = re.search(r"MasterWebUI.* started at (\S+)", self._log("master.Master").read_text())
        assert page is not None
        words = urlencode({"id": self._newest().name, "terminate": "true"}).encode()
        urlopen(f"{page[1]}/app/kill/", words, timeout=30).close()

    def _newest(self) -> Path:
        return max(self.work.glob("app-*"), key=lambda path: path.stat().st_mtime)

    def said(self) -> str:
        """All that master, worker and executors have logged."""
        logs = [*self.folder.glob("*.log"), *self.work.glob("app-*/*/std*")]
        return "\n".join(path.read_text(errors="replace") for path in sorted(logs))

    def _find(self, word: bytes) -> list[int]:
        marker, found = f"TMPDIR={self.folder}".encode(), []
        for proc in Path("/proc").iterdir():
            try:
                is_it = proc.name.isdigit() and word in (proc / "cmdline").read_bytes()
                if is_it and marker in (proc / "environ").read_bytes().split(b"\0"):
                    found.append(int(proc.name))
            except OSError:
                continue  # it ended while we looked
        return sorted(found)

    def _start(self, name: str, *arguments: str) -> None:
        folder = str(self.folder)
        kept = {each: os.environ[each] for each in ("JAVA_HOME", "PATH") if each in os.environ}
        java = str(Path(kept["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in kept else "java"
        classes = ("-cp", f"{HOME}/jars/*", f"org.apache.spark.deploy.{name}")
        env = {
            **kept,
            "HOME": folder,
            "TMPDIR": folder,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_DIRS": folder,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",  # else it asks for Spark's build folders
        }
        command = [java, *SMALL.split(), "-Xmx256m", *classes, *arguments]
        with self._log(name).open("wb") as log:
            self._running.append(start_child(command, output=log, cwd=folder, env=env))

    def _await(self, name: str, pattern: re.Pattern[str]) -> str:
        """The pattern's group."""
        deadline = time.monotonic() + START_PATIENCE_S
        while True:
            said = self._log(name).read_text(errors="replace")
            if match := pattern.search(said):
                return match[match.re.groups]
            assert self._running[-1].poll() is None, f"{name} has ended:\n{said}"
            assert time.monotonic() < deadline, f"{name} does not start:\n{said}"
            time.sleep(0.05)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
