"""Upstream tables whose first rows come to a target, until they join it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from conf.settings import FilterSettings
from coordination.model import TableName, Ts
from streaming.changefeed.routes import Routes
from streaming.owner.ddl.unplanned import Unplanned
from streaming.protocols.contract import Kind

TARGET, SHARD = TableName("lake", "t"), TableName("s", "t1")


def read(at: int, ts: int) -> Any:
    """One row of the shard."""
    block = SimpleNamespace(
        kind=Kind.ROW, name=TARGET, origin=SHARD, min_ts=ts, max_ts=ts, first=at
    )
    return SimpleNamespace(begin={"p": at}, position={"p": at + 1}, blocks=(block,))


def unplanned(ended: dict[TableName, Ts]) -> Unplanned:
    made = Unplanned(Ts(10), Routes((), FilterSettings()))
    made.keep_newcomers(read(5, 20), ended=ended, is_known=lambda *_: False)
    return made


def test_the_first_rows_of_an_upstream_table_are_a_ddl_by_which_it_joins() -> None:
    waits = unplanned({})
    assert waits.origins_of(TARGET) == [SHARD]
    (event,) = waits.join({TARGET})
    assert (event.upstream, event.commit_ts, waits.since(event)) == (SHARD, 20, {"p": 5})


def test_rows_of_a_dropped_table_and_of_one_without_a_key_hold_nothing_back() -> None:
    assert unplanned({TARGET: Ts(20)}).names == set()
    waits = unplanned({})
    waits.none_join({TARGET})
    assert waits.names == set()
