"""Rows of which a server does not tell all columns: their tables are followed with what is told, or
have letters; the other tables go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conf.column_rules import ColumnSelector
from conf.settings import TableRule
from sinks.control.dead_letters import DeadLetters
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
from tests.acceptance.copied_database import CopiedDatabase, make_account
from tests.acceptance.followed_database import FollowedDatabase
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer, needs

pytestmark = pytest.mark.mariadb
BESIDE = "CREATE TABLE c.beside (id INT PRIMARY KEY AUTO_INCREMENT)"
GENERATED = "v INT AS (a + 1) VIRTUAL, a INT, s INT AS (a * 2) STORED, t VARCHAR(9)"
INSERT = "INSERT INTO c.{0} (id, a, t) VALUES (1, 1, 'x'), (2, 2, NULL), (3, 3, 'z')"
CHANGES = (
    "UPDATE c.{0} SET t = 'y' WHERE id = 2",
    "UPDATE c.{0} SET a = 30 WHERE id = 3",
    "UPDATE c.{0} SET id = 7 WHERE id = 1",
    "INSERT INTO c.{0} (id, a, t) VALUES (4, 4, 'w')",
    "REPLACE INTO c.{0} (id, a, t) VALUES (3, 31, 'v'), (5, 5, 'u')",
    "DELETE FROM c.{0} WHERE id = 4",
)


def server_of(edition: object) -> Iterator[DatabaseServer]:
    needs(edition)  # type: ignore[arg-type]
    with DatabaseServer(edition) as server:  # type: ignore[arg-type]
        make_account(server)
        yield server


@pytest.fixture(scope="module")
def mariadb_11() -> Iterator[DatabaseServer]:
    yield from server_of(MARIADB_11_8)


@pytest.fixture(
    scope="module",
    params=[
        MARIADB_10_11,
        *(pytest.param(e, marks=pytest.mark.more) for e in (MARIADB_11_8, MYSQL_9_7)),
    ],
    ids=lambda edition: edition.name,
)
def any_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    yield from server_of(request.param)


def letters(database: FollowedDatabase) -> list[tuple[str, str]]:
    rows = DeadLetters(str(database.warehouse)).listed().to_pylist()
    return sorted((row["table_name"], row["message"]) for row in rows)


@pytest.mark.parametrize("image", ["FULL", "FULL_NODUP"])
def test_a_table_with_generated_columns_is_followed_by_the_others(
    mariadb_11: DatabaseServer, tmp_path: Path, image: str
) -> None:
    """MariaDB 11 tells a generated column of INSERTs alone."""
    with mariadb_11.database("c"):
        mariadb_11.execute(
            f"SET GLOBAL binlog_row_image = '{image}'",
            BESIDE,
            *(f"CREATE TABLE c.{t} (id INT PRIMARY KEY, {GENERATED})" for t in ("t", "log")),
            "CREATE TABLE c.h (id INT PRIMARY KEY, b TEXT, n INT, UNIQUE KEY (b))",
            "INSERT INTO c.h VALUES (1, 'x', 1), (2, 'y', 2)",
            *(INSERT.format(t) for t in ("t", "log")),
        )
        rules = [TableRule(matcher=("c.log",), write_mode="append")]
        database = CopiedDatabase(mariadb_11, tmp_path, tables=rules)
        database.copy()
        of = "id, a, t"
        assert database.is_same("c.t", of)()
        with database.followed() as life:
            changes = (
                *(each.format("t") for each in CHANGES),
                *(each.format("log") for each in CHANGES),
            )
            mariadb_11.execute(
                *changes,
                "UPDATE c.h SET n = 9 WHERE id = 1",
                "UPDATE c.h SET b = 'z' WHERE id = 2",
                f"CREATE TABLE c.made (id INT PRIMARY KEY, {GENERATED})",
                INSERT.format("made"),
                *(each.format("made") for each in CHANGES),
                "ALTER TABLE c.t ADD COLUMN w INT AS (a + 5) STORED, ADD COLUMN k INT DEFAULT 4",
                "UPDATE c.t SET k = id",
            )
            database.wait_beside(life)
            life.wait_until(database.is_same("c.t", f"{of}, k"))
            life.wait_until(database.is_same("c.made", of))
            life.wait_until(database.is_same("c.h"))
            compared = compare_with_database(
                *(database.sink, None, (), database.source),
                limits=DiffLimits(),
                told=lambda *_: None,
            )
        found = {str(each.name): each for each in compared.tables}
        assert {found[f"c.{table}"].result for table in ("t", "made", "h")} == {"equal"}
        assert [name for name, _ in database.columns("c.t")] == ["id", "a", "t", "k"]
        log = [(row["id"], row["a"], row["t"]) for row in database.delta_rows("c.log")]
        assert len(log) == 3 + 3 * 2 + 1 + 3 + 1
        assert {(3, 3, "z"), (3, 30, "z"), (7, 1, "x"), (3, 31, "v")} <= set(log)
        assert letters(database) == []
        mariadb_11.execute("SET GLOBAL binlog_row_image = 'FULL'")


def test_rows_of_a_session_that_leaves_columns_out_are_letters_of_their_table(
    any_server: DatabaseServer, tmp_path: Path
) -> None:
    with any_server.database("c"):
        any_server.execute(
            BESIDE,
            *(f"CREATE TABLE c.{t} (id INT PRIMARY KEY, a INT, b TEXT)" for t in ("t", "o")),
            *(
                f"INSERT INTO c.{t} VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z')"
                for t in ("t", "o")
            ),
        )
        database = CopiedDatabase(any_server, tmp_path)
        database.copy()
        with database.followed() as life:
            any_server.execute(
                "SET SESSION binlog_row_image = 'MINIMAL'",
                "UPDATE c.t SET a = 9 WHERE id = 1",
                "UPDATE c.t SET id = 5 WHERE id = 2",
                "DELETE FROM c.t WHERE id = 3",  # its key tells all
            )
            any_server.execute("UPDATE c.o SET a = 7")
            database.wait_beside(life)
            life.wait_until(database.is_same("c.o"))
            assert [(row["id"], row["a"]) for row in database.delta_rows("c.t")] == [(1, 1), (2, 2)]
            found = letters(database)
            assert [table for table, _ in found] == ["t", "t"]
            assert "does not tell column a, b of this row" in found[0][1]
            assert all("SET GLOBAL binlog_row_image = 'FULL'" in why for _, why in found)
            any_server.execute("UPDATE c.t SET a = a + 1", "DELETE FROM c.t WHERE id = 5")
            database.wait_beside(life)
            assert database.delta_rows("c.t")[0] == {"id": 1, "a": 10, "b": "x"}


def test_a_type_that_is_not_read_is_its_tables_trouble(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    make_account(mariadb)
    with mariadb.database("c"):
        mariadb.execute(BESIDE)
        database = CopiedDatabase(mariadb, tmp_path)
        database.copy()
        with database.followed() as life:
            mariadb.execute("SET GLOBAL mysql56_temporal_format = 0")
            mariadb.execute("CREATE TABLE c.t (id INT PRIMARY KEY, at_ DATETIME(3))")
            mariadb.execute("SET GLOBAL mysql56_temporal_format = 1")
            mariadb.execute("INSERT INTO c.t VALUES (1, NOW())", "UPDATE c.t SET id = 2")
            database.wait_beside(life)
            life.wait_until(lambda: len(letters(database)) == 2)
        ((table, why), _) = letters(database)
        assert (table, "ALTER TABLE … FORCE" in why) == ("t", True)


def test_a_table_that_its_rows_have_told_needs_a_choice_of_columns(
    mariadb_11: DatabaseServer, tmp_path: Path
) -> None:
    """Rows do not say that a column is generated: the letters say what to do."""
    with mariadb_11.database("c"):
        mariadb_11.execute(
            BESIDE,
            *(f"CREATE TABLE c.{t} (id INT PRIMARY KEY, {GENERATED})" for t in ("t", "o")),
        )
        chosen = [ColumnSelector(matcher=("c.o",), columns=("*", "!s", "!v"))]
        database = FollowedDatabase(mariadb_11, tmp_path, rules=("c.*",))
        sink = replace(database._settings.changefeed.sink, column_selectors=tuple(chosen))
        with database.followed(sink=sink) as life:
            mariadb_11.execute(
                *(INSERT.format(t) for t in ("t", "o")),
                *(each.format(t) for t in ("t", "o") for each in CHANGES),
                "INSERT INTO c.beside VALUES (NULL)",
            )
            life.wait_until(database.is_same("c.beside"))
            life.wait_until(database.is_same("c.o", "id, a, t"))
            found = letters(database)
        assert {table for table, _ in found} == {"t"}
        assert all("column-selectors" in why for _, why in found)
