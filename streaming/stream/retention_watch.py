"""A thread that watches how long the source will keep the messages that are still needed, what it
holds back, and which tables it does not tell all changes of.

every minute: what is needed ─► `Source.kept` ─► one warning where little time is left, until
                                                 there is more again
every ten seconds: `Source.held_back` ─► a warning
every ten seconds: `Source.unlogged` ─► ``unlogged``, which the owner shows in these tables' rows
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from coordination.errors import TidelakeError, TryAgain
from coordination.model import TableName
from streaming.source.contract import Source
from streaming.source.positions import Positions
from streaming.stream.lasting_warnings import RETENTION, LastingWarnings

logger = logging.getLogger(__name__)

ASK_EVERY_S: Final = 60.0
UNLOGGED_EVERY_S: Final = 10.0
_UNLOGGED: Final = "foreign keys"
_HELD_BACK: Final = "what the source holds back"
AT_MOST: Final = 0.01  # of the time, where the database has so many tables that to ask takes long


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
        self.unlogged: Collection[TableName] = ()

    def begin(self) -> None:
        threading.Thread(target=self._run, name="retention", daemon=True).start()

    def close(self) -> None:
        """Stop watching. Does not wait for the thread, which may be asking the source still."""
        self._closing.set()
        self._concerns.withdraw(RETENTION)
        self._concerns.withdraw(_UNLOGGED)
        self._concerns.withdraw(_HELD_BACK)

    def _run(self) -> None:
        source, look_at_s = self._connect(), 0.0
        while not self._closing.is_set():
            began_s = time.monotonic()
            try:
                if began_s >= look_at_s:
                    look_at_s = began_s + ASK_EVERY_S
                    self.look(source)
                    began_s = time.monotonic()
                self.look_behind(source)
                self.look_at_tables(source)
            except TidelakeError as error:  # the reading thread meets it too, and reports it
                self.left_s = None  # the last answer is out of date
                logger.debug("what the source keeps and tells is not known now: %s", error)
            self._closing.wait(max(UNLOGGED_EVERY_S, (time.monotonic() - began_s) / AT_MOST))
        source.close()

    def look(self, source: Source) -> None:
        """Ask the source once, and report. Blocks; raises SourceAway."""
        found = source.kept(self._needed())
        self.left_s = found.left_s if found is not None else None
        if not self._closing.is_set():
            self._concerns.say(RETENTION, found.concern if found is not None else None)

    def look_behind(self, source: Source) -> None:
        """Ask the source once, and report. Blocks; raises SourceAway."""
        found = source.held_back(self._needed())
        if not self._closing.is_set():
            self._concerns.say(_HELD_BACK, found)

    def look_at_tables(self, source: Source) -> None:
        """Ask the source once. Blocks; raises SourceAway. What it refuses to tell is a concern."""
        try:
            self._tell(source.unlogged())
        except TryAgain:
            raise
        except TidelakeError as error:
            said: str | None = f"whether foreign keys change rows unseen cannot be known: {error}"
        else:
            said = None
        if not self._closing.is_set():
            self._concerns.say(_UNLOGGED, said)

    def _tell(self, unlogged: Collection[TableName]) -> None:
        if new := set(unlogged).difference(self.unlogged):
            logger.warning(
                "foreign keys change rows of %s by CASCADE or SET NULL, and the server writes no "
                "such change to its binlog: the targets keep those rows as they were. Let the "
                "application change them, and see `tidelake diff`",
                ", ".join(map(str, sorted(new))),
            )
        self.unlogged = unlogged
