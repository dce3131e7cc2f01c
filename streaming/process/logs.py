"""Log lines, as text or as JSON, each with its changefeed, capture and epoch.

Every module logs with the standard library, as ``"what happened table=%s rows=%d"``. In JSON each
value behind a name becomes a field of that name, and the rest is the message. The identity is one
mutable object for the whole process: it changes when a capture is reset, and lines of py4j's
callback threads must have it too.
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
from pathlib import Path
from typing import Any, Literal, TextIO

from conf.masking import masked, masked_values

# They log each call and each fetch, and log as errors what is tried again. What matters reaches us
# as an exception, and we log it once.
QUIET_LOGGERS = ("py4j", "etcd3", "urllib3")
SILENT = logging.CRITICAL + 1
# The logger of a failure's last line, which in text reads ``ERROR tidelake: what happened``.
PROGRAM = "tidelake"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_IDENTITY = ("changefeed_id", "capture_id", "epoch")
# A conversion (`%d`) in a log template, with the name before it (`rows=`) if it has one.
_CONVERSION = re.compile(r"(?:\b(?P<name>[a-z]\w*)=)?%(?P<form>[-#0 +]*\d*(?:\.\d+)?[a-zA-Z%])")


@dataclass(slots=True)
class LogIdentity(logging.Filter):
    """The identity on log lines. One thread writes it, all threads read it; a stale value does no
    harm."""

    changefeed_id: str = ""
    capture_id: str = ""
    epoch: str = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Put the identity on the record; nothing is filtered out."""
        record.__dict__["identity"] = {
            name: value for name in _IDENTITY if (value := getattr(self, name))
        }
        return True


identity = LogIdentity()


class TextFormatter(logging.Formatter):
    """``2026-11-21T19:30:00.123Z INFO streaming.owner.control_writer: claimed …
    changefeed_id=shop``."""

    def format(self, record: logging.LogRecord) -> str:
        _, facts = message_and_facts(record)
        tail = "".join(f" {name}={value}" for name, value in _fields(record, facts).items())
        line = f"{_utc(record)} {record.levelname} {record.name}: {record.getMessage()}{tail}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return masked(line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line. Values with a name in the message, and ``extra``, are fields."""

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
    """Part a record into message and named values: ``"applied a batch rows=%d"`` with 3 gives
    ``("applied a batch", {"rows": 3})``."""
    template, given = str(record.msg), record.args
    if not given:
        return record.getMessage(), {}
    # logging itself takes a single mapping for the values of a template with names.
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
    except (IndexError, TypeError, ValueError):  # template and values differ: logging reports it
        return record.getMessage(), {}


def _fact(form: str, value: object) -> Any:
    """The JSON value of a log call's value. A number stays a number, unless the template formats it
    in another way (such as a lease in hexadecimal)."""
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
    """Send all log lines of the process to ``stream`` (default: stderr), replacing earlier
    handlers. Python's warnings, and errors that end a thread, are logged too."""
    identity.changefeed_id = changefeed
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(_is_to_log)
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


def _is_to_log(record: logging.LogRecord) -> bool:
    """Calls that fail while the JVM ends py4j logs by the root logger too, with a stack trace."""
    return record.name != "root" or Path(record.pathname).parent.name != "py4j"


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
    """The fields of ``extra``, and those of the identity that the message does not have itself."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    whose = extra.pop("identity", {})
    return {**{name: whose[name] for name in whose if name not in facts}, **extra}
