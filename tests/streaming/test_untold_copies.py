"""``CREATE TABLE … LIKE`` a table that was not read: its rows tell what it is, and others go on."""

from __future__ import annotations

import pytest

from conf.settings import FilterSettings
from coordination.model import TableName
from streaming.owner.ddl.plan import COPIES_UNREAD, DdlPlan
from tests.streaming.owner.ddl.test_plan import alter, create, ddl, made, order, planned

LIKE = ddl(20, "CREATE TABLE `v` LIKE `t`", "v")


def untold(found: DdlPlan) -> list[str]:
    return [each.event.name.table for each in found.untold]


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE `shop`.`v` LIKE `hidden`.`src`",
        "CREATE TABLE IF NOT EXISTS v LIKE t",
        "CREATE TABLE v (LIKE t)",
        "/* tidelake ddl apply */ CREATE TABLE v LIKE t",
    ],
)
def test_it_passes_and_others_go_on(query: str) -> None:
    like = ddl(20, query, "v")
    found = planned([create(10, "u"), like, create(30, "w"), alter(40, "v")])
    assert (made(found), untold(found), found.limit) == (["u", "w"], ["v"], 100)


def test_what_is_like_it_is_not_told_either() -> None:
    found = planned([LIKE, ddl(30, "CREATE TABLE `w` LIKE `V`", "w")])
    assert (untold(found), found.blocked) == (["v", "w"], None)


def test_its_ddls_wait_for_the_rows_below_them() -> None:
    found = planned([LIKE, alter(40, "v")], unmade={"v": 30})
    assert (found.unmade, found.limit) == (TableName("shop", "v"), 39)
    renamed = ddl(40, "RENAME TABLE `v` TO `w`", "w", kind="RENAME")
    assert planned([LIKE, renamed], unmade={"v": 30}).unmade == TableName("shop", "v")
    assert planned([LIKE, renamed]).blocked is None  # no row of it has come


def test_the_rows_of_its_source_are_asked_first() -> None:
    found = planned([ddl(20, "CREATE TABLE `v` LIKE `T`", "v")], unmade={"t": 10})
    assert (found.unmade, found.limit, untold(found)) == (TableName("shop", "t"), 19, [])
    assert untold(planned([LIKE], unmade={"t": 20})) == ["v"]  # they are of later


def test_the_schema_file_tells_the_source() -> None:
    found = planned([LIKE], defined="CREATE TABLE shop.T (id INT PRIMARY KEY)")
    assert (made(found), untold(found)) == (["v"], [])


def test_a_copy_of_a_table_without_a_target_is_told_by_its_rows() -> None:
    assert untold(planned([LIKE], known=["t"])) == ["v"]  # it has no key


def test_one_that_was_dropped_waits_for_its_definition() -> None:
    found = planned([create(10, "u"), LIKE], seen={"v": 15})
    assert (found.blocked, found.why, found.limit) == (LIKE, COPIES_UNREAD, 19)
    apply = order(20, "apply", "CREATE TABLE `v` (`id` INT PRIMARY KEY)", table="v")
    assert made(planned([LIKE], seen={"v": 15}, orders=[apply])) == ["v"]


def test_one_that_the_filter_leaves_out_is_none() -> None:
    rules = FilterSettings(rules=("*.*", "!shop.v"))
    assert untold(planned([LIKE], filter_settings=rules)) == []
