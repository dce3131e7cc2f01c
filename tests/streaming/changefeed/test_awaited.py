"""What a changefeed awaits though nothing is wrong is a sentence of its row."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from coordination.model import TSO_LOGICAL_BITS
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from streaming.changefeed.awaited import awaited

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
TS = int(AT.timestamp() * 1e3) << TSO_LOGICAL_BITS
ROW = ChangefeedRow(
    changefeed_id="shop",
    start_ts=1,
    checkpoint_ts=TS,
    resolved_ts=TS,
    state="running",
    watermarks={
        "shop/0": RecordedWatermark(ts=TS + 1, position=9),
        "shop/1": RecordedWatermark(ts=TS + 2, position=9),
    },
    read_positions={"shop/0": 10, "shop/1": 10},
    end_positions={"shop/0": 10, "shop/1": 10},
    messages_behind=0,
    updated_at=AT + timedelta(minutes=1),
)


def test_a_source_that_is_silent_is_named_with_its_last_time() -> None:
    """A TiCDC that was paused: nothing but the lag told of it."""
    assert awaited(ROW) == (
        "nothing newer than 2026-11-30T12:00:00.000+00:00 has come from shop/0, and all before is "
        "in the tables: they wait for a watermark. Does what writes there run (TiCDC's changefeed)?"
    )


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, updated_at=AT + timedelta(seconds=30)),
        replace(ROW, messages_behind=7, end_positions={"shop/0": 17}),
        replace(ROW, messages_behind=None),
        replace(ROW, checkpoint_ts=TS - 1),
        replace(ROW, state="warning"),
        replace(ROW, state="finished"),
    ],
    ids=["a moment", "behind", "not known", "not applied", "warning", "finished"],
)
def test_others_await_nothing(row: ChangefeedRow) -> None:
    assert awaited(row) == ""
