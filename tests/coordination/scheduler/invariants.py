"""What is true of a replication set after every step (docs/cluster.md I6)."""

from __future__ import annotations

from coordination.scheduler.replication_set import ReplicationSet, ReplicationState


def check_invariants(made: ReplicationSet) -> None:
    """What is true after every step (docs/cluster.md I6). AssertionError says what is not."""
    holders, state = made.holders, made.state
    assert len(set(holders)) == len(holders), f"a capture has two roles: {holders}"
    if state is ReplicationState.PREPARE:
        assert made.secondary is not None, "Prepare without a secondary"
    if state is ReplicationState.COMMIT:
        assert made.primary or made.secondary, "Commit without anybody to write"
    if state is ReplicationState.REPLICATING:
        assert made.primary is not None, "Replicating without a primary"
        assert made.secondary is None, "Replicating with a secondary"
    if state is ReplicationState.ABSENT:
        assert made.primary is None, "Absent with a primary"
        assert made.secondary is None, "Absent with a secondary"
    assert state is not ReplicationState.UNKNOWN
    assert made.resolved_ts >= made.checkpoint_ts
