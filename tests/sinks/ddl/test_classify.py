"""DDLs as TiCDC writes them: the recorded ones, and what else a schema's life has."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordination.model import TableName
from sinks.ddl.classify import outcome
from sinks.ddl.effects import (
    ChangesTarget,
    CreateTable,
    CreateTableLike,
    Effect,
    NoEffect,
    Statement,
)
from sinks.ddl.statements import read_ddl
from sinks.types.mysql_type import MySQLType
from sinks.types.partitioning import Partition, Partitioning
from sinks.types.table_schema import TableSchema

RECORDED = json.loads(
    gzip.decompress(
        (Path(__file__).parents[2] / "data" / "wire" / "ddls.json.gz").read_bytes()
    ).decode()
)
DDLS: list[dict[str, Any]] = RECORDED["ddls"]

NO_EFFECT = "NoEffect"
CHANGES = "ChangesTarget"


def classify(
    query: str, ddl_type: str, schema: str, table: str, known: TableSchema | None = None
) -> Statement:
    """The ``outcome`` of a DDL's text, as a statement with that one effect."""
    statement = read_ddl(query, ddl_type, schema, table)
    return Statement(effects=(outcome(statement, known),), event_types=statement.event_types)


def _classify(query: str, known: TableSchema | None = None) -> Effect:
    return _effect(classify(query, "ALTER", "shop", "t", known))


def _effect(statement: Statement) -> Effect:
    (effect,) = statement.effects
    return effect


def _schema(query: str) -> TableSchema:
    ddl = _classify(query)
    assert isinstance(ddl, CreateTable), ddl
    return ddl.schema


OUTCOMES = {  # by TiDB's job type: the outcome, and TiCDC's event names
    "create schema": (NO_EFFECT, ("create database", "create schema")),
    "create table": ("CreateTable", ("create table",)),
    "add column": (CHANGES, ("add column", "alter table")),
    "drop column": (CHANGES, ("drop column", "alter table")),
    "modify column": (CHANGES, ("modify column", "alter table")),
    "add index": (NO_EFFECT, ("create index", "alter table")),
    "drop index": (NO_EFFECT, ("drop index", "alter table")),
    "rename table": (CHANGES, ("rename table", "alter table")),
    "truncate table": (CHANGES, ("truncate table",)),
    "drop table": (CHANGES, ("drop table",)),
    "alter table multi-schema change": (CHANGES, ("multi schema change", "alter table")),
    "set default value": (
        CHANGES,
        ("set default value", "modify default value", "alter table"),
    ),
    "add partition": (NO_EFFECT, ("add table partition", "alter table")),
    "truncate partition": (CHANGES, ("truncate table partition", "alter table")),
    "drop partition": (CHANGES, ("drop table partition", "alter table")),
}


@pytest.mark.parametrize("written", ["query", "originalQuery"])
@pytest.mark.parametrize("ddl", DDLS, ids=lambda ddl: ddl["query"][:60])
def test_every_recorded_ddl_is_classified(ddl: dict[str, Any], written: str) -> None:
    query = ddl[written]
    outcome, events = OUTCOMES[ddl["type"]]
    statement = classify(query, "", ddl["schema"], ddl["table"])
    got = _effect(statement)
    if " LIKE " in query:
        outcome = "CreateTableLike"
    if "RENAME COLUMN" in query:
        events = ("modify column", "rename column", "alter table")
    assert (type(got).__name__, statement.event_types) == (outcome, events)
    if isinstance(got, CreateTable | CreateTableLike):
        assert got.name == TableName(ddl["schema"], ddl["table"])


@pytest.mark.parametrize("cut", range(0, 1200, 7))
def test_no_prefix_of_a_statement_raises(cut: int) -> None:
    longest = max((ddl["query"] for ddl in DDLS), key=len)
    assert isinstance(_classify(longest[:cut]), ChangesTarget | NoEffect | CreateTable)


@pytest.mark.parametrize("name", list(RECORDED["columns"]))
@pytest.mark.parametrize("written", ["query", "originalQuery"])
def test_recorded_tables_have_the_columns_that_tidb_shows(name: str, written: str) -> None:
    query = next(d[written] for d in DDLS if d["type"] == "create table" and d["table"] == name)
    schema = _schema(query)
    shown = RECORDED["columns"][name]
    assert list(schema.key) == (shown["primaryKey"] or _unique_key(shown["columns"]))
    assert schema.key_index == (None if shown["primaryKey"] or not schema.key else "uk_main")
    got = [(c.name, _bare(c.type), c.nullable, c.generated) for c in schema.columns]
    assert got == [
        (c["name"], _bare(MySQLType.parse(c["type"])), c["nullable"], _generated(c))
        for c in shown["columns"]
    ]


def _unique_key(columns: list[dict[str, Any]]) -> list[str]:
    return ["code", "sub"] if columns[0]["name"] == "code" else []


def _bare(mysql_type: MySQLType) -> str:
    """TiDB shows display widths that nobody wrote: they say nothing about the values."""
    shown = str(mysql_type)
    return re.sub(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)", r"\1", shown)


def _generated(column: dict[str, Any]) -> str:
    return column.get("extra", "").split(" ")[0].lower() if column.get("generated") else ""


@pytest.mark.parametrize(
    ("query", "events"),
    [
        (
            "CREATE DATABASE IF NOT EXISTS `x` CHARACTER SET UTF8MB4",
            ("create database", "create schema"),
        ),
        (
            "ALTER DATABASE `x` CHARACTER SET = UTF8MB4",
            ("modify schema charset and collate", "alter database"),
        ),
        ("CREATE VIEW `v` AS SELECT * FROM `t`", ("create view",)),
        (
            "CREATE OR REPLACE ALGORITHM = UNDEFINED DEFINER = `u`@`%` SQL SECURITY DEFINER"
            " VIEW `v` (`a`) AS SELECT 1",
            ("create view",),
        ),
        ("DROP VIEW `v`", ("drop view",)),
        ("CREATE GLOBAL TEMPORARY TABLE `t` (`a` INT) ON COMMIT DELETE ROWS", ("create table",)),
        ("ANALYZE TABLE `t`", ()),
        ("LOCK STATS `t`", ()),
        ("CREATE INDEX `i` ON `t` (`a`)", ("create index", "alter table")),
        ("CREATE UNIQUE INDEX `i` ON `t` (`a`)", ("create index", "alter table")),
        ("CREATE FULLTEXT INDEX `i` ON `t` (`a`)", ("create index", "alter table")),
        ("DROP INDEX `i` ON `t`", ("drop index", "alter table")),
        (
            "ALTER TABLE `t` ADD INDEX IF NOT EXISTS `i`(`a`, (`b`+1)) COMMENT 'x'",
            ("create index", "alter table"),
        ),
        ("ALTER TABLE `t` ADD UNIQUE `i`(`a`)", ("create index", "alter table")),
        ("ALTER TABLE `t` ADD CONSTRAINT `i` UNIQUE KEY (`a`)", ("create index", "alter table")),
        (
            "ALTER TABLE `t` ADD VECTOR INDEX `i`((VEC_COSINE_DISTANCE(`v`)))",
            ("create index", "alter table"),
        ),
        ("ALTER TABLE `t` RENAME INDEX `i` TO `j`", ("rename index", "alter table")),
        ("ALTER TABLE `t` ALTER INDEX `i` INVISIBLE", ("alter index visibility", "alter table")),
        (
            "ALTER TABLE `t` COMMENT = 'ADD COLUMN x INT, DROP COLUMN y'",
            ("modify table comment", "alter table"),
        ),
        ("ALTER TABLE `t` AUTO_INCREMENT = 100", ("rebase auto id", "alter table")),
        (
            "ALTER TABLE `t` /*T![force_inc] FORCE */ AUTO_INCREMENT = 100",
            ("rebase auto id", "alter table"),
        ),
        (
            "ALTER TABLE `t` /*T![auto_rand_base] AUTO_RANDOM_BASE = 100 */",
            ("alert table option", "alter table"),
        ),
        (
            "ALTER TABLE `t` /*T![ttl] TTL = `d` + INTERVAL 1 DAY */"
            " /*T![ttl] TTL_ENABLE = 'OFF' */",
            ("alter ttl info", "alter table"),
        ),
        ("ALTER TABLE `t` /*T![ttl] REMOVE TTL */", ("alter ttl remove", "alter table")),
        (
            "ALTER TABLE `t` /*T![placement] PLACEMENT POLICY = `p` */",
            ("alert table option", "alter table"),
        ),
        ("ALTER TABLE `t` PARTITION `p0` ATTRIBUTES='x'", ("alert table option", "alter table")),
        ("ALTER TABLE `t` SET TIFLASH REPLICA 1", ("alert table option", "alter table")),
        (
            "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_BIN",
            ("modify table charset and collate", "alter table"),
        ),
        (
            "ALTER TABLE `t` DEFAULT CHARACTER SET = UTF8MB4",
            ("modify table charset and collate", "alter table"),
        ),
        (
            "ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`a`) REFERENCES `p`(`id`)",
            ("add foreign key", "alter table"),
        ),
        ("ALTER TABLE `t` DROP FOREIGN KEY `fk`", ("drop foreign key", "alter table")),
        (
            "ALTER TABLE `t` ADD INDEX `i`(`a`), DROP INDEX `j`, ALGORITHM = INPLACE",
            ("multi schema change", "alter table"),
        ),
        (
            "ALTER TABLE `t` ADD INDEX `i`(`a`), ALGORITHM = INPLACE",
            ("create index", "alter table"),
        ),
    ],
)
def test_what_changes_nothing_passes(query: str, events: tuple[str, ...]) -> None:
    statement = classify(query, "ALTER", "shop", "t")
    assert isinstance(_effect(statement), NoEffect), statement
    assert statement.event_types == events


@pytest.mark.parametrize(
    ("query", "event"),
    [
        (
            "ALTER TABLE `t` REORGANIZE PARTITION `a`,`b` INTO"
            " (PARTITION `c` VALUES LESS THAN (9))",
            "reorganize table partition",
        ),
        ("ALTER TABLE `t` PARTITION BY HASH(`a`) PARTITIONS 3", "alter table partitioning"),
        ("ALTER TABLE `t` REMOVE PARTITIONING", "remove table partitioning"),
    ],
)
def test_partitions_matter_where_they_are_known(query: str, event: str) -> None:
    statement = classify(query, "ALTER", "shop", "t")
    assert isinstance(_effect(statement), NoEffect)
    assert statement.event_types[0] == event
    parts = Partitioning(method="range", columns=("a",), partitions=(Partition(name="a"),))
    known = TableSchema(columns=(), key=(), partitioning=parts)
    assert isinstance(_effect(classify(query, "ALTER", "shop", "t", known)), ChangesTarget)


@pytest.mark.parametrize(
    ("query", "event"),
    [
        ("DROP DATABASE `x`", "drop database"),
        ("ALTER DATABASE `x` CHARACTER SET = BINARY", "modify schema charset and collate"),
        ("CREATE DATABASE `x` COLLATE = binary", "create database"),
        ("DROP TABLE IF EXISTS `a`,`b`", "drop table"),
        ("TRUNCATE `t`", "truncate table"),
        ("RECOVER TABLE `t`", "recover table"),
        ("FLASHBACK TABLE `t` TO `u`", "recover table"),
        ("ALTER TABLE `t` RENAME TO `u`", "rename table"),
        ("ALTER TABLE `t` RENAME AS `u`", "rename table"),
        ("ALTER TABLE `t` ADD `c` INT", "add column"),
        ("ALTER TABLE `t` ADD COLUMN (`c` INT, `d` INT)", "add column"),
        ("ALTER TABLE `t` ADD COLUMN `index` INT UNIQUE", "add column"),
        ("ALTER TABLE `t` DROP `c`", "drop column"),
        ("ALTER TABLE `t` CHANGE COLUMN `a` `b` INT", "modify column"),
        ("ALTER TABLE `t` ADD PRIMARY KEY(`a`)", "add primary key"),
        ("ALTER TABLE `t` ADD CONSTRAINT `x` PRIMARY KEY(`a`)", "add primary key"),
        ("ALTER TABLE `t` DROP PRIMARY KEY", "drop primary key"),
        ("DROP INDEX `PRIMARY` ON `t`", "drop index"),
        ("ALTER TABLE `t` DROP INDEX `primary`", "drop index"),
        ("ALTER TABLE `t` CONVERT TO CHARACTER SET BINARY", "modify table charset and collate"),
        ("ALTER TABLE `t` DROP PARTITION `p0`, `p1`", "drop table partition"),
        ("ALTER TABLE `t` ALGORITHM = INPLACE, DROP PARTITION `p0`, `p1`", "drop table partition"),
        ("ALTER TABLE `t` WITH VALIDATION, DROP PARTITION `p0`, `p1`", "multi schema change"),
        ("ALTER TABLE `t` DROP PARTITION `p0`, ADD COLUMN `c` INT", "drop table partition"),
        ("ALTER TABLE `t` PARTITION `p` ATTRIBUTES='x', DROP COLUMN `c`", "multi schema change"),
        ("ALTER TABLE `t` TRUNCATE PARTITION ALL", "truncate table partition"),
        ("ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", "exchange table partition"),
        ("ALTER TABLE `t` ADD INDEX `i`(`a`), DROP COLUMN `c`", "multi schema change"),
        ("ALTER TABLE `t` COMMENT='x', DROP COLUMN `c`", "multi schema change"),
    ],
)
def test_what_changes_rows_columns_or_key_changes_the_target(query: str, event: str) -> None:
    statement = classify(query, "ALTER", "shop", "t")
    assert isinstance(_effect(statement), ChangesTarget), statement
    assert statement.event_types[0] == event
    assert ("alter table" in statement.event_types) == (
        "ALTER TABLE" in query or "INDEX" in query or "RENAME" in query
    )


COUPON = _schema(
    "CREATE TABLE t (code VARCHAR(20) NOT NULL, sub INT NOT NULL, v INT,"
    " UNIQUE uk_main (code, sub), UNIQUE uk_v (v))"
)
WITH_PRIMARY = _schema("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
OF_BEFORE = replace(COUPON, follows_indexes=False)  # a DDL of it was passed over


@pytest.mark.parametrize(
    ("query", "known", "passes"),
    [
        ("DROP INDEX `UK_Main` ON `t`", COUPON, False),
        ("ALTER TABLE t DROP INDEX uk_main", COUPON, False),
        ("ALTER TABLE t DROP INDEX uk_v, DROP KEY uk_main", COUPON, False),
        ("ALTER TABLE t RENAME INDEX uk_main TO x", COUPON, False),
        ("ALTER TABLE t DROP CONSTRAINT uk_main", COUPON, False),
        ("DROP INDEX uk_v ON t", COUPON, False),  # it is known for the day when it may be the key
        ("DROP INDEX uk_main ON t", WITH_PRIMARY, True),
        ("CREATE UNIQUE INDEX u ON t (sub)", COUPON, False),  # smaller: TiCDC's new handle key
        ("ALTER TABLE t ADD UNIQUE u (code)", COUPON, False),
        ("ALTER TABLE t ADD UNIQUE u (v)", COUPON, False),
        ("ALTER TABLE t ADD UNIQUE u (sub, code)", COUPON, False),
        ("ALTER TABLE t ADD INDEX u (sub)", COUPON, True),
        ("ALTER TABLE t ADD UNIQUE u (a)", WITH_PRIMARY, False),
        ("ALTER TABLE t RENAME INDEX uk_v TO x", COUPON, False),
        ("ALTER TABLE t RENAME INDEX i TO x", COUPON, True),
        ("DROP INDEX uk_v ON t", OF_BEFORE, True),
        ("ALTER TABLE t ADD UNIQUE u (v)", OF_BEFORE, True),
        ("ALTER TABLE t ADD UNIQUE u (code)", OF_BEFORE, False),
        ("DROP INDEX uk_main ON t", OF_BEFORE, False),
    ],
)
def test_an_index_matters_only_where_it_is_or_may_become_the_handle_key(
    query: str, known: TableSchema, passes: bool
) -> None:
    assert isinstance(_classify(query, known), NoEffect) == passes
