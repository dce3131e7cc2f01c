"""DM's event filters, by what is ignored."""

from __future__ import annotations

import pytest

from conf.settings import FilterSettings
from conf.task.event_rules import event_filter
from coordination.model import TableName
from streaming.changefeed.filter import TableFilter

ORDERS = TableName("shop", "orders")


def made(events: list[str], sql: list[str], *, is_do: bool, table: str = "orders") -> TableFilter:
    rule = event_filter(
        "filters.a",
        schema_pattern="shop",
        table_pattern=table,
        events=events,
        sql_pattern=sql,
        is_do=is_do,
    )
    return TableFilter(FilterSettings(event_filters=(rule,)))


@pytest.mark.parametrize(
    ("events", "is_do", "rows", "drop", "add"),
    [
        (["delete"], False, {"delete"}, False, False),
        (["all dml"], False, {"insert", "update", "delete"}, False, False),
        (["drop table"], False, set(), True, False),
        (["all"], False, {"insert", "update", "delete"}, True, True),
        (["none", "delete"], False, set(), False, False),
        (["all dml"], True, set(), True, True),
        (["insert", "update"], True, {"delete"}, True, True),
        (["all"], True, set(), False, False),
        (["incompatible ddl changes"], True, {"insert", "update", "delete"}, False, False),
        ([], True, {"insert", "update", "delete"}, True, True),
    ],
)
def test_events(events: list[str], is_do: bool, rows: set[str], drop: bool, add: bool) -> None:
    found = made(events, [], is_do=is_do)
    assert found.ignored_row_events(ORDERS) == rows
    assert found.ignores_ddl(ORDERS, ["drop table"], "DROP TABLE orders") is drop
    assert found.ignores_ddl(ORDERS, ["add column"], "ALTER TABLE orders ADD a int") is add
    assert not found.ignored_row_events(TableName("shop", "other"))


def test_statements_are_ignored_by_a_pattern_or_by_the_lack_of_one() -> None:
    ignoring = made([], ["^DROP\\s+PROCEDURE", "add b"], is_do=False)
    assert ignoring.ignores_ddl(ORDERS, [], "drop  procedure x")
    assert not ignoring.ignores_ddl(ORDERS, ["add column"], "alter table orders add c int")
    taking = made(["all"], ["^alter", "^create"], is_do=True)
    assert not taking.ignores_ddl(ORDERS, ["add column"], "ALTER TABLE orders\nADD c int")
    assert taking.ignores_ddl(ORDERS, ["drop table"], "/* alter */ DROP TABLE orders")


def test_a_rule_without_a_table_is_for_all_of_its_schema() -> None:
    found = made(["drop database", "drop table"], [], is_do=False, table="")
    assert found.ignores_ddl(TableName("shop", ""), ["drop database"], "DROP DATABASE shop")
    assert found.ignores_ddl(TableName("shop", "x"), ["drop table"], "DROP TABLE x")
    assert not found.ignores_ddl(TableName("other", "x"), ["drop table"], "DROP TABLE x")
