"""Whose tables a statement is about: the message's, or those that it names itself."""

from __future__ import annotations

import time

import pytest

from sinks.ddl.effects import Unsupported
from sinks.ddl.statements import read_ddl
from tests.sinks.ddl.told import told


@pytest.mark.parametrize(
    ("query", "schema", "table", "effects"),
    [
        ("ALTER TABLE T DROP a", "shop", "t", "shop.t: drop a"),
        ("ALTER TABLE `Shop`.`T` DROP a", "shop", "t", "shop.t: drop a"),
        ("ALTER TABLE x.t DROP a", "", "", "x.t: drop a"),
        ("CREATE INDEX i ON T (a)", "shop", "t", "shop.t: add index i (a)"),
        ("DROP INDEX i ON T", "shop", "t", "shop.t: drop index i"),
        ("TRUNCATE TABLE T", "shop", "t", "truncate shop.t"),
        ("DROP TABLE T", "shop", "t", "drop shop.t"),
        ("DROP TABLE a, Shop.b, x.b", "shop", "a", "drop shop.a; drop shop.b; drop x.b"),
        ("DROP DATABASE IF EXISTS `Shop`", "shop", "", "drop database shop"),
        # a message of a rename has the new name
        ("RENAME TABLE a TO b", "shop", "b", "rename shop.a to shop.b"),
        ("ALTER TABLE a RENAME b", "shop", "b", "rename shop.a to shop.b"),
        ("RENAME TABLE x.a TO shop.b", "shop", "b", "rename x.a to shop.b"),
        ("RENAME TABLE x.a TO Shop.b", "shop", "b", "rename x.a to shop.b"),
        ("ALTER TABLE x.a RENAME shop.b", "shop", "b", "rename x.a to shop.b"),
        (
            "ALTER TABLE x.a ADD c INT, RENAME shop.b",
            "shop",
            "b",
            "x.a: add c int; rename x.a to shop.b",
        ),
        (
            "RENAME TABLE a TO c, b TO a, c TO b",
            "shop",
            "c",
            "rename shop.a to shop.c; rename shop.b to shop.a; rename shop.c to shop.b",
        ),
        (
            "ALTER TABLE T EXCHANGE PARTITION p WITH TABLE u",
            "shop",
            "t",
            "shop.t: exchange partition p with shop.u",
        ),
        ("CREATE TABLE B LIKE a", "shop", "b", "create shop.b like shop.a"),
        ("RECOVER TABLE T", "shop", "t", "recover shop.t"),
        ("FLASHBACK TABLE t TO u", "shop", "u", "recover shop.t as shop.u"),
    ],
)
def test_tables_are_the_messages_or_named(
    query: str, schema: str, table: str, effects: str
) -> None:
    assert told(read_ddl(query, "ALTER", schema, table)) == effects


@pytest.mark.parametrize("query", ["RENAME TABLE a TO shop.b", "ALTER TABLE a RENAME TO shop.b"])
def test_a_table_that_comes_from_an_unknown_database_is_refused(query: str) -> None:
    (effect,) = read_ddl(query, "RENAME", "shop", "b").effects
    assert isinstance(effect, Unsupported)
    assert "from which database" in effect.reason


def test_comments_without_an_end_cost_no_more_than_others() -> None:
    begun_s = time.process_time()
    (effect,) = read_ddl("DROP TABLE t " + "/* " * 100_000, "ERASE", "s", "t").effects
    assert isinstance(effect, Unsupported)
    assert time.process_time() - begun_s < 2
