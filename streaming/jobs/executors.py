"""An executor whose Python lacks something that our tasks need: told from Spark's error, in
words."""

from __future__ import annotations

import re
from typing import Final

from coordination.errors import TidelakeError

NEEDS: Final = (
    "it needs Tidelake's wheel, confluent-kafka, numpy and pyarrow, in the driver's minor version "
    "of Python (docs/data-plane.md, Where executors are elsewhere)"
)
# Patterns in Spark's error, and what each says about the executors' Python.
_SAYS: Final = (
    (re.compile(r"No module named '?([\w.]+)"), "has no module {}"),
    (re.compile(r"Python in worker has different version: ([\d.]+)"), "is a Python {}"),
    (re.compile(r'Cannot run program "[^"]*".* error=(?:2|13), (.+)'), "cannot be run there: {}"),
    (re.compile(r"^(ImportError: .+)", re.MULTILINE), "says {}"),
)


class ExecutorsUnfit(TidelakeError):
    """The executors' Python lacks something that reading needs. Trying again does not help; the
    operator has to install it."""


def unfit(error: str, python: str, needs: str = NEEDS) -> ExecutorsUnfit | None:
    """The error about the executors' Python, if a job failed for that reason. ``error`` is all that
    Spark says about the job; ``python`` names the executors' Python, as PYSPARK_PYTHON does.
    """
    for pattern, says in _SAYS:
        if match := pattern.search(error):
            what = says.format(match[1])
            return ExecutorsUnfit(f"the Python of Spark's executors, {python}, {what}: {needs}")
    return None
