"""A filter that takes more tables than before, by the real program: they are copied, and join the
changefeed without a gap."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.acceptance import copied_bank
from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import Life, await_
from tests.acceptance.test_first_copy import PARAMETERS, open_bank
from tests.seeds import chosen_seeds
from tests.services.database_editions import EDITIONS
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

NAME = "widened"
FORMS = f"[[sink.tables]]\nmatcher = ['{NAME}.log']\nwrite-mode = 'append'\n"
NARROW = f"[filter]\nrules = ['{NAME}.old']\n{FORMS}"
WIDE = f"[filter]\nrules = ['{NAME}.*']\n{FORMS}"
POINTS = (
    "after-chunk",
    "before-load",
    "after-load-one",
    "before-first-rows",
    "after-first-progress",
)
CHUNKS = "&chunk-rows=50&connections=1"


def rows(place: Path, table: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in read_rows(place / NAME / table))


def are_equal(stage: BinlogStage, tables: tuple[str, ...]) -> bool:
    return all(
        rows(stage.warehouse, each)
        == sorted(stage.server.query(f"SELECT id, v FROM {NAME}.{each}"))
        for each in tables
    )


def until_equal(stage: BinlogStage, life: Life, tables: tuple[str, ...]) -> None:
    stage.await_position(end_of_log(stage.server), life)
    for each in tables:
        assert rows(stage.warehouse, each) == sorted(
            stage.server.query(f"SELECT id, v FROM {NAME}.{each}")
        ), each


def test_new_tables_join_a_changefeed_without_a_gap(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    with mariadb.database(NAME), BinlogStage(mariadb, tmp_path, rules=NARROW, mode="all") as stage:
        for each in ("old", "new", "log"):
            mariadb.execute(f"CREATE TABLE {NAME}.{each} (id INT PRIMARY KEY, v INT)")
            mariadb.insert(f"{NAME}.{each}", [(number, 0) for number in range(200)])
        life = stage.start("narrow", parameters=CHUNKS)
        life.await_line("copied and loaded")
        mariadb.execute(f"UPDATE {NAME}.old SET v = 1 WHERE id < 50")
        until_equal(stage, life, ("old",))
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()

        stage.write_rules(WIDE)
        for each in ("old", "new"):  # not read yet
            mariadb.execute(
                f"UPDATE {NAME}.{each} SET v = 2 WHERE id < 20",
                f"DELETE FROM {NAME}.{each} WHERE id = 7",
                f"ALTER TABLE {NAME}.{each} ADD COLUMN x INT",
            )
        mariadb.insert(f"{NAME}.log", [(200, 2)])
        for point in ("after-chunk=kill:3", "after-load-one=kill:1", "after-first-progress=kill:1"):
            given = {"TIDELAKE_FAILPOINTS": point}
            life = stage.start(point.partition("=")[0], parameters=CHUNKS, given=given)
            assert life.await_exit() == -signal.SIGKILL, life.tail()
            mariadb.execute(f"UPDATE {NAME}.new SET v = v + 1 WHERE id BETWEEN 100 AND 120")
            mariadb.execute(f"INSERT INTO {NAME}.log SELECT MAX(id) + 1, 3 FROM {NAME}.log")
        life = stage.start("wide", parameters=CHUNKS)
        until_equal(stage, life, ("old", "new", "log"))
        for each in ("old", "new"):
            assert {"id", "v", "x"} == set(read_rows(stage.warehouse / NAME / each)[0])
        await_("a snapshot of all", lambda: len(stage.cuts()[0]["tables"]) == 3)
        mariadb.execute(f"UPDATE {NAME}.new SET v = 9")
        until_equal(stage, life, ("old", "new", "log"))
        assert not (stage.warehouse / "_tidelake" / "staging" / "bank").exists()
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()


@pytest.mark.parametrize(
    "deaths",
    [
        ("after-first-progress=kill:1",),
        pytest.param(
            ("after-load-one=kill:2", "after-first-progress=kill:1"), marks=pytest.mark.soak
        ),
    ],
    ids=["one", "two"],
)
def test_tries_that_failed_are_given_up_and_begun_again(
    mariadb: DatabaseServer, tmp_path: Path, deaths: tuple[str, ...]
) -> None:
    """After each of them the changefeed goes on with the narrow filter, which sees no row of the
    tables that were to join."""
    tables = ("old", "new", "log")
    with mariadb.database(NAME), BinlogStage(mariadb, tmp_path, rules=NARROW, mode="all") as stage:
        for each in tables:
            mariadb.execute(f"CREATE TABLE {NAME}.{each} (id INT PRIMARY KEY, v INT)")
            mariadb.insert(f"{NAME}.{each}", [(number, 0) for number in range(200)])

        def narrow() -> None:
            stage.write_rules(NARROW)
            life = stage.start("narrow", parameters=CHUNKS)
            life.await_line("claimed the changefeed")
            mariadb.execute(
                *(f"UPDATE {NAME}.{each} SET v = v + 1 WHERE id < 50" for each in tables)
            )
            mariadb.execute(*(f"DELETE FROM {NAME}.{each} WHERE id = 7" for each in tables[:2]))
            until_equal(stage, life, ("old",))
            life.signal(signal.SIGTERM)
            assert life.await_exit() == 0, life.tail()
            stage.write_rules(WIDE)

        narrow()
        for point in deaths:
            given = {"TIDELAKE_FAILPOINTS": point}
            life = stage.start(point.partition("=")[0], parameters=CHUNKS, given=given)
            assert life.await_exit() == -signal.SIGKILL, life.tail()
            narrow()
        life = stage.start("wide", parameters=CHUNKS)
        life.await_line("they join the changefeed")
        await_("all are equal", lambda: are_equal(stage, tables))
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()


@pytest.mark.soak
@pytest.mark.parametrize("seed", chosen_seeds(3))
def test_tables_of_an_open_bank_join_under_kills(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    narrow = dice.sample(copied_bank.TABLES, dice.randint(1, 4))
    rules = "".join(f"'bank.{each}', " for each in narrow)
    first = f"[filter]\nrules = [{rules}]\n{copied_bank.RULES}"
    edition = dice.choice(EDITIONS)
    with open_bank(edition, tmp_path, rules=first, is_narrow=True) as stage:
        life = stage.start("narrow", parameters=PARAMETERS)
        life.await_line("copied and loaded")
        stage.await_position(end_of_log(stage.server), life)
        if dice.random() < 0.5:
            life.kill(group=True)
        else:
            life.signal(signal.SIGTERM)
            assert life.await_exit() == 0, life.tail()
        stage.write_rules(copied_bank.RULES)
        for point in sorted(dice.sample(POINTS, 2), key=POINTS.index):
            nth = dice.randint(1, 3) if point == "after-chunk" else 1
            given = {"TIDELAKE_FAILPOINTS": f"{point}=kill:{nth}"}
            life = stage.start(point, parameters=PARAMETERS, given=given)
            assert life.await_exit() == -signal.SIGKILL, life.tail()
