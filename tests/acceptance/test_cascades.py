"""Foreign keys that change rows of which MariaDB's binlog tells nothing: their tables say so for as
long as it is so, to an account with the documented rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.copied_database import CopiedDatabase, make_account
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer, needs

pytestmark = pytest.mark.mariadb
CASCADES = "REFERENCES c.p (id) ON DELETE CASCADE"
WHY = "foreign keys of the database delete or change rows of c."


@pytest.fixture(
    scope="module",
    params=[MARIADB_10_11, pytest.param(MARIADB_11_8, marks=pytest.mark.more), MYSQL_9_7],
    ids=lambda each: each.name,
)
def own_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    needs(request.param)
    with DatabaseServer(request.param) as server:
        make_account(server)
        yield server


def test_tables_of_which_changes_are_missing_say_so(
    server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.stream.retention_watch.UNLOGGED_EVERY_S", 0.3)
    is_told = server.edition.is_mariadb
    columns = "(id INT PRIMARY KEY, p INT"
    server.execute(
        "CREATE TABLE c.beside (id INT PRIMARY KEY AUTO_INCREMENT)",
        "CREATE TABLE c.p (id INT PRIMARY KEY)",
        f"CREATE TABLE c.before {columns}, FOREIGN KEY (p) {CASCADES})",
        f"CREATE TABLE c.added {columns} COMMENT 'x ON DELETE CASCADE')",
        f"CREATE TABLE c.plain {columns} COMMENT 'CONSTRAINT FOREIGN KEY ON DELETE CASCADE',"
        " CONSTRAINT `ON DELETE CASCADE` FOREIGN KEY (p) REFERENCES c.p (id) ON DELETE RESTRICT)",
        "INSERT INTO c.p VALUES (1), (2)",
        *(f"INSERT INTO c.{each} VALUES (1, 1), (2, 2)" for each in ("before", "added", "plain")),
    )
    database = CopiedDatabase(server, tmp_path)
    database.copy()

    def warned() -> set[str]:
        rows = database.progress().values()
        told = {row.table_name for row in rows if (row.error or "").startswith(WHY)}
        assert {row.table_name for row in rows if row.state == "warning"} == told
        return told

    def are_warned(*tables: str) -> bool:
        return warned() == (set(tables) if is_told else set())

    with database.followed() as life:
        life.wait_until(lambda: are_warned("before"))
        server.execute(
            f"CREATE TABLE c.made {columns}, CONSTRAINT k FOREIGN KEY (p) REFERENCES c.p (id)"
            " ON UPDATE CASCADE)",
            "ALTER TABLE c.added ADD CONSTRAINT k2 FOREIGN KEY (p) REFERENCES c.p (id)"
            " ON DELETE SET NULL",
            "INSERT INTO c.made VALUES (1, 1)",
        )
        database.wait_beside(life)
        life.wait_until(lambda: are_warned("before", "added", "made"))
        server.execute("INSERT INTO c.before VALUES (3, 2)")
        life.wait_until(database.is_same("c.before"))
        assert are_warned("before", "added", "made")
    assert database.progress()["c.p"].error is None
    with database.followed() as life:  # a new owner finds them again
        life.wait_until(lambda: are_warned("before", "added", "made"))
        server.execute("ALTER TABLE c.added DROP FOREIGN KEY k2", "DROP TABLE c.made")
        database.wait_beside(life)
        life.wait_until(lambda: are_warned("before"))
        server.execute("DROP TABLE c.before")
        life.wait_until(lambda: are_warned())
