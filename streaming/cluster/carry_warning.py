"""Says when many rows wait for a watermark: the carry has a warning level, no bound (rule 3)."""

from __future__ import annotations

import logging
import time

from coordination.model import Ts
from streaming.apply.carry import Carry
from streaming.watermark import Watermarks

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0


class CarryWarning:
    """Of one changefeed on one capture. A warning when it begins, a line when it is over."""

    def __init__(self, warn_rows: int) -> None:
        self._warn_rows = warn_rows
        self._looked_s = float("-inf")
        self._is_large = False

    def look(self, carry: Carry, resolved: Ts, watermarks: Watermarks) -> None:
        """Not too often: it counts the waiting rows of all tables."""
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
