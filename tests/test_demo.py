"""The demo leaves nothing behind, whenever it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.services.kafka_broker import REPOSITORY

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.etcd]


@pytest.mark.parametrize(
    ("asked", "at"),
    [
        (signal.SIGINT, "etcd at"),  # the broker runs, the job does not
        (signal.SIGTERM, "tidelake run"),  # the job has just been started
    ],
)
def test_a_stopped_demo_leaves_no_process_and_no_folder(
    tmp_path: Path, asked: signal.Signals, at: str
):
    demo = subprocess.Popen(
        [sys.executable, "-m", "tests.demo", "--seconds", "5"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    assert demo.stdout is not None
    with demo.stdout as lines:
        assert any(at in line for line in lines)
        children = psutil.Process(demo.pid).children(recursive=True)
        assert children
        demo.send_signal(asked)
        assert demo.wait(60) == 130
    deadline = time.monotonic() + 10
    while (alive := [each for each in children if each.is_running()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert alive == []
    assert list(tmp_path.iterdir()) == []
