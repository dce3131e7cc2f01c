from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from coordination.trust.clock import SystemClock

TICKER = """
import sys
from coordination.trust.clock import SystemClock
for _ in sys.stdin:
    print(SystemClock().monotonic(), flush=True)
"""


def test_the_clock_goes_on_while_the_process_is_stopped() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", TICKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None

        def read() -> float:
            child.stdin.write("\n")
            child.stdin.flush()
            return float(child.stdout.readline())

        before = read()
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(child.pid, signal.SIGCONT)
        assert read() - before >= 0.3


def test_a_wait_ends_with_the_event_or_the_time() -> None:
    event = threading.Event()
    assert not SystemClock().wait(event, -1.0)
    assert not SystemClock().wait(event, 0.01)
    event.set()
    assert SystemClock().wait(event, 60.0)
