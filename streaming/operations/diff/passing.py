"""Waits until a table has everything that a database had at a reading.

The source says where its log ends after the reading, and the control tables say how far the table
is in that log. Both are positions of one log: no clock is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from coordination.trust.clock import Clock, SystemClock
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from streaming.operations.diff.patience import Patience
from streaming.source.contract import Source
from streaming.source.positions import Positions

LOOK_EVERY_S: Final = 0.25


class Passing(Protocol):
    """How far one table is, as its comparison asks."""

    def end(self) -> Positions:
        """Behind everything that a reading before has seen."""

    def wait(self, end: Positions) -> bool:
        """Whether the table has come to there, at once or in time."""

    def is_shown(self) -> bool:
        """Whether the database shows all that its log has now, at once or in time: it writes a
        transaction into the log first, and with semi-synchronous replication shows it much later.
        """


class AtOneMoment:
    """``Passing`` where both sides are as of one TSO, and stay so."""

    def end(self) -> Positions:
        return {}

    def wait(self, end: Positions) -> bool:  # noqa: ARG002
        return True

    def is_shown(self) -> bool:
        return True


class LowWaterPassing:
    """``Passing`` by the low water in the control tables: everything before it is applied."""

    def __init__(
        self,
        source: Source,
        rows: Callable[[], tuple[ChangefeedRow | None, ProgressRow | None]],
        *,
        settled: Callable[[], Positions],
        patience_s: float,
        patience: Patience | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``rows`` reads those of the changefeed and of the table. ``settled`` asks for a place in
        the log before which the database shows all. ``patience_s``: how long is waited at most;
        ``patience`` is with a source that is away."""
        self._source = source
        self._rows = rows
        self._settled = settled
        self._patience = patience or Patience()
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._never = threading.Event()

    def end(self) -> Positions:
        return self._patience.asked(lambda: self._source.ends(self._source.shape().parts))

    def wait(self, end: Positions) -> bool:
        until = self._clock.monotonic() + self._patience_s
        while True:
            row, progress = self._rows()
            if row is None or not self._is_of_source(row):
                return False
            if is_behind(end, row.source_positions, progress):
                return True
            left_s = until - self._clock.monotonic()
            if left_s <= 0 or row.state in ("finished", "stopped", "failed"):
                return False
            self._clock.wait(self._never, min(LOOK_EVERY_S, left_s))

    def is_shown(self) -> bool:
        until = self._clock.monotonic() + self._patience_s
        end = self.end()
        while True:
            settled = self._settled()
            if all(settled.get(part, -1) >= at for part, at in end.items()):
                return True
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                return False
            self._clock.wait(self._never, min(LOOK_EVERY_S, left_s))

    def _is_of_source(self, row: ChangefeedRow) -> bool:
        """Positions of another server's log mean nothing here."""
        shape = self._patience.asked(self._source.shape)
        return dict(row.source_identities) == dict(shape.identities)


def is_behind(end: Positions, changefeed: Mapping[str, int], table: ProgressRow | None) -> bool:
    """Whether the table has everything before ``end``: by its own low water, or by that of the
    changefeed, which is at or below every table's."""
    own = table.source_positions if table is not None else {}
    return bool(end) and all(
        max(changefeed.get(part, -1), own.get(part, -1)) >= at for part, at in end.items()
    )
