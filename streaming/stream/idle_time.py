"""How long nothing has come to the topics, as far as anybody looked. Pure except for the clock."""

from __future__ import annotations

import time

from streaming.source.positions import Positions
from streaming.stream.read import Read

BUSY_WAIT_S = 0.05  # between two looks at the ends while rows come: a look costs a millisecond
IDLE_WAIT_S = 0.2  # ... and when nothing but watermarks has come for `IDLE_AFTER_S`
MUTE_WAIT_S = 0.5  # ... and when not even watermarks have
IDLE_AFTER_S = 5.0


class IdleTime:
    """The reading thread reports its finds; any thread may ask."""

    def __init__(self) -> None:
        self._last_read_s = self._last_rows_s = time.monotonic()
        # Where looks, one after another, found nothing: the first one's time, and the last one's.
        self._looks: tuple[Positions, float, float] | None = None

    def came(self, read: Read) -> None:
        self._looks = None
        self._last_read_s = time.monotonic()
        if read.has_more_than_watermarks:
            self._last_rows_s = self._last_read_s

    def nothing_came(self, position: Positions) -> None:
        """A look at the ends: all before ``position`` has been read, and there is no more."""
        now_s = time.monotonic()
        self._looks = position, self._looks[1] if self._looks else now_s, now_s

    def failed(self) -> None:
        self._looks = None

    def lasts_s(self, taken: Positions) -> float:
        """For how long there has been nothing beyond ``taken``. It is not known while the source
        does not answer, or nobody asks it, because a long commit is waited for, say."""
        position, first_s, last_s = self._looks or ({}, 0.0, 0.0)
        return last_s - first_s if position == taken else 0.0

    @property
    def rest_s(self) -> float:
        """The time until the next look, if there is nothing to read."""
        idle_since_s = time.monotonic() - IDLE_AFTER_S
        if self._last_read_s < idle_since_s:
            return MUTE_WAIT_S
        return IDLE_WAIT_S if self._last_rows_s < idle_since_s else BUSY_WAIT_S
