"""Errors of the JVM (Spark, py4j) as one line."""

from __future__ import annotations

from py4j.protocol import Py4JError

LENGTH = 400
_CAUSED_BY = "Caused by: "
_TRACEBACK = "Traceback (most recent call last):"  # of Python in an executor


def line(error: BaseException) -> str:
    """The error's message and its cause on one line, without stack traces, cut to `LENGTH`."""
    text = str(error).strip() or type(error).__name__
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    if isinstance(error, Py4JError) and len(lines) > 1:  # "An error occurred while calling o12.x"
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    causes = [each.removeprefix(_CAUSED_BY) for each in lines[1:] if each.startswith(_CAUSED_BY)]
    why = _raised(text) or causes[-1:]
    return " <- ".join([lines[0].removesuffix(_TRACEBACK).rstrip(" :"), *why])[:LENGTH]


def _raised(text: str) -> list[str]:
    """The error line below the frames of a Python traceback; empty if there is none."""
    _, found, trace = text.rpartition(_TRACEBACK)
    lines = trace.splitlines() if found else []
    return [each for each in lines if each and not each[0].isspace()][:1]
