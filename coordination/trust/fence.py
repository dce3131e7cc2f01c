"""Whether this capture may still write: opened by the coordination thread, asked by any thread.

    shut ──open(identity, trusted_until)──► open ──extend──► open, longer
      ▲                                        │
      └── shut(reason) ────────────────────────┤
      └── the clock passes trusted_until ──────┘   (`check` itself compares the clock)

`extend` never opens a lapsed fence again: a capture that was not trusted for a moment starts again
as a new one. The fence is the first of three gates that a stale write meets; Delta's transaction
identity and the term in the control rows are the others.

A process has one fence for all its sessions, one after the other. Work that was begun in a lost
session must not go on when the fence opens again for the next one; so its `Trust` compares the
session too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from coordination.errors import Fenced
from coordination.model import CaptureID, ProcessorEpoch
from coordination.trust.clock import Clock

NEVER_OPENED = "this capture has not won its election"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureIdentity:
    """The capture that writes; it is stored in progress rows and in the metadata of target
    commits."""

    capture_id: CaptureID
    epoch: ProcessorEpoch
    address: str


@dataclass(frozen=True, slots=True)
class _Open:
    identity: CaptureIdentity
    trusted_until: float  # on the clock of the fence
    extended_at: float


class Fence:
    """Thread-safe. ``check`` is cheap and does not block: call it before a batch and right before
    each commit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._state: _Open | str = NEVER_OPENED  # a str is the reason why it is shut
        self._unanswered: dict[object, tuple[float, str]] = {}  # by who writes: since when, why

    def check(self) -> CaptureIdentity:
        """Returns the identity under which this process may write; raises ``Fenced`` with the
        reason if it may not."""
        with self._lock:
            state = self._state
        if isinstance(state, str):
            raise Fenced(f"nothing may be written: {state}")
        late_s = self._clock.monotonic() - state.trusted_until
        if late_s >= 0:
            raise Fenced(f"nothing may be written: trust in the session lapsed {late_s:.1f} s ago")
        return state.identity

    def open(self, identity: CaptureIdentity, trusted_until: float) -> None:
        """Allow writes until `trusted_until` (on the fence's clock). The fence must be shut."""
        with self._lock:
            assert isinstance(self._state, str), "the fence is open already: shut it first"
            self._state = _Open(identity, trusted_until, self._clock.monotonic())

    def extend(self, trusted_until: float) -> None:
        """Move the end of trust on, never back. Ignored if the fence is shut or lapsed."""
        with self._lock:
            state = self._state
            now = self._clock.monotonic()
            if isinstance(state, str) or now >= state.trusted_until:
                return
            if trusted_until > state.trusted_until:
                self._state = _Open(state.identity, trusted_until, now)

    @property
    def silent_s(self) -> float:
        """Seconds since trust was extended last: for so long etcd has not answered. 0 if the fence
        is shut."""
        with self._lock:
            state = self._state
        return 0.0 if isinstance(state, str) else self._clock.monotonic() - state.extended_at

    def unanswered(self, who: object, why: str | None) -> None:
        """What ``who`` writes into etcd is not carried out, though the session may be alive: its
        keep-alives are no writes. None: it is."""
        with self._lock:
            if why is None:
                self._unanswered.pop(who, None)
            else:
                self._unanswered.setdefault(who, (self._clock.monotonic(), why))

    @property
    def refused_write(self) -> tuple[float, str] | None:
        """For how many seconds a write into etcd has not been carried out, and why."""
        with self._lock:
            since, why = min(self._unanswered.values(), default=(0.0, ""))
        return (self._clock.monotonic() - since, why) if why else None

    def shut(self, reason: str) -> None:
        """Allow no writes from now on. If the fence is shut already, the first reason stays."""
        with self._lock:
            if not isinstance(self._state, str):
                self._state = reason


class Trust:
    """Whether one session may still write. Thread-safe, and cheap enough to be asked before each
    write."""

    def __init__(self, fence: Fence, identity: CaptureIdentity) -> None:
        self.identity = identity
        self._fence = fence

    @property
    def silent_s(self) -> float:
        """For how many seconds etcd has not answered."""
        return self._fence.silent_s

    @property
    def refused_write(self) -> tuple[float, str] | None:
        """See ``Fence.refused_write``."""
        return self._fence.refused_write

    def check(self) -> None:
        """Raises Fenced when this session may write nothing any more."""
        trusted = self._fence.check()
        if trusted.epoch != self.identity.epoch:
            raise Fenced(
                f"nothing may be written: capture {self.identity.capture_id} is over, its process "
                f"goes on as {trusted.capture_id}"
            )
