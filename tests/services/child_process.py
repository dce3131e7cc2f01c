"""Processes that end with the one that started them, whatever ends it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: no imports between fork and exec


def dies_with_parent(parent: int, death_signal: int = signal.SIGKILL) -> Callable[[], None]:
    """A ``preexec_fn``; the kernel watches the *thread* that forks, so fork from one that stays."""

    def before_exec() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)

    return before_exec


def start_child(
    command: Sequence[str],
    *,
    output: int | IO[bytes] | None = None,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own (a Ctrl-C of the terminal does not reach it)."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        env=env,
        cwd=cwd,
        process_group=0,
        preexec_fn=dies_with_parent(os.getpid()),
    )


def end_child(process: subprocess.Popen[bytes], *, patience_s: float = 10.0) -> int:
    """SIGTERM, then SIGKILL after ``patience_s``; returns the exit code. Ended already is fine."""
    if process.poll() is None:
        process.terminate()
        process.send_signal(signal.SIGCONT)  # a stopped process takes its SIGTERM when it goes on
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
