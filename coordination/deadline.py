"""How long a capture may believe in itself, and when others may act on its death. Pure.

All roles of a capture (controller, owners, spans) share one deadline: the trust in its session.

    capture's clock   attempt_started ──────── trusted_until ── margin ──┐
    etcd's clock         granted ≥ attempt_started ───── ttl ──────────► lease ends, key deleted
    owner's clock                                           seen ≥ ──────┴── grace ──► given away

No two clocks are compared: each step is measured on one, from an event that the step before it
caused. etcd counts the ttl from when it has the request, which is not before it was sent; the owner
counts the grace from when it has seen the deletion, which is not before it happened. So a write
that was under way when trust closed has ``margin + grace``, the quiet time, to end before a
successor may begin: half a ttl, 5 s at least (docs/cluster.md 18). TiCDC has the same in other
words: roles live 10 s from the last heartbeat, the lease outlives them, work is given away at
lease + 5 s, which is its captureRemoveTTL.

A new owner has not seen who died before its time. It counts the grace from its own start.
"""

from __future__ import annotations

from typing import Final

MIN_QUIET_S: Final = 5.0


def trusted_until(attempt_started: float, ttl_s: float, margin_s: float) -> float:
    """When the trust closes that a keep-alive, sent at `attempt_started`, has given; exclusive."""
    return attempt_started + ttl_s - margin_s


def removal_grace_s(ttl_s: float, margin_s: float) -> float:
    """How long a capture whose key is gone still counts: it may be back, or still be writing. It
    has not trusted itself for the margin already (that of all captures of a cluster is one)."""
    return max(ttl_s / 2 - margin_s, MIN_QUIET_S - margin_s, 0.0)


def is_given_away(gone_seen_at: float, grace_s: float, now: float) -> bool:
    """Whether the spans of a capture whose key was seen to be gone may go to another."""
    return now >= gone_seen_at + grace_s
