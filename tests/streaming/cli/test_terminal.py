"""What people read is whole, however long it is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from streaming.cli import terminal
from streaming.cli.terminal import show_rows
from streaming.operations.progress_report import ProgressReport

QUERY = f"ALTER TABLE `shop`.`orders` {', '.join(f'ADD COLUMN c{n} INT' for n in range(40))}"
BLOCKED = {
    "changefeed": "shop",
    "table": "shop.orders",
    "commit_ts": 451023451023451023,
    "state": "blocks",
    "query": QUERY,
    "reason": f"it cannot be read: {'why ' * 60}at last",
}


def test_a_list_hides_nothing_behind_a_long_statement(capsys: pytest.CaptureFixture[str]) -> None:
    """Its table and commit-ts are what `ddl skip` wants."""
    show_rows([BLOCKED], as_json=False)
    _, line = capsys.readouterr().out.splitlines()
    assert [each for each in BLOCKED.values() if str(each) not in line] == []


def test_a_changefeeds_long_uri_and_error_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    uri, error = f"kafka://{'host:9092,' * 40}host:9092/shop", f"CDC:Err: {'why ' * 90}at last"
    show_rows({"source_uri": uri, "error": error}, as_json=False)
    first, second = capsys.readouterr().out.splitlines()
    assert uri in first
    assert error in second


@pytest.mark.parametrize(
    ("apart_ms", "behind", "is_named"),
    [(0, 0, False), (0, 9, False), (900, 0, False), (900, 9, True), (60_000, 0, True)],
)
def test_the_slowest_part_is_named_where_it_holds_others_back(
    capsys: pytest.CaptureFixture[str], apart_ms: int, behind: int, is_named: bool
) -> None:
    row = ChangefeedRow(
        changefeed_id="shop",
        start_ts=0,
        checkpoint_ts=1 << 50,
        resolved_ts=1 << 50,
        state="running",
        source_positions={"shop/0": 1, "shop/1": 1},
        watermarks={
            "shop/0": RecordedWatermark(ts=1 << 50, position=1),
            "shop/1": RecordedWatermark(ts=(1 << 50) + (apart_ms << 18), position=1),
        },
        messages_behind=behind,
        updated_at=datetime.now(UTC),
    )
    found = ProgressReport(changefeeds=(row,), spans=(), now=datetime.now(UTC))
    terminal.show(found, terminal.progress, as_json=False)
    assert ("the lowest watermark is that of shop/0" in capsys.readouterr().out) is is_named
