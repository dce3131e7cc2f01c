"""What the control tables are told of a changefeed's state."""

from __future__ import annotations

import pytest

from coordination.capture.owner.changefeed_owner import shown_state_of
from coordination.metadata.feed_state import Decision, FeedEvent
from coordination.metadata.records import ChangefeedInfo, FeedState, RunningError
from coordination.model import ChangefeedID


def report(code: str, time: str) -> RunningError:
    return RunningError(time=time, addr="a:1", code=code, message=f"why {code}")


EARLIER, LATER = "2026-01-31T12:00:00.000000Z", "2026-01-31T12:05:00.000000Z"


def info(state: FeedState, error: RunningError, warning: RunningError) -> ChangefeedInfo:
    return ChangefeedInfo(id=ChangefeedID("shop"), state=state, error=error, warning=warning)


@pytest.mark.parametrize("state", [FeedState.PENDING, FeedState.FAILED])
def test_the_error_that_ended_it_counts_whatever_the_clock_of_who_warned(state: FeedState) -> None:
    found = shown_state_of(info(state, report("error", EARLIER), report("warning", LATER)))
    assert (found.state, found.message) == (state, "why error")


def test_a_decision_is_newer_than_all_that_etcd_has() -> None:
    stored = info(FeedState.WARNING, report("error", LATER), report("warning", LATER))
    decision = Decision(event=FeedEvent.UNRETRYABLE_ERROR, error=report("new", EARLIER))
    found = shown_state_of(stored, decision)
    assert (found.state, found.message) == (FeedState.FAILED, "why new")
