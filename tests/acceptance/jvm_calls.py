"""No call to the JVM on the coordination thread: one that hangs would keep a dead capture's lease.

Imports forbid most of it (``tests/test_tidy.py``); this looks while whole captures run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import GatewayClient

_refusing = threading.local()


@contextmanager
def refused_here() -> Iterator[list[str]]:
    """Until it is left, a call to the JVM on this thread fails; what was called, for a test to look
    at, since somebody may have caught the failure."""
    calls: list[str] = []
    _refusing.calls = calls
    try:
        yield calls
    finally:
        _refusing.calls = None


_send_command = GatewayClient.send_command


def _send_unless_refused(client: Any, command: str, *args: Any, **options: Any) -> Any:
    calls = getattr(_refusing, "calls", None)
    if calls is not None:
        calls.append(command)
        raise AssertionError(f"a call to the JVM on the coordination thread: {command!r}")
    return _send_command(client, command, *args, **options)


GatewayClient.send_command = _send_unless_refused
