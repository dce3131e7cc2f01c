"""DDLs that block, and the words of operators, as they are stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.control import blocked_ddls
from sinks.control.blocked_ddls import BlockedDdl, BlockedDdls

PLACE = TableName("shop", "orders"), Ts(40)


def blocked(changefeed: str = "shop", ts: int = 40, reason: str = "why") -> BlockedDdl:
    return BlockedDdl(
        changefeed_id=changefeed,
        schema_name="shop",
        table_name="orders",
        commit_ts=ts,
        query="DROP TABLE orders",
        reason=reason,
    )


def test_where_nothing_has_blocked_nothing_is_there(tmp_path: Path) -> None:
    stored = BlockedDdls(str(tmp_path))
    assert (stored.read("shop"), stored.read_all()) == ({}, [])
    with pytest.raises(ConfigError, match=r"no DDL of shop\.orders at commit-ts 40 .*`tidelake"):
        stored.order("shop", PLACE, "skip")
    assert list(tmp_path.iterdir()) == []


def test_a_word_is_about_one_ddl_and_stays_when_it_blocks_again(tmp_path: Path) -> None:
    stored = BlockedDdls(str(tmp_path))
    for each in (blocked(), blocked(ts=50), blocked("other")):
        stored.note(each)
    ordered = stored.order("shop", PLACE, "apply", "ALTER TABLE orders DROP COLUMN c")
    assert (ordered.action, ordered.query) == ("apply", "DROP TABLE orders")
    assert stored.read("shop")[PLACE] == ordered
    stored.note(replace(blocked(reason="no column c"), query="ALTER TABLE orders DROP COLUMN c"))
    again = BlockedDdls(str(tmp_path)).read("shop")[PLACE]
    assert (again.reason, again.query) == ("no column c", "DROP TABLE orders")
    assert (again.action, again.sql, again.ordered_at) == (
        *("apply", ordered.sql),
        ordered.ordered_at,
    )
    others = [row for row in stored.read_all() if row.place != PLACE or row.changefeed_id != "shop"]
    assert [(row.changefeed_id, row.commit_ts, row.action) for row in others] == [
        ("other", 40, None),
        ("shop", 50, None),
    ]


def test_the_same_word_twice_is_one_commit(tmp_path: Path) -> None:
    stored = BlockedDdls(str(tmp_path))
    stored.note(blocked())
    first = stored.order("shop", PLACE, "skip")
    version = DeltaTable(f"{tmp_path}/_tidelake/blocked_ddls").version()
    assert stored.order("shop", PLACE, "skip") == first
    assert DeltaTable(f"{tmp_path}/_tidelake/blocked_ddls").version() == version
    stored.note(blocked())  # it was tried, and blocks again
    assert stored.order("shop", PLACE, "skip").ordered_at != first.ordered_at
    assert stored.order("shop", PLACE, "apply").action == "apply"


@pytest.mark.parametrize("ahead_s", [300, -300])
def test_the_clocks_of_an_operator_and_of_an_owner_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    stored = BlockedDdls(str(tmp_path))

    def order() -> object:
        with monkeypatch.context() as patch:
            patch.setattr(blocked_ddls, "datetime", Clock(ahead_s))
            return stored.order("shop", PLACE, "apply").ordered_at

    stored.note(blocked())
    said_at = order()
    assert order() == said_at, "the owner would try it twice"
    stored.note(blocked(reason="a value is too big"))  # it was tried, and blocks again
    assert order() != said_at, "the owner would see no news"


class Clock:
    def __init__(self, ahead_s: int) -> None:
        self._ahead = timedelta(seconds=ahead_s)

    def now(self, zone: tzinfo) -> datetime:
        return datetime.now(zone) + self._ahead
