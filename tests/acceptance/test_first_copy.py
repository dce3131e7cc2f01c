"""The first copy by the real program, while the bank is open, and broken at every step: every
published snapshot balances, and at the end all cells are the database's own."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pymysql.cursors import DictCursor

from coordination.failpoint import Failpoint
from tests.acceptance import bank, copied_bank
from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import Life, await_
from tests.seeds import chosen_seeds
from tests.services.database_editions import EDITIONS, MARIADB_10_11, Edition
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import first_difference, read_rows
from tests.services.second_editions import second

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

CUTS_CHECKED = 10
PARAMETERS = f"&chunk-rows={copied_bank.CHUNK_ROWS}"
# Each is passed once or more by a copy of the bank.
DEATHS = (
    (Failpoint.AFTER_CHUNK, 11),
    (Failpoint.AFTER_CHUNK, 40),
    (Failpoint.BEFORE_LOAD, 1),
    (Failpoint.AFTER_LOAD_ONE, 3),
    (Failpoint.BEFORE_FIRST_ROWS, 1),
    (Failpoint.AFTER_FIRST_PROGRESS, 1),
    (Failpoint.AFTER_FIRST_ROWS, 1),
)


@contextmanager
def open_bank(
    edition: Edition,
    folder: Path,
    *,
    mode: str = "all",
    parameters: str = PARAMETERS,
    rules: str = copied_bank.RULES,
    is_narrow: bool = False,
) -> Iterator[BinlogStage]:
    """Tellers and movers are at work until the block ends; then everything is compared.
    ``is_narrow``: the first snapshots lack tables."""
    with DatabaseServer(edition) as server, ExitStack() as stack:
        copied_bank.opened(server)
        stage = stack.enter_context(BinlogStage(server, folder, rules=rules, mode=mode))
        workers = [bank.Teller(server, 1), bank.Teller(server, 2), copied_bank.Mover(server, 3)]
        for worker in workers:
            stack.enter_context(worker)
        yield stage
        for worker in workers:
            worker.stop()
        assert min(worker.committed for worker in workers) > 10
        check_at_the_end(stage, parameters, is_narrow=is_narrow)


def check_at_the_end(stage: BinlogStage, parameters: str, *, is_narrow: bool) -> None:
    life = stage.start("last", parameters=parameters)
    stage.await_position(end_of_log(stage.server), life)
    life.signal(signal.SIGTERM)
    assert life.await_exit() == 0, life.tail()
    compare(stage, is_narrow=is_narrow)


def compare(stage: BinlogStage, *, is_narrow: bool = False) -> None:
    cuts = stage.cuts()
    if is_narrow:
        cuts = [each for each in cuts if len(each["tables"]) == len(copied_bank.TABLES)]
    assert cuts
    dice = random.Random(len(cuts))
    for cut in [cuts[-1], *dice.sample(cuts, min(len(cuts), CUTS_CHECKED))]:
        found = copied_bank.cut_differences(stage.warehouse, cut["tables"])
        assert not found, (cut["primary_ts"], found)
    assert copied_bank.differences(stage.server, stage.warehouse) == []
    assert not (stage.warehouse / "_tidelake" / "staging" / "bank").exists()


def dying(stage: BinlogStage, point: Failpoint, nth: int, parameters: str = PARAMETERS) -> Life:
    victim = {"TIDELAKE_FAILPOINTS": f"{point}=kill:{nth}"}
    return stage.start(str(point), parameters=parameters, given=victim)


def test_a_copy_of_an_open_bank_that_is_killed_on_its_way(tmp_path: Path) -> None:
    with open_bank(MARIADB_10_11, tmp_path) as stage:
        for point, nth in (DEATHS[1], DEATHS[3]):
            assert dying(stage, point, nth).await_exit() == -signal.SIGKILL


@pytest.mark.parametrize("renames", [False, True])
def test_ddls_while_tables_are_copied(tmp_path: Path, renames: bool) -> None:
    """The life stands still amid the copy while tables come, go and change."""
    with DatabaseServer() as server:
        server.execute(
            "CREATE DATABASE shop",
            *(f"CREATE TABLE shop.{each} (id INT PRIMARY KEY, v INT)" for each in "abcdefg"),
        )
        for each in "abcdefg":
            server.insert(f"shop.{each}", [(id_, ord(each)) for id_ in range(400)])
        with BinlogStage(server, tmp_path, mode="all") as stage:
            alone = "&chunk-rows=100&connections=1"  # no other read holds a DDL up
            frozen = {"TIDELAKE_FAILPOINTS": "after-chunk=stop:9"}
            life = stage.start("frozen", parameters=alone, given=frozen)
            await_("the copy stands still", lambda: life.is_frozen or life.is_over)
            server.execute(
                "ALTER TABLE shop.a ADD COLUMN x INT NOT NULL DEFAULT 7",
                "INSERT INTO shop.b VALUES (1000, 1)",
                "DROP TABLE shop.b",
                "UPDATE shop.c SET v = 0 WHERE id < 10",
                "CREATE TABLE shop.h (id INT PRIMARY KEY, v INT)",
                "INSERT INTO shop.h VALUES (1, 1), (2, 2)",
                "TRUNCATE TABLE shop.f",
                "INSERT INTO shop.f VALUES (5, 5)",
                "ALTER TABLE shop.g MODIFY COLUMN v BIGINT",
                "UPDATE shop.g SET v = v + 1000000000000 WHERE id < 10",
            )
            if renames:
                server.execute(
                    "RENAME TABLE shop.c TO shop.c2",
                    "RENAME TABLE shop.d TO shop.x, shop.e TO shop.d, shop.x TO shop.e",
                )
            life.signal(signal.SIGCONT)
            life.await_line("copied and loaded")
            stage.await_position(end_of_log(server), life)
            snapshots = stage.warehouse / "_tidelake" / "snapshots"
            await_("a snapshot", lambda: snapshots.exists() and stage.cuts())
            life.signal(signal.SIGTERM)
            assert life.await_exit() == 0, life.tail()
            tables = [name for (name,) in server.query("SHOW TABLES FROM shop")]
            assert set(stage.cuts()[0]["tables"]) == {f"shop.{name}" for name in tables}
            for name in tables:
                with server.connect(cursorclass=DictCursor) as link, link.cursor() as ask:
                    ask.execute(f"SELECT * FROM shop.{name}")
                    found = read_rows(stage.warehouse / "shop" / name)
                    assert first_difference(ask.fetchall(), found, ("id",)) is None, name


@pytest.mark.soak
def test_a_copy_that_is_killed_at_every_step(tmp_path: Path) -> None:
    with open_bank(MARIADB_10_11, tmp_path) as stage:
        for point, nth in DEATHS:
            life = dying(stage, point, nth)
            assert life.await_exit() == -signal.SIGKILL, (point, life.tail())


@pytest.mark.soak
@pytest.mark.parametrize("seed", chosen_seeds(6))
def test_a_copy_under_random_troubles(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with open_bank(dice.choice(EDITIONS), tmp_path) as stage:
        for _ in range(dice.randint(2, 5)):
            life = stage.start(f"seed-{seed}", parameters=PARAMETERS)
            time.sleep(dice.uniform(1.5, 9))
            trouble = dice.choice(("kill", "database", "freeze", "stop"))
            if trouble == "database":
                stage.server.kill()
                time.sleep(dice.uniform(0, 3))
                stage.server.restart()
                time.sleep(dice.uniform(0, 3))
            elif trouble == "freeze":
                life.signal(signal.SIGSTOP)
                time.sleep(dice.uniform(0, 4))
                life.signal(signal.SIGCONT)
                time.sleep(dice.uniform(0, 4))
            if trouble == "stop":
                life.signal(signal.SIGTERM)
                assert life.await_exit() == 0, life.tail()
            else:
                life.kill(group=dice.random() < 0.5)


@pytest.mark.parametrize("edition", second(*EDITIONS[1:]), ids=lambda edition: edition.name)
def test_an_open_bank_of_another_server_is_copied(tmp_path: Path, edition: Edition) -> None:
    with open_bank(edition, tmp_path) as stage:
        life = stage.start("first", parameters=PARAMETERS)
        life.await_line("copied and loaded")
        life.signal(signal.SIGTERM)  # else the next one is of another etcd on its warehouse
        assert life.await_exit() == 0, life.tail()
