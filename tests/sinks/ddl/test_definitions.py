"""CREATE TABLE as TiCDC writes it back, and what cannot be read."""

from __future__ import annotations

import pytest

from coordination.model import TableName
from sinks.ddl.effects import CreateTable, CreateTableLike, Effect, Unsupported
from sinks.ddl.statements import read_ddl
from sinks.types.table_schema import TableSchema


def _read(query: str) -> Effect:
    (effect,) = read_ddl(query, "ALTER", "shop", "t").effects
    return effect


def _schema(query: str) -> TableSchema:
    ddl = _read(query)
    assert isinstance(ddl, CreateTable), ddl
    return ddl.schema


def test_names_of_any_characters() -> None:
    (ddl,) = read_ddl(
        "CREATE TABLE `we``ird`.`a.b c` (`k ey` INT PRIMARY KEY,`)` INT,`KEY` INT,`index` INT)",
        "CREATE",
        "we`ird",
        "a.b c",
    ).effects
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
        ("ENUM(0x61,x'62',b'01100011')", "enum('a','b','c')"),
        ("INT REFERENCES p (id) ON UPDATE SET DEFAULT", "int"),
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
    ddl = _read("create table if not exists T (a int primary key)")
    assert isinstance(ddl, CreateTable)
    assert ddl.name == TableName("shop", "t")  # as the message spells it


@pytest.mark.parametrize(
    "query", ["CREATE TABLE `b` LIKE `a`", "CREATE TABLE `b` (LIKE `shop`.`a`)"]
)
def test_create_table_like(query: str) -> None:
    (ddl,) = read_ddl(query, "CREATE", "shop", "b").effects
    assert ddl == CreateTableLike(name=TableName("shop", "b"), source=TableName("shop", "a"))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("CREATE TABLE t AS SELECT 1 a", "query"),
        ("CREATE TABLE t (a INT) SELECT 1 a", "query"),
        ("CREATE TABLE t SELECT 1 a", "query"),
        ("CREATE OR REPLACE TABLE t (a INT)", "remove"),
        ("CREATE TABLE t (a XMLTYPE NOT NULL)", "column a has the type xmltype"),
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
        ("\u0000\ud7ff", "unknown"),
        ("CREATE", "unknown"),
        ("ALTER", "unknown"),
        ("FROBNICATE u", "unknown"),
    ],
)
def test_what_cannot_be_done_is_unsupported_with_a_reason(query: str, reason: str) -> None:
    ddl = _read(query)
    assert isinstance(ddl, Unsupported), ddl
    assert reason in ddl.reason
    assert "\n" not in ddl.reason


def test_an_unreadable_ddl_has_the_event_of_its_type() -> None:
    assert read_ddl("CREATE TABLE `", "CREATE", "s", "t").event_types == ("create table",)
    assert read_ddl("?", "ERASE", "s", "t").event_types == ()  # read, but unknown
    assert read_ddl("DROP `", "ERASE", "s", "t").event_types == ("drop table",)


def test_a_key_without_overlaps_has_the_columns_of_its_period() -> None:
    """As the server has it in its place: the end first. They are never NULL."""
    of = "CREATE TABLE t (n INT, id INT NOT NULL, S DATE, `e` DATE, PERIOD FOR `p`(s, e), "
    schema = _schema(of + "PRIMARY KEY (id, P WITHOUT OVERLAPS))")
    assert schema.key == ("id", "e", "S")
    schema = _schema(of + "UNIQUE KEY k (id, p WITHOUT OVERLAPS))")
    assert (schema.key, schema.key_index) == (("id", "e", "S"), "k")
    assert [column.nullable for column in schema.columns] == [True, False, False, False]


def test_a_column_may_have_the_name_period() -> None:
    schema = _schema("CREATE TABLE t (id INT PRIMARY KEY, period INT)")
    assert [column.name for column in schema.columns] == ["id", "period"]
