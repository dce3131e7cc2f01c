"""Tables without a key that have each row as often as the database (key = 'rows')."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from conf.settings import TableRule
from coordination import failpoint
from coordination.errors import TidelakeError
from coordination.failpoint import Failpoint
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
from streaming.operations.diff.findings import TableFinding
from tests.acceptance.copied_database import CopiedDatabase, make_account
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer, needs
from tests.services.second_editions import second

pytestmark = pytest.mark.mariadb
RULE = TableRule(matcher=("c.*",), key="rows")


@pytest.fixture(
    scope="module",
    params=[MARIADB_10_11, *second(MARIADB_11_8, MYSQL_9_7)],
    ids=lambda each: each.name,
)
def own_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    needs(request.param)
    with DatabaseServer(request.param) as server:
        make_account(server)
        yield server


@pytest.fixture
def database(own_server: DatabaseServer, tmp_path: Path) -> Iterator[CopiedDatabase]:
    with own_server.database("c"):
        own_server.execute(
            "CREATE TABLE c.beside (id INT PRIMARY KEY AUTO_INCREMENT)",
            "CREATE TABLE c.t (x INT, y VARCHAR(20), z DECIMAL(5,2))",
            "INSERT INTO c.t VALUES (1,'a',1.5),(1,'a',1.50),(NULL,NULL,NULL),(NULL,NULL,NULL)",
            *["INSERT INTO c.t SELECT * FROM c.t"] * 6,
        )
        yield CopiedDatabase(own_server, tmp_path, tables=(RULE,))


def found_by_diff(database: CopiedDatabase) -> TableFinding:
    report = compare_with_database(
        database.sink, None, (), database.source, limits=DiffLimits(), told=lambda *_: None
    )
    (found,) = (each for each in report.tables if each.name.table == "t")
    return found


def test_a_copy_and_changes_keep_each_row_as_often_as_it_is(database: CopiedDatabase) -> None:
    database.copy()
    assert database.is_same("c.t")()
    with database.followed() as life:
        database.server.execute(
            "UPDATE c.t SET y = 'b' WHERE x = 1 LIMIT 3",
            "DELETE FROM c.t WHERE x IS NULL LIMIT 100",
            "INSERT INTO c.t VALUES (1,'b',1.5),(2,'B',NULL)",
            "UPDATE c.t SET x = x",
            "CREATE TABLE c.later (x INT)",
            "INSERT INTO c.later VALUES (1),(1),(1)",
            "DELETE FROM c.later LIMIT 1",
        )
        life.wait_until(database.is_same("c.t"))
        life.wait_until(database.is_same("c.later"))
        database.server.execute(
            "ALTER TABLE c.t ADD COLUMN w INT DEFAULT 7",
            "INSERT INTO c.t (x) VALUES (5),(5)",
            "ALTER TABLE c.t DROP COLUMN z",
            "DELETE FROM c.t WHERE x = 5 LIMIT 1",
            "ALTER TABLE c.t MODIFY x BIGINT",
            "UPDATE c.t SET x = 6 WHERE w = 7 LIMIT 20",
        )
        life.wait_until(database.is_same("c.t"))
        found = found_by_diff(database)
        assert (found.result, found.repeats) == ("equal", 0)
        assert found.lake_rows == found.database_rows
    assert database.progress()["c.t"].dead_letters == 0


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.AFTER_APPLY_ONE,
        *(
            pytest.param(each, marks=pytest.mark.more)
            for each in (Failpoint.AFTER_FENCE_CHECK, Failpoint.AFTER_CHANGEFEED)
        ),
    ],
)
def test_who_dies_at_a_commit_counts_nothing_twice(
    database: CopiedDatabase, point: Failpoint
) -> None:
    database.copy()
    for _ in range(2):
        failpoint.configure(f"{point}=raise")
        try:
            with pytest.raises(TidelakeError, match=point), database.followed() as life:  # noqa: PT012
                database.server.execute(
                    "UPDATE c.t SET y = CONCAT(y, '+') WHERE x = 1 LIMIT 5",
                    "DELETE FROM c.t WHERE x IS NULL LIMIT 5",
                    "INSERT INTO c.t VALUES (3,'c',3),(3,'c',3)",
                )
                life.join()
        finally:
            failpoint.configure("")
    with database.followed() as life:
        database.wait_beside(life)
        life.wait_until(database.is_same("c.t"))


def test_a_rewind_is_refused_and_leaves_the_table(database: CopiedDatabase) -> None:
    database.copy()
    copied = database.progress()["c.t"].checkpoint_ts
    with database.followed() as life:
        database.server.execute("INSERT INTO c.t VALUES (3,'c',3),(3,'c',3)")
        life.wait_until(lambda: database.progress()["c.t"].checkpoint_ts > copied)
        database.server.execute("DELETE FROM c.t WHERE x = 3 LIMIT 1")
        life.wait_until(database.is_same("c.t"))
        # On a fast machine the copy and both changes are of one second, and so of nearly one ts.
        life.wait_until(lambda: database.progress()["c.t"].checkpoint_ts > copied + 1)
    version = DeltaTable(database.path("c.t")).version()
    refused = r"c\.t cannot go back .*key = 'rows'"
    rewound = database.followed(overwrite_checkpoint_ts=copied + 1)
    with pytest.raises(TidelakeError, match=refused), rewound as life:
        life.join(60.0)
    assert DeltaTable(database.path("c.t")).version() == version


def test_diff_tells_rows_that_are_there_too_often(database: CopiedDatabase) -> None:
    database.copy()
    unlogged = "SET sql_log_bin = 0"
    database.server.execute(unlogged, "DELETE FROM c.t WHERE x = 1 LIMIT 1")
    with database.followed() as life:
        database.wait_beside(life)
        found = found_by_diff(database)
        rows = ", ".join(f"({number}, 'n', 0)" for number in range(100, 1200))
        database.server.execute(unlogged, f"INSERT INTO c.t VALUES {rows}")
        many = found_by_diff(database)
    assert (found.result, found.differing) == ("differs", 1)
    assert [row.kind for row in found.rows] == ["counted"]
    assert (many.differing, many.not_asked) == (1_000, 101)  # each SELECT reads the whole table


def test_one_that_lacks_a_row_or_gets_a_key_is_held_until_it_is_loaded_anew(
    database: CopiedDatabase,
) -> None:
    database.copy()
    database.server.execute("SET sql_log_bin = 0", "INSERT INTO c.t VALUES (9,'z',9)")
    with database.followed() as life:
        database.server.execute("DELETE FROM c.t WHERE x = 9", "DELETE FROM c.t LIMIT 1")
        life.wait_until(lambda: "lacks 1 rows" in (database.progress()["c.t"].error or ""))
        database.wait_beside(life)
    database.load_anew("c.t")
    with database.followed() as life:
        database.server.execute("DELETE FROM c.t LIMIT 1", "INSERT INTO c.t VALUES (8,'y',8)")
        life.wait_until(database.is_same("c.t"))
        life.wait_until(lambda: database.progress()["c.t"].state == "replicating")
        database.server.execute("ALTER TABLE c.t ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY")
        life.wait_until(lambda: "table reload c.t" in (database.progress()["c.t"].error or ""))
    database.load_anew("c.t")
    with database.followed() as life:
        database.server.execute("UPDATE c.t SET y = 'x' WHERE id < 5")
        life.wait_until(database.is_same("c.t"))
        assert found_by_diff(database).result == "equal"
