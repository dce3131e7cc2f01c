"""``tidelake progress --check`` and ``--wait``: one line and an exit code. Pure but for the wait.

    0 fresh   3 late   4 nobody there   5 failed, or waits for an operator     the worst one counts
                                        (too many dead letters too)

1 and 2 are those of every command: it could not be found out, and wrong usage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final

from coordination.errors import TidelakeError
from coordination.trust.clock import Clock, SystemClock
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import BLOCKED, DROPPED, ProgressRow
from streaming.changefeed.awaited import awaited
from streaming.changefeed.earlier_filters import may_be_written
from streaming.changefeed.freshness import why_not_running
from streaming.changefeed.replicated_table import not_replicated
from streaming.operations import progress_report
from streaming.operations.progress_report import ProgressReport
from streaming.stream.lasting_warnings import SAYS_AFTER_S

LOOKS_EACH_S: Final = 0.5
SAYS_SOON_S: Final = 2.0


class Finding(IntEnum):
    """The exit codes; a higher one is worse."""

    FRESH = 0
    LATE = 3
    NOBODY_THERE = 4
    FAILED = 5


WORDS = {
    Finding.FRESH: "fresh",
    Finding.LATE: "late",
    Finding.NOBODY_THERE: "nobody there",
    Finding.FAILED: "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    finding: Finding
    why: str  # names the changefeed, or the table too

    @property
    def line(self) -> str:
        return f"{WORDS[self.finding]}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        word = WORDS[self.finding]
        return {"exit_code": int(self.finding), "finding": word, "why": self.why}


def verdict(
    found: ProgressReport, max_lag_s: float, max_dead_letters: int | None = None
) -> Verdict:
    """The worst of all changefeeds and tables. ``max_dead_letters``: the most open ones that a
    changefeed may have; None: any number."""
    told = [*_verdicts(found, max_lag_s)]
    for row in found.changefeeds if max_dead_letters is not None else ():
        if (row.dead_letters or 0) > (max_dead_letters or 0):
            why = (
                f"{row.changefeed_id} has {row.dead_letters} open dead letters, more than "
                f"{max_dead_letters}: `tidelake dead-letters list` shows them"
            )
            told.append(Verdict(finding=Finding.FAILED, why=why))
    return max(told, key=lambda each: each.finding)


def waited(
    read: Callable[[], ProgressReport],
    most_s: float,
    clock: Clock | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Blocks until every changefeed and table has reached the moment of the call, or ``most_s`` is
    over; the last verdict. What is not there, not running or failed may still come: a `run` that
    was started a second ago has no row yet. Raises what the last look did. ``say`` gets a line with
    what is waited for, soon and then every 45 s."""
    clock = clock or SystemClock()
    asked_at, began_s = datetime.now(UTC), clock.monotonic()
    until_s, says_at_s = began_s + most_s, began_s + SAYS_SOON_S
    while True:
        is_last = clock.monotonic() >= until_s
        try:
            found = read()
        except TidelakeError as error:
            if is_last:
                raise
            why = str(error)
        else:
            told = max(_reached(found, asked_at), key=lambda each: each.finding)
            if is_last or told.finding is Finding.FRESH:
                return told
            why = told.line
        if (now_s := clock.monotonic()) >= says_at_s:
            says_at_s = now_s + SAYS_AFTER_S
            say(f"waits for up to {until_s - now_s:.0f} s: {why}")
        clock.wait(threading.Event(), LOOKS_EACH_S)


def _reached(found: ProgressReport, asked_at: datetime) -> Iterator[Verdict]:
    yield verdict(found, (found.now - asked_at).total_seconds())
    for row in found.changefeeds:
        if found.state(row) in ("loading", "rewinding"):
            why = f"{row.changefeed_id} is {row.state}: {awaited(row)}"
            yield Verdict(finding=Finding.LATE, why=why)


def _verdicts(found: ProgressReport, max_lag_s: float) -> Iterator[Verdict]:
    moving = set()
    taken = {row.changefeed_id: may_be_written(row) for row in found.changefeeds}
    for row in found.changefeeds:
        of_row = _of_changefeed(found, row, max_lag_s)
        yield of_row
        if of_row.finding < Finding.NOBODY_THERE and progress_report.is_moving(row):
            moving.add(row.changefeed_id)
    for span in found.spans:
        if span.lacks and span.state != DROPPED:
            may_be = taken.get(span.changefeed_id)
            if may_be is None or may_be(span.name):  # else [filter] leaves it out now
                why = not_replicated(span.name, span.lacks)
                yield Verdict(finding=Finding.FAILED, why=f"{span.changefeed_id}: {why}")
        elif span.changefeed_id in moving and span.state != DROPPED:
            yield _of_table(found, span, max_lag_s)


def _of_changefeed(found: ProgressReport, row: ChangefeedRow, max_lag_s: float) -> Verdict:
    name, error = row.changefeed_id, f" ({' '.join(row.error.split())})" if row.error else ""
    if row.state in ("failed", "pending"):
        again = ", and is tried again" if row.state == "pending" and found.is_running(row) else ""
        return Verdict(finding=Finding.FAILED, why=f"{name} has failed{again}{error}")
    if row.state == "stopped":
        at = row.updated_at.isoformat(timespec="seconds")
        why = f"{name} was stopped in order at {at}{error}"
        return Verdict(finding=Finding.NOBODY_THERE, why=why)
    if not found.is_running(row):
        why = f"{name}: {why_not_running(row, found.now)}"
        return Verdict(finding=Finding.NOBODY_THERE, why=why)
    if row.state == "finished":
        return Verdict(finding=Finding.FRESH, why=f"{name} has finished at its target-ts")
    return _of_lag(found, name, row.checkpoint_ts, max_lag_s, error)


def _of_table(found: ProgressReport, span: ProgressRow, max_lag_s: float) -> Verdict:
    name = f"{span.changefeed_id}: table {span.name}"
    order = found.reload_of(span)
    if order is not None and order.is_open:
        why = f"{span.changefeed_id}: {progress_report.how_far(order)}"
        return Verdict(finding=Finding.LATE, why=why)
    if span.state == BLOCKED:
        told = f": {' '.join(span.error.split())}" if span.error else ""
        why = f"{name} is blocked and waits for an operator{told}"
        return Verdict(finding=Finding.FAILED, why=why)
    return _of_lag(found, name, span.checkpoint_ts, max_lag_s, "")


def _of_lag(
    found: ProgressReport, name: str, checkpoint_ts: int, max_lag_s: float, error: str
) -> Verdict:
    lag_s = found.lag_s(checkpoint_ts)
    if lag_s is None:
        why = f"{name} has no checkpoint yet: a watermark of every partition has to come{error}"
        return Verdict(finding=Finding.LATE, why=why)
    if lag_s > max_lag_s:
        why = f"{name} lags {lag_s:.1f} s, more than {max_lag_s:g} s{error}"
        return Verdict(finding=Finding.LATE, why=why)
    return Verdict(finding=Finding.FRESH, why=f"{name} lags {lag_s:.1f} s{error}")
