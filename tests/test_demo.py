"""The demo leaves nothing behind, whenever it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.acceptance.processes import JVM_OPTIONS
from tests.services.kafka_broker import REPOSITORY

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.etcd]


@pytest.mark.parametrize(
    ("asked", "at"),
    [
        pytest.param(  # the broker runs, the job does not
            signal.SIGINT, "etcd at", marks=pytest.mark.soak, id="before the job"
        ),
        (signal.SIGTERM, "tidelake run"),  # the job has just been started
        pytest.param(
            signal.SIGINT, "shop.orders: ", marks=pytest.mark.soak, id="at work"
        ),  # it has applied a batch, more come
    ],
)
def test_a_stopped_demo_leaves_no_process_and_no_folder(
    tmp_path: Path, asked: signal.Signals, at: str
):
    demo = subprocess.Popen(
        [sys.executable, "-m", "tests.demo", "--seconds", "30"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    assert demo.stdout is not None
    try:
        with demo.stdout as lines:
            said = []
            while not said or at not in said[-1]:
                said.append(next(lines, None) or pytest.fail("".join(said)))
            assert processes_in(tmp_path)
            demo.send_signal(asked)
            assert demo.wait(120) == 130
    finally:
        demo.kill()
        demo.wait()
    deadline = time.monotonic() + 60
    while (alive := processes_in(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


def processes_in(folder: Path) -> list[psutil.Process]:
    """Those whose temporary files are there, whoever started them, and when."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.environ().get("TMPDIR", "").startswith(str(folder)):
                found.append(each)
    return found


def test_the_demo_proves_a_consistent_snapshot():
    """The real job, to its target-ts; without a terminal it prints plain lines."""
    demo = subprocess.run(
        [sys.executable, "-m", "tests.demo", "--seconds", "6"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "JDK_JAVA_OPTIONS": JVM_OPTIONS},
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "every cell of all 5 Delta tables" in demo.stdout
    assert "≠" in demo.stdout
    assert "\x1b" not in demo.stdout
