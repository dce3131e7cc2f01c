"""A session: an etcd lease that is kept alive, and the window in which it may be trusted.

    trusted_until = attempt_started + ttl - margin          (the whole contract: deadline.py)

`attempt_started` is read before the request is sent, so an answer that took long does not stretch
trust; the clock goes on while the process sleeps. The window closes before the lease ends.

             renewed: trust moves on; not answered: nothing, trust just runs out
              ┌──┐
    ──grant──►ALIVE ──the lease is gone─────────────────────► LOST   told once, `done` is set
                │  ──the clock has passed trusted_until─────►  │
                │  ──something hangs, no keep-alive is sent─►  │
                └──close──► CLOSED ◄───────close───────────────┘   the lease is revoked

Two threads: one sends keep-alives and can hang in a request; the other only watches the clock and
cannot. A session that is driven has no threads: its `renew_when_due` does the work of both, as
often as somebody calls it (the simulation)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from conf.settings import SessionSettings
from coordination.clock import Clock
from coordination.deadline import trusted_until
from coordination.errors import LeaseGone, TidelakeError
from coordination.etcd.client import NO_LEASE, EtcdClient

logger = logging.getLogger(__name__)

RENEWALS_PER_TTL: Final = 4  # two may fail before a window of ttl - margin closes
RETRY_S: Final = 0.25  # after a keep-alive without an answer


class SessionState(StrEnum):
    ALIVE = "alive"
    LOST = "lost"
    CLOSED = "closed"


class Session:
    """Begins with `start`. Its callbacks come from its own threads (or from `renew_when_due`), and
    not after `close` has returned: `extended(trusted_until)` after each renewal, never after a
    loss, must not block; `lost(reason)` comes at most once. ``overdue`` is asked before each
    keep-alive what hangs: while it names something none is sent, and the lease ends by itself."""

    def __init__(
        self,
        client: EtcdClient,
        settings: SessionSettings,
        clock: Clock,
        *,
        extended: Callable[[float], None],
        lost: Callable[[str], None],
        overdue: Callable[[], str] = lambda: "",
        is_driven: bool = False,
    ) -> None:
        self.lease = NO_LEASE
        self.reason = ""  # why it is lost
        self.done = threading.Event()  # lost or closed
        self._client = client
        self._clock = clock
        self._ttl_s = settings.ttl_s
        self._margin_s = settings.safety_margin_s
        self._extended = extended
        self._lost = lost
        self._overdue = overdue
        self._is_driven = is_driven
        self._lock = threading.RLock()  # re-entrant: a callback may ask for `trusted_until`
        self._state = SessionState.ALIVE
        self._trusted_until = self._interval_s = 0.0
        self._renew_at = 0.0  # of one that is driven
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Grant a lease and keep it alive; raises TryAgain when etcd does not answer."""
        attempt_started = self._clock.monotonic()
        lease = self._client.grant(self._ttl_s)
        self.lease, self._ttl_s = lease.id, lease.ttl_s
        self._trusted_until = trusted_until(attempt_started, lease.ttl_s, self._margin_s)
        self._interval_s = lease.ttl_s / RENEWALS_PER_TTL
        self._renew_at = self._clock.monotonic() + self._interval_s
        if self._is_driven:
            return
        for name, target in (("keep-alive", self._keep_alive), ("watchdog", self._watch_clock)):
            thread = threading.Thread(
                target=target, name=f"session-{name} {lease.id:x}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    @property
    def trusted_until(self) -> float:
        with self._lock:
            return self._trusted_until

    @property
    def is_alive(self) -> bool:
        with self._lock:
            return self._state is SessionState.ALIVE

    def renew_when_due(self) -> float:
        """Look at the clock, and renew if the session is driven; the seconds until that is due."""
        self.update()
        now = self._clock.monotonic()
        if self._is_driven and self.is_alive and now >= self._renew_at:
            is_answered = self._renew()
            self._renew_at = now + (self._interval_s if is_answered else RETRY_S)
        due_at = self._renew_at if self._is_driven else self.trusted_until
        return max(0.0, min(due_at, self.trusted_until) - self._clock.monotonic())

    def update(self, *, loss: str = "", renewed_until: float = float("-inf")) -> None:
        """Take in what became known: why it is lost, or until when a renewal lets it be trusted.
        Lost is for ever; trust that ran out is lost, whatever comes later."""
        with self._lock:
            if self._state is not SessionState.ALIVE:
                return
            now = self._clock.monotonic()
            if not loss and now >= self._trusted_until:  # at the very moment of its end it is over
                late_s = now - self._trusted_until
                loss = f"no keep-alive was answered in time, trust lapsed {late_s:.1f} s ago"
            if not loss:
                if renewed_until > self._trusted_until:
                    self._trusted_until = renewed_until
                    self._extended(renewed_until)
                return
            self._state, self.reason = SessionState.LOST, loss
        self._lost(loss)  # first, `done` second: who sees `done` may rely on the fence being shut
        self.done.set()

    def close(self) -> bool:
        """Revoke the lease; its keys go with it. Idempotent; False if etcd did not take it."""
        with self._lock:
            if self._state is SessionState.CLOSED:
                return True
            self._state = SessionState.CLOSED
            self.done.set()
        is_revoked = False
        try:
            self._client.revoke(self.lease)
            is_revoked = True
        except TidelakeError as error:
            logger.warning(
                "could not revoke the lease, it ends by itself lease=%x ttl_s=%s: %s",
                self.lease,
                self._ttl_s,
                error,
            )
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._ttl_s)
        return is_revoked

    def _keep_alive(self) -> None:
        pause_s = self._interval_s
        while not self._clock.wait(self.done, pause_s):
            pause_s = self._interval_s if self._renew() else RETRY_S

    def _renew(self) -> bool:
        """False: no answer came, which proves nothing in either direction."""
        if hanging := self._overdue():
            logger.error("no keep-alive is sent lease=%x: %s", self.lease, hanging)
            self.update(loss=hanging)
            return True
        attempt_started = self._clock.monotonic()
        try:
            ttl_s = self._client.keep_alive(self.lease, timeout_s=self._interval_s)
        except LeaseGone:
            ttl_s = 0
        except TidelakeError as error:
            logger.debug("keep-alive was not answered lease=%x: %s", self.lease, error)
            self.update()
            return False
        if ttl_s <= 0:
            self.update(loss="the lease has expired or was revoked")
        else:
            self.update(renewed_until=trusted_until(attempt_started, ttl_s, self._margin_s))
        return True

    def _watch_clock(self) -> None:
        while not self.done.is_set():
            self._clock.wait(self.done, self.trusted_until - self._clock.monotonic())
            self.update()
