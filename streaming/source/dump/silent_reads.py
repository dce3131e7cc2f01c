"""Reads of a copy or of a comparison to which a server sends nothing for long.

    a read ──nothing for 45 s──► its server is asked, on another connection, what it does
              ├─ it waits for a lock, or is at it ──► one line, and one when something comes
              └─ no answer within 30 s ─────────────► the read is broken off: SourceAway
    a read whose work is to stop ──nothing for 5 s──► broken off

A socket alone tells nothing of that: the kernel of a server that stands still answers keep-alives,
and a lock of another session lasts as long as that session likes.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Final, Protocol

from coordination.errors import TidelakeError
from coordination.trust.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

SAYS_AFTER_S: Final = 45.0
UNANSWERED_S: Final = 10.0  # the server's answer is so late that this is said
GIVES_UP_S: Final = 30.0  # and so late that the read is broken off
STOPS_AFTER_S: Final = 5.0
LOOK_EVERY_S: Final = 0.5
_NAMED: Final = re.compile(r"\b(?:FROM|TABLES|TABLE)\s+(`(?:[^`]|``)+`(?:\.`(?:[^`]|``)+`)?)", re.I)
_LOCKED: Final = (
    "Another session holds the table: by LOCK TABLES, or by a long transaction before which an "
    "ALTER TABLE waits. SHOW FULL PROCESSLIST on the server names it: the read goes on when it has "
    "ended, or was ended by KILL"
)


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a server was asked, and since when it has sent nothing (monotonic)."""

    statement: str
    since_s: float


class Reading(Protocol):
    """A connection that reads. ``awaited``: None while nothing is asked of the server."""

    @property
    def address(self) -> str: ...

    @property
    def awaited(self) -> Awaited | None: ...

    def is_to_stop(self) -> bool: ...

    def state(self) -> str:
        """What the server does with the read, as it says. Blocks; raises TidelakeError."""

    def break_off(self) -> None:
        """From any thread: what waits for the server fails."""


class SilentReads:
    """Watches connections on a thread of its own, which is there as long as they are."""

    def __init__(
        self,
        says_after_s: float = SAYS_AFTER_S,
        gives_up_s: float = GIVES_UP_S,
        clock: Clock | None = None,
    ) -> None:
        self._says_after_s = says_after_s
        self._unanswered_s = min(UNANSWERED_S, gives_up_s)
        self._gives_up_s = gives_up_s
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._watched: weakref.WeakKeyDictionary[Reading, _Silence | None] = (
            weakref.WeakKeyDictionary()
        )
        self._is_looking = False

    def watch(self, reading: Reading) -> None:
        with self._lock:
            self._watched[reading] = None
            if not self._is_looking:
                self._is_looking = True
                threading.Thread(target=self._run, name="silent-reads", daemon=True).start()

    def forget(self, reading: Reading) -> None:
        with self._lock:
            silence = self._watched.pop(reading, None)
        if silence is not None:
            silence.ends()

    def told(self, address: str) -> str | None:
        """What is waited for at the moment, in a sentence. ``address``: of the server, or several
        with commas between."""
        addresses = address.split(",")
        with self._lock:
            found = [
                each.told
                for reading, each in self._watched.items()
                if each is not None and each.told and reading.address in addresses
            ]
        return min(found, default=None)

    def _run(self) -> None:
        never = threading.Event()
        while True:
            with self._lock:
                watched = list(self._watched.items())
                self._is_looking = bool(watched)
            if not watched:
                return
            for reading, silence in watched:
                found = self._looked(reading, silence)
                with self._lock:
                    if reading in self._watched:
                        self._watched[reading] = found
            del watched, reading
            self._clock.wait(never, LOOK_EVERY_S)

    def _looked(self, reading: Reading, before: _Silence | None) -> _Silence | None:
        awaited, now_s = reading.awaited, time.monotonic()
        if before is not None and (awaited is None or awaited != before.awaited):
            before.ends()
            before = None
        if awaited is None:
            return None
        if now_s - awaited.since_s >= STOPS_AFTER_S and reading.is_to_stop():
            reading.break_off()
            return before
        if before is None and now_s - awaited.since_s >= self._says_after_s:
            return _Silence(reading, awaited, self._says_after_s)
        if before is not None and (waits_s := before.unanswered_s(now_s)) is not None:
            if waits_s >= self._unanswered_s:
                before.has_no_answer()
            if waits_s >= self._gives_up_s:
                reading.break_off()
            return before
        if before is not None and now_s >= before.asked_s + self._says_after_s:
            before.ask()
        return before


class _Silence:
    """One read that waits for its server, which is asked why."""

    def __init__(self, reading: Reading, awaited: Awaited, after_s: float) -> None:
        self.awaited = awaited
        self.told = ""
        self.asked_s = 0.0
        self._state = weakref.WeakMethod(reading.state)
        self._subject = f"{reading.address} has sent nothing for {after_s:g} s of {of(awaited)}"
        self._is_asking = False
        self.ask()

    def ask(self) -> None:
        self.asked_s, self._is_asking = time.monotonic(), True
        threading.Thread(target=self._ask, name="silent-read-why", daemon=True).start()

    def unanswered_s(self, now_s: float) -> float | None:
        """For how long the server has not answered; None: it has."""
        return now_s - self.asked_s if self._is_asking else None

    def has_no_answer(self) -> None:
        self._tell(
            f"{self._subject}, and does not answer another connection either. Does it stand "
            "still, or is the network away? It is asked anew, and the rows that have come stay"
        )

    def ends(self) -> None:
        told, self.told = self.told, ""
        if told:
            logger.info("it is over: %s", told)

    def _ask(self) -> None:
        if (ask := self._state()) is None:
            return
        try:
            state = ask()
        except TidelakeError as error:
            logger.debug("what the server does with a read is not known: %s", error)
            return  # so it has not answered
        if state.startswith("Waiting for"):
            self._tell(f"{self._subject}: {state}. {_LOCKED}")
        else:
            self._tell(f"{self._subject}, and is at it: {state or 'it does not say how'}")
        self._is_asking = False

    def _tell(self, told: str) -> None:
        if told != self.told:
            self.told = told
            logger.warning("%s", told)


def of(awaited: Awaited) -> str:
    """What is read, without its values. Pure."""
    found = _NAMED.search(awaited.statement)
    if found is None:
        return f"its answer to {' '.join(awaited.statement.split()[:2])}"
    return found[1].replace("`.`", ".").strip("`").replace("``", "`")


WATCH: Final = SilentReads()
