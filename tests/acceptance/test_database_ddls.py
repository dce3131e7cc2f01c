"""DDLs of real servers, through their binlogs: each table is the database's afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.followed_database import FollowedDatabase
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import second

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

# By database: statements of one session in it.
ON_ALL = {
    "columns": r"""
        CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) DEFAULT 'it\'s');
        INSERT INTO t VALUES (1, 'a'), (2, 'b'); ALTER TABLE t ADD w INT NOT NULL DEFAULT 7 FIRST;
        UPDATE t SET v = 'c' WHERE id = 1; ALTER TABLE t ADD x INT AFTER id, DROP COLUMN v;
        INSERT INTO t (id, x) VALUES (4, 4); ALTER TABLE t CHANGE x y BIGINT;
        DELETE FROM t WHERE id = 2;
        ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (w, id); INSERT INTO t VALUES (8, 4, 1)""",
    "copies": """
        CREATE TABLE a (id INT PRIMARY KEY, v INT); INSERT INTO a VALUES (1, 1), (2, 2);
        CREATE TABLE b (id INT PRIMARY KEY, v INT) SELECT id, v FROM a; CREATE TABLE c LIKE a;
        INSERT INTO c SELECT * FROM a; DROP TABLE a, b; CREATE TABLE a (v INT, id INT PRIMARY KEY);
        INSERT INTO a VALUES (5, 6); TRUNCATE c; INSERT INTO c VALUES (7, 7)""",
    "names": """
        CREATE TABLE a (id INT PRIMARY KEY, v INT); CREATE TABLE b (id INT PRIMARY KEY, w INT);
        INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (2, 2);
        RENAME TABLE a TO tmp, b TO a, tmp TO b; INSERT INTO a VALUES (3, 3);
        CREATE TABLE copies.l LIKE a; INSERT INTO copies.l VALUES (9, 9);
        ALTER TABLE copies.l RENAME l2; INSERT INTO l2 VALUES (10, 10)""",
    "ghost": """
        CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 2);
        CREATE /* gh-ost */ TABLE _t_gho LIKE t; ALTER TABLE _t_gho ADD w INT NOT NULL DEFAULT 3;
        INSERT IGNORE INTO _t_gho (id, v) SELECT id, v FROM t; UPDATE t SET v = 5 WHERE id = 1;
        REPLACE INTO _t_gho (id, v) VALUES (1, 5); RENAME TABLE t TO _t_del, _t_gho TO t;
        INSERT INTO t VALUES (3, 3, 3); DROP TABLE IF EXISTS _t_del""",
    "quotes": r"""
        SET sql_mode = 'ANSI_QUOTES';
        CREATE TABLE "q t" ("a b" INT PRIMARY KEY, v CHAR(3) DEFAULT 'x"y');
        INSERT INTO "q t" ("a b") VALUES (1); ALTER TABLE "q t" ADD "c""d" INT DEFAULT 5;
        SET sql_mode = 'NO_BACKSLASH_ESCAPES';
        ALTER TABLE `q t` ADD z CHAR(5) NOT NULL DEFAULT '\'""",
    "parts": """
        CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id)
        (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20));
        INSERT INTO p VALUES (1), (11); ALTER TABLE p TRUNCATE PARTITION p0;
        INSERT INTO p VALUES (2);
        ALTER TABLE p OPTIMIZE PARTITION p1; ALTER TABLE p DROP PARTITION p1""",
    "others": """
        CREATE PROCEDURE pr()
        BEGIN CREATE TABLE t (id INT PRIMARY KEY)$ INSERT INTO t VALUES (1)$ END;
        CALL pr(); CREATE VIEW v AS SELECT * FROM t; DROP VIEW v; CREATE TEMPORARY TABLE x (id INT);
        INSERT INTO x VALUES (1); DROP TABLE x; ANALYZE TABLE t; INSERT INTO t VALUES (3)""",
    "left_out": """
        CREATE TABLE x (id INT PRIMARY KEY); ALTER TABLE x DISCARD TABLESPACE;
        SET binlog_format = STATEMENT; CREATE TABLE y (id INT); INSERT INTO y VALUES (1)""",
}
OF_MARIADB = {
    "phases": """
        CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1);
        SET binlog_alter_two_phase = 1; ALTER TABLE t ADD w INT DEFAULT 2;
        INSERT INTO t VALUES (2, 2, 2);
        SET STATEMENT max_statement_time = 10 FOR ALTER TABLE t WAIT 5 ADD x INT;
        INSERT INTO t VALUES (3, 3, 3, 3);
        CREATE SEQUENCE s; INSERT INTO t VALUES (NEXTVAL(s) + 10, 4, 4, 4)""",
}
OF_MYSQL = {
    "phases": """
        SET sql_generate_invisible_primary_key = 1; CREATE TABLE t (v INT);
        INSERT INTO t VALUES (1);
        ALTER TABLE t ALTER COLUMN my_row_id SET VISIBLE;
        ALTER TABLE t ADD f INT DEFAULT 1 FIRST, ALGORITHM = INSTANT;
        INSERT INTO t (v) VALUES (2)""",
}


@pytest.fixture(params=[MARIADB_10_11, *second(MYSQL_9_7)], ids=lambda edition: edition.name)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as server:
        yield server


def test_each_table_is_the_databases(
    server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scenes = {**ON_ALL, **(OF_MARIADB if server.edition.is_mariadb else OF_MYSQL)}
    # The rows of a table whose CREATE TABLE was not read tell it, whatever a careful one says.
    server.execute("CREATE DATABASE older", "CREATE TABLE older.t (id INT PRIMARY KEY, v INT)")
    database = FollowedDatabase(server, tmp_path, rules=["*.*", "!left_out.*"])
    careful = "CREATE TABLE IF NOT EXISTS older.t (id INT PRIMARY KEY)"
    server.execute(careful, "INSERT INTO older.t VALUES (1, 2)")
    for name, statements in scenes.items():
        server.execute(f"CREATE DATABASE {name}")
        each = [text.strip().replace("$", ";") for text in statements.split(";")]
        server.execute(*each, database=name)
    tables = [
        f"{schema}.{table}"
        for schema, table in server.query(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = "
            f"'BASE TABLE' AND TABLE_SCHEMA IN {('older', *scenes)} AND TABLE_SCHEMA <> 'left_out'"
        )
    ]
    with database.followed() as life:
        for table in tables:
            quoted = table.replace(".", ".`") + "`"
            life.wait_until(
                lambda t=table, q=quoted: database.delta_rows(t) == database.database_rows(q)
            )
    assert not any(row.dead_letters or row.error for row in database.progress().values())
    assert not any(name.startswith("left_out") for name in database.progress())


def test_a_rewind_goes_below_ddls(
    server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server.execute("CREATE DATABASE d")
    database = FollowedDatabase(server, tmp_path)
    made = "CREATE TABLE {0} (id INT PRIMARY KEY, v INT)", "INSERT INTO {0} VALUES (1, 1)"
    server.execute(*(each.format(table) for table in ("d.t", "d.m") for each in made))
    with database.followed() as life:
        for table in ("d.t", "d.m"):
            life.wait_until(database.is_same(table))
        before_ts = database.progress()["d.t"].checkpoint_ts
        server.execute(
            "INSERT INTO d.t VALUES (2, 2)",
            "ALTER TABLE d.t ADD w INT DEFAULT 3",
            "INSERT INTO d.t VALUES (3, 3, 4)",
            "ALTER TABLE d.t DROP COLUMN v",
            "UPDATE d.t SET w = 9 WHERE id = 2",
            "CREATE TABLE d.c (id INT PRIMARY KEY) SELECT 5 id",
            "RENAME TABLE d.m TO d.n",
            "INSERT INTO d.n VALUES (2, 2)",
        )
        for table in ("d.t", "d.n", "d.c"):
            life.wait_until(database.is_same(table))
    with database.followed(overwrite_checkpoint_ts=before_ts) as life:
        server.execute("INSERT INTO d.t VALUES (7, 7)", "INSERT INTO d.n VALUES (7, 7)")
        for table in ("d.t", "d.n", "d.c"):
            life.wait_until(database.is_same(table))


def test_ddls_amid_a_backlog_that_executors_decode(
    server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server.execute("CREATE DATABASE d")
    database = FollowedDatabase(server, tmp_path)
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(2000))")
    for number in range(3):
        numbers = range(1000 * number, 1000 * number + 1000)
        values = ", ".join(f"({each}, REPEAT('x', 1000))" for each in numbers)
        server.execute(
            f"INSERT INTO d.t (id, v) VALUES {values}",
            f"ALTER TABLE d.t ADD n{number} INT DEFAULT {number} FIRST",
            f"UPDATE d.t SET v = 'short' WHERE id % 7 = {number}",
        )
    with database.followed() as life:
        life.wait_until(database.is_same("d.t"))
