"""How long a stream that fails is tried again: what may heal, and when to stop hoping."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from coordination.errors import TidelakeError, TryAgain

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
WORTH_A_WARNING_S = 4.0  # a back-off so long: it has failed for some seconds
CAUSED_BY = "Caused by: "
PASSING = (PySparkException, Py4JError, ConnectionError, TryAgain)  # may heal by itself


class Patience:
    """One thread. Progress gives it back."""

    def __init__(self) -> None:
        self._backoff_s = FIRST_BACKOFF_S

    def lost(self, error: BaseException) -> float:
        """Seconds to wait before the next try; raises TidelakeError when there is none."""
        wait_s = self._backoff_s
        if wait_s > MAX_BACKOFF_S:
            raise TidelakeError(f"the stream fails again and again: {line(error)}") from error
        logger.warning("stream failed, again in %.1f s: %s", wait_s, line(error))
        self._backoff_s *= 2
        return wait_s

    @property
    def is_worn(self) -> bool:
        """After ``lost``: it has failed so often that operators should hear of it."""
        return self._backoff_s > WORTH_A_WARNING_S

    def regained(self) -> None:
        self._backoff_s = FIRST_BACKOFF_S


def line(error: BaseException) -> str:
    """What went wrong, and why, without the stack traces that Spark's messages carry."""
    text = str(error).strip() or type(error).__name__
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    if isinstance(error, Py4JError) and len(lines) > 1:  # "An error occurred while calling o12.x"
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    causes = [each for each in lines[1:] if each.startswith(CAUSED_BY)]
    return " <- ".join([lines[0], *(each.removeprefix(CAUSED_BY) for each in causes[-1:])])[:400]
