"""The bank under chaos: every published snapshot balances, and at the end all cells are the
database's own."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.acceptance import bank
from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import BOTH_PROGRAMS, ON_SPARK, Life
from tests.seeds import hunted_seeds
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

CUTS_CHECKED = 10
TELLERS = 3


@contextmanager
def open_bank(
    folder: Path, edition: Edition = MARIADB_10_11, *, program: str = ON_SPARK
) -> Iterator[BinlogStage]:
    """While tellers work; then all that they have done is there."""
    with DatabaseServer(edition) as server, ExitStack() as stack:
        bank.opened(server)
        stage = stack.enter_context(BinlogStage(server, folder, rules=bank.RULES, program=program))
        tellers = [stack.enter_context(bank.Teller(server, seed)) for seed in range(TELLERS)]
        yield stage
        for teller in tellers:
            teller.stop()
        assert sum(teller.committed for teller in tellers) > 50
        life = stage.start("last")
        stage.await_position(end_of_log(server), life)
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
        check(stage)


def check(stage: BinlogStage) -> None:
    cuts = stage.cuts()
    assert len(cuts) >= 2  # few, on a busy machine
    dice = random.Random(len(cuts))
    for cut in [cuts[0], *dice.sample(cuts, min(len(cuts), CUTS_CHECKED))]:
        found = bank.cut_differences(stage.warehouse, cut["tables"])
        assert not found, (cut["primary_ts"], found)
    assert bank.differences(stage.server, stage.warehouse) == []


@BOTH_PROGRAMS
def test_the_bank_balances_whoever_is_killed(tmp_path: Path, program: str) -> None:
    """The program amid its first rows; then the database, beside a new life of the program."""
    with open_bank(tmp_path, program=program) as stage:
        life = stage.start("killed")
        stage.await_position(end_of_log(stage.server), life)
        life.kill(group=True)
        stage.server.execute("FLUSH BINARY LOGS")
        life = stage.start("beside-a-killed-database")
        stage.await_position(end_of_log(stage.server), life)
        stage.server.kill()
        stage.server.restart()
        stage.await_position(end_of_log(stage.server), life)
        life.kill(group=False)


@pytest.mark.soak
@pytest.mark.parametrize(
    "edition", [MARIADB_10_11, MARIADB_11_8, MYSQL_9_7], ids=lambda each: each.name
)
def test_the_bank_balances_under_random_chaos(tmp_path: Path, edition: Edition) -> None:
    for seed in hunted_seeds(100):
        dice, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        with open_bank(folder, edition) as stage:
            for _ in range(dice.randint(1, 3)):
                life = stage.start("victim")
                stage.await_position(end_of_log(stage.server), life)
                for _ in range(dice.randint(1, 4)):
                    harm(stage, life, dice)
                    stage.await_position(end_of_log(stage.server), life)
                time.sleep(dice.random())
                life.kill(group=dice.random() < 0.5)
                life.assert_gone()


def harm(stage: BinlogStage, life: Life, dice: random.Random) -> None:
    """Something after which both go on."""
    server = stage.server
    match dice.randrange(5):
        case 0:
            server.kill()
            time.sleep(dice.random() * 3)
            server.restart()
        case 1:
            server.restart()
        case 2:
            server.pause()
            time.sleep(dice.random() * 4)
            server.resume()
        case 3:
            life.signal(signal.SIGSTOP)
            time.sleep(dice.random() * 3)
            life.signal(signal.SIGCONT)
        case 4:
            server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
