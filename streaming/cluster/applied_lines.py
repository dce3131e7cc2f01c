"""What a capture has applied, as a log line: at once after a silence, then every few seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from coordination.model import Ts
from streaming.apply.applier import DueTable

logger = logging.getLogger(__name__)

LINE_EVERY_S: Final = 5.0


class AppliedLines:
    """One thread. Batches are many: a line tells of all since the one before."""

    def __init__(self, name: str) -> None:
        """``name``: of the stream."""
        self._name = name
        self._told_at_s = float("-inf")
        self._commits = self._rows = 0
        self._seconds = 0.0

    def add(self, due: Sequence[DueTable], limit: Ts, seconds: float) -> None:
        """Tables were brought to ``limit``. Rows are told as they came: several may be of a key."""
        if not due:
            return
        self._commits += len(due)
        self._rows += sum(block.rows for each in due for block in each.blocks)
        self._seconds += seconds
        now_s = time.monotonic()
        if now_s - self._told_at_s < LINE_EVERY_S:
            return
        logger.info(
            "applied a batch name=%s commits=%d rows=%d checkpoint_ts=%d seconds=%.2f",
            *(self._name, self._commits, self._rows, limit, self._seconds),
        )
        self._told_at_s = now_s
        self._commits = self._rows = 0
        self._seconds = 0.0
