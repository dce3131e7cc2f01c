"""A capture's log lines about its spans of a changefeed: commits, and a large carry."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from coordination.model import Ts
from streaming.apply.applier import DueTable
from streaming.apply.carry import Carry
from streaming.source.resolved.limits import Limits

logger = logging.getLogger(__name__)

APPLIED_EVERY_S: Final = 5.0
LOOK_EVERY_S = 10.0


class SpanLogLines:
    """For one thread (the applying thread)."""

    def __init__(self, name: str, *, carry_warn_rows: int) -> None:
        """``name``: the stream's. ``carry_warn_rows``: waiting rows above which to warn."""
        self._name = name
        self._warn_rows = carry_warn_rows
        self._looked_s = self._logged_at_s = float("-inf")
        self._is_large = False
        self._commits = self._rows = 0
        self._seconds = 0.0

    def applied(self, due: Sequence[DueTable], limit: Ts, seconds: float) -> None:
        """These tables were brought to ``limit``, in so many ``seconds``. Batches may come many a
        second. So a line is logged at once after a quiet time, and then at most every
        `APPLIED_EVERY_S`, with the sums since the line before. Rows are counted as they were read,
        before the last change per key is taken."""
        if not due:
            return
        self._commits += len(due)
        self._rows += sum(block.rows for each in due for block in each.blocks)
        self._seconds += seconds
        now_s = time.monotonic()
        if now_s - self._logged_at_s < APPLIED_EVERY_S:
            return
        logger.info(
            "applied a batch name=%s commits=%d rows=%d checkpoint_ts=%d seconds=%.2f",
            *(self._name, self._commits, self._rows, limit, self._seconds),
        )
        self._logged_at_s = now_s
        self._commits = self._rows = 0
        self._seconds = 0.0

    def look_at_carry(self, carry: Carry, resolved: Ts, watermarks: Limits) -> None:
        """Logs a warning when more than `carry_warn_rows` rows wait for a watermark (the carry has
        a warning level, no bound: rule 3), and a line when that is over. It looks at most every
        `LOOK_EVERY_S`, since it counts all waiting rows."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        waiting = carry.waiting_rows(resolved)
        if waiting > self._warn_rows and not self._is_large:
            logger.warning(
                "the carry is large: rows wait for a watermark rows=%d watermark_ts=%d "
                "held_back_by=%s",
                waiting,
                watermarks.global_ts,
                ",".join(map(str, watermarks.holding_back)),
            )
        elif self._is_large and waiting <= self._warn_rows:
            logger.info("the carry is no longer large rows=%d", waiting)
        self._is_large = waiting > self._warn_rows
