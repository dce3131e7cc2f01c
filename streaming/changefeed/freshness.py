"""Whether anybody still writes a changefeed's row, found by who only reads it.

    updated_at is at most fresh_for_s old ──────────────► somebody does
    older, or in the future: looked at once more ─┬─ it has changed ─► somebody does; clocks differ
                                                  └─ it has not ─────► nobody does: not running
    more than a day old, or fresh_for_s is null ─► no second look

Rows say when they were written by their writer's clock. The second look asks no clock but our own
monotonic one, so that a living changefeed is never taken for a dead one because clocks differ. One
whose clock is behind the writer's hides a death for as long as they differ, and no longer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from coordination.trust.clock import Clock, SystemClock
from sinks.control.changefeeds import ChangefeedRow

NOT_RUNNING: Final = "not running"
REFRESHES: Final = 6  # within `fresh_for_s`: see `sinks.control.changefeeds.FRESH_TTLS`
SECOND_LOOK: Final = 0.25  # of `fresh_for_s`: one refresh, and half of one more
LOOKS_EACH_S: Final = 0.5
CLOCKS_DIFFER_S: Final = 2.0  # by less than this they do not matter
FAR_S: Final = 86_400.0

Read = Callable[[], Sequence[ChangefeedRow]]


@dataclass(frozen=True, slots=True)
class Seen:
    """A row's `updated_at`, and when we saw it come (monotonic); None: it was there already."""

    updated_at: datetime
    came_at_s: float | None


class Freshness:
    """The rows as one reader has seen them; `progress --watch` keeps them from look to look."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seen: dict[str, Seen] = {}
        self._is_dead: dict[str, datetime] = {}  # the `updated_at` with which it was found dead

    def look(self, read: Read) -> tuple[Sequence[ChangefeedRow], frozenset[str]]:
        """Read the rows; the IDs of the changefeeds whose rows nobody refreshes any more. Blocks
        for the second look, where there has to be one."""
        rows = self._read(read)
        wait_s = max(
            (each.fresh_for_s or 0.0 for each in rows if self._is_unclear(each)), default=0
        )
        until_s = self._clock.monotonic() + wait_s * SECOND_LOOK
        while any(map(self._is_unclear, rows)) and self._clock.monotonic() < until_s:
            self._clock.wait(threading.Event(), LOOKS_EACH_S)
            rows = self._read(read)
        for row in filter(self._is_unclear, rows):
            self._is_dead[row.changefeed_id] = row.updated_at
        return rows, frozenset(each.changefeed_id for each in rows if self._is_found_dead(each))

    def _read(self, read: Read) -> Sequence[ChangefeedRow]:
        rows, now_s = read(), self._clock.monotonic()
        for row in rows:
            before = self._seen.get(row.changefeed_id)
            if before is None or before.updated_at != row.updated_at:
                came_at_s = None if before is None else now_s
                self._seen[row.changefeed_id] = Seen(row.updated_at, came_at_s)
        return rows

    def _is_found_dead(self, row: ChangefeedRow) -> bool:
        if self._is_dead.get(row.changefeed_id) == row.updated_at:
            return True
        is_far = refresh_age_s(row, datetime.now(UTC)) > FAR_S
        return row.fresh_for_s is not None and is_far and self._came_at_s(row) is None

    def _is_unclear(self, row: ChangefeedRow) -> bool:
        """Whether it must be looked at once more."""
        if row.fresh_for_s is None or self._is_found_dead(row):
            return False
        if (came_at_s := self._came_at_s(row)) is not None:  # our own clock says how long ago
            return self._clock.monotonic() - came_at_s > row.fresh_for_s
        age_s = refresh_age_s(row, datetime.now(UTC))
        return not -CLOCKS_DIFFER_S <= age_s <= row.fresh_for_s

    def _came_at_s(self, row: ChangefeedRow) -> float | None:
        return self._seen[row.changefeed_id].came_at_s


def refresh_age_s(row: ChangefeedRow, now: datetime) -> float:
    """Seconds since the row was written, by two clocks; below 0 where the writer's is ahead."""
    return (now - row.updated_at).total_seconds()


def who_wrote(row: ChangefeedRow) -> str:
    """The last one, for a message."""
    place = f" ({row.process})" if row.process else ""
    return f"capture {row.capture_id}{place}"


def why_not_running(row: ChangefeedRow, now: datetime) -> str:
    """The sentence for an operator, without the changefeed's name."""
    every_s = (row.fresh_for_s or 0.0) / REFRESHES
    go_on = "`tidelake run` with the same arguments" if row.is_of_a_run else "a `tidelake server`"
    return (
        f"nobody has refreshed its row for {refresh_age_s(row, now):.0f} s, which a living owner "
        f"does every {every_s:.1f} s: {who_wrote(row)} was the last one, at "
        f"{row.updated_at.isoformat(timespec='milliseconds')}, in state {row.state}. "
        f"Where it was killed, {go_on} goes on where the tables are"
    )
