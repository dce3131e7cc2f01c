"""Log lines, as text or as JSON, each with its changefeed, capture and epoch.

Every module logs with the standard library, as ``"what happened table=%s rows=%d"``. In JSON each
value behind a name becomes a field of that name, and the rest is the message. The identity is one
mutable object for the whole process: it changes when a capture is reset, and lines of py4j's
callback threads must have it too.
"""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from conf.masking import masked
from streaming.process.log_record import fields, message_and_facts, utc

# They log each call and each fetch, and log as errors what is tried again. What matters reaches us
# as an exception, and we log it once.
QUIET_LOGGERS = ("py4j", "etcd3", "urllib3")
SILENT = logging.CRITICAL + 1
# The logger of a failure's last line, which in text reads ``ERROR tidelake: what happened``.
PROGRAM = "tidelake"
_IDENTITY = ("changefeed_id", "capture_id", "epoch")


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
        tail = "".join(f" {name}={value}" for name, value in fields(record, facts).items())
        line = f"{utc(record)} {record.levelname} {record.name}: {record.getMessage()}{tail}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return masked(line)


class TerminalFormatter(logging.Formatter):
    """For somebody who looks on: ``19:30:00 INFO loaded table=shop.orders``. Which changefeed it is
    he knows."""

    def format(self, record: logging.LogRecord) -> str:
        at = self.formatTime(record, "%H:%M:%S")
        line = f"{at} {record.levelname} {record.getMessage()}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return masked(line)


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
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    text = TerminalFormatter() if stream.isatty() else TextFormatter()
    handler.setFormatter(_json_lines() if log_format == "json" else text)
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


def _json_lines() -> logging.Formatter:
    from streaming.process.json_lines import JsonLines  # its library takes a while

    return JsonLines()


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
