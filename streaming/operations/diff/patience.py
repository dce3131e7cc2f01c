"""A database that is away for a while: the same is asked again, by a new session where that broke.

A comparison may last for hours, and a server is restarted now and then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from coordination.errors import TryAgain
from coordination.trust.clock import Clock, SystemClock
from streaming.source.dump.session import Session

AWAY_S: Final = 60.0
AGAIN_AFTER_S: Final = 1.0
T = TypeVar("T")


class Patience:
    """Asks again where the error may pass, until the same question has failed for ``away_s``."""

    def __init__(self, away_s: float = AWAY_S, clock: Clock | None = None) -> None:
        self._away_s = away_s
        self._clock = clock or SystemClock()
        self._never = threading.Event()

    def asked(self, ask: Callable[[], T]) -> T:
        """Raises what ``ask`` raises: a TryAgain only in the end."""
        until: float | None = None
        while True:
            try:
                return ask()
            except TryAgain:
                now = self._clock.monotonic()
                until = now + self._away_s if until is None else until
                if now >= until:
                    raise
                self._clock.wait(self._never, AGAIN_AFTER_S)


class KeptSession:
    """A session that is opened when it is needed, and again where it broke. For one thread."""

    def __init__(self, opened: Callable[[], Session], patience: Patience | None = None) -> None:
        self._opened = opened
        self._patience = patience or Patience()
        self._session: Session | None = None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def open(self) -> Session:
        """The session as it is, open. Raises as ``Session`` does."""
        if self._session is None or not self._session.is_open:
            self._session = self._opened()
        return self._session

    def asked(self, ask: Callable[[Session], T]) -> T:
        """What ``ask`` gives, which may be called more than once."""

        def once() -> T:
            session = self.open()
            try:
                return ask(session)
            except TryAgain:
                session.close()
                raise

        return self._patience.asked(once)
