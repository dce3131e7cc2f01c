"""How long a stream that fails is tried again: what may heal, and when to stop hoping."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from coordination.errors import TidelakeError, TryAgain
from sinks.jvm_errors import line

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
WORTH_A_WARNING_S = 4.0  # a back-off so long: it has failed for some seconds
PASSING = (PySparkException, Py4JError, ConnectionError, TryAgain)  # may heal by itself


class RetriesExhausted(TidelakeError):
    """It failed again and again: the changefeed is told, and waits longer."""

    code = "CDC:ErrReachMaxTry"


class RetryBackoff:
    """One thread. Progress resets it."""

    def __init__(self) -> None:
        self._backoff_s = FIRST_BACKOFF_S

    def next_s(self, error: BaseException) -> float:
        """Seconds to wait before the next try; raises RetriesExhausted when there is none."""
        wait_s, was_long = self._backoff_s, self.is_long
        if wait_s > MAX_BACKOFF_S:
            raise RetriesExhausted(f"the stream fails again and again: {line(error)}") from error
        self._backoff_s *= 2
        level = logging.WARNING if self.is_long and not was_long else logging.INFO
        logger.log(level, "stream failed, again in %.1f s: %s", wait_s, line(error))
        return wait_s

    @property
    def is_long(self) -> bool:
        """After ``next_s``: it has failed so often that operators should hear of it."""
        return self._backoff_s > WORTH_A_WARNING_S

    def reset(self) -> None:
        self._backoff_s = FIRST_BACKOFF_S
