"""A session: an etcd lease that is kept alive, and the time until which it may be trusted.

    trusted_until = attempt_started + ttl - margin          (the whole contract: deadline.py)

`attempt_started` is read before the request is sent, so a slow answer does not extend trust; the
clock goes on while the process is suspended. Trust ends before the lease does.

             renewed: trust is extended; not answered: nothing, trust just runs out
              ┌──┐
    ──grant──►ALIVE ──the lease is gone─────────────────────► LOST   told once, `done` is set
                │  ──the clock has passed trusted_until─────►  │
                │  ──something hangs, no keep-alive is sent─►  │
                └──close──► CLOSED ◄───────close───────────────┘   the lease is revoked

A session has two threads: one sends keep-alives and may hang in a request; the other only watches
the clock, so it cannot hang. A driven session (in the simulation) has no threads: its caller calls
`renew_when_due`, which does the work of both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from conf.settings import SessionSettings
from coordination.errors import LeaseGone, TidelakeError
from coordination.etcd.client import NO_LEASE, EtcdClient
from coordination.trust.clock import Clock
from coordination.trust.deadline import trusted_until

logger = logging.getLogger(__name__)

RENEWALS_PER_TTL: Final = 4  # so two may fail before trust (TTL minus margin) ends
RETRY_S: Final = 0.25  # the pause after a keep-alive without an answer


class SessionState(StrEnum):
    ALIVE = "alive"
    LOST = "lost"
    CLOSED = "closed"


class Session:
    """One lease and its callbacks; begins with `start`. The callbacks are called by the session's
    threads (or by `renew_when_due`), and not after `close` has returned. `extended(trusted_until)`
    is called after each renewal, never after a loss, and must not block; `lost(reason)` is called
    at most once. ``overdue`` is called before each keep-alive and names what hangs in this capture
    ("": nothing); while it names something no keep-alive is sent, and the lease ends by itself."""

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
        self.reason = ""  # why the session was lost
        self.done = threading.Event()  # set when the session is lost or closed
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
        self._renew_at = 0.0  # only for a driven session
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Get a lease from etcd and begin to keep it alive. Blocks; raises TryAgain if etcd does
        not answer."""
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
        """Check the clock, renew the lease if the session is driven and the renewal is due, and
        return the seconds until the next call is due."""
        self.update()
        now = self._clock.monotonic()
        if self._is_driven and self.is_alive and now >= self._renew_at:
            is_answered = self._renew()
            self._renew_at = now + (self._interval_s if is_answered else RETRY_S)
        due_at = self._renew_at if self._is_driven else self.trusted_until
        return max(0.0, min(due_at, self.trusted_until) - self._clock.monotonic())

    def update(self, *, loss: str = "", renewed_until: float = float("-inf")) -> None:
        """Take in a loss (its reason) or a renewal (the new end of trust), and check the clock.
        A lost session stays lost: if trust has ended, a renewal that comes later does not count."""
        with self._lock:
            if self._state is not SessionState.ALIVE:
                return
            now = self._clock.monotonic()
            if not loss and now >= self._trusted_until:  # the end itself is no longer trusted
                late_s = now - self._trusted_until
                loss = f"no keep-alive was answered in time, trust lapsed {late_s:.1f} s ago"
            if not loss:
                if renewed_until > self._trusted_until:
                    self._trusted_until = renewed_until
                    self._extended(renewed_until)
                return
            self._state, self.reason = SessionState.LOST, loss
        self._lost(loss)  # before `done` is set: who sees `done` may rely on the fence being shut
        self.done.set()

    def close(self) -> bool:
        """Revoke the lease, which deletes its keys, and wait for the threads. Idempotent. Returns
        False if etcd could not be told; then the lease ends by itself."""
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
        """Send one keep-alive. Returns False if no answer came: the lease may be renewed or not."""
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
