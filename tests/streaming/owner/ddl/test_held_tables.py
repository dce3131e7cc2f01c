"""A DDL that cannot run holds its table alone, where it is surely about that one table."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from sinks.ddl.effects import CreateTable
from sinks.types.table_schema import TableSchema
from streaming.owner.ddl.plan import DdlPlan, in_order
from streaming.owner.ddl.steps import DdlEvent
from tests.streaming.owner.ddl.test_plan import alter, create, ddl, drop, made, order, planned, wall


def unknown(ts: int, table: str = "t", kind: str = "ALTER") -> DdlEvent:
    return ddl(ts, f"ALTER TABLE `{table}` FROBNICATE `x`", table, kind=kind)


def held(found: DdlPlan) -> list[tuple[str, int]]:
    return [(each.name.table, each.event.commit_ts) for each in found.held]


def schema() -> TableSchema:
    (creation,) = planned([create(10)]).creations
    assert isinstance(creation.table, CreateTable)
    return creation.table.schema


def test_other_tables_and_their_ddls_go_on_whatever_order_all_came_in() -> None:
    events = [create(10), create(11, "u"), unknown(20), alter(30, "u"), create(40, "v")]
    wanted = planned(events)
    assert (held(wanted), made(wanted)) == ([("t", 20)], ["t", "u"])
    assert (wanted.limit, wanted.blocked, wanted.next_limit) == (29, alter(30, "u"), 39)
    assert wanted.runs is not None
    for each in permutations(events):
        assert planned(in_order((*each, *each[:2]))) == wanted
    later = planned(events, known=["t", "u"], schema=schema(), seen={"t": 10, "u": 30})
    assert (held(later), made(later)) == ([("t", 20)], ["v"])
    assert (later.limit, later.blocked) == (100, None)


def test_later_ddls_of_the_table_wait_their_turn() -> None:
    index = ddl(35, "CREATE INDEX `i` ON `t` (`id`)", kind="CINDEX")
    waiting = [alter(25), unknown(30), index, drop(40), create(50), ddl(60, "ANALYZE TABLE `t`")]
    events = [unknown(20), alter(28, "u"), *waiting]
    found = planned(events, known=["t", "u"], schema=schema(), seen={"u": 28})
    assert (held(found), found.limit, found.blocked, made(found)) == ([("t", 20)], 100, None, [])
    assert all(map(found.leaves, (unknown(20), *waiting)))
    assert not found.leaves(alter(28, "u"))
    assert not found.leaves(alter(15))
    skipped = planned(
        events, known=["t", "u"], schema=schema(), seen={"u": 28}, orders=[order(20, "skip")]
    )
    assert (held(skipped), skipped.blocked) == ([], unknown(20))
    assert skipped.runs is not None
    after = planned(events, known=["t", "u"], schema=schema(), seen={"t": 20, "u": 28})
    assert after.blocked == alter(25)
    again = planned(events, known=["t", "u"], schema=schema(), seen={"t": 25, "u": 28})
    assert held(again) == [("t", 30)]


@pytest.mark.parametrize(
    "event",
    [
        ddl(30, "CREATE TABLE `v` LIKE `t`", "v"),
        ddl(30, "CREATE TABLE `t` LIKE `u`"),
        ddl(30, "RENAME TABLE `shop`.`t` TO `shop`.`v`", "v", kind="RENAME"),
        ddl(30, "RENAME TABLE `shop`.`u` TO `shop`.`t`", kind="RENAME"),
        ddl(30, "ALTER TABLE `t` RENAME TO `v`", kind="ALTER"),
        ddl(30, "ALTER TABLE `t` RENAME `v`, FROBNICATE", kind="ALTER"),
        ddl(30, "DROP TABLE `t`, `u`", "u", kind="ERASE"),
        ddl(30, "DROP DATABASE `shop`", "", kind="QUERY"),
        wall(30),
    ],
    ids=lambda event: event.query,
)
def test_what_is_about_a_table_that_waits_and_another_one_holds_all(event: DdlEvent) -> None:
    events = [unknown(20), event, alter(40, "u")]
    found = planned(events, known=["t", "u"], schema=schema())
    assert (held(found), found.limit, found.runs) == ([("t", 20)], 29, None)
    assert (found.blocked, found.unmade) == (event, None)
    assert found.stops_for == found.held[0]


@pytest.mark.parametrize(
    "event",
    [
        ddl(20, "ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", kind="ALTER"),
        ddl(20, "FROBNICATE", "", kind="QUERY"),
        unknown(20, kind="QUERY"),
        unknown(20, kind="RENAME"),
        unknown(20, table="nobody"),
        ddl(20, "ALTER TABLE `t` WITH X (EXCHANGE", kind="ALTER"),
    ],
    ids=["two tables", "no table", "no kind", "a rename", "not read", "not readable"],
)
def test_where_its_one_table_is_not_sure_it_stops_all(event: DdlEvent) -> None:
    found = planned([event, alter(30, "u")], known=["t", "u"], schema=schema())
    assert (found.limit, found.blocked, held(found)) == (19, event, [])
    assert found.why
    assert found.stops_for is not None
    assert found.stops_for.why == found.why


def test_one_that_was_tried_and_did_not_run_holds_its_table() -> None:
    found = planned([create(10), alter(20), create(30, "u")], failed={("t", 20): "a value is big"})
    assert (held(found), made(found)) == ([("t", 20)], ["t", "u"])
    assert found.held[0].why == "a value is big"


def test_two_tables_wait_each_for_itself() -> None:
    events = [create(10), create(11, "u"), unknown(20), unknown(25, "u"), alter(26, "u")]
    found = planned(events)
    assert (held(found), found.limit) == ([("t", 20), ("u", 25)], 100)
    one = planned(
        [*events, replace(create(50, "v"), place=3)],
        known=["t", "u"],
        schema=schema(),
        seen={"t": 10, "u": 11},
        orders=[order(25, "skip", table="u")],
    )
    assert (held(one), one.limit) == ([("t", 20)], 24)
    assert one.runs is not None
    assert one.runs.name.table == "u"
