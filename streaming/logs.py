"""Log lines that always say whose they are: changefeed, capture and epoch, as text or as JSON.

Every module logs with the standard library. The identity is one mutable object for the process,
since a capture that was reset is a new one, and py4j's callback threads log as well as ours.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass
from typing import Literal, TextIO

# They report each call and each fetch: of use to their authors only.
QUIET_LOGGERS = ("py4j", "py4j.java_gateway", "py4j.clientserver", "kafka", "etcd3", "urllib3")
QUIET_LEVEL = logging.ERROR
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_IDENTITY = ("changefeed", "capture", "epoch")


@dataclass(slots=True)
class LogIdentity(logging.Filter):
    """Who is logging. Written by one thread, read by all; a stale read does no harm."""

    changefeed: str = ""
    capture: str = ""
    epoch: str = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Stamp the record; nothing is filtered out."""
        for name in _IDENTITY:
            setattr(record, name, getattr(self, name))
        return True


identity = LogIdentity()


class TextFormatter(logging.Formatter):
    """``2026-11-21T19:30:00.123Z INFO streaming.batch: batch applied changefeed=shop …``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {**_own_fields(record), **_identity_fields(record)}
        tail = "".join(f" {name}={value}" for name, value in fields.items())
        line = f"{_utc(record)} {record.levelname} {record.name}: {record.getMessage()}{tail}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object per line; what was given as ``extra`` becomes fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_own_fields(record),
            **{name: getattr(record, name, "") for name in _IDENTITY},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def install(
    log_format: Literal["text", "json"],
    level: str,
    *,
    changefeed: str = "",
    stream: TextIO | None = None,
) -> LogIdentity:
    """Send all log lines of the process to ``stream`` (stderr), replacing earlier handlers."""
    identity.changefeed = changefeed
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(identity)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(QUIET_LEVEL)
    return identity


def _utc(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _own_fields(record: logging.LogRecord) -> dict[str, object]:
    standard = _STANDARD | set(_IDENTITY)
    return {name: value for name, value in vars(record).items() if name not in standard}


def _identity_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name in _IDENTITY if (value := getattr(record, name, ""))}
