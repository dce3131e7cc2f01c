"""How long a capture may trust its session, and when others may take over after its death. Pure.

All roles of a capture (controller, owners, spans) share one deadline: the trust in its session.

    capture's clock   attempt_started ──────── trusted_until ── margin ──┐
    etcd's clock         granted ≥ attempt_started ───── ttl ──────────► lease ends, key deleted
    owner's clock                                           seen ≥ ──────┴── grace ──► given away

No two clocks are compared: each step is measured on one clock, from an event that the step before
it caused. etcd counts the ttl from when it gets the request, which is not before it was sent; the
owner counts the grace from when it has seen the deletion, which is not before it happened. So a
write that was under way when trust ended has ``margin + grace``, the quiet time, to end before a
successor may begin: half a ttl, 5 s at least (docs/cluster.md 18). TiCDC has corresponding times:
its roles live 10 s from the last heartbeat, the lease outlives them, and work is given away at
lease + 5 s, which is its captureRemoveTTL.

A new owner has not seen which captures died before it started. It counts the grace from its own
start.
"""

from __future__ import annotations

from typing import Final

MIN_QUIET_S: Final = 5.0


def trusted_until(attempt_started: float, ttl_s: float, margin_s: float) -> float:
    """When the trust ends that a keep-alive sent at `attempt_started` gives; exclusive. In seconds
    on the capture's monotonic clock."""
    return attempt_started + ttl_s - margin_s


def removal_grace_s(ttl_s: float, margin_s: float) -> float:
    """How long a capture whose key is gone still counts, in seconds: it may come back, or still be
    writing. Its own trust ended one margin before (all captures of a cluster have the same one)."""
    return max(ttl_s / 2 - margin_s, MIN_QUIET_S - margin_s, 0.0)


def is_given_away(gone_seen_at: float, grace_s: float, now: float) -> bool:
    """Whether other captures may be given the spans of a capture whose key is gone. Times are on
    the owner's monotonic clock, in seconds."""
    return now >= gone_seen_at + grace_s
