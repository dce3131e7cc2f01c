"""What people read is whole, however long it is."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from sinks.control.progress import ProgressRow
from streaming.cli import screen, terminal
from streaming.cli.screen import show_rows
from streaming.operations.check import Finding, verdict
from streaming.operations.letters import grouped
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


@pytest.mark.parametrize("width", [80, 120])
def test_a_row_that_is_too_wide_is_a_record(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """No column of one letter, and nothing is cut."""
    on_a_terminal(monkeypatch, width)
    show_rows([{**BLOCKED, "sql": None}] * 2, as_json=False)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= width
    assert "sql" not in out
    assert [line.split()[0] for line in lines if line[:1].strip()] == [*BLOCKED] * 2
    assert "".join("".join(lines).split()).count("".join(QUERY.split())) == 2


def test_a_row_that_fits_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, 120)
    show_rows([{**BLOCKED, "query": "DROP TABLE t", "reason": "it is there twice"}], as_json=False)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == [*BLOCKED]
    assert line.endswith("DROP TABLE t  it is there twice")


def test_many_letters_are_counted() -> None:
    def letter(table: str | None, reason: str, second: int) -> dict[str, Any]:
        told = {"changefeed": "shop", "table": table, "reason": reason, "state": "open"}
        at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
        return {**told, "created_at": at, "message": f"message {second}"}

    found = grouped(
        [letter("s.a", "cast", n) for n in range(30)]
        + [letter("s.a", "malformed", 7), letter(None, "malformed", 8)]
    )
    assert [(row["table"], row["reason"], row["letters"], row["message"]) for row in found] == [
        ("s.a", "cast", 30, "message 29"),
        ("-", "malformed", 1, "message 8"),
        ("s.a", "malformed", 1, "message 7"),
    ]


TS = 451023451023451023


def feed_of(letters: int) -> ChangefeedRow:
    return ChangefeedRow(
        changefeed_id="shop-orders-eu",
        start_ts=0,
        checkpoint_ts=TS,
        resolved_ts=TS,
        state="running",
        messages_behind=1_234_567,
        messages_per_s=23_456.0,
        dead_letters=letters,
        updated_at=datetime.now(UTC),
    )


def test_too_many_dead_letters_are_a_failure() -> None:
    found = ProgressReport(changefeeds=(feed_of(3),), spans=(), now=datetime.now(UTC))
    assert verdict(found, 1e12).finding is Finding.FRESH
    assert verdict(found, 1e12, 3).finding is Finding.FRESH
    told = verdict(found, 1e12, 2)
    assert told.finding is Finding.FAILED
    assert "has 3 open dead letters, more than 2" in told.why
    assert verdict(found, 1e12, 0).finding is Finding.FAILED


def test_a_decision_is_shown_until_it_is_carried_out() -> None:
    span = span_of("orders", state="blocked", error="DDL at commit-ts 7 waits: …")
    decided = {("shop-orders-eu", TableName("shop", "orders")): "skip of the DDL at commit-ts 7"}
    found = ProgressReport(
        changefeeds=(feed_of(0),), spans=(span,), now=datetime.now(UTC), decided=decided
    )
    console = Console(width=200, file=io.StringIO(), color_system=None)
    console.print(terminal.progress(found, 200), crop=False)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert "table shop.orders: skip of the DDL at commit-ts 7 is ordered, and not" in out
    assert span.error not in out
    assert found.to_json()["spans"][0]["decided"] == "skip of the DDL at commit-ts 7"


def span_of(name: str, *, state: str = "replicating", error: str | None = None) -> ProgressRow:
    return ProgressRow(
        changefeed_id="shop-orders-eu",
        incarnation=1,
        schema_name="shop",
        table_name=name,
        generation=1,
        state=state,
        error=error,
        checkpoint_ts=TS,
        resolved_ts=TS,
        dead_letters=99,
        capture_id="c",
        epoch="e",
        fence=1,
    )


@pytest.mark.parametrize("width", [80, 120, 200])
def test_progress_cuts_no_cell(width: int) -> None:
    """What there is no room for is left out whole: never a name, a state, a lag or a letter."""
    feed, table = feed_of(4321), span_of("a_rather_long_name_of_a_table")
    found = ProgressReport(changefeeds=(feed,), spans=(table,), now=datetime.now(UTC))
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(terminal.progress(found, width), crop=False)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width
    for each in ("shop-orders-eu", "running", "replicating", "4321", "99", "lag"):
        assert each in out
    assert table.table_name in out


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    def console() -> Console:
        return Console(width=width, highlight=False, force_terminal=True, color_system=None)

    monkeypatch.setattr(screen, "console_of", console)


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
