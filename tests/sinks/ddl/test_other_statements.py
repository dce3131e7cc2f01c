"""Statements that are about no table are passed over; what is not known is not. No password is
shown."""

from __future__ import annotations

import pytest

from sinks.ddl.effects import AlterTable, NoEffect, Unsupported
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.shown import shown
from tests.sinks.ddl.told import told

OF_NO_TABLE = """
FLUSH TABLES
FLUSH PRIVILEGES
SET PASSWORD FOR 'app'@'%'='*0123456789ABCDEF'
SET PASSWORD FOR 'it\\'s'@'%' = 'x'
SET DEFAULT ROLE r TO u
SET GLOBAL event_scheduler = ON
CREATE USER u IDENTIFIED BY 'x'
CREATE USER 'a'@'b' IDENTIFIED BY 'it\\'s'
ALTER USER u ACCOUNT LOCK
DROP USER IF EXISTS u
RENAME USER a TO b
CREATE ROLE r
GRANT SELECT ON shop.* TO u
REVOKE ALL PRIVILEGES, GRANT OPTION FROM u
CREATE DEFINER=`app`@`%` EVENT nightly ON SCHEDULE EVERY 1 DAY DO DELETE FROM orders WHERE id < 0
CREATE DEFINER=app@localhost PROCEDURE p() BEGIN UPDATE t SET a = 1; SELECT 1; END
CREATE DEFINER = CURRENT_USER() FUNCTION f() RETURNS INT RETURN 1
CREATE DEFINER=event@table TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1
CREATE OR REPLACE AGGREGATE FUNCTION f RETURNS INT SONAME 'x.so'
ALTER EVENT nightly DISABLE
DROP EVENT nightly
DROP PROCEDURE IF EXISTS p
DROP TRIGGER tr
CREATE PACKAGE BODY pk AS x INT; END
ANALYZE TABLE orders
OPTIMIZE LOCAL TABLE orders
REPAIR TABLE orders
CHECK TABLE orders
CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD 'p')
CREATE TABLESPACE ts ADD DATAFILE 'x.ibd'
CREATE SPATIAL REFERENCE SYSTEM 4120 NAME 'x'
ALTER INSTANCE ROTATE INNODB MASTER KEY
SAVEPOINT a
ROLLBACK TO SAVEPOINT a
XA START 'x'
XA ROLLBACK 'x'
BEGIN
LOCK TABLES orders WRITE
SELECT 1
USE shop
PURGE BINARY LOGS TO 'b.2'
CHANGE MASTER TO MASTER_PASSWORD = 'x'
INSTALL PLUGIN p SONAME 'x.so'
SET STATEMENT max_statement_time = 1 FOR GRANT SELECT ON shop.* TO u
CREATE VIEW v AS SELECT 'it\\'s; ' FROM t
CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`a`@`%` SQL SECURITY INVOKER VIEW v AS SELECT 1
/*!50003 CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1 */
/* tidelake sent b.1:20 */ FLUSH TABLES
/* nothing */
-- nothing
# nothing
"""


@pytest.mark.parametrize("query", OF_NO_TABLE.strip().splitlines())
def test_it_has_no_effect(query: str) -> None:
    (effect,) = read_ddl(query, "QUERY", "shop", "").effects
    assert isinstance(effect, NoEffect), effect


@pytest.mark.parametrize(
    "query",
    ["FROBNICATE x", "CREATE FROB x", "DROP x", "CALL p()", "", "INSERT INTO t VALUES (1)"],
)
def test_what_is_not_known_is_for_an_operator(query: str) -> None:
    (effect,) = read_ddl(query, "QUERY", "shop", "").effects
    assert isinstance(effect, Unsupported), effect


@pytest.mark.parametrize(
    ("query", "effects"),
    [
        ("CREATE UNIQUE INDEX user ON t (a)", "t: add unique index user (a)"),
        ("DROP TABLE user", "user: drop table"),
        ("RENAME TABLE user TO event", "user: rename table"),
    ],
)
def test_a_table_may_have_such_a_name(query: str, effects: str) -> None:
    found = read_ddl(query, "", "shop", "")
    assert not isinstance(found.effects[0], NoEffect | Unsupported), (told(found), effects)


def test_a_statement_of_mariadb_stands_behind_its_settings() -> None:
    query = "SET STATEMENT max_statement_time = 1, sql_mode = 'FOR' FOR ALTER TABLE t ADD c INT"
    (effect,) = read_ddl(query, "QUERY", "shop", "t").effects
    assert isinstance(effect, AlterTable)


@pytest.mark.parametrize(
    "query",
    [
        "SET PASSWORD FOR 'app'@'%'='hunter2'",
        "CREATE USER u IDENTIFIED BY 'hunter2'",
        'CREATE USER u IDENTIFIED WITH mysql_native_password AS "hunter2"',
        "FROBNICATE u USING 'it''s hunter2'",
        "GRANT ALL ON *.* TO u IDENTIFIED BY PASSWORD 'hunter2'",
        "CREATE TABLE t (id INT) ENGINE=FEDERATED CONNECTION='mysql://u:hunter2@h/d/t'",
        'CREATE TABLE t (id INT) COMMENT=\'wrapper "mysql", password "hunter2"\'',
        "CREATE TABLE t (id INT) COMMENT='mysql://u:hunter2@h/d'",
        "ALTER TABLE t FROB PASSWORD='hunter2'",
    ],
)
def test_no_password_is_shown(query: str) -> None:
    assert "hunter2" not in shown(query)
    assert shown(query).split()[0] == query.split()[0]


def test_a_table_is_shown_as_it_is() -> None:
    query = "CREATE TABLE t (a VARCHAR(9) DEFAULT 'x', b ENUM('a','b') COMMENT 'of the user')"
    assert shown(query) == query
