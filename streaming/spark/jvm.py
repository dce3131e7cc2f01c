"""Spark's JVM as a child of this process: its output becomes log lines, and it ends when we end,
also by a ``kill -9`` in its first second (on Linux, whose kernel ends it with the thread that
started it; elsewhere it ends when its input does, which it reads when it is up).

While pyspark itself launches a JVM, nobody else can reach that JVM: if the launch is interrupted, a
JVM stays behind that never ends. So the JVM is started here, and pyspark is told its address in the
way in which spark-submit does.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from coordination.errors import Stop, TidelakeError
from streaming.spark.java import java_version
from streaming.spark.start_errors import told, way_out

logger = logging.getLogger(__name__)

POLL_S: Final = 0.05
PR_SET_PDEATHSIG: Final = 1  # prctl(2)
LAST_WORDS: Final = 100  # lines; a stack trace stands below what it is of
STOP_S: Final = 10.0  # the time that the JVM gets for its shutdown hooks
GATEWAY_VARIABLES: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
# Of the small JVM that only writes down the large one's command.
LAUNCHER: Final = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1"}
LINE: Final = re.compile(r"\S+Z (?P<level>[A-Z]+) (?P<name>spark\.\S+): (?P<message>.*)")
LEVELS: Final = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
# What every JVM prints about its start; not logged.
CHATTER: Final = (
    "WARNING: Using incubator modules",
    "NOTE: Picked up ",
    "Picked up ",
    "Using Spark's default log4j profile",
    "Setting default log level",
    "To adjust logging level",
)
# A line with one of these is a warning; without them it is mostly Ivy's report of its work.
TROUBLE: Final = re.compile(r"Exception|Error|fatal", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Launched:
    conf: Mapping[str, str]
    process: subprocess.Popen[bytes]
    gateway: Path  # the file in which it says how it is reached


class DriverJvm:
    """One JVM, and none after `stop`; another if its start has failed. `launch` and `start` are
    called by one thread at a time, `stop` by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._launched: _Launched | None = None
        self._listener: threading.Thread | None = None
        self._is_up = False
        self._is_stopped = False
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)

    @property
    def is_launched(self) -> bool:
        """Whether there is one for `start` to wait for."""
        return self._launched is not None

    def launch(self, conf: Mapping[str, str]) -> None:
        """Begin to start the JVM with these Spark settings; does not block, and imports nothing of
        Spark's. Raises Stop after `stop`."""
        gateway = Path(tempfile.mkdtemp(prefix="tidelake-jvm-")) / "gateway"
        launched: Future[subprocess.Popen[bytes]] = Future()
        # Handlers of signals raise on the main thread, which would forget what it has just begun.
        self._listener = threading.Thread(
            target=self._accompany, args=(conf, gateway, launched), name="jvm-says", daemon=True
        )
        self._listener.start()
        self._launched = _Launched(conf, launched.result(), gateway)

    def start(self) -> Mapping[str, str]:
        """Block until pyspark can reach the JVM that was launched; returns its settings. Raises
        TidelakeError if it does not start, Stop if `stop` is called meanwhile."""
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway

        launched, self._launched = self._launched, None
        assert launched is not None
        try:
            port, secret = self._await_gateway(launched.process, launched.gateway)
        finally:
            shutil.rmtree(launched.gateway.parent, ignore_errors=True)
        for name, value in zip(GATEWAY_VARIABLES, (str(port), secret), strict=True):
            os.environ[name] = value
        try:
            SparkContext._ensure_initialized(gateway=launch_gateway())  # type: ignore[no-untyped-call]
        finally:
            for name in GATEWAY_VARIABLES:
                del os.environ[name]
        with self._lock:
            self._is_up = True
        return launched.conf

    def stop(self, within_s: float = STOP_S) -> None:
        """End the JVM: in order if it is up and answers in time, else by killing it. Blocks;
        idempotent."""
        with self._lock:
            self._is_stopped = True
            process, self._process = self._process, None
        if process is None:
            return
        if not (self._is_up and _shut_down(within_s)):
            process.kill()
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()  # the JVM ends when its input does
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _accompany(
        self,
        conf: Mapping[str, str],
        gateway: Path,
        launched: Future[subprocess.Popen[bytes]],
    ) -> None:
        """Start the JVM and log its output, until it has ended. If this thread ends earlier, the
        kernel ends the JVM."""
        try:
            process = self._submit(conf, gateway)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            launched.set_exception(error)
        else:
            launched.set_result(process)
            self._listen(process)

    def _submit(self, conf: Mapping[str, str], gateway: Path) -> subprocess.Popen[bytes]:
        home = spark_home()
        settings = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
        asked = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        with self._lock:
            if self._is_stopped:
                raise Stop("asked to stop")
            self._process = process = subprocess.Popen(
                [str(home / "bin" / "spark-submit"), *settings, *asked],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={
                    **LAUNCHER,
                    **_without_name(conf),
                    **os.environ,
                    "SPARK_HOME": str(home),  # else spark-submit starts a Python to find it
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway),
                },
                preexec_fn=partial(_prepare, os.getpid(), _libc()),
            )
        return process

    def _await_gateway(self, process: subprocess.Popen[bytes], gateway: Path) -> tuple[int, str]:
        while not gateway.exists():
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(POLL_S)
                assert process.stdin is not None
                process.stdin.close()
                if self._is_stopped:
                    raise Stop("asked to stop")
                why = told(self._words(), code)
                try:
                    java_version()
                except TidelakeError as error:
                    raise TidelakeError(f"Spark does not start: {error}") from None
                raise does_not_start(why)
        written = gateway.read_bytes()
        port, length = struct.unpack_from("!ii", written)
        return port, written[8 : 8 + length].decode()

    def _words(self) -> list[str]:
        if self._listener is not None:
            self._listener.join(1.0)
        return list(self._last_words)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr as said:
            for raw in said:
                line = raw.decode(errors="replace").rstrip()
                with suppress(Exception):  # go on reading: the JVM blocks when its pipe is full
                    if line and not line.startswith(CHATTER):
                        self._last_words.append(line)
                        if self._is_stopped:  # what breaks off says so with errors
                            logger.debug("Spark's JVM ends: %s", line)
                        else:
                            retell(line)


def does_not_start(why: str) -> TidelakeError:
    """With the way out, where it is known."""
    return TidelakeError(". ".join(filter(None, [f"Spark does not start: {why}", way_out(why)])))


def spark_home() -> Path:
    """The folder that pyspark looks for too, which would have to be imported for it."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(os.environ.get("SPARK_HOME") or Path(found.origin).parent)


def _shut_down(within_s: float) -> bool:
    """Ask the JVM that pyspark talks to to end; whether it has answered in time."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    has_answered = gateway is not None and in_time(gateway.shutdown, within_s)
    SparkContext._gateway = SparkContext._jvm = None
    return has_answered


def in_time(call: Callable[[], None], within_s: float) -> bool:
    """Make a call to the JVM on another thread; returns whether it ended in time. While a JVM is
    suspended, a call to it never returns."""
    from py4j.protocol import Py4JError

    done = threading.Event()

    def run() -> None:
        with suppress(Py4JError, OSError):
            call()
        done.set()

    threading.Thread(target=run, name="jvm-ends", daemon=True).start()
    return done.wait(within_s)


def _without_name(conf: Mapping[str, str]) -> dict[str, str]:
    """Where the JVM listens on one address, it need not look its machine's name up, which a
    container may not know."""
    bound = conf.get("spark.driver.bindAddress")
    return {"SPARK_LOCAL_IP": bound} if bound else {}


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def _prepare(parent: int, libc: ctypes.CDLL | None) -> None:
    """In the child, before it becomes the JVM: it ends with us, and ignores the signals of a whole
    process group (Ctrl-C in a terminal, SIGTERM from systemd). We handle these, and end the JVM
    when our work is done. A JVM says why it cannot begin on its standard output, which is a
    command's answer."""
    os.dup2(2, 1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if libc is not None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has died before the kernel was told
            os._exit(1)


def retell(line: str) -> None:
    """Log one line that the JVM wrote."""
    match = LINE.fullmatch(line)
    if match is not None:
        level = LEVELS.get(match["level"], logging.DEBUG)
        logging.getLogger(match["name"]).log(level, "%s", match["message"])
    else:
        level = logging.WARNING if TROUBLE.search(line) else logging.INFO
        logger.log(level, "Spark's JVM says: %s", line)
