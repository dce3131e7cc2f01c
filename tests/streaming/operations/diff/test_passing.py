"""Whether a table has come to a place in the log, and how long that is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from streaming.operations.diff.comparison import Pace
from streaming.operations.diff.passing import LowWaterPassing, is_behind
from streaming.source.contract import SourceShape
from tests.fakes.fake_clock import FakeClock

ROW = ChangefeedRow(
    changefeed_id="shop",
    start_ts=1,
    checkpoint_ts=1,
    resolved_ts=1,
    state="running",
    source_positions={"p": 10},
    source_identities={"p": "server"},
)
TABLE = ProgressRow(
    changefeed_id="shop",
    incarnation=1,
    schema_name="shop",
    table_name="orders",
    generation=1,
    state="replicating",
    checkpoint_ts=1,
    resolved_ts=1,
    source_positions={"p": 20},
    capture_id="c",
    epoch="e",
    fence=1,
)


class QuickClock(FakeClock):
    """Who waits has waited."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.advance(max(0.0, timeout_s))
        return event.is_set()


class Log:
    def shape(self) -> SourceShape:
        return SourceShape({"p": "server"})

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(parts, 30)


class Rows:
    """Come nearer with each look."""

    def __init__(self, *rows: tuple[ChangefeedRow | None, ProgressRow | None]) -> None:
        self._rows = list(rows)
        self.looks = 0

    def __call__(self) -> tuple[ChangefeedRow | None, ProgressRow | None]:
        self.looks += 1
        return self._rows.pop(0) if len(self._rows) > 1 else self._rows[0]


def passing(rows: Rows, clock: QuickClock) -> LowWaterPassing:
    return LowWaterPassing(Log(), rows, settled=dict, patience_s=3.0, clock=clock)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "changefeed", "table", "passed"),
    [
        ({"p": 10}, {"p": 10}, None, True),
        ({"p": 11}, {"p": 10}, None, False),
        ({"p": 20}, {"p": 10}, TABLE, True),
        ({"p": 21}, {"p": 10}, TABLE, False),
        ({"p": 21}, {"p": 21}, TABLE, True),
        ({"p": 1, "q": 1}, {"p": 10}, TABLE, False),
        ({}, {"p": 10}, TABLE, False),
    ],
)
def test_by_positions(
    end: Mapping[str, int], changefeed: Mapping[str, int], table: ProgressRow | None, passed: bool
) -> None:
    assert is_behind(end, changefeed, table) is passed


def test_it_waits_until_the_table_is_there() -> None:
    nearer = replace(TABLE, source_positions={"p": 30})
    rows = Rows((ROW, TABLE), (ROW, TABLE), (ROW, nearer))
    assert passing(rows, QuickClock()).wait({"p": 30})
    assert rows.looks == 3


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_it_does_not_wait_where_nobody_writes(state: str) -> None:
    rows = Rows((replace(ROW, state=state), TABLE))  # type: ignore[arg-type]
    assert not passing(rows, QuickClock()).wait({"p": 30})
    assert rows.looks == 1


def test_it_waits_no_longer_than_it_was_told() -> None:
    clock = QuickClock()
    before = clock.monotonic()
    assert not passing(Rows((ROW, TABLE)), clock).wait({"p": 30})
    assert clock.monotonic() - before == pytest.approx(3.0)


def test_positions_of_another_log_mean_nothing() -> None:
    rows = Rows((replace(ROW, source_identities={"p": "its replica"}), TABLE))
    assert not passing(rows, QuickClock()).wait({"p": 1})
    assert not passing(Rows((None, None)), QuickClock()).wait({"p": 1})


def test_a_database_shows_what_its_log_has_in_time_or_not() -> None:
    clock = QuickClock()
    shown = [{"p": 29}, {"p": 29}, {"p": 30}]

    def settled() -> Mapping[str, int]:
        return shown.pop(0) if len(shown) > 1 else shown[0]

    log = Log()
    found = LowWaterPassing(log, Rows((ROW, TABLE)), settled=settled, patience_s=3.0, clock=clock)  # type: ignore[arg-type]
    assert found.is_shown()
    shown[:] = [{"p": 29}]
    before = clock.monotonic()
    assert not found.is_shown()
    assert clock.monotonic() - before == pytest.approx(3.0)


def test_a_pace_is_kept_over_all_chunks() -> None:
    clock = QuickClock()
    before = clock.monotonic()
    pace = Pace(1000, clock)
    for _ in range(4):
        pace(500)
    assert clock.monotonic() - before == pytest.approx(2.0)
    Pace(None, clock)(10**9)
    assert clock.monotonic() - before == pytest.approx(2.0)
