"""Tables that a copy cannot tell row by row join when they are whole: by a copy, by a rule, or in
another table's place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conf.settings import TableRule
from tests.acceptance.copied_database import CopiedDatabase
from tests.acceptance.keyless_tables import (
    BEFORE,
    DURING,
    WITHOUT_KEY,
    assert_failed,
    assert_waiting,
    diff,
)
from tests.services.database_server import DatabaseServer

pytestmark = pytest.mark.mariadb


def test_they_wait_whatever_key_they_get_and_join_by_a_copy(
    server: DatabaseServer, tmp_path: Path
) -> None:
    server.execute(*BEFORE)
    database = CopiedDatabase(server, tmp_path, on_no_key="leave-out")
    database.copy()
    assert_waiting(database, *WITHOUT_KEY)
    with database.followed() as life:
        server.execute(*DURING)
        database.wait_beside(life)
        life.wait_until(lambda: database.progress()["c.p"].state == "warning")
        assert_waiting(database, *WITHOUT_KEY)
        assert_failed(database.sink)
    with database.followed() as life:  # nothing is forgotten
        server.execute("INSERT INTO c.p VALUES (5,5)", "DELETE FROM c.u WHERE id = 1")
        database.wait_beside(life)
        assert_waiting(database, *WITHOUT_KEY)
    database.copy()
    with database.followed() as life:
        server.execute("INSERT INTO c.p VALUES (6,6)", "UPDATE c.m SET v = 7 WHERE id = 3")
        for table in WITHOUT_KEY:
            life.wait_until(database.is_same(table))
        life.wait_until(lambda: database.progress()["c.p"].state == "replicating")
        assert {each.lacks for each in database.progress().values()} == {None}
        assert len(database.delta_rows("c.p")) == 6


def test_a_rule_lets_them_join(server: DatabaseServer, tmp_path: Path) -> None:
    server.execute(*BEFORE)
    database = CopiedDatabase(server, tmp_path, on_no_key="leave-out")
    database.copy()
    with database.followed() as life:
        server.execute("INSERT INTO c.p VALUES (4,4)")
        database.wait_beside(life)
    rule = TableRule(matcher=("c.p",), key="all-columns")
    sink = replace(database.sink, tables=(rule,))
    with database.followed(sink=sink) as life:  # not copied yet: it waits on
        server.execute("INSERT INTO c.p VALUES (5,5)")
        database.wait_beside(life)
        assert_waiting(database, *WITHOUT_KEY)
    server.execute("INSERT INTO c.p VALUES (4,4), (4,4)")
    database.copy(sink=sink)
    with database.followed(sink=sink) as life:
        server.execute("DELETE FROM c.p WHERE id = 1")
        life.wait_until(lambda: len(database.delta_rows("c.p")) == 4)
        assert_waiting(database, "c.u", "c.m", "c.auto")
        found = {str(each.name): each for each in diff(database).tables}
        assert (found["c.p"].result, found["c.p"].repeats) == ("equal as a set", 2)
        assert "not replicated" in (found["c.u"].problem or "")
        assert found["c.beside"].result == "equal"


def test_one_that_is_renamed_waits_on_and_one_that_is_made_again_is_whole(
    server: DatabaseServer, tmp_path: Path
) -> None:
    server.execute(*BEFORE)
    database = CopiedDatabase(server, tmp_path, on_no_key="leave-out")
    database.copy()
    with database.followed() as life:
        server.execute(
            "RENAME TABLE c.p TO c.q",
            "ALTER TABLE c.q ADD PRIMARY KEY (id)",
            "INSERT INTO c.q VALUES (9,9)",
            "TRUNCATE TABLE c.u",
            "ALTER TABLE c.u ADD PRIMARY KEY (id)",
            "INSERT INTO c.u VALUES (9,9)",
            "DROP TABLE c.m",
            "CREATE TABLE c.m (id INT PRIMARY KEY, v INT)",
            "INSERT INTO c.m VALUES (9,9)",
        )
        database.wait_beside(life)
        life.wait_until(database.is_same("c.m"))
    with database.followed() as life:
        server.execute(*(f"INSERT INTO c.{table} VALUES (10,10)" for table in "qum"))
        life.wait_until(database.is_same("c.m"))
        database.wait_beside(life)
        assert_waiting(database, "c.q", "c.u", "c.auto")
        assert "c.q" in database.progress()
        life.wait_until(lambda: database.progress()["c.m"].state == "replicating")


def test_a_whole_table_that_is_put_in_its_place_is_replicated(
    server: DatabaseServer, tmp_path: Path
) -> None:
    """As gh-ost and pt-online-schema-change do."""
    server.execute(*BEFORE)
    database = CopiedDatabase(server, tmp_path, on_no_key="leave-out")
    database.copy()
    with database.followed() as life:
        server.execute(
            "CREATE TABLE c.n (id INT PRIMARY KEY, v INT)",
            "INSERT INTO c.n SELECT * FROM c.p",
            "RENAME TABLE c.p TO c.old, c.n TO c.p",
            "CREATE TABLE c.k LIKE c.u",
            "ALTER TABLE c.k ADD PRIMARY KEY (id)",
            "INSERT INTO c.k SELECT * FROM c.u",
            "RENAME TABLE c.u TO c.older, c.k TO c.u",
            "INSERT INTO c.u VALUES (7,7)",
            "INSERT INTO c.p VALUES (7,7)",
        )
        for table in ("c.p", "c.u"):
            life.wait_until(database.is_same(table))
    with database.followed() as life:
        server.execute("INSERT INTO c.p VALUES (8,8)", "INSERT INTO c.old VALUES (8,8)")
        life.wait_until(database.is_same("c.p"))
        database.wait_beside(life)
        assert_waiting(database, "c.old", "c.older", "c.m", "c.auto")
        progress = database.progress()
        assert {progress[table].lacks for table in ("c.p", "c.u")} == {None}
