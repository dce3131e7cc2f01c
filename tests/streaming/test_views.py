"""What people read is whole, however long it is."""

from __future__ import annotations

import pytest

from streaming.views import show_rows

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
