"""A session: an etcd lease that is kept alive, and the window in which it may be trusted.

    trusted_until = attempt_started + ttl - margin          (the whole contract: deadline.py)

`attempt_started` is read before the request is sent, so an answer that took long does not stretch
trust; the clock goes on while the process sleeps. The window closes before the lease ends.

             Renewed (ttl > 0): trust moves on; Unanswered: nothing, trust just runs out
              ┌──┐
    ──grant──►ALIVE ──Renewed with ttl <= 0, LeaseMissing──► LOST   told once, `done` is set
                │  ──Elapsed, trusted_until has passed─────►  │
                │  ──Hanging, no keep-alive is sent────────►  │
                └──Closed──► CLOSED ◄──────Closed─────────────┘   the lease is revoked

The decision is `step`: pure, no clock, no thread. Around it are two threads: one sends keep-alives
and can hang in a request; the other only watches the clock and cannot. A session that is driven has
no threads: its `renew_when_due` does the work of both, as often as somebody calls it (the
simulation)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from conf.settings import SessionSettings
from coordination.clock import Clock
from coordination.deadline import is_trusted, trusted_until
from coordination.errors import LeaseGone, TidelakeError
from coordination.etcd.client import EtcdClient, Lease
from coordination.model import LeaseID

logger = logging.getLogger(__name__)

RENEWALS_PER_TTL: Final = 4  # two may fail before a window of ttl - margin closes
RETRY_S: Final = 0.25  # after a keep-alive without an answer


class SessionState(StrEnum):
    ALIVE = "alive"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Renewed:
    """etcd answered a keep-alive; ttl <= 0 means that the lease is gone."""

    attempt_started: float
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A keep-alive failed or timed out: it proves nothing, in either direction."""


@dataclass(frozen=True, slots=True)
class LeaseMissing:
    """Somebody saw that the lease is not there (time to live -1, its key deleted)."""


@dataclass(frozen=True, slots=True)
class Hanging:
    """Something of this capture hangs: it is not to be renewed."""

    what: str


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Asked to end."""


SessionEvent = Renewed | Unanswered | LeaseMissing | Hanging | Elapsed | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustWindow:
    state: SessionState
    trusted_until: float
    margin_s: float
    reason: str = ""  # why it is lost


def granted(attempt_started: float, ttl_s: int, margin_s: float) -> TrustWindow:
    """The trust that a new lease gives."""
    return TrustWindow(
        state=SessionState.ALIVE,
        trusted_until=trusted_until(attempt_started, ttl_s, margin_s),
        margin_s=margin_s,
    )


def step(trust: TrustWindow, event: SessionEvent, now: float) -> TrustWindow:
    """What the event means. Lost is for ever; trust that ran out is lost, whatever comes later."""
    if trust.state is SessionState.CLOSED:
        return trust
    if isinstance(event, Closed):
        return replace(trust, state=SessionState.CLOSED)
    if trust.state is SessionState.LOST:
        return trust
    if reason := _loss(trust, event, now):
        return replace(trust, state=SessionState.LOST, reason=reason)
    if isinstance(event, Renewed):
        until = trusted_until(event.attempt_started, event.ttl_s, trust.margin_s)
        return replace(trust, trusted_until=max(trust.trusted_until, until))
    return trust


def _loss(trust: TrustWindow, event: SessionEvent, now: float) -> str:
    if isinstance(event, Renewed) and event.ttl_s <= 0:
        return "the lease has expired or was revoked"
    if isinstance(event, LeaseMissing):
        return "the lease is gone from etcd"
    if not is_trusted(trust.trusted_until, now):
        late_s = now - trust.trusted_until
        return f"no keep-alive was answered in time, trust lapsed {late_s:.1f} s ago"
    return event.what if isinstance(event, Hanging) else ""


class Session:
    """Made by `open`. Its callbacks come from its own threads (or from `renew_when_due`), and not
    after `close` has returned.

    `extended(trusted_until)` after each renewal, never after a loss: must not block;
    `lost(reason)` at most once. ``overdue`` is asked before each keep-alive what hangs: while it
    names something none is sent, and the lease ends by itself.
    """

    def __init__(
        self,
        *,
        client: EtcdClient,
        clock: Clock,
        lease: Lease,
        trust: TrustWindow,
        extended: Callable[[float], None],
        lost: Callable[[str], None],
        overdue: Callable[[], str],
        is_driven: bool,
    ) -> None:
        self._client = client
        self._clock = clock
        self._lease = lease
        self._trust = trust
        self._extended = extended
        self._lost = lost
        self._overdue = overdue
        self._lock = threading.RLock()  # re-entrant: a callback may ask for `trusted_until`
        self.done = threading.Event()  # lost or closed
        self._is_driven = is_driven
        self._interval_s = lease.ttl_s / RENEWALS_PER_TTL
        self._renew_at = clock.monotonic() + self._interval_s  # of one that is driven
        self._threads = [
            threading.Thread(target=target, name=f"session-{name} {lease.id:x}", daemon=True)
            for name, target in (("keep-alive", self._keep_alive), ("watchdog", self._watch_clock))
            if not is_driven
        ]

    @classmethod
    def open(
        cls,
        client: EtcdClient,
        settings: SessionSettings,
        clock: Clock,
        *,
        extended: Callable[[float], None],
        lost: Callable[[str], None],
        overdue: Callable[[], str] = lambda: "",
        is_driven: bool = False,
    ) -> Session:
        """Grant a lease and keep it alive; raises TryAgain when etcd does not answer."""
        attempt_started = clock.monotonic()
        lease = client.grant(settings.ttl_s)
        session = cls(
            client=client,
            clock=clock,
            lease=lease,
            trust=granted(attempt_started, lease.ttl_s, settings.safety_margin_s),
            extended=extended,
            lost=lost,
            overdue=overdue,
            is_driven=is_driven,
        )
        for thread in session._threads:
            thread.start()
        return session

    @property
    def lease(self) -> LeaseID:
        return self._lease.id

    @property
    def trusted_until(self) -> float:
        with self._lock:
            return self._trust.trusted_until

    @property
    def is_alive(self) -> bool:
        with self._lock:
            return self._trust.state is SessionState.ALIVE

    @property
    def reason(self) -> str:
        """Why it is lost; empty otherwise."""
        with self._lock:
            return self._trust.reason

    def renew_when_due(self) -> float:
        """Look at the clock, and renew if the session is driven; the seconds until that is due."""
        self._receive(Elapsed())
        now = self._clock.monotonic()
        if self._is_driven and self.is_alive and now >= self._renew_at:
            is_answered = self._renew(self._interval_s)
            self._renew_at = now + (self._interval_s if is_answered else RETRY_S)
        due_at = self._renew_at if self._is_driven else self.trusted_until
        return max(0.0, min(due_at, self.trusted_until) - self._clock.monotonic())

    def give_up(self, why: str) -> None:
        """Renew it no more: it is lost."""
        self._receive(Hanging(why))

    def verify(self) -> bool:
        """Ask etcd now whether the lease is there (its key is gone, for example)."""
        if self._client.time_to_live(self._lease.id) <= 0:
            self._receive(LeaseMissing())
        return self.is_alive

    def close(self) -> bool:
        """Revoke the lease; its keys go with it. Idempotent; False if etcd did not take it."""
        with self._lock:
            if self._trust.state is SessionState.CLOSED:
                return True
            self._receive(Closed())
        is_revoked = False
        try:
            self._client.revoke(self._lease.id)
            is_revoked = True
        except TidelakeError as error:
            logger.warning(
                "could not revoke the lease, it ends by itself lease=%x ttl_s=%s: %s",
                self._lease.id,
                self._lease.ttl_s,
                error,
            )
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._lease.ttl_s)
        return is_revoked

    def _receive(self, event: SessionEvent) -> None:
        with self._lock:
            before = self._trust
            after = self._trust = step(before, event, self._clock.monotonic())
            is_loss = after.state is SessionState.LOST and before.state is SessionState.ALIVE
            if after.trusted_until > before.trusted_until:
                self._extended(after.trusted_until)
        if is_loss:  # told first, `done` second: who sees `done` may rely on the fence being shut
            self._lost(after.reason)
        if after.state is not SessionState.ALIVE:
            self.done.set()

    def _keep_alive(self) -> None:
        pause_s = self._interval_s
        while not self._clock.wait(self.done, pause_s):
            answered = self._renew(timeout_s=self._interval_s)
            pause_s = self._interval_s if answered else RETRY_S

    def _renew(self, timeout_s: float) -> bool:
        if hanging := self._overdue():
            logger.error("no keep-alive is sent lease=%x: %s", self._lease.id, hanging)
            self._receive(Hanging(hanging))
            return True
        attempt_started = self._clock.monotonic()
        try:
            ttl_s = self._client.keep_alive(self._lease.id, timeout_s=timeout_s)
        except LeaseGone:
            self._receive(LeaseMissing())
        except TidelakeError as error:
            logger.debug("keep-alive was not answered lease=%x: %s", self._lease.id, error)
            self._receive(Unanswered())
            return False
        else:
            self._receive(Renewed(attempt_started, ttl_s))
        return True

    def _watch_clock(self) -> None:
        while not self.done.is_set():
            self._clock.wait(self.done, self.trusted_until - self._clock.monotonic())
            self._receive(Elapsed())
