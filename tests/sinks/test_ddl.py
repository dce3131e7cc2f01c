"""DDLs as TiCDC writes them: the recorded ones, and what else a schema's life has."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from coordination.model import TableName
from sinks.ddl import CreateTable, CreateTableLike, Ddl, NoEffect, Unsupported, classify
from sinks.schema import MySQLType, TableSchema

RECORDED = json.loads(
    gzip.decompress(
        (Path(__file__).parents[1] / "data" / "wire" / "ddls.json.gz").read_bytes()
    ).decode()
)
DDLS: list[dict[str, Any]] = RECORDED["ddls"]

NO_EFFECT = "NoEffect"
UNSUPPORTED = "Unsupported"


def _classify(query: str, known: TableSchema | None = None) -> Ddl:
    return classify(query, "ALTER", "shop", "t", known)


def _schema(query: str) -> TableSchema:
    ddl = _classify(query)
    assert isinstance(ddl, CreateTable), ddl
    return ddl.schema


# --- the recorded stream ---------------------------------------------------------------------

OUTCOMES = {  # by TiDB's job type: the outcome, and TiCDC's event names
    "create schema": (NO_EFFECT, ("create database", "create schema")),
    "create table": ("CreateTable", ("create table",)),
    "add column": (UNSUPPORTED, ("add column", "alter table")),
    "drop column": (UNSUPPORTED, ("drop column", "alter table")),
    "modify column": (UNSUPPORTED, ("modify column", "alter table")),
    "add index": (NO_EFFECT, ("create index", "alter table")),
    "drop index": (NO_EFFECT, ("drop index", "alter table")),
    "rename table": (UNSUPPORTED, ("rename table", "alter table")),
    "truncate table": (UNSUPPORTED, ("truncate table",)),
    "drop table": (UNSUPPORTED, ("drop table",)),
    "alter table multi-schema change": (UNSUPPORTED, ("multi schema change", "alter table")),
    "set default value": (
        UNSUPPORTED,
        ("set default value", "modify default value", "alter table"),
    ),
    "add partition": (UNSUPPORTED, ("add table partition", "alter table")),
    "truncate partition": (UNSUPPORTED, ("truncate table partition", "alter table")),
    "drop partition": (UNSUPPORTED, ("drop table partition", "alter table")),
}


@pytest.mark.parametrize("written", ["query", "originalQuery"])
@pytest.mark.parametrize("ddl", DDLS, ids=lambda ddl: ddl["query"][:60])
def test_every_recorded_ddl_is_classified(ddl: dict[str, Any], written: str) -> None:
    query = ddl[written]
    outcome, events = OUTCOMES[ddl["type"]]
    got = classify(query, "", ddl["schema"], ddl["table"])
    if " LIKE " in query:
        outcome = "CreateTableLike"
    if "RENAME COLUMN" in query:
        events = ("modify column", "rename column", "alter table")
    assert (type(got).__name__, got.event_types) == (outcome, events)
    if isinstance(got, CreateTable | CreateTableLike):
        assert got.name == TableName(ddl["schema"], ddl["table"])


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


# --- CREATE TABLE ----------------------------------------------------------------------------


def test_names_of_any_characters() -> None:
    ddl = classify(
        "CREATE TABLE `we``ird`.`a.b c` (`k ey` INT PRIMARY KEY,`)` INT,`KEY` INT,`index` INT)",
        "CREATE",
        "we`ird",
        "a.b c",
    )
    assert isinstance(ddl, CreateTable)
    assert ddl.name == TableName("we`ird", "a.b c")
    assert [c.name for c in ddl.schema.columns] == ["k ey", ")", "KEY", "index"]
    assert ddl.schema.key == ("k ey",)


def test_quotes_commas_and_parentheses_in_strings_part_nothing() -> None:
    schema = _schema(
        "CREATE TABLE `t` (`id` INT NOT NULL COMMENT 'PRIMARY KEY (a,b)',"
        "`e` ENUM('a,b','c)','it''s','--','/*x*/','#'),`v` INT DEFAULT (1+(2)) ,"
        "`c` VARCHAR(9) DEFAULT _UTF8MB4'NOT NULL',PRIMARY KEY(`id`)) COMMENT = 'AS SELECT'"
    )
    assert [c.name for c in schema.columns] == ["id", "e", "v", "c"]
    assert schema.column("e").type.elements == ("a,b", "c)", "it's", "--", "/*x*/", "#")
    assert schema.column("c").nullable


def test_a_backslash_is_a_backslash_as_tidb_writes_strings_back() -> None:
    schema = _schema(
        r"CREATE TABLE `t` (`e` ENUM('a\','b'),`c` VARCHAR(5) COMMENT 'C:\',`id` INT PRIMARY KEY)"
    )
    assert schema.column("e").type.elements == ("a\\", "b")
    assert schema.key == ("id",)


def test_elements_lose_trailing_blanks_as_in_mysql() -> None:
    assert _schema("CREATE TABLE t (e ENUM(' a ','b'))").column("e").type.elements == (" a", "b")


@pytest.mark.parametrize(
    ("definition", "shown"),
    [
        ("DECIMAL", "decimal(10,0)"),
        ("NUMERIC(5)", "decimal(5,0)"),
        ("BIT", "bit(1)"),
        ("CHAR", "char(1)"),
        ("BINARY", "binary(1)"),
        ("BOOLEAN", "tinyint(1)"),
        ("INT(8) UNSIGNED ZEROFILL", "int(8) unsigned"),
        ("FLOAT UNSIGNED", "float unsigned"),
        ("DOUBLE PRECISION", "double"),
        ("FLOAT(53)", "double"),
        ("NATIONAL CHARACTER VARYING(7)", "varchar(7)"),
        ("LONG VARCHAR", "mediumtext"),
        ("VARCHAR(5) CHARACTER SET BINARY", "varbinary(5)"),
        ("VARCHAR(5) CHARACTER SET GBK COLLATE GBK_BIN", "varchar(5)"),
        ("TEXT NOT NULL COLLATE binary", "blob"),
        ("CHAR(5) BYTE", "binary(5)"),
        ("VARCHAR(5) BINARY", "varchar(5)"),
        ("VECTOR", "vector"),
        ("VECTOR<FLOAT>(3)", "vector(3)"),
        ("TIMESTAMP(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)", None),
        ("ENUM(_utf8mb4'x') NOT NULL", "enum('x')"),
    ],
)
def test_column_types(definition: str, shown: str | None) -> None:
    column = _schema(f"CREATE TABLE `t` (`c` {definition},`z` INT)").columns[0]
    assert str(column.type) == (shown or "timestamp(6)")


@pytest.mark.parametrize(
    "option", ["CHARACTER SET = BINARY", "DEFAULT CHARSET=binary", "COLLATE binary"]
)
def test_a_table_of_bytes_makes_bytes_of_its_text(option: str) -> None:
    schema = _schema(f"CREATE TABLE t (a VARCHAR(5),b TEXT CHARACTER SET UTF8MB4,c INT) {option}")
    assert [str(c.type) for c in schema.columns] == ["varbinary(5)", "text", "int"]


@pytest.mark.parametrize(
    ("attributes", "generated", "nullable"),
    [
        ("INT GENERATED ALWAYS AS(`a`+1) VIRTUAL", "virtual", True),
        ("INT GENERATED ALWAYS AS(`a`+1) STORED NOT NULL", "stored", False),
        ("INT AS (`a` + 1)", "virtual", True),
        ("INT AS (`a` + 1) PERSISTENT", "stored", True),
        ("INT DEFAULT NULL COMMENT 'AS (x) STORED NOT NULL'", "", True),
        ("BIGINT NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */", "", False),
    ],
)
def test_column_attributes(attributes: str, generated: str, nullable: bool) -> None:
    column = _schema(f"CREATE TABLE t (`c` {attributes},`a` INT)").column("c")
    assert (column.generated, column.nullable) == (generated, nullable)


@pytest.mark.parametrize(
    ("body", "key", "index"),
    [
        ("id INT PRIMARY KEY", ("id",), None),
        ("id INT KEY, a INT NOT NULL UNIQUE", ("id",), None),
        ("`ID` INT, PRIMARY KEY (`id`)", ("ID",), None),
        ("a INT, b INT, CONSTRAINT `pk` PRIMARY KEY USING BTREE (`b`,`a`)", ("b", "a"), None),
        ("a INT NOT NULL, PRIMARY KEY(`a`) /*T![clustered_index] NONCLUSTERED */", ("a",), None),
        ("a INT NOT NULL UNIQUE KEY", ("a",), "a"),
        ("a INT UNIQUE", (), None),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE x (a,b), UNIQUE y (b)", ("b",), "y"),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE x (a), UNIQUE y (b)", ("a",), "x"),
        ("a INT NOT NULL UNIQUE, b INT NOT NULL, UNIQUE y (b)", ("b",), "y"),  # TiDB's index IDs
        ("a INT NOT NULL, b INT, UNIQUE x (b), UNIQUE y (a,b)", (), None),
        ("a INT NOT NULL, KEY (a), UNIQUE (a)", ("a",), "a_2"),
        ("vector VECTOR(3), a INT NOT NULL, CONSTRAINT UNIQUE (a)", ("a",), "a"),
        ("a INT NOT NULL, UNIQUE KEY `u` (`a`(10) DESC)", ("a",), "u"),
        ("a INT NOT NULL, UNIQUE KEY `u` ((lower(a)))", (), None),
        ("a INT NOT NULL, v INT AS (a) VIRTUAL NOT NULL, UNIQUE (v)", (), None),
        ("a INT NOT NULL, v INT AS (a) STORED NOT NULL, UNIQUE (v)", ("v",), "v"),
        ("id SERIAL", ("id",), "id"),
        ("id BIGINT UNSIGNED SERIAL DEFAULT VALUE", ("id",), "id"),
        (
            "a INT, CONSTRAINT c CHECK (a>0), CONSTRAINT CHECK (a<9),"
            " CONSTRAINT f FOREIGN KEY (a) REFERENCES p (id), FOREIGN KEY (a) REFERENCES p (id)",
            (),
            None,
        ),
        (
            "a INT, FULLTEXT KEY f (a), SPATIAL INDEX (a), VECTOR INDEX v ((vec_l2_distance(a))) ",
            (),
            None,
        ),
    ],
)
def test_the_handle_key(body: str, key: tuple[str, ...], index: str | None) -> None:
    schema = _schema(f"CREATE TABLE t ({body})")
    assert (schema.key, schema.key_index) == (key, index)
    assert not any(schema.column(name).nullable for name in key)


@pytest.mark.parametrize(
    "options",
    [
        "ENGINE = InnoDB AUTO_INCREMENT = 5 DEFAULT CHARACTER SET = UTF8MB4",
        "PARTITION BY HASH (`a`) PARTITIONS 4",
        "PARTITION BY RANGE COLUMNS (`a`) (PARTITION `p0` VALUES LESS THAN ('x'),PARTITION `p1` "
        "VALUES LESS THAN (MAXVALUE))",
        "/*T![ttl] TTL = `d` + INTERVAL 1 YEAR */ /*T![placement] PLACEMENT POLICY = `p` */",
        "/*T! SHARD_ROW_ID_BITS = 4 */ -- end",
        "/*!50100 PARTITION BY KEY (a) */;",
    ],
)
def test_table_options_change_nothing(options: str) -> None:
    assert [c.name for c in _schema(f"CREATE TABLE t (a INT, d DATE) {options}").columns] == [
        "a",
        "d",
    ]


def test_if_not_exists_and_the_query_naming_no_schema() -> None:
    ddl = classify("create table if not exists T (a int primary key)", "CREATE", "shop", "T")
    assert isinstance(ddl, CreateTable)
    assert ddl.if_not_exists
    assert ddl.name == TableName("shop", "T")


@pytest.mark.parametrize(
    "query", ["CREATE TABLE `b` LIKE `a`", "CREATE TABLE `b` (LIKE `shop`.`a`)"]
)
def test_create_table_like(query: str) -> None:
    ddl = classify(query, "CREATE", "shop", "b")
    assert ddl == CreateTableLike(
        name=TableName("shop", "b"), source=TableName("shop", "a"), if_not_exists=False
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("CREATE TABLE t AS SELECT 1 a", "query"),
        ("CREATE TABLE t (a INT) SELECT 1 a", "query"),
        ("CREATE TABLE t SELECT 1 a", "query"),
        ("CREATE OR REPLACE TABLE t (a INT)", "remove"),
        ("CREATE TABLE t (a GEOMETRY NOT NULL)", "column a has the type geometry"),
        ("CREATE TABLE t (a ENUM(x))", "type of column a"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", "no column"),
        ("CREATE TABLE t (PRIMARY KEY (b))", "no columns"),
        ("CREATE TABLE t (a INT", "parenthesis"),
        ("CREATE TABLE t a INT)", "parenthesis"),
        ("CREATE TABLE t (a INT,)) x", "parenthesis"),
        ("CREATE TABLE t (a INT); DROP TABLE t", "more than one"),
        ("CREATE TABLE", "name"),
        ("CREATE TABLE t (a)", "name"),
        ("CREATE TABLE t (UNIQUE)", "columns"),
        ("CREATE TABLE 't' (a INT)", "name"),
        ("CREATE TABLE `t (a INT)", "it cannot be read"),
        ("CREATE TABLE t (a INT DEFAULT 'x)", "it cannot be read"),
        ("", "no statement"),
        (" ; ", "no statement"),
        ("/* nothing */", "no statement"),
        ("\u0000\ud7ff", "unknown"),
        ("CREATE", "unknown"),
        ("ALTER", "unknown"),
        ("SELECT 1", "unknown"),
        ("CREATE SEQUENCE s", "unknown"),
    ],
)
def test_what_cannot_be_done_is_unsupported_with_a_reason(query: str, reason: str) -> None:
    ddl = _classify(query)
    assert isinstance(ddl, Unsupported), ddl
    assert reason in ddl.reason
    assert "\n" not in ddl.reason


def test_an_unreadable_ddl_has_the_event_of_its_type() -> None:
    assert classify("CREATE TABLE `", "CREATE", "s", "t").event_types == ("create table",)
    assert classify("?", "ERASE", "s", "t").event_types == ()  # read, but unknown
    assert classify("DROP `", "ERASE", "s", "t").event_types == ("drop table",)


@pytest.mark.parametrize("cut", range(0, 1200, 7))
def test_no_prefix_of_a_statement_raises(cut: int) -> None:
    longest = max((ddl["query"] for ddl in DDLS), key=len)
    assert isinstance(_classify(longest[:cut]), Unsupported | NoEffect | CreateTable)


# --- everything else -------------------------------------------------------------------------


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
    ddl = _classify(query)
    assert isinstance(ddl, NoEffect), ddl
    assert ddl.event_types == events


@pytest.mark.parametrize(
    ("query", "event"),
    [
        ("DROP DATABASE `x`", "drop database"),
        ("ALTER DATABASE `x` CHARACTER SET = BINARY", "modify schema charset and collate"),
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
        ("ALTER TABLE `t` TRUNCATE PARTITION ALL", "truncate table partition"),
        ("ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", "exchange table partition"),
        (
            "ALTER TABLE `t` REORGANIZE PARTITION `a`,`b` INTO"
            " (PARTITION `c` VALUES LESS THAN (9))",
            "reorganize table partition",
        ),
        ("ALTER TABLE `t` PARTITION BY HASH(`a`) PARTITIONS 3", "alter table partitioning"),
        ("ALTER TABLE `t` REMOVE PARTITIONING", "remove table partitioning"),
        ("ALTER TABLE `t` ADD INDEX `i`(`a`), DROP COLUMN `c`", "multi schema change"),
        ("ALTER TABLE `t` COMMENT='x', DROP COLUMN `c`", "multi schema change"),
    ],
)
def test_what_changes_rows_columns_or_key_is_unsupported(query: str, event: str) -> None:
    ddl = _classify(query)
    assert isinstance(ddl, Unsupported), ddl
    assert ddl.event_types[0] == event
    assert ("alter table" in ddl.event_types) == (
        "ALTER TABLE" in query or "INDEX" in query or "RENAME" in query
    )


COUPON = _schema(
    "CREATE TABLE t (code VARCHAR(20) NOT NULL, sub INT NOT NULL, v INT,"
    " UNIQUE uk_main (code, sub), UNIQUE uk_v (v))"
)
WITH_PRIMARY = _schema("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")


@pytest.mark.parametrize(
    ("query", "known", "passes"),
    [
        ("DROP INDEX `UK_Main` ON `t`", COUPON, False),
        ("ALTER TABLE t DROP INDEX uk_main", COUPON, False),
        ("ALTER TABLE t DROP INDEX uk_v, DROP KEY uk_main", COUPON, False),
        ("ALTER TABLE t RENAME INDEX uk_main TO x", COUPON, False),
        ("ALTER TABLE t DROP CONSTRAINT uk_main", COUPON, False),
        ("DROP INDEX uk_v ON t", COUPON, True),
        ("DROP INDEX uk_main ON t", WITH_PRIMARY, True),
        ("CREATE UNIQUE INDEX u ON t (sub)", COUPON, False),  # smaller: TiCDC's new handle key
        ("ALTER TABLE t ADD UNIQUE u (code)", COUPON, False),
        ("ALTER TABLE t ADD UNIQUE u (v)", COUPON, True),
        ("ALTER TABLE t ADD UNIQUE u (sub, code)", COUPON, True),
        ("ALTER TABLE t ADD INDEX u (sub)", COUPON, True),
        ("ALTER TABLE t ADD UNIQUE u (a)", WITH_PRIMARY, True),
    ],
)
def test_an_index_matters_only_where_it_is_the_handle_key(
    query: str, known: TableSchema, passes: bool
) -> None:
    assert isinstance(_classify(query, known), NoEffect) == passes
