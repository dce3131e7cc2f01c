"""Log lines that always say whose they are: changefeed, capture and epoch, as text or as JSON.

Every module logs with the standard library, as ``"what happened table=%s rows=%d"``: in JSON what
stands behind a name is a field of that name, and the message is the rest. The identity is one
mutable object for the process, since a capture that was reset is a new one, and py4j's callback
threads log as well as ours.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from conf.masking import masked, masked_values

# They report each call and each fetch, and as errors what is tried again: what counts of it reaches
# us as an exception, and is said once, by us.
QUIET_LOGGERS = ("py4j", "etcd3", "urllib3")
SILENT = logging.CRITICAL + 1
# Of the line that a failure ends with: in text it reads ``ERROR tidelake: what happened``.
PROGRAM = "tidelake"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_IDENTITY = ("changefeed_id", "capture_id", "epoch")
# A conversion of a log template, with the name before it where it has one.
_CONVERSION = re.compile(r"(?:\b(?P<name>[a-z]\w*)=)?%(?P<form>[-#0 +]*\d*(?:\.\d+)?[a-zA-Z%])")


@dataclass(slots=True)
class LogIdentity(logging.Filter):
    """Who is logging. Written by one thread, read by all; a stale read does no harm."""

    changefeed_id: str = ""
    capture_id: str = ""
    epoch: str = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Stamp the record, where it does not say so itself; nothing is filtered out."""
        record.__dict__["identity"] = {
            name: value for name in _IDENTITY if (value := getattr(self, name))
        }
        return True


identity = LogIdentity()


class TextFormatter(logging.Formatter):
    """``2026-11-21T19:30:00.123Z INFO streaming.cluster.control_writer: claimed …
    changefeed_id=shop``."""

    def format(self, record: logging.LogRecord) -> str:
        _, facts = message_and_facts(record)
        tail = "".join(f" {name}={value}" for name, value in _fields(record, facts).items())
        line = f"{_utc(record)} {record.levelname} {record.name}: {record.getMessage()}{tail}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return masked(line)


class JsonFormatter(logging.Formatter):
    """One object per line; what was given by name, or as ``extra``, becomes fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        message, facts = message_and_facts(record)
        line = {
            "time": _utc(record),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **facts,
            **_fields(record, facts),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        shown = masked_values(line)
        return json.dumps(shown, default=lambda each: masked(str(each)), ensure_ascii=False)


def message_and_facts(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """``("applied a batch", {"rows": 3})`` of ``"applied a batch rows=%d"`` and 3."""
    template, given = str(record.msg), record.args
    if not given:
        return record.getMessage(), {}
    # logging itself takes a lone mapping for the values of a template with names
    values = [given] if isinstance(given, Mapping) else list(given)
    facts: dict[str, Any] = {}
    rest: list[object] = []

    def sort(match: re.Match[str]) -> str:
        if match["form"] == "%":
            return match[0]
        value = values.pop(0)
        if match["name"] is None:
            rest.append(value)
            return match[0]
        facts[match["name"]] = _fact(match["form"], value)
        return ""

    try:
        shorter = re.sub(r"\s+(?=:|$)", "", _CONVERSION.sub(sort, template))
        return shorter % tuple(rest), facts
    except (IndexError, TypeError, ValueError):  # a slip in a call: logging's own words for it
        return record.getMessage(), {}


def _fact(form: str, value: object) -> Any:
    """Numbers as numbers, unless they were to look otherwise (a lease is shown in hexadecimal)."""
    if form.endswith("f") and isinstance(value, float):
        return float(f"%{form}" % value)
    if form in ("s", "d") and isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(name): each for name, each in value.items()}
    return f"%{form}" % (value,)


def install(
    log_format: Literal["text", "json"],
    level: str,
    *,
    changefeed: str = "",
    stream: TextIO | None = None,
) -> LogIdentity:
    """Send all log lines of the process to ``stream`` (stderr), replacing earlier handlers.

    Warnings and what ends a thread are lines too."""
    identity.changefeed_id = changefeed
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(identity)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(SILENT)
    logging.captureWarnings(True)
    threading.excepthook = _thread_failed
    return identity


def failed(error: BaseException, *, traceback: bool = False) -> None:
    exc_info = error if traceback else None
    logging.getLogger(PROGRAM).error("%s", str(error) or type(error).__name__, exc_info=exc_info)


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or issubclass(args.exc_type, SystemExit):
        return
    name = args.thread.name if args.thread is not None else ""
    exc_info = (args.exc_type, args.exc_value, args.exc_traceback)
    logging.getLogger(PROGRAM).error("a thread failed thread=%s", name, exc_info=exc_info)


def _utc(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What was given as ``extra``, and who is logging, where the line has not said so."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    whose = extra.pop("identity", {})
    return {**{name: whose[name] for name in whose if name not in facts}, **extra}
