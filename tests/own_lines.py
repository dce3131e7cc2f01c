"""The program's own log lines in a test's process, where others log too: clients and drivers, whose
threads may go on from an earlier test.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_LAYERS = ("conf", "coordination", "sinks", "streaming")
_PLACES = tuple(f"{ROOT / layer}/" for layer in _LAYERS)


def own_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """By logger, or by place: we log what the JVM says by the JVM's loggers."""
    return [each for each in [*caplog.records] if _is_own(each)]


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _LAYERS or record.pathname.startswith(_PLACES)


def own_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Their messages."""
    return [record.getMessage() for record in own_records(caplog)]


def own_text(caplog: pytest.LogCaptureFixture) -> str:
    """As pytest would show them, with tracebacks."""
    return "".join(f"{caplog.handler.format(record)}\n" for record in own_records(caplog))
