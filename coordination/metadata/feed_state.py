"""What state a changefeed is in, and what moves it: the owner's decisions. Pure (docs/states.md).

            ┌── checkpoint passed, over ┐            ┌──── back-off elapsed (new epoch) ────┐
            ▼                           │            ▼                                      │
    ──► NORMAL ──── a warning ───────► WARNING ◄─────┘                                      │
            │                           │                                                   │
            └──── an error ─────────────┴─────────────────────────────────────────────► PENDING
    NORMAL, WARNING, PENDING ── stop ──► STOPPED   NORMAL, WARNING ── finish, target ──► FINISHED
    NORMAL, WARNING, PENDING ── cannot be retried, tried for too long ──► FAILED
    FAILED, STOPPED, FINISHED ── resume (new epoch) ──► NORMAL          any ── remove ──► REMOVED

`TRANSITIONS` has all of them; a transition that is not in it is refused. `FeedStateManager` keeps
what the record in etcd does not hold (the back-off, the last checkpoints) and says at each tick
what to write, and whether the changefeed is to run. Time and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from coordination.errors import GC_ERRORS, SOURCE_MOVED, UNRETRYABLE, UNRETRYABLE_ERRORS
from coordination.metadata.duration import duration_ms
from coordination.metadata.errors import InvalidTransition
from coordination.metadata.records import (
    AdminJobType,
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    RunningError,
)
from coordination.model import NO_TS, Ts

BACKOFF_MIN_S: Final = 10.0
MOVED_MIN_S: Final = 1.0  # the source has waited for its server already
BACKOFF_MAX_S: Final = 600.0
BACKOFF_FACTOR: Final = 2.0
BACKOFF_JITTER: Final = 0.1
ERROR_STUCK: Final = "changefeed-error-stuck-duration"
ERROR_STUCK_S: Final = 1800.0


class FeedEvent(StrEnum):
    """What may happen to a changefeed."""

    ERROR = "an error"
    UNRETRYABLE_ERROR = "an error that cannot be retried"
    GC_ERROR = "the loss of its history"
    WARNING = "a warning"
    RETRY = "the end of its back-off"
    GIVE_UP = "no success for too long"
    ADVANCED = "progress"
    STOP = "pause"
    RESUME = "resume"
    FINISH = "finish"
    REMOVE = "remove"


def _to(target: FeedState, *origins: FeedState) -> Mapping[FeedState, FeedState]:
    return dict.fromkeys(origins, target)


_NORMAL, _WARNING, _PENDING = FeedState.NORMAL, FeedState.WARNING, FeedState.PENDING
_FAILED, _STOPPED, _FINISHED = FeedState.FAILED, FeedState.STOPPED, FeedState.FINISHED

TRANSITIONS: Final[Mapping[FeedEvent, Mapping[FeedState, FeedState]]] = {
    FeedEvent.ERROR: _to(_PENDING, _NORMAL, _WARNING),
    FeedEvent.UNRETRYABLE_ERROR: _to(_FAILED, _NORMAL, _WARNING, _PENDING),
    FeedEvent.GC_ERROR: _to(_FAILED, _NORMAL, _WARNING, _PENDING, _STOPPED),
    FeedEvent.WARNING: _to(_WARNING, _NORMAL, _WARNING),
    FeedEvent.RETRY: _to(_WARNING, _PENDING),
    FeedEvent.GIVE_UP: _to(_FAILED, _WARNING, _PENDING),
    FeedEvent.ADVANCED: _to(_NORMAL, _WARNING),
    FeedEvent.STOP: _to(_STOPPED, _NORMAL, _WARNING, _PENDING),
    FeedEvent.RESUME: _to(_NORMAL, _FAILED, _STOPPED, _FINISHED),
    FeedEvent.FINISH: _to(_FINISHED, _NORMAL, _WARNING),
    FeedEvent.REMOVE: _to(FeedState.REMOVED, *(set(FeedState) - {FeedState.REMOVED})),
}

ADMIN_JOB_WRITTEN: Final[Mapping[FeedState, AdminJobType]] = {
    FeedState.NORMAL: AdminJobType.NONE,
    FeedState.WARNING: AdminJobType.NONE,
    FeedState.FINISHED: AdminJobType.FINISH,
    FeedState.PENDING: AdminJobType.STOP,
    FeedState.STOPPED: AdminJobType.STOP,
    FeedState.FAILED: AdminJobType.STOP,
    FeedState.REMOVED: AdminJobType.REMOVE,
}

# These begin a new run, with a new epoch: messages of the run before must not count for it.
NEW_EPOCH: Final = frozenset({FeedEvent.RETRY, FeedEvent.RESUME})


def error_stuck_s(config: Mapping[str, Any] | None) -> float:
    """How long a changefeed with that ``config`` may be without progress, in seconds. Raises
    ``ConfigError``."""
    value = (config or {}).get(ERROR_STUCK)
    return ERROR_STUCK_S if value is None else duration_ms(ERROR_STUCK, value) / 1e3


def known_state(info: ChangefeedInfo) -> FeedState:
    """The state; an info without one counts as normal."""
    return FeedState.NORMAL if info.state is FeedState.UNINITIALIZED else info.state


def next_state(state: FeedState, event: FeedEvent) -> FeedState:
    """The state that the event leads to; raises ``InvalidTransition``."""
    target = TRANSITIONS[event].get(state)
    if target is None:
        raise InvalidTransition(f"{event}: not possible for a changefeed in state {state}")
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One event that is to be written; `changefeed_writes.py` makes a group of patches of it."""

    event: FeedEvent
    error: RunningError | None = None  # or the warning
    overwrite_checkpoint_ts: Ts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """When a changefeed that had an error is tried again: it waits longer each time, and when it
    has waited for too long altogether, it is given up. Times are on the monotonic clock, in s."""

    began_at: float
    retry_at: float
    interval_s: float  # of the next wait, before jitter


class FeedStateManager:
    """Decides about one changefeed's state, as long as one owner has it. At most one decision a
    tick.

    A reached target-ts comes first, then reported errors, then warnings, then time and progress.
    A decision counts as written: the caller writes it before the next tick (EtcdWorker ticks no
    state that is older than its own writes).
    """

    def __init__(
        self,
        *,
        random: Callable[[], float],
        tries_again: bool = True,
    ) -> None:
        """`random` returns a number in [0, 1). With ``tries_again`` a changefeed is tried again
        after an error that can be retried; without it any error is final but `SOURCE_MOVED`."""
        self.error_stuck_s = ERROR_STUCK_S  # how long without progress is too long
        self.should_run = False
        self._random = random
        self._tries_again = tries_again
        self._backoff: Backoff | None = None
        self._reached_ts = NO_TS  # the highest that was seen
        self._reached_at: float | None = None  # since when
        self._trouble_ts = NO_TS  # what the checkpoint must pass to be out of trouble

    def decide(
        self,
        info: ChangefeedInfo,
        status: ChangefeedStatus | None,
        errors: Sequence[RunningError],
        warnings: Sequence[RunningError],
        now_s: float,
        *,
        reached_ts: Ts = NO_TS,
        concerns: Sequence[RunningError] = (),
        is_caught_up: bool = False,
    ) -> Decision | None:
        """The decision to write now, or None. Sets `should_run` to hold once it is written.

        `errors` and `warnings` are the captures' reports since the last tick. `reached_ts` is
        progress too: a table that waits for an operator holds the checkpoint for long, and the
        warning that says so.

        `concerns` are the warnings that still hold on some capture. As long as there are any, the
        state is `warning`, and it ends with them, whether the checkpoint moves or not. With
        `is_caught_up` nothing is left to do that could fail: where nothing comes, no checkpoint
        would ever show that a retry went well.
        """
        state = known_state(info)
        checkpoint_ts = status.checkpoint_ts if status else NO_TS
        reached_ts = max(checkpoint_ts, reached_ts)
        self._see(state, reached_ts, now_s)
        decision = (
            self._finished(state, info, checkpoint_ts)
            or self._errors(state, errors, checkpoint_ts, now_s)
            or self._warnings(state, warnings, checkpoint_ts, now_s)
            or self._time(state, checkpoint_ts, now_s)
            or self._concerned(state, info, concerns)
            or self._passed(state, info, checkpoint_ts, concerns, is_caught_up)
        )
        after = next_state(state, decision.event) if decision else state
        self.should_run = after.is_running
        return decision

    def retries_in_s(self, now_s: float) -> float:
        """Seconds until it is tried again after its last error; 0 if it is not pending."""
        return max(0.0, self._backoff.retry_at - now_s) if self._backoff is not None else 0.0

    def _see(self, state: FeedState, reached_ts: Ts, now_s: float) -> None:
        if state not in (FeedState.WARNING, FeedState.PENDING):  # resumed: the back-off begins anew
            self._backoff, self._trouble_ts = None, NO_TS
        if not state.is_running:
            self._reached_at = None
        if state is FeedState.WARNING and reached_ts > self._reached_ts:
            self._backoff = None  # it goes on, whatever the warning is about
        if self._reached_at is None or reached_ts > self._reached_ts:
            self._reached_ts, self._reached_at = reached_ts, now_s

    def _finished(
        self, state: FeedState, info: ChangefeedInfo, checkpoint_ts: Ts
    ) -> Decision | None:
        if state.is_running and 0 < info.target_ts <= checkpoint_ts:
            return Decision(event=FeedEvent.FINISH)
        return None

    def _errors(
        self, state: FeedState, errors: Sequence[RunningError], checkpoint_ts: Ts, now_s: float
    ) -> Decision | None:
        for event, codes in (
            (FeedEvent.GC_ERROR, GC_ERRORS),
            (FeedEvent.UNRETRYABLE_ERROR, UNRETRYABLE_ERRORS),
        ):
            is_final = event is FeedEvent.UNRETRYABLE_ERROR and not self._tries_again
            fatal = next(
                (
                    each
                    for each in errors
                    if each.code in codes or (is_final and each.code != SOURCE_MOVED)
                ),
                None,
            )
            if fatal is not None and state in TRANSITIONS[event]:
                return Decision(event=event, error=fatal)
        if not errors or state not in TRANSITIONS[FeedEvent.ERROR]:
            return None
        self._trouble_ts = max(self._trouble_ts, checkpoint_ts)
        is_first = self._backoff is None
        is_moved = all(each.code == SOURCE_MOVED for each in errors)
        backoff = self._wait_longer(now_s, MOVED_MIN_S if is_moved else BACKOFF_MIN_S)
        if not is_first and backoff.retry_at - backoff.began_at > self.error_stuck_s:
            return self._give_up(state, errors[-1])
        return Decision(event=FeedEvent.ERROR, error=errors[-1])

    def _warnings(
        self, state: FeedState, warnings: Sequence[RunningError], checkpoint_ts: Ts, now_s: float
    ) -> Decision | None:
        if not warnings or not state.is_running:
            return None
        self._trouble_ts = max(self._trouble_ts, checkpoint_ts)
        assert self._reached_at is not None
        is_stuck = now_s - self._reached_at > self.error_stuck_s
        if is_stuck and state in TRANSITIONS[FeedEvent.GIVE_UP]:
            return self._give_up(state, warnings[-1])
        return Decision(event=FeedEvent.WARNING, error=warnings[-1])

    def _time(self, state: FeedState, checkpoint_ts: Ts, now_s: float) -> Decision | None:
        if state is FeedState.PENDING:
            # None where the owner is new.
            backoff = self._backoff or self._wait_longer(now_s, BACKOFF_MIN_S)
            if now_s < backoff.retry_at:
                return None
            self._trouble_ts = max(self._trouble_ts, checkpoint_ts)
            return Decision(event=FeedEvent.RETRY)
        return None

    def _concerned(
        self, state: FeedState, info: ChangefeedInfo, concerns: Sequence[RunningError]
    ) -> Decision | None:
        """Whether the record lacks a warning that holds now."""
        if not concerns or not state.is_running:
            return None
        shown = info.warning if state is FeedState.WARNING else None
        if shown is not None and (shown in concerns or not shown.lasts):
            return None
        return Decision(event=FeedEvent.WARNING, error=concerns[0])

    def _passed(
        self,
        state: FeedState,
        info: ChangefeedInfo,
        checkpoint_ts: Ts,
        concerns: Sequence[RunningError],
        is_caught_up: bool,
    ) -> Decision | None:
        """Whether nothing is wrong any more."""
        if state is not FeedState.WARNING or concerns:
            return None
        warning, error = info.warning, info.error
        is_over = warning is not None and warning.lasts and self._backoff is None
        if warning is not None and error is not None:
            is_over &= error.time <= warning.time
        has_advanced = checkpoint_ts > self._trouble_ts > NO_TS
        if has_advanced or is_caught_up or is_over:
            return Decision(event=FeedEvent.ADVANCED)
        if self._trouble_ts == NO_TS:
            self._trouble_ts = checkpoint_ts  # the owner is new: it must advance from here on
        return None

    def _wait_longer(self, now_s: float, first_s: float) -> Backoff:
        """The back-off after one more error; ``first_s``: after the first one. The jitter
        keeps changefeeds that failed together from being tried again at the same moment."""
        last = self._backoff
        began_at = now_s if last is None else last.began_at
        interval_s = first_s if last is None else last.interval_s
        jitter = 1 + BACKOFF_JITTER * (2 * self._random() - 1)
        self._backoff = Backoff(
            began_at=began_at,
            retry_at=now_s + interval_s * jitter,
            interval_s=min(BACKOFF_MAX_S, interval_s * BACKOFF_FACTOR),
        )
        return self._backoff

    def _give_up(self, state: FeedState, last: RunningError) -> Decision:
        event = FeedEvent.GIVE_UP if state in TRANSITIONS[FeedEvent.GIVE_UP] else FeedEvent.ERROR
        why = f"no progress for {self.error_stuck_s:g} s; the last was {last.code}: {last.message}"
        return Decision(event=event, error=replace(last, code=UNRETRYABLE, message=why))
