"""What a schema file says: dumps as tools write them, and where its tables are not those of the
messages."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from conf.settings import FilterSettings
from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.ddl.effects import CreateTable
from sinks.ddl.statements import read_ddl
from sinks.types.table_schema import TableSchema
from streaming.changefeed import schema_file
from streaming.changefeed.schema_file import Definitions, digest, read_definitions, stored_text
from streaming.changefeed.schema_from_rows import WholeRow, refuse_unlike, unlike
from tests.services import wire

DUMP = r"""-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
--
-- Host: 127.0.0.1    Database: shop
-- ------------------------------------------------------
-- Server version	8.0.11-TiDB-v8.5.0

/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!50503 SET NAMES utf8mb4 */;
/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */;

--
-- Current Database: `shop`; it isn't read
--

CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;

USE `shop`;

DROP TABLE IF EXISTS `orders`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
CREATE TABLE `orders` (
  `id` bigint unsigned NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */,
  `price` decimal(12,2) NOT NULL DEFAULT '0.00',
  `kind` enum('a;b','it''s','back\\slash','new\nline') COLLATE utf8mb4_bin COMMENT 'a;\'b',
  `sum` decimal(20,4) GENERATED ALWAYS AS (`price` * 2) VIRTUAL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
  KEY `by_kind` (`kind`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
/*T![ttl] TTL=`t` + INTERVAL 1 DAY */
/*!50100 PARTITION BY RANGE (`id`)
(PARTITION p0 VALUES LESS THAN (10),
 PARTITION p1 VALUES LESS THAN MAXVALUE) */;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!50001 CREATE VIEW `cheap` AS SELECT 1 AS `id`*/;
CREATE TEMPORARY TABLE `scratch` (`x` int);
DELIMITER ;;
CREATE PROCEDURE `p`() BEGIN
CREATE TABLE `not_one` (`x` inet6);
END ;;
DELIMITER ;

USE other;
CREATE TABLE IF NOT EXISTS `codes` (
  `code` varchar(8) NOT NULL,
  `by_hand` int(11) DEFAULT NULL,
  UNIQUE KEY `uk` (`code`)
);
CREATE TABLE elsewhere.log (x int, y datetime(6))
"""
SHOWN = """mysql> show create table orders\\G
*************************** 1. row ***************************
       Table: orders
Create Table: CREATE TABLE `orders` (
  `id` bigint NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB
*************************** 2. row ***************************
       Table: b
Create Table: CREATE TABLE `b` (
  `id` int NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB
2 rows in set (0.00 sec)
"""


def everything(text: str) -> Definitions:
    return read_definitions(text, lambda _: True)


def schema(text: str, name: str) -> TableSchema:
    found = everything(text).schema(TableName(*name.split(".")))
    assert found is not None, name
    return found


def test_a_dump_of_several_databases_is_read() -> None:
    found = everything(DUMP)
    assert sorted(str(of.name) for of in found.values()) == [
        "elsewhere.log", "other.codes", "shop.orders",
    ]  # fmt: skip
    orders = schema(DUMP, "shop.orders")
    kinds = {column.name: str(column.type) for column in orders.columns}
    assert kinds["id"] == "bigint unsigned"
    assert kinds["price"] == "decimal(12,2)"
    assert orders.column("kind").type.elements == ("a;b", "it's", "back\\slash", "new\nline")
    assert (orders.column("price").nullable, orders.column("price").default) == (False, "0.00")
    assert (orders.key, orders.key_index) == (("id",), None)
    assert [column.name for column in orders.delivered] == ["id", "price", "kind"]
    codes = schema(DUMP, "other.codes")
    assert (codes.key, codes.key_index) == (("code",), "uk")
    assert schema(DUMP, "elsewhere.log").key == ()


def test_what_the_mysql_client_shows_is_read() -> None:
    for text in (SHOWN, SHOWN.replace("\n*", ";\n*")):
        found = everything("USE shop\n;" + text)
        assert sorted(str(of.name) for of in found.values()) == ["shop.b", "shop.orders"]
    raw = "Table\tCreate Table\norders\tCREATE TABLE `orders` (`id` int PRIMARY KEY)\n"
    assert schema("use `shop`;" + raw, "shop.orders").key == ("id",)


def test_statements_without_semicolons_are_told_apart() -> None:
    text = "CREATE TABLE s.a (id int PRIMARY KEY)\nCREATE TABLE s.b (id int)\n"
    assert schema(text, "s.a").key == ("id",)
    assert schema(text, "s.b").key == ()


def test_a_dump_of_one_database_names_it_in_its_first_line() -> None:
    text = "-- MySQL dump\n-- Host: h    Database: shop\nCREATE TABLE a (id int PRIMARY KEY);"
    assert schema(text, "shop.a").key == ("id",)


def test_a_table_is_found_in_any_case() -> None:
    assert everything("CREATE TABLE Shop.A (id int)").schema(TableName("shop", "a")) is not None


def test_a_table_like_another_is_the_same() -> None:
    text = "CREATE TABLE s.a (id int PRIMARY KEY); CREATE TABLE s.b LIKE s.a;"
    assert schema(text, "s.b") == schema(text, "s.a")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CREATE TABLE a (id int)", "table a: no database is named: put `USE <database>;`"),
        ("CREATE TABLE s.a (id xmltype)", "table s.a: it cannot be read: column id has the type"),
        ("CREATE TABLE s.a (id int", "CREATE TABLE s.a (id int … cannot be read: an opening paren"),
        ("CREATE TABLE s.a AS SELECT 1", "table s.a: it takes columns or rows from a query"),
        ("CREATE TABLE s.b LIKE s.a", "table s.b: it is like s.a, which is not before it"),
        (
            "CREATE TABLE s.a (id int); CREATE TABLE S.A (id bigint)",
            "table S.A: it is there twice, and each time other",
        ),
        ("INSERT INTO a VALUES (1);", "it has no CREATE TABLE statement"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_table_and_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        everything(text)
    assert str(refused.value).startswith("schema-file: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_that_the_filter_leaves_out_need_not_be_readable() -> None:
    text = "CREATE TABLE s.a (id xmltype); CREATE TABLE s.b (id int)"
    found = read_definitions(text, lambda name: name.table == "b")
    assert [str(of.name) for of in found.values()] == ["s.b"]
    assert everything("  \n") == {}


def test_what_is_stored_is_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = stored_text(DUMP, FilterSettings(rules=("*.*", "!elsewhere.*")), "canal-json")
    found = everything(kept)
    assert [str(of.name) for of in found.values()] == ["shop.orders", "other.codes"]
    assert all(of.schema == everything(DUMP).schema(of.name) for of in found.values())
    assert digest(found) == digest(read_definitions(DUMP, lambda of: of.schema != "elsewhere"))
    assert stored_text(kept, FilterSettings(), "canal-json") == kept
    assert digest(Definitions()) is None
    monkeypatch.setattr(schema_file, "MAX_STORED_BYTES", 100)
    with pytest.raises(ConfigError, match=r"of the 3 tables that \[filter\] selects have \d+ byt"):
        stored_text(DUMP, FilterSettings(), "canal-json")


# File against message.

OF = schema(DUMP, "shop.orders")
TOLD = {"kind": "enum", "ID": "bigint unsigned", "price": "decimal"}


def test_messages_that_tell_less_fit() -> None:
    assert unlike(OF, TOLD, ["ID"]) == []
    whole = {**TOLD, "price": "decimal(12,2)", "kind": str(OF.column("kind").type)}
    assert unlike(OF, {**whole, "ID": "bigint(20) unsigned"}, ["id"]) == []
    codes = schema(DUMP, "other.codes")
    assert unlike(codes, {"code": "varchar(8)", "by_hand": "int"}, []) == []
    assert unlike(schema(DUMP, "elsewhere.log"), {"x": "int", "y": "datetime"}, []) == []


def test_digits_that_a_value_has_are_compared() -> None:
    of = everything("CREATE TABLE a.t (id int PRIMARY KEY, d datetime, t time(3))").schema(
        TableName("a", "t")
    )
    assert of is not None
    told = {"id": "int", "d": "datetime(0)", "t": "time(3)"}
    assert unlike(of, told, ["id"]) == []
    (difference,) = unlike(of, {**told, "d": "datetime(3)"}, ["id"])
    assert difference == "column d is datetime in the file and datetime(3) there"
    (difference,) = unlike(of, {**told, "t": "time(0)"}, ["id"])
    assert difference == "column t is time(3) in the file and time(0) there"


def test_a_virtual_column_may_be_in_the_rows() -> None:
    sql = "CREATE TABLE a.t (id int PRIMARY KEY, v int AS (id + 1) VIRTUAL)"
    of = everything(sql).schema(TableName("a", "t"))
    assert of is not None
    assert unlike(of, {"id": "int"}, ["id"]) == []
    assert unlike(of, {"id": "int", "V": "int"}, ["id"]) == []


@pytest.mark.parametrize(
    ("types", "key", "says"),
    [
        (
            {"price": "decimal(12,3)"},
            ["id"],
            "column price is decimal(12,2) in the file and decima",
        ),
        (
            {"price": "varchar"},
            ["id"],
            "column price is decimal(12,2) in the file and varchar ther",
        ),
        ({"ID": "bigint"}, ["id"], "column id is bigint unsigned in the file and bigint there"),
        ({"kind": "enum('a')"}, ["id"], "in the file and enum('a') there"),
        ({"kind": "?"}, ["id"], "in the file and ? there"),
        ({"more": "int"}, ["id"], "column more (int) is there alone"),
        ({}, [], "the primary key is id in the file and none there"),
        ({}, ["id", "kind"], "the primary key is id in the file and id, kind there"),
    ],
)
def test_what_differs_is_said(types: dict[str, str], key: list[str], says: str) -> None:
    (difference,) = unlike(OF, {**TOLD, **types}, key)
    assert says in difference


def test_columns_that_the_messages_lack_are_named_in_one_line() -> None:
    name, told = TableName("shop", "orders"), WholeRow({"id": "int"}, ("id",), Ts(7))
    with pytest.raises(ConfigError) as refused:
        refuse_unlike(name, OF, told)
    assert "table shop.orders is another in its messages (commit-ts 7)" in str(refused.value)
    says = "column id is bigint unsigned in the file and int there; column price (decimal(12,2)) is"
    assert f"{says} in the file alone; column kind" in str(refused.value)


@pytest.mark.parametrize("variant", ["canal-json", "canal-json-content-compatible"])
def test_what_ticdc_recorded_fits_its_own_create_tables(variant: str) -> None:
    """Each row below the next DDL of its table, with the table as its CREATE TABLE made it."""
    ddls: dict[TableName, dict[int, Any]] = defaultdict(dict)
    rows = []
    for message in wire.messages(variant):
        each = json.loads(message.value or b"")
        name, tidb = TableName(each["database"], each["table"]), each["_tidb"]
        if each["isDdl"]:
            ddls[name][tidb["commitTs"]] = each
        elif each["type"] in ("INSERT", "UPDATE"):
            rows.append((name, tidb["commitTs"], each))
    checked = set()
    for name, ts, row in rows:
        newest = max((at for at in ddls[name] if at <= ts), default=None)
        if newest is None or ddls[name][newest]["type"] != "CREATE":
            continue
        found = read_ddl(ddls[name][newest]["sql"], "CREATE", name.schema, name.table).effects[0]
        if isinstance(found, CreateTable):
            checked.add(name)
            assert unlike(found.schema, row["mysqlType"], row["pkNames"]) == [], name
    assert len(checked) > 5
