"""A thread that watches how long the source will keep the messages that are still needed.

every minute: what is needed ─► `Source.kept` ─► one warning where little time is left, until
                                                 there is more again
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from coordination.errors import TidelakeError
from streaming.source.contract import Source
from streaming.source.positions import Positions
from streaming.stream.lasting_warnings import RETENTION, LastingWarnings

logger = logging.getLogger(__name__)

ASK_EVERY_S: Final = 60.0


class RetentionWatch:
    """Watches one changefeed. ``needed`` returns its low-water positions, and is called on the
    watch's thread; ``connect`` makes that thread's connection to the source."""

    def __init__(
        self,
        connect: Callable[[], Source],
        needed: Callable[[], Positions],
        concerns: LastingWarnings,
    ) -> None:
        self._connect = connect
        self._needed = needed
        self._concerns = concerns
        self._closing = threading.Event()
        self.left_s: float | None = None  # None: not known, or nothing is needed

    def begin(self) -> None:
        threading.Thread(target=self._run, name="retention", daemon=True).start()

    def close(self) -> None:
        """Stop watching. Does not wait for the thread, which may be asking the source still."""
        self._closing.set()
        self._concerns.withdraw(RETENTION)

    def _run(self) -> None:
        source = self._connect()
        while not self._closing.is_set():
            try:
                self.look(source)
            except TidelakeError as error:  # the reading thread meets it too, and reports it
                self.left_s = None  # the last answer is out of date
                logger.debug("how long the source keeps it is not known now: %s", error)
            self._closing.wait(ASK_EVERY_S)
        source.close()

    def look(self, source: Source) -> None:
        """Ask the source once, and report. Blocks; raises SourceAway."""
        found = source.kept(self._needed())
        self.left_s = found.left_s if found is not None else None
        if not self._closing.is_set():
            self._concerns.say(RETENTION, found.concern if found is not None else None)
