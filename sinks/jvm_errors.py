"""Errors that came out of the JVM, as one line."""

from __future__ import annotations

from py4j.protocol import Py4JError

LENGTH = 400
_CAUSED_BY = "Caused by: "


def line(error: BaseException) -> str:
    """What went wrong, and why, without the stack traces that such messages carry."""
    text = str(error).strip() or type(error).__name__
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    if isinstance(error, Py4JError) and len(lines) > 1:  # "An error occurred while calling o12.x"
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    causes = [each for each in lines[1:] if each.startswith(_CAUSED_BY)]
    return " <- ".join([lines[0], *(each.removeprefix(_CAUSED_BY) for each in causes[-1:])])[
        :LENGTH
    ]
