"""The content of a log record: its message, its named values, and the process that wrote it.

Every module logs with the standard library, as ``"what happened table=%s rows=%d"``.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# A conversion (`%d`) in a log template, with the name before it (`rows=`) if it has one.
_CONVERSION = re.compile(r"(?:\b(?P<name>[a-z]\w*)=)?%(?P<form>[-#0 +]*\d*(?:\.\d+)?[a-zA-Z%])")


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


def utc(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def fields(record: logging.LogRecord, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``extra``, and those of the identity that the message does not have itself."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    whose = extra.pop("identity", {})
    return {**{name: whose[name] for name in whose if name not in facts}, **extra}
