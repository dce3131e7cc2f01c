"""A primary dies amid the copy of its tables, or right behind it: in the end they are what its
replica has."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import await_
from tests.services.database_editions import MARIADB_10_11
from tests.services.delta_rows import read_rows
from tests.services.replication import await_caught_up, member, promote, replicate

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]


COPIED = ("a", "b", "c", "log")
WHILE_COPYING = [
    pytest.param("after-chunk=stop:7", id="amid the chunks"),
    pytest.param("before-load=stop:1", id="all is staged", marks=pytest.mark.soak),
    pytest.param("after-load-one=kill:2", id="some are loaded", marks=pytest.mark.more),
    pytest.param("before-first-rows=kill:1", id="all are loaded", marks=pytest.mark.soak),
    pytest.param("after-first-progress=kill:1", id="no row yet", marks=pytest.mark.soak),
]


@pytest.mark.parametrize("point", WHILE_COPYING)
def test_the_primary_dies_while_its_tables_are_copied(tmp_path: Path, point: str) -> None:
    """With changes that no replica has, and that the copy has read. It begins anew at the replica,
    of which all tables are the image."""
    rules = "[filter]\nrules = ['shop.*']\n[[sink.tables]]\nmatcher = ['shop.log']\n"
    rules += "write-mode = 'append'\n"
    with ExitStack() as stack:
        first, second = (stack.enter_context(member(MARIADB_10_11, number)) for number in (1, 2))
        replicate(second, first)
        first.execute("CREATE DATABASE shop")
        for each in COPIED:
            first.execute(f"CREATE TABLE shop.{each} (id INT PRIMARY KEY, v INT)")
            first.insert(f"shop.{each}", [(number, 0) for number in range(400)])
        await_caught_up(second, first)
        second.execute("STOP SLAVE IO_THREAD")
        for each in COPIED:  # this dies with the primary
            first.execute(
                f"UPDATE shop.{each} SET v = 1 WHERE id < 100",
                f"DELETE FROM shop.{each} WHERE id BETWEEN 200 AND 220",
                f"INSERT INTO shop.{each} VALUES (1000, 1)",
            )
        stage = stack.enter_context(BinlogStage(first, tmp_path, rules=rules, mode="all"))
        slow = "&chunk-rows=100&connections=1"
        given = {"TIDELAKE_FAILPOINTS": point}
        life = stage.start("first", others=(second,), parameters=slow, given=given)
        await_("it stands still, or is dead", lambda: life.is_frozen or life.is_over)
        first.kill()
        promote(second)
        second.execute("ALTER TABLE shop.b ADD COLUMN x INT NOT NULL DEFAULT 7")
        second.insert("shop.log", [(2000, 2)])
        stage.server = second
        if life.is_over:
            life = stage.start("again", parameters=slow)
        else:
            life.signal(signal.SIGCONT)
        life.await_line("copied and loaded")
        second.execute(*(f"UPDATE shop.{each} SET v = 3 WHERE id < 10" for each in "abc"))
        second.insert("shop.log", [(2001, 3)])
        stage.await_position(end_of_log(second), life)
        for each in COPIED:
            columns = "id, v, x" if each == "b" else "id, v"
            wanted = second.query(f"SELECT {columns} FROM shop.{each} ORDER BY id")
            rows = read_rows(stage.warehouse / "shop" / each)
            names = columns.split(", ")
            assert sorted(tuple(row[name] for name in names) for row in rows) == wanted, each
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()


@pytest.mark.parametrize("has_lost", [False, True])
def test_the_primary_dies_when_its_tables_are_copied(tmp_path: Path, *, has_lost: bool) -> None:
    """And nothing was followed yet. The replica has all that the chunks show, or it is waited for:
    though MariaDB tells whole seconds, so that what is lost and what is new have one time."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(member(MARIADB_10_11, number)) for number in (1, 2))
        replicate(second, first)
        first.execute("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
        first.insert("shop.a", [(number, 0) for number in range(400)])
        stage = stack.enter_context(
            BinlogStage(first, tmp_path, rules="[filter]\nrules = ['shop.*']\n", mode="all")
        )
        slow = "&chunk-rows=100&connections=1"
        given = {"TIDELAKE_FAILPOINTS": "after-chunk=stop:1,after-first-rows=kill:1"}
        life = stage.start("first", parameters=slow, given=given)
        await_("it stands still", lambda: life.is_frozen or life.is_over)
        await_caught_up(second, first)
        if has_lost:
            second.execute("STOP SLAVE IO_THREAD")
        first.execute("UPDATE shop.a SET v = 1 WHERE id IN (5, 305)")
        life.signal(signal.SIGCONT)
        assert life.await_exit() == -signal.SIGKILL, life.tail()
        if not has_lost:
            await_caught_up(second, first)
        first.kill()
        promote(second)
        stage.server = second
        second.execute("UPDATE shop.a SET v = v + 2 WHERE id IN (5, 6)")
        life = stage.start("again", parameters=slow)
        if has_lost:
            life.await_line("lacks transactions that were read of the server before")
            return
        stage.await_position(end_of_log(second), life)
        rows = {row["id"]: row["v"] for row in read_rows(stage.warehouse / "shop" / "a")}
        assert {key: v for key, v in rows.items() if v} == {5: 3, 6: 2, 305: 1}
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
