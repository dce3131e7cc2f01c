"""Upstream tables whose first rows come to a target, until they join it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from conf.route_rules import Extract, RouteRule
from conf.settings import FilterSettings
from coordination.model import TableName, Ts
from streaming.changefeed.routes import Routes
from streaming.owner.ddl.unplanned import Unplanned
from streaming.protocols.contract import Block, Kind, ipc
from streaming.stream.read import nothing_read

TARGET, SHARD = TableName("lake", "t"), TableName("s", "t1")


def read(at: int, ts: int, first_ts: int | None = None, of: TableName = SHARD) -> Any:
    """Rows of a shard up to ``ts``; without ``first_ts`` one of them."""
    block = SimpleNamespace(
        kind=Kind.ROW, name=TARGET, origin=of, min_ts=first_ts or ts, max_ts=ts, first=at
    )
    return SimpleNamespace(begin={"p": at}, position={"p": at + 1}, blocks=(block,))


def read_ddl(at: int, ts: int, query: str) -> Any:
    rows = pa.table(
        {
            "schema_name": ["s"],
            "table_name": ["t0"],
            "commit_ts": [ts],
            "position": [at],
            "ddl_type": ["ALTER"],
            "query": [query],
            "tables": pa.nulls(1, pa.string()),
        }
    )
    block = Block(kind=Kind.DDL, part="p", rows=1, first=at, last=at, body=ipc(rows))
    return replace(nothing_read({"p": at + 1}), begin={"p": at}, blocks=(block,))


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


ROUTE = RouteRule(
    matcher=("s.t*",),
    target_schema="lake",
    target_table="t",
    extract_table=Extract(regexp="t(.*)", target_column="t"),
)


@pytest.mark.parametrize("is_ddl_first", [True, False])
def test_first_rows_have_no_commit_ts_of_a_ddl(is_ddl_first: bool) -> None:
    """A DDL waits right above the checkpoint, and a block of rows begins below it. They may not
    join by its commit-ts: the target would take the DDL for one that has come again."""
    waits = Unplanned(Ts(10), Routes((ROUTE,), FilterSettings()))
    alter = read_ddl(3, 11, "ALTER TABLE t0 ADD COLUMN w INT")

    def keep_ddl() -> None:
        waits.keep(alter, planned_ts=Ts(0), ended={}, is_unmade=lambda _: False)

    if is_ddl_first:
        keep_ddl()
    waits.keep_newcomers(read(5, 20, first_ts=4), ended={}, is_known=lambda *_: False)
    (joined,) = waits.join({TARGET})
    assert joined.commit_ts == (12 if is_ddl_first else 11)
    if not is_ddl_first:
        keep_ddl()
    ddls = [(each.commit_ts, each.upstream) for each in waits.ddls]
    assert ddls == [(11, TableName("s", "t0")), (12, SHARD)]
    assert all(waits.since(each) for each in waits.ddls)


def test_rows_of_an_earlier_table_of_the_name_do_not_count() -> None:
    waits = Unplanned(Ts(10), Routes((), FilterSettings()))
    ended = {TARGET: Ts(30)}
    waits.keep_newcomers(read(5, 40, first_ts=20), ended=ended, is_known=lambda *_: False)
    assert [each.commit_ts for each in waits.join({TARGET})] == [31]
