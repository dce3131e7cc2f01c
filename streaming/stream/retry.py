"""How long a stream that fails is tried again: which errors may pass, and when to give up."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from coordination.errors import TidelakeError, TryAgain
from coordination.model import TableName, Ts
from sinks.spark.jvm_errors import line
from streaming.spark.temporary_folder import remake

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
WORTH_A_WARNING_S = 4.0  # with a longer back-off the stream has failed for some seconds
# These may pass by themselves; a file that is missing, where ``remake`` brings its folder back.
PASSING = (PySparkException, Py4JError, ConnectionError, FileNotFoundError, TryAgain)


class RetriesExhausted(TidelakeError):
    """The stream failed again and again. The changefeed gets this error, and waits longer before
    its next try."""

    code = "CDC:ErrReachMaxTry"


class RetryBackoff:
    """The growing pauses between the tries of one stream. Used by one thread, which calls ``reset``
    when the stream makes progress, or ``look`` to find that out."""

    def __init__(self) -> None:
        self._backoff_s = FIRST_BACKOFF_S
        self._reached: Mapping[TableName, Ts] = {}

    def next_s(self, error: BaseException) -> float:
        """Seconds to wait before the next try. Raises RetriesExhausted if there is to be none.
        Temporary folders that are gone are made again, so that the next try can succeed."""
        remake(error)
        wait_s, was_long = self._backoff_s, self.is_long
        if wait_s > MAX_BACKOFF_S:
            raise RetriesExhausted(f"the stream fails again and again: {line(error)}") from error
        self._backoff_s *= 2
        level = logging.WARNING if self.is_long and not was_long else logging.INFO
        logger.log(level, "stream failed, again in %.1f s: %s", wait_s, line(error))
        return wait_s

    @property
    def is_long(self) -> bool:
        """After ``next_s``: whether the stream has failed so often that operators should know."""
        return self._backoff_s > WORTH_A_WARNING_S

    def reset(self) -> None:
        self._backoff_s = FIRST_BACKOFF_S

    def look(self, reached: Mapping[TableName, Ts]) -> None:
        """How far the tables are. It is progress if one of them has risen since the last look. A
        new table is no progress, and a table that has gone hides none."""
        before, self._reached = self._reached, reached
        if any(at_ts > before.get(name, at_ts) for name, at_ts in reached.items()):
            self.reset()
