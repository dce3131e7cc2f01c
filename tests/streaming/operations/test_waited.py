"""``tidelake progress --wait``: until every table has what the source had at the call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import BLOCKED, ProgressRow
from streaming.changefeed.replicated_table import REPLICATING
from streaming.operations.check import Finding, Verdict, waited
from streaming.operations.progress_report import ProgressReport
from tests.fakes.fake_clock import FakeClock

FEED = ChangefeedRow(
    changefeed_id="shop",
    start_ts=0,
    checkpoint_ts=0,
    resolved_ts=0,
    state="running",
    updated_at=datetime.now(UTC),
)
ORDERS = ProgressRow(
    changefeed_id="shop",
    incarnation=1,
    schema_name="shop",
    table_name="orders",
    generation=1,
    state=REPLICATING,
    checkpoint_ts=0,
    resolved_ts=0,
    capture_id="c",
    epoch="e",
    fence=1,
)


def look(
    feed_s: float, table_s: float, state: str = "running", of_table: str = REPLICATING
) -> ProgressReport:
    """Checkpoints so many seconds after this moment, an hour later."""
    now = datetime.now(UTC)
    feed, table = (
        int((now + timedelta(seconds=s)).timestamp() * 1000) << TSO_LOGICAL_BITS
        for s in (feed_s, table_s)
    )
    return ProgressReport(
        changefeeds=(replace(FEED, checkpoint_ts=feed, state=state),),
        spans=(replace(ORDERS, checkpoint_ts=table, state=of_table),),
        now=now + timedelta(hours=1),
    )


NOTHING_YET = TidelakeError("no changefeed has run in /lake yet")
DONE = (60, 60)


class SteppedClock(FakeClock):
    def wait(self, event: object, timeout_s: float) -> bool:  # noqa: ARG002
        self.advance(timeout_s)
        return False


def wait_for(*looks: ProgressReport | TidelakeError, most_s: float = 1.0) -> tuple[Verdict, int]:
    """The verdict, and how many looks were left."""
    left = list(looks)

    def read() -> ProgressReport:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, TidelakeError):
            raise found
        return found

    return waited(read, most_s, SteppedClock()), len(left)


def waiting() -> Iterator[ProgressReport | TidelakeError]:
    yield NOTHING_YET
    yield look(-5, 60)
    yield look(60, -5)
    yield look(*DONE, state="stopped")
    yield look(*DONE, state="failed")
    yield look(*DONE, state="loading")
    yield look(*DONE, state="rewinding")
    yield look(*DONE, of_table=BLOCKED)


def test_nothing_ends_it_but_what_is_reached():
    found, left = wait_for(*waiting(), look(*DONE), look(*DONE), most_s=60)
    assert (found.finding, left) == (Finding.FRESH, 1)


@pytest.mark.parametrize("before", [each for each in waiting() if each is not NOTHING_YET])
def test_after_its_time_it_says_what_is_so(before: ProgressReport):
    found, _ = wait_for(before)
    assert found.finding is not Finding.FRESH
    assert "shop" in found.why


def test_it_says_for_what_it_waits_now_and_then():
    said: list[str] = []
    left = [NOTHING_YET, *(look(-5, 60) for _ in range(300)), look(*DONE)]

    def read() -> ProgressReport:
        found = left.pop(0)
        if isinstance(found, TidelakeError):
            raise found
        return found

    found = waited(read, 300, SteppedClock(), said.append)
    assert found.finding is Finding.FRESH
    assert [each.partition(":")[0] for each in said] == [
        "waits for up to 298 s",
        "waits for up to 253 s",
        "waits for up to 208 s",
        "waits for up to 163 s",
    ]
    assert all("late: shop" in each for each in said)


def test_it_says_that_nothing_is_there_yet():
    said: list[str] = []
    with pytest.raises(TidelakeError):
        waited(lambda: (_ for _ in ()).throw(NOTHING_YET), 5, SteppedClock(), said.append)
    assert said == [f"waits for up to 3 s: {NOTHING_YET}"]


def test_a_warehouse_that_stays_empty_is_an_error():
    with pytest.raises(TidelakeError, match="no changefeed has run"):
        wait_for(NOTHING_YET)
