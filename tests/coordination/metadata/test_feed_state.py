"""The feed states: every way, the back-off, errors and warnings."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coordination.errors import GC_ERRORS, SOURCE_MOVED, UNRETRYABLE, UNRETRYABLE_ERRORS
from coordination.metadata.errors import InvalidTransition
from coordination.metadata.feed_state import (
    ADMIN_JOB_WRITTEN,
    BACKOFF_MAX_S,
    TRANSITIONS,
    Decision,
    FeedEvent,
    FeedStateManager,
    next_state,
)
from coordination.metadata.records import ChangefeedInfo, ChangefeedStatus, FeedState, RunningError
from coordination.model import ChangefeedID, Ts

NORMAL, WARNING, PENDING = FeedState.NORMAL, FeedState.WARNING, FeedState.PENDING
FAILED, STOPPED, FINISHED = FeedState.FAILED, FeedState.STOPPED, FeedState.FINISHED
REMOVED = FeedState.REMOVED
RUNNING = (NORMAL, WARNING)
ERROR = RunningError(code="CDC:ErrKafkaSend", message="no broker")


@dataclass
class Feed:
    """A changefeed whose decisions are written at once, and a clock."""

    state: FeedState = NORMAL
    checkpoint_ts: int = 100
    reached_ts: int = 0
    target_ts: int = 0
    now_s: float = 1000.0
    random: float = 0.5  # no jitter
    error: RunningError | None = None
    warning: RunningError | None = None
    manager: FeedStateManager = field(init=False)

    def __post_init__(self) -> None:
        self.new_owner()

    def new_owner(self) -> None:
        self.manager = FeedStateManager(random=lambda: self.random)

    def tick(
        self,
        *errors: RunningError,
        warnings: tuple[RunningError, ...] = (),
        after_s: float = 0.0,
        **now: Any,
    ) -> Decision | None:
        self.now_s += after_s
        info = ChangefeedInfo(
            id=ChangefeedID("shop"),
            state=self.state,
            target_ts=Ts(self.target_ts),
            error=self.error,
            warning=self.warning,
        )
        status = ChangefeedStatus(checkpoint_ts=Ts(self.checkpoint_ts))
        decision = self.manager.decide(
            info, status, errors, warnings, self.now_s, reached_ts=Ts(self.reached_ts), **now
        )
        if decision is not None:
            self.state = next_state(self.state, decision.event)
            self._note(decision)
        assert self.manager.should_run == (self.state in RUNNING)
        return decision

    def _note(self, decision: Decision) -> None:
        """As `changefeed_writes` does."""
        if self.state in (NORMAL, FINISHED):
            self.error = self.warning = None
        elif decision.event is FeedEvent.WARNING:
            self.warning = decision.error
        elif decision.error is not None:
            self.error = decision.error


EXPECTED = {
    FeedEvent.ERROR: (RUNNING, PENDING),
    FeedEvent.UNRETRYABLE_ERROR: ((*RUNNING, PENDING), FAILED),
    FeedEvent.GC_ERROR: ((*RUNNING, PENDING, STOPPED), FAILED),
    FeedEvent.WARNING: (RUNNING, WARNING),
    FeedEvent.RETRY: ((PENDING,), WARNING),
    FeedEvent.GIVE_UP: ((WARNING, PENDING), FAILED),
    FeedEvent.ADVANCED: ((WARNING,), NORMAL),
    FeedEvent.STOP: ((*RUNNING, PENDING), STOPPED),
    FeedEvent.RESUME: ((FAILED, STOPPED, FINISHED), NORMAL),
    FeedEvent.FINISH: (RUNNING, FINISHED),
    FeedEvent.REMOVE: (tuple(set(FeedState) - {REMOVED}), REMOVED),
}


@pytest.mark.parametrize(("event", "state"), list(itertools.product(FeedEvent, FeedState)))
def test_the_table_is_that_of_ticdc_and_nothing_else_is_possible(
    event: FeedEvent, state: FeedState
) -> None:
    origins, target = EXPECTED[event]
    if state in origins:
        assert next_state(state, event) is target
    else:
        with pytest.raises(InvalidTransition):
            next_state(state, event)


def test_every_event_leads_to_one_state_whose_admin_job_is_known() -> None:
    for targets in TRANSITIONS.values():
        (target,) = set(targets.values())
        assert target in ADMIN_JOB_WRITTEN


@pytest.mark.parametrize("state", [NORMAL, FeedState.UNINITIALIZED])
def test_with_nothing_reported_it_just_runs(state: FeedState) -> None:
    feed = Feed(state)
    info = ChangefeedInfo(id=ChangefeedID("shop"), state=state)
    assert feed.manager.decide(info, None, (), (), 0.0) is None
    assert feed.manager.should_run


@pytest.mark.parametrize("state", [PENDING, FAILED, STOPPED, FINISHED, REMOVED])
def test_what_is_not_running_does_not_run(state: FeedState) -> None:
    assert Feed(state).tick() is None


def test_an_error_waits_longer_each_time_and_gives_up_at_last() -> None:
    feed, waits = Feed(), []
    while feed.state is not FAILED:
        decision = feed.tick(ERROR)
        if feed.state is PENDING:
            began = feed.now_s
            while feed.tick(after_s=1.0) is None:
                pass
            waits.append(feed.now_s - began)
    assert waits == [10, 20, 40, 80, 160, 320, 600]
    assert decision is not None
    assert decision.event is FeedEvent.GIVE_UP
    assert decision.error is not None
    assert decision.error.code == UNRETRYABLE
    assert "no broker" in decision.error.message
    assert feed.now_s - 1000.0 <= 1800


def test_a_wait_is_spread_by_a_tenth_and_no_longer_than_ten_minutes() -> None:
    for random, low, high in ((0.0, 8.9, 9.1), (0.999, 10.9, 11.0)):
        feed = Feed(random=random)
        feed.tick(ERROR)
        assert feed.tick(after_s=low) is None
        decision = feed.tick(after_s=high - low)
        assert decision == Decision(event=FeedEvent.RETRY)
    assert BACKOFF_MAX_S == 600


def test_progress_ends_the_trouble_and_the_next_error_waits_the_least() -> None:
    feed = Feed()
    feed.tick(ERROR)
    feed.tick(after_s=10)
    feed.tick(ERROR)
    assert feed.tick(after_s=20) == Decision(event=FeedEvent.RETRY)
    assert feed.tick() is None  # warning, and no progress yet
    feed.checkpoint_ts += 1
    assert feed.tick() == Decision(event=FeedEvent.ADVANCED)
    feed.tick(ERROR)
    assert feed.tick(after_s=9.9) is None
    assert feed.tick(after_s=0.1) == Decision(event=FeedEvent.RETRY)


def test_the_last_error_is_shown_and_those_of_a_paused_one_are_passed_over() -> None:
    other = replace(ERROR, code="CDC:Other")
    assert Feed().tick(ERROR, other) == Decision(event=FeedEvent.ERROR, error=other)
    for state in (STOPPED, FAILED, FINISHED, REMOVED, PENDING):
        assert Feed(state).tick(ERROR) is None


@pytest.mark.parametrize("code", sorted(GC_ERRORS))
@pytest.mark.parametrize("state", [NORMAL, WARNING, PENDING, STOPPED])
def test_lost_history_fails_it_at_once_even_paused(state: FeedState, code: str) -> None:
    lost = replace(ERROR, code=code)
    feed = Feed(state)
    assert feed.tick(lost, ERROR) == Decision(event=FeedEvent.GC_ERROR, error=lost)
    assert feed.state is FAILED


@pytest.mark.parametrize("code", sorted(UNRETRYABLE_ERRORS))
def test_what_cannot_be_retried_fails_it_at_once(code: str) -> None:
    feed, fatal = Feed(), replace(ERROR, code=code)
    assert feed.tick(ERROR, fatal) == Decision(event=FeedEvent.UNRETRYABLE_ERROR, error=fatal)
    assert Feed(STOPPED).tick(fatal) is None


def test_a_warning_stays_until_the_checkpoint_has_passed_it() -> None:
    feed = Feed()
    assert feed.tick(warnings=(ERROR,)) == Decision(event=FeedEvent.WARNING, error=ERROR)
    assert feed.tick(after_s=60) is None
    feed.checkpoint_ts += 5
    feed.tick(warnings=(ERROR,))
    assert feed.tick() is None  # warned again, at the new checkpoint
    feed.checkpoint_ts += 1
    assert feed.tick() == Decision(event=FeedEvent.ADVANCED)


def test_a_warning_with_no_progress_for_too_long_is_a_failure() -> None:
    feed = Feed()
    feed.tick(warnings=(ERROR,))
    assert feed.tick(warnings=(ERROR,), after_s=1800) is not None
    assert feed.state is WARNING
    decision = feed.tick(warnings=(ERROR,), after_s=1)
    assert decision is not None
    assert decision.event is FeedEvent.GIVE_UP


def test_warnings_with_progress_are_no_failure_however_long() -> None:
    feed = Feed()
    for _ in range(100):
        feed.checkpoint_ts += 1
        feed.tick(warnings=(ERROR,), after_s=60)
        assert feed.state is WARNING


def test_one_table_that_waits_is_no_failure_and_its_warning_stays() -> None:
    feed = Feed(reached_ts=100)
    feed.tick(warnings=(ERROR,))
    for number in range(100):
        feed.reached_ts += 1
        trouble = (ERROR,) if number % 10 == 5 else ()
        feed.tick(*trouble, after_s=600)
        feed.tick(after_s=20)
        assert feed.state is WARNING
    feed.checkpoint_ts += 1
    assert feed.tick() == Decision(event=FeedEvent.ADVANCED)


def test_an_error_counts_more_than_a_warning() -> None:
    feed = Feed()
    feed.tick(ERROR, warnings=(replace(ERROR, code="CDC:Warn"),))
    assert feed.state is PENDING


def test_a_resume_by_whomever_begins_the_back_off_anew() -> None:
    """From the command line it comes through etcd, and not through this owner."""
    feed = Feed()
    for _ in range(3):
        feed.tick(ERROR)
        feed.tick(after_s=600)
    feed.state = STOPPED
    feed.tick(after_s=5000)
    feed.state, feed.checkpoint_ts = NORMAL, 50
    feed.tick()
    feed.tick(ERROR)
    assert feed.tick(after_s=10) == Decision(event=FeedEvent.RETRY)
    feed.checkpoint_ts = 51  # below where it once was, and still progress
    assert feed.tick() == Decision(event=FeedEvent.ADVANCED)


@pytest.mark.parametrize("state", FeedState)
def test_at_its_target_it_finishes_if_it_runs(state: FeedState) -> None:
    before = state or NORMAL
    feed = Feed(before, checkpoint_ts=500, target_ts=501)
    assert feed.tick() is None
    feed.checkpoint_ts = 501
    decision = feed.tick()
    assert decision == (Decision(event=FeedEvent.FINISH) if before in RUNNING else None)


def test_a_new_owner_waits_anew_and_still_gets_out_of_a_warning() -> None:
    feed = Feed()
    feed.tick(ERROR)
    feed.new_owner()
    assert feed.tick(after_s=5) is None
    assert feed.tick(after_s=9.9) is None
    assert feed.tick(after_s=0.1) == Decision(event=FeedEvent.RETRY)
    feed.new_owner()
    assert feed.tick() is None
    feed.checkpoint_ts += 1
    assert feed.tick() == Decision(event=FeedEvent.ADVANCED)


BROKER, OTHER = (
    RunningError(code="CDC:ErrKafkaSend", message=text, time="2026-01-01T00:00:00Z").lasting()
    for text in ("the broker has not answered", "half of the retention has passed")
)
OVER = Decision(event=FeedEvent.ADVANCED)


def test_what_lasts_is_a_warning_for_as_long_as_it_does_and_no_longer() -> None:
    """Where no watermark comes, and also where the checkpoint moves on meanwhile."""
    feed = Feed()
    assert feed.tick(warnings=(BROKER,), concerns=[BROKER]) is not None
    for _ in range(5):
        assert feed.tick(concerns=[BROKER], after_s=600) is None
        feed.checkpoint_ts += 1
    assert (feed.state, feed.warning) == (WARNING, BROKER)
    assert feed.tick() == OVER
    assert (feed.state, feed.warning) == (NORMAL, None)


def test_of_two_that_last_the_other_is_shown_when_one_ends() -> None:
    feed = Feed()
    feed.tick(warnings=(BROKER,), concerns=[BROKER, OTHER])
    assert feed.tick(concerns=[OTHER]) == Decision(event=FeedEvent.WARNING, error=OTHER)
    assert feed.tick(concerns=[OTHER]) is None
    assert feed.tick() == OVER


def test_one_that_has_ended_before_it_was_seen_ends() -> None:
    feed = Feed()
    feed.tick(warnings=(BROKER,))
    assert feed.tick() == OVER


def test_a_new_owner_hears_of_what_lasts_and_of_its_end() -> None:
    feed = Feed()
    feed.tick(warnings=(BROKER,), concerns=[BROKER])
    feed.new_owner()
    assert feed.tick(concerns=[BROKER]) is None
    assert feed.tick() == OVER
    feed.new_owner()
    assert feed.tick(concerns=[OTHER]) == Decision(event=FeedEvent.WARNING, error=OTHER)


def test_a_retry_has_gone_well_when_nothing_is_left_that_could_fail() -> None:
    """No checkpoint shows it where nothing comes. Until then it waits longer after each error,
    however often something that lasted has ended."""
    feed = Feed()
    for wait_s in (10, 20, 40):
        assert feed.tick(ERROR) == Decision(event=FeedEvent.ERROR, error=ERROR)
        assert feed.tick(after_s=wait_s - 1) is None
        assert feed.tick(after_s=1) == Decision(event=FeedEvent.RETRY)
        feed.tick(warnings=(BROKER,), concerns=[BROKER])
        assert feed.tick() is None
        assert feed.state is WARNING
    assert feed.tick(concerns=[BROKER], is_caught_up=True) is None
    assert feed.tick(is_caught_up=True) == OVER
    feed.tick(ERROR)
    assert feed.tick(after_s=10) == Decision(event=FeedEvent.RETRY)
    feed.new_owner()
    assert feed.tick() is None
    assert feed.tick(is_caught_up=True) == OVER


@pytest.mark.parametrize("state", [PENDING, FAILED, STOPPED, FINISHED, REMOVED])
def test_what_lasts_is_no_warning_of_one_that_does_not_run(state: FeedState) -> None:
    feed = Feed(state)
    assert feed.tick(concerns=[BROKER], is_caught_up=True) is None
    assert feed.state is state


def test_a_run_is_tried_again_where_its_source_is_another_server_now() -> None:
    """Soon, since the source itself has waited; any other error ends a run."""
    moved = RunningError(code=SOURCE_MOVED, message="it does not come back")
    feed = Feed()
    feed.manager = FeedStateManager(random=lambda: 0.5, tries_again=False)
    feed.tick(moved)
    assert feed.state is PENDING
    feed.tick(after_s=0.9)
    assert feed.state is PENDING
    feed.tick(after_s=0.2)
    assert feed.state is WARNING
    feed.tick(moved)
    feed.tick(after_s=1.9)
    assert feed.state is PENDING, "it waits longer each time"
    feed.tick(after_s=0.2)
    feed.tick(moved, ERROR)
    assert feed.state is FAILED
