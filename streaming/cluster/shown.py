"""A changefeed's row as others read it: how it stands, beside how far it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from coordination.metadata.model import FeedState
from coordination.ports import Standing
from sinks.changefeeds import ENDED, ChangefeedRow, ChangefeedState

ENDS: Final[Mapping[FeedState, ChangefeedState]] = {
    FeedState.PENDING: "pending",
    FeedState.FAILED: "failed",
    FeedState.STOPPED: "stopped",
    FeedState.FINISHED: "finished",
}


def as_running(row: ChangefeedRow, standing: Standing, concern: str | None) -> ChangefeedRow:
    """``concern``: what the owner itself has seen, and etcd may not be able to hear."""
    is_warned = concern is not None or standing.state is FeedState.WARNING
    if not is_warned or row.state in ENDED:
        return row
    return replace(row, state="warning", error=concern or standing.message or None)


def as_ended(row: ChangefeedRow, standing: Standing) -> ChangefeedRow:
    """An owner's last word: who is to go on elsewhere is stopped meanwhile."""
    if row.state == "finished":
        return row
    state = ENDS.get(standing.state)
    if state is None:
        return replace(row, state="stopped")
    return replace(row, state=state, error=standing.message or None)
