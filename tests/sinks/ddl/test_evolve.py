"""A table's schema after an ALTER TABLE: where its columns come from, and what old rows show."""

from __future__ import annotations

import re

import pytest

from sinks.ddl.effects import AlterTable, CreateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.statements import read_ddl
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import CURRENT_TIMESTAMP, TableSchema, schema_from_mysql_types
from sinks.types.text_arrays import CastRules
from sinks.types.type_changes import fill_values


def made(body: str, options: str = "") -> TableSchema:
    (effect,) = read_ddl(f"CREATE TABLE t ({body}) {options}", "CREATE", "shop", "t").effects
    assert isinstance(effect, CreateTable), effect
    return effect.schema


def altered(schema: TableSchema, specification: str) -> SchemaChange:
    (effect,) = read_ddl(f"ALTER TABLE t {specification}", "ALTER", "shop", "t").effects
    assert isinstance(effect, AlterTable), effect
    return evolved(schema, effect.changes)


RULES = CastRules(time_zone="UTC", zero_date="null")
SIMPLE = made("Id BIGINT PRIMARY KEY, a INT, b VARCHAR(10), v INT AS (a) VIRTUAL, c INT DEFAULT 3")


@pytest.mark.parametrize(
    ("specification", "columns"),
    [  # column <- where it comes from
        ("ADD x INT", "Id a b c x<-"),
        ("ADD x INT FIRST", "x<- Id a b c"),
        ("ADD x INT AFTER A", "Id a x<- b c"),
        ("ADD x INT AFTER v", "Id a b x<- c"),
        ("ADD x INT AFTER a, ADD y INT AFTER a", "Id a y<- x<- b c"),
        ("ADD x INT, ADD y INT AFTER x", "Id a b c x<- y<-"),
        ("ADD (x INT, y INT)", "Id a b c x<- y<-"),
        ("ADD IF NOT EXISTS A INT, ADD IF NOT EXISTS y INT", "Id a b c y<-"),
        ("ADD x INT AS (a+1)", "Id a b c"),
        ("DROP B", "Id a c"),
        ("DROP b, DROP v", "Id a c"),
        ("DROP IF EXISTS x, DROP IF EXISTS b", "Id a c"),
        ("DROP b, ADD b BIGINT", "Id a c b<-"),
        ("ADD b BIGINT, DROP b", "Id a c b<-"),
        ("RENAME COLUMN A TO x", "Id x<-a b c"),
        ("RENAME COLUMN a TO A", "Id A<-a b c"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "Id b<-a a<-b c"),
        ("RENAME COLUMN a TO x, ADD a INT", "Id x<-a b c a<-"),
        ("RENAME COLUMN a TO x, ADD y INT AFTER x", "Id x<-a y<- b c"),
        ("RENAME COLUMN a TO x, ADD y INT AFTER a", "Id x<-a y<- b c"),
        ("CHANGE a x BIGINT", "Id x<-a b c"),
        ("CHANGE c c BIGINT FIRST", "c Id a b"),
        ("MODIFY a BIGINT", "Id a b c"),
        ("MODIFY c BIGINT AFTER Id", "Id c a b"),
        ("MODIFY a INT AFTER c, MODIFY b INT, MODIFY c INT FIRST", "c Id b a"),
        ("MODIFY IF EXISTS x INT, MODIFY b INT FIRST", "b Id a c"),
        ("ADD x INT FIRST, DROP a, CHANGE b y TEXT AFTER c", "x<- Id c y<-b"),
        ("ALTER a SET DEFAULT 5, ALTER COLUMN c DROP DEFAULT", "Id a b c"),
        ("COMMENT 'x', ADD INDEX i (a)", "Id a b c"),
    ],
)
def test_every_column_says_where_it_comes_from(specification: str, columns: str) -> None:
    change = altered(SIMPLE, specification)
    expected = dict(each.partition("<-")[::2] for each in columns.split())
    arrows = {each.partition("<-")[0] for each in columns.split() if "<-" in each}
    wanted = {name: (of or None) if name in arrows else name for name, of in expected.items()}
    assert list(change.sources.items()) == list(wanted.items())
    assert [column.name for column in change.after.delivered] == list(wanted)
    assert change.before == SIMPLE


@pytest.mark.parametrize(
    ("body", "row", "specification", "shown"),
    [  # as TiDB's own test of multi schema changes shows them
        ("a INT", "a=1", "ADD COLUMN b INT DEFAULT 2, ADD COLUMN c INT DEFAULT 3", "a=1 b=2 c=3"),
        ("a INT", "a=1", "ADD COLUMN (b INT DEFAULT 2, INDEX i(a), PRIMARY KEY (a))", "a=1 b=2"),
        (
            "a INT DEFAULT 1, b INT, c INT",
            "a=1 b=2 c=3",
            "ADD COLUMN IF NOT EXISTS (c INT DEFAULT 3, d INT DEFAULT 4)",
            "a=1 b=2 c=3 d=4",
        ),
        (
            "a INT, b INT, c INT",
            "a=1 b=2 c=3",
            "ADD COLUMN d INT DEFAULT 4 FIRST, ADD COLUMN e INT DEFAULT 5 AFTER b,"
            " ADD COLUMN f INT DEFAULT 6 AFTER b",
            "d=4 a=1 b=2 f=6 e=5 c=3",
        ),
        (
            "a INT DEFAULT 1, b INT DEFAULT 2",
            "a=1 b=2",
            "ADD COLUMN c INT DEFAULT 3, DROP COLUMN a, ADD COLUMN d INT DEFAULT 4, DROP COLUMN b",
            "c=3 d=4",
        ),
        (
            "a INT DEFAULT 1, b INT DEFAULT 2",
            "a=1 b=2",
            "MODIFY COLUMN b DOUBLE DEFAULT 2 AFTER a, ADD COLUMN c INT DEFAULT 3 AFTER a",
            "a=1 c=3 b=2",
        ),
        (
            "a INT, b INT, c INT, INDEX i4 (a, b), INDEX i5 (a, b, c)",
            "a=1 b=2 c=3",
            "MODIFY COLUMN a TINYINT AFTER c, MODIFY COLUMN b TINYINT,"
            " MODIFY COLUMN c TINYINT FIRST",
            "c=3 b=2 a=1",
        ),
        (
            "a INT, b INT, c INT, INDEX i1 (c), INDEX i2 (c)",
            "a=1 b=2 c=3",
            "ADD COLUMN d INT DEFAULT 4, ADD INDEX i3(c), DROP COLUMN a, DROP COLUMN IF EXISTS z,"
            " ADD COLUMN IF NOT EXISTS e INT DEFAULT 5, DROP INDEX i2, ADD COLUMN f INT DEFAULT 6,"
            " DROP COLUMN b, DROP INDEX i1, ADD COLUMN IF NOT EXISTS c INT",
            "c=3 d=4 e=5 f=6",
        ),
        (
            "a TINYINT",
            "a=10",
            "ADD COLUMN b INT NOT NULL, CHANGE COLUMN a c CHAR(5) FIRST",
            "c=10 b=0",
        ),
        ("a INT, b DOUBLE", "a=1 b=2", "RENAME INDEX i TO i1, CHANGE COLUMN b c INT", "a=1 c=2"),
    ],
)
def test_rows_show_what_tidb_shows(body: str, row: str, specification: str, shown: str) -> None:
    change = altered(made(body), specification)
    values = dict(cell.split("=") for cell in row.split())
    cells = {
        name: values[source] if source else change.fills.get(name, "NULL")
        for name, source in change.sources.items()
    }
    assert " ".join(f"{name}={text}" for name, text in cells.items()) == shown


@pytest.mark.parametrize(
    ("specification", "reason"),
    [
        ("DROP x", "no column x"),
        ("RENAME COLUMN x TO y", "no column x"),
        ("CHANGE x y INT", "no column x"),
        ("ALTER x SET DEFAULT 1", "no column x"),
        ("ADD y INT AFTER x", "no column x"),
        ("MODIFY a INT AFTER a", "no column a"),
        ("ADD A INT", "two columns a"),
        ("RENAME COLUMN a TO b", "two columns b"),
        ("ADD UNIQUE (x)", "x, which is no column"),
        ("ADD PRIMARY KEY (a)", "an index PRIMARY already"),
        ("DROP Id, DROP a, DROP b, DROP v, DROP c", "no columns"),
        ("ADD x INT AUTO_INCREMENT", "AUTO_INCREMENT"),
        ("ADD x SERIAL", "AUTO_INCREMENT"),
        ("ADD x VARCHAR(36) DEFAULT (UUID())", "UUID()"),
        ("ADD x INT DEFAULT (-(5))", "the expression -(5)"),
        ("ADD x DATETIME(4) DEFAULT (NOW(6))", "the expression NOW(6)"),  # rounded, or cut
        ("ADD x INT AS (a+1) STORED", "x is computed"),
        ("MODIFY a INT AS (c+1) STORED", "a is computed"),
        ("MODIFY v INT", "v is computed"),
        ("ADD x INT DEFAULT 'y'", "the default 'y' of column x is no int"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(specification: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        altered(SIMPLE, specification)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ("INT", None),
        ("INT DEFAULT NULL", None),
        ("INT DEFAULT 5", "5"),
        ("INT DEFAULT '-5'", "-5"),
        ("INT DEFAULT +5", "5"),
        ("INT DEFAULT 1.5", "2"),
        ("INT DEFAULT x'0a'", "10"),
        ("INT DEFAULT (7)", "7"),
        ("INT NOT NULL", "0"),
        ("INT NOT NULL DEFAULT 9 COMMENT 'DEFAULT 1'", "9"),
        ("BOOL DEFAULT TRUE", "1"),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", "18446744073709551615"),
        ("DECIMAL(10,2) DEFAULT 1.005", "1.01"),
        ("DECIMAL(10,2) DEFAULT -1", "-1.00"),
        ("DECIMAL(10,2) NOT NULL", "0.00"),
        ("DOUBLE DEFAULT 1.5e10", "1.5e10"),
        ("DOUBLE DEFAULT -.5", "-0.5"),
        ("FLOAT(7,2) DEFAULT 1.239", "1.24"),
        ("YEAR DEFAULT 2024", "2024"),
        ("YEAR DEFAULT 70", "1970"),
        ("YEAR DEFAULT '69'", "2069"),
        ("YEAR NOT NULL", "0"),
        ("BIT(4) DEFAULT b'101'", "5"),
        ("BIT(8) DEFAULT 'A'", "65"),
        (
            "DECIMAL(38,10) DEFAULT 1234567890123456789012345678.5",
            f"{'1234567890' * 2}12345678.5{'0' * 9}",
        ),
        ("DECIMAL(65,30) DEFAULT -1", f"-1.{'0' * 30}"),
        ("DECIMAL(65,30) NOT NULL", f"0.{'0' * 30}"),  # a text, in the target
        ("BIT(8) DEFAULT 5", "5"),
        ("BIT(8) NOT NULL", "0"),
        ("VARCHAR(20) DEFAULT ''", ""),
        ("VARCHAR(20) DEFAULT 'it''s NULL'", "it's NULL"),
        ("VARCHAR(20) DEFAULT _UTF8MB4'中'", "中"),
        ("VARCHAR(20) DEFAULT 5", "5"),
        ("VARCHAR(20) DEFAULT x'e4b8ad'", "中"),
        ("VARCHAR(20) NOT NULL", ""),
        ("TIME DEFAULT '-00:00:00'", "00:00:00"),
        ("TIME(1) DEFAULT '-00:00:00.04'", "00:00:00.0"),
        ("TIME(1) DEFAULT '-00:00:00.06'", "-00:00:00.1"),
        ("VARCHAR(20) DEFAULT 'CURRENT_TIMESTAMP'", "CURRENT_TIMESTAMP"),
        ("CHAR(5) DEFAULT 'a  '", "a"),
        ("VARCHAR(20) CHARACTER SET BINARY DEFAULT 'é'", "Ã©"),
        ("VARBINARY(5) DEFAULT x'ff00'", "ÿ\0"),
        ("BINARY(4) DEFAULT 'ab'", "ab\0\0"),
        ("BINARY(3) NOT NULL", "\0\0\0"),
        ("BLOB NOT NULL", ""),
        ("ENUM('x','Y') DEFAULT 'y'", "2"),
        ("ENUM('x','y') NOT NULL", "1"),
        ("SET('x','y','z') DEFAULT 'z,x'", "5"),
        ("SET('x','y') DEFAULT ''", "0"),
        ("SET('x','y') NOT NULL", "0"),
        ("JSON NOT NULL", "null"),
        ("VECTOR(3) NOT NULL", "[]"),
        ("DATE DEFAULT '2024-1-2'", "2024-01-02"),
        ("DATE DEFAULT '20240102'", "2024-01-02"),
        ("DATE DEFAULT '240102'", "2024-01-02"),
        ("DATETIME DEFAULT 700102030405", "1970-01-02 03:04:05"),
        ("DATE DEFAULT '2024-01-02 03:04:05'", "2024-01-02"),
        ("DATE DEFAULT DATE '2024-01-02'", "2024-01-02"),
        ("DATE NOT NULL", "0000-00-00"),
        ("DATETIME DEFAULT '2024-01-02'", "2024-01-02 00:00:00"),
        ("DATETIME DEFAULT '2024-01-02 03:04:05.6'", "2024-01-02 03:04:06"),
        ("DATETIME DEFAULT 20240102030405", "2024-01-02 03:04:05"),
        ("DATETIME(3) DEFAULT '2024-01-02 03:04:05'", "2024-01-02 03:04:05.000"),
        ("DATETIME(3) DEFAULT '2024-12-31 23:59:59.9996'", "2025-01-01 00:00:00.000"),
        ("DATETIME NOT NULL DEFAULT 0", "0000-00-00 00:00:00"),
        ("TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)", CURRENT_TIMESTAMP),
        ("DATETIME DEFAULT NOW() ON UPDATE NOW()", CURRENT_TIMESTAMP),
        ("DATETIME ON UPDATE CURRENT_TIMESTAMP", None),
        ("DATE DEFAULT (CURRENT_DATE())", CURRENT_TIMESTAMP),
        ("TIME DEFAULT '12:30'", "12:30:00"),
        ("TIME DEFAULT '-1 02:03:04'", "-26:03:04"),
        ("TIME(1) DEFAULT '12:30:01.25'", "12:30:01.3"),
        ("TIME DEFAULT 123005", "12:30:05"),
        ("TIME NOT NULL", "00:00:00"),
    ],
)
def test_what_old_rows_show_of_an_added_column(definition: str, text: str | None) -> None:
    change = altered(SIMPLE, f"ADD x {definition}")
    assert dict(change.fills) == ({} if text is None else {"x": text})
    if text is not None:  # and the casts of the wire can read it
        values = fill_values(text, change.after.column("x").type, RULES, ddl_us=0)
        assert len(values) == 1


def test_the_text_current_timestamp_is_a_text() -> None:
    """The moment of the DDL is only in a column of dates or times."""
    text = fill_values(CURRENT_TIMESTAMP, MySQLType.parse("varchar(20)"), RULES, ddl_us=0)
    assert text.to_pylist() == ["CURRENT_TIMESTAMP"]
    moment = fill_values(CURRENT_TIMESTAMP, MySQLType.parse("date"), RULES, ddl_us=0)
    assert str(moment[0]) == "1970-01-01"


KEYED = made(
    "a INT NOT NULL, b INT NOT NULL, c INT, d INT NOT NULL,"
    " UNIQUE uk_ab (a, b), UNIQUE uk_c (c), UNIQUE uk_bd (b, d), KEY plain (a)"
)


@pytest.mark.parametrize(
    ("specification", "key", "index"),
    [
        ("ADD x INT", "a b", "uk_ab"),
        ("ADD UNIQUE (d)", "d", "d"),
        ("ADD UNIQUE (a)", "a", "a"),
        ("ADD INDEX (d)", "a b", "uk_ab"),
        ("ADD UNIQUE i (d, b)", "a b", "uk_ab"),
        ("ADD UNIQUE i (c)", "a b", "uk_ab"),
        ("ADD UNIQUE i ((a + 1))", "a b", "uk_ab"),
        ("ADD UNIQUE i (a) WHERE b > 0", "a b", "uk_ab"),
        ("ADD PRIMARY KEY (c, d)", "c d", None),
        ("ADD COLUMN (x INT, PRIMARY KEY (x))", "x", None),
        ("ADD x INT NOT NULL UNIQUE", "x", "x"),
        ("DROP INDEX UK_AB", "b d", "uk_bd"),
        ("DROP INDEX uk_ab, DROP KEY uk_bd", "", None),
        ("DROP INDEX uk_ab, ADD UNIQUE uk_ab (d)", "d", "uk_ab"),
        ("DROP INDEX nobody_knows", "a b", "uk_ab"),
        ("DROP CONSTRAINT uk_ab", "b d", "uk_bd"),
        ("RENAME INDEX uk_ab TO x", "a b", "x"),
        ("RENAME COLUMN a TO x", "x b", "uk_ab"),
        ("CHANGE a X INT NOT NULL AFTER d", "X b", "uk_ab"),
        ("MODIFY a INT", "b d", "uk_bd"),
        ("MODIFY c INT NOT NULL", "c", "uk_c"),
        ("MODIFY b INT NULL", "", None),
        ("DROP a", "b", "uk_ab"),  # MySQL takes it out of the index; TiDB refuses
        ("DROP a, DROP b", "d", "uk_bd"),
        ("DROP c", "a b", "uk_ab"),
    ],
)
def test_the_handle_key_is_chosen_anew(specification: str, key: str, index: str | None) -> None:
    after = altered(KEYED, specification).after
    assert (" ".join(after.key), after.key_index) == (key, index)


def test_a_primary_key_comes_before_every_other_and_its_columns_are_not_null() -> None:
    schema = made("a INT PRIMARY KEY, b INT NOT NULL UNIQUE")
    assert not altered(schema, "MODIFY a BIGINT NULL").after.column("a").nullable
    dropped = altered(schema, "DROP PRIMARY KEY").after
    assert (dropped.key, dropped.key_index) == (("b",), "b")
    assert not dropped.column("a").nullable
    again = altered(dropped, "ADD PRIMARY KEY (b)").after
    assert (again.key, again.key_index) == (("b",), None)
    assert altered(dropped, "DROP COLUMN b").after.key == ()


def test_names_of_indexes_are_as_mysql_makes_them() -> None:
    schema = made("a INT NOT NULL, KEY (a)")
    after = altered(schema, "ADD UNIQUE (a), ADD UNIQUE (a)").after
    assert [index.name for index in after.indexes] == ["a", "a_2", "a_3"]
    assert altered(after, "DROP INDEX a_2").after.key_index == "a_3"


def test_a_schema_without_indexes_knows_its_key() -> None:
    """Rows have told it."""
    told, _ = schema_from_mysql_types({"a": "int", "b": "int"}, ["a"])
    assert altered(told, "RENAME COLUMN a TO x").after.key == ("x",)
    assert altered(told, "DROP PRIMARY KEY").after.key == ()
    assert altered(told, "DROP INDEX other, ADD INDEX i (a)").after.key == ("a",)


@pytest.mark.parametrize(
    ("specification", "types"),
    [
        ("CONVERT TO CHARACTER SET BINARY", "int varbinary(9) blob enum('x')"),
        ("CONVERT TO CHARACTER SET UTF8MB4", "int varchar(9) text enum('x')"),
        ("CHARACTER SET = BINARY", "int varchar(9) text enum('x')"),
        ("CHARACTER SET = BINARY, ADD d TEXT", "int varchar(9) text enum('x') blob"),
        (
            "CHARACTER SET = BINARY, ADD d TEXT CHARACTER SET UTF8MB4",
            "int varchar(9) text enum('x') text",
        ),
        ("MODIFY b VARCHAR(9) CHARACTER SET BINARY", "int varbinary(9) text enum('x')"),
        ("MODIFY b VARBINARY(9)", "int varbinary(9) text enum('x')"),
    ],
)
def test_a_character_set_may_make_bytes_of_text(specification: str, types: str) -> None:
    schema = made("a INT, b VARCHAR(9), c TEXT, e ENUM('x')")
    after = altered(schema, specification).after
    assert " ".join(str(column.type) for column in after.columns) == types


def test_a_table_of_bytes_makes_bytes_of_the_columns_that_it_gets() -> None:
    schema = made("a INT, b TEXT CHARACTER SET UTF8MB4", "CHARSET = BINARY")
    assert TableSchema.from_json(schema.to_json()) == schema
    change = altered(schema, "ADD x VARCHAR(9) DEFAULT 'é', MODIFY b TEXT")
    assert [str(column.type) for column in change.after.columns] == ["int", "blob", "varbinary(9)"]
    assert change.fills == {"x": "Ã©"}
    again = altered(schema, "DEFAULT CHARACTER SET UTF8MB4, ADD x VARCHAR(9)").after
    assert str(again.column("x").type) == "varchar(9)"


def test_defaults_and_indexes_survive_the_properties_of_a_table() -> None:
    schema = made(
        "a INT DEFAULT 5, b TIMESTAMP DEFAULT NOW(), c TEXT, PRIMARY KEY (a), KEY k ((a + 1))"
    )
    assert TableSchema.from_json(schema.to_json()) == schema
    changed = altered(schema, "ALTER a SET DEFAULT 'x', ALTER b DROP DEFAULT").after
    assert changed.column("a").default == "x"
    assert (changed.column("b").default, changed.column("b").default_is_expression) == (None, False)


def test_unique_indexes_are_followed_by_their_names() -> None:
    table = made("a INT, b INT NOT NULL, c INT NOT NULL, PRIMARY KEY (a), KEY i (b), UNIQUE u (c)")
    assert table.follows_indexes
    without = altered(table, "DROP PRIMARY KEY").after
    assert (without.key, without.key_index, without.follows_indexes) == (("c",), "u", True)
    assert TableSchema.from_json(without.to_json()).follows_indexes
    other = altered(
        altered(table, "ADD UNIQUE i (b), DROP INDEX u").after, "DROP PRIMARY KEY"
    ).after
    assert (other.key, other.key_index) == (("b",), "i")  # the plain one was dropped, unseen
    nameless = altered(table, "ADD UNIQUE (b)").after
    assert not nameless.follows_indexes  # TiDB knows its name
    assert not altered(nameless, "DROP PRIMARY KEY").after.follows_indexes
