"""Whether this capture may still write: opened by the coordination thread, asked by any thread.

    shut ──open(ownership, trusted_until)──► open ──extend──► open, longer
      ▲                                        │
      └── shut(reason) ────────────────────────┤
      └── the clock passes trusted_until ──────┘   (`check` itself compares the clock)

`extend` never opens a lapsed fence again: a capture that was not trusted for a moment starts again
as a new one. The fence is the first of three gates that a stale write meets; Delta's transaction
identity and the term in the control rows are the others.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from coordination.clock import Clock
from coordination.errors import Fenced
from coordination.model import Ownership

NEVER_OPENED = "this capture has not won its election"


@dataclass(frozen=True, slots=True)
class _Open:
    ownership: Ownership
    trusted_until: float  # on the clock of the fence
    extended_at: float


class Fence:
    """Thread-safe. ``check`` is cheap and does not block: call it before a batch and right before
    each commit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._state: _Open | str = NEVER_OPENED  # a str is the reason why it is shut

    def check(self) -> Ownership:
        """Returns the ownership under which this capture may write; raises ``Fenced`` with the
        reason if it may not."""
        with self._lock:
            state = self._state
        if isinstance(state, str):
            raise Fenced(f"nothing may be written: {state}")
        late_s = self._clock.monotonic() - state.trusted_until
        if late_s >= 0:
            raise Fenced(f"nothing may be written: trust in the session lapsed {late_s:.1f} s ago")
        return state.ownership

    def open(self, ownership: Ownership, trusted_until: float) -> None:
        """Allow writes until `trusted_until` (on the fence's clock). The fence must be shut."""
        with self._lock:
            assert isinstance(self._state, str), "the fence is open already: shut it first"
            self._state = _Open(ownership, trusted_until, self._clock.monotonic())

    def extend(self, trusted_until: float) -> None:
        """Move the end of trust on, never back. Ignored if the fence is shut or lapsed."""
        with self._lock:
            state = self._state
            now = self._clock.monotonic()
            if isinstance(state, str) or now >= state.trusted_until:
                return
            if trusted_until > state.trusted_until:
                self._state = _Open(state.ownership, trusted_until, now)

    @property
    def silent_s(self) -> float:
        """Seconds since trust was extended last: for so long etcd has not answered. 0 if the fence
        is shut."""
        with self._lock:
            state = self._state
        return 0.0 if isinstance(state, str) else self._clock.monotonic() - state.extended_at

    def shut(self, reason: str) -> None:
        """Allow no writes from now on. If the fence is shut already, the first reason stays."""
        with self._lock:
            if not isinstance(self._state, str):
                self._state = reason
