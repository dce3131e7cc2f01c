"""Executors whose Python cannot read: what is the matter there, and what to do, in one line."""

from __future__ import annotations

import re
from typing import Final

from coordination.errors import TidelakeError

NEEDS: Final = (
    "it needs Tidelake's wheel, confluent-kafka, numpy and pyarrow, in the driver's minor version "
    "of Python (docs/data-plane.md, Where executors are elsewhere)"
)
# What Spark's error has in it, and what that says of the executors' Python.
_SAYS: Final = (
    (re.compile(r"No module named '?([\w.]+)"), "has no module {}"),
    (re.compile(r"Python in worker has different version: ([\d.]+)"), "is a Python {}"),
    (re.compile(r'Cannot run program "[^"]*".* error=(?:2|13), (.+)'), "cannot be run there: {}"),
    (re.compile(r"^(ImportError: .+)", re.MULTILINE), "says {}"),
)


class ExecutorsUnfit(TidelakeError):
    """Their Python lacks what reading takes: somebody has to give it that."""


def unfit(error: str, python: str) -> ExecutorsUnfit | None:
    """``error``: all that Spark says of a job that failed; ``python``: as PYSPARK_PYTHON names the
    executors'.
    """
    for pattern, says in _SAYS:
        if match := pattern.search(error):
            what = says.format(match[1])
            return ExecutorsUnfit(f"the Python of Spark's executors, {python}, {what}: {NEEDS}")
    return None
