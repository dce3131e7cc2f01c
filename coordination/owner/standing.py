"""How a changefeed stands, for the control tables: pure."""

from __future__ import annotations

from coordination.metadata.feed_state import Decision, known_state, next_state
from coordination.metadata.model import ChangefeedInfo, FeedState
from coordination.ports import Standing


def standing_of(info: ChangefeedInfo, decision: Decision | None = None) -> Standing:
    """As etcd has it, or will have it once the decision is written."""
    state = known_state(info)
    told = [each for each in (info.error, info.warning) if each is not None]
    if decision is not None:
        state = next_state(state, decision.event)
        told += [decision.error] if decision.error is not None else []
    if state is FeedState.NORMAL or not told:
        return Standing(state=state)
    return Standing(state=state, message=max(told, key=lambda each: each.time).message)
