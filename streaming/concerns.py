"""What goes wrong without an error: who is asked does not answer.

broker: asked every few seconds ──no answer for 10 s──► one warning, in the log and in the row
etcd:   the fence tells          ──none for half a lease──► the same
                                 ──answers again──► the row is as before, one line says so
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from coordination.errors import TidelakeError

logger = logging.getLogger(__name__)

BROKER, ETCD, STREAM = "broker", "etcd", "stream"
BROKER_SILENT_S: Final = 10.0
ASK_EVERY_S: Final = 2.0
NO_CONCERN: str | None = None


def etcd_concern(silent_s: float, ttl_s: float) -> str | None:
    """Half a lease without an answer; the same text for as long as it lasts."""
    if silent_s <= ttl_s / 2:
        return NO_CONCERN
    return (
        f"etcd has not answered for {ttl_s / 2:g} s: this capture writes nothing any more when its "
        "lease ends, and begins anew when etcd answers"
    )


class Concerns:
    """What is wrong right now, by who is concerned. Thread-safe; each is logged once.

    ``show`` gets what is to stand in the changefeed's row, whenever that changes."""

    def __init__(self, show: Callable[[str | None], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._open: dict[str, str] = {}

    def say(self, about: str, what: str | None) -> None:
        """None: it is over."""
        with self._lock:
            before = self._open.get(about)
            if what is None:
                self._open.pop(about, None)
            elif before is None:
                self._open[about] = what
            shown = next(iter(self._open.values()), NO_CONCERN)
        if what is not None and before is None:
            logger.warning("%s", what)
        elif what is None and before is not None:
            logger.info("it is over: %s", before)
        if (what is None) != (before is None):
            self._show(shown)


class BrokerWatch:
    """Asks the broker, on a thread of its own: Spark waits for it in silence, for a minute."""

    def __init__(
        self,
        ask: Callable[[], object],
        tell: Callable[[str | None], None],
        *,
        monotonic: Callable[[], float],
        also: Callable[[], None] = lambda: None,
    ) -> None:
        """``ask`` raises TidelakeError when there is no answer; ``also`` is called as often."""
        self._ask = ask
        self._tell = tell
        self._monotonic = monotonic
        self._also = also
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-watch", daemon=True)
        self._answered_at = monotonic()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Does not wait for an answer that may not come."""
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(ASK_EVERY_S):
            self._also()
            self.look()

    def look(self) -> None:
        """Once."""
        began_at = self._monotonic()
        try:
            self._ask()
        except TidelakeError as error:
            if self._monotonic() - self._answered_at >= BROKER_SILENT_S:
                self._tell(f"{error}. It has not answered for {BROKER_SILENT_S:g} s")
        else:
            self._answered_at = began_at
            self._tell(None)
