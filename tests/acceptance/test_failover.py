"""A primary dies, its replica is the primary from then on, and the changefeed goes on there: the
bank balances at every published snapshot, and at the end all cells are the new primary's."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from streaming.source.resolved.gtid_sets import parse_gtids
from tests.acceptance import bank
from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import BOTH_PROGRAMS, ON_SPARK, Life, await_
from tests.acceptance.test_bank import check
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer
from tests.services.replication import await_caught_up, executed, member, promote, replicate

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

TELLERS = 3


def editions(quick: Edition) -> pytest.MarkDecorator:
    """All; but for this one they have no time in `make test`."""
    every = (MARIADB_10_11, MARIADB_11_8, MYSQL_9_7)
    marks = {True: (), False: pytest.mark.soak}
    found = [pytest.param(each, marks=marks[each is quick]) for each in every]
    return pytest.mark.parametrize("edition", found, ids=[each.name for each in every])


@contextmanager
def replicated_bank(
    edition: Edition, folder: Path, *, program: str = ON_SPARK
) -> Iterator[tuple[BinlogStage, DatabaseServer, DatabaseServer]]:
    """A bank on a primary with a replica. At the end the tables have all that the stage's server
    has."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(member(edition, number)) for number in (1, 2))
        replicate(second, first)
        bank.opened(first)
        stage = stack.enter_context(BinlogStage(first, folder, rules=bank.RULES, program=program))
        yield stage, first, second
        if stage.lives[-1].is_over:
            stage.start("last")
        life = stage.lives[-1]
        stage.await_position(end_of_log(stage.server), life)
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
        check(stage)


@contextmanager
def tellers(server: DatabaseServer, first_seed: int) -> Iterator[list[bank.Teller]]:
    with ExitStack() as stack:
        seeds = range(first_seed, first_seed + TELLERS)
        yield [stack.enter_context(bank.Teller(server, seed)) for seed in seeds]


def await_commits(at_work: list[bank.Teller], count: int) -> None:
    since = sum(each.committed for each in at_work)
    await_(f"{count} transactions", lambda: sum(each.committed for each in at_work) > since + count)


def crash(primary: DatabaseServer, replica: DatabaseServer, life: Life) -> None:
    """kill -9 of the primary amid its work, when the replica has all that the program has read:
    with replication as it is by default, nothing else ensures that."""
    life.signal(signal.SIGSTOP)
    read = parse_gtids(executed(primary))
    await_("the replica", lambda: not read.minus(parse_gtids(executed(replica))))
    primary.kill()
    life.signal(signal.SIGCONT)
    promote(replica)


@BOTH_PROGRAMS
@editions(MARIADB_10_11)
def test_the_primary_is_killed_under_load(edition: Edition, tmp_path: Path, program: str) -> None:
    """The source-uri names both, so the program goes on by itself."""
    with replicated_bank(edition, tmp_path, program=program) as (stage, primary, replica):
        with tellers(primary, 0) as at_work:
            life = stage.start("first", others=(replica,))
            await_commits(at_work, 20)
            stage.await_position(end_of_log(primary), life)
            await_commits(at_work, 20)
            crash(primary, replica, life)
        stage.server = replica
        with tellers(replica, 10) as at_work:
            await_commits(at_work, 20)
            life.await_line("going on in the binlog of")
            await_commits(at_work, 20)
        assert not life.is_over


@editions(MYSQL_9_7)
@pytest.mark.more  # after the death of the first: above
def test_there_and_back(edition: Edition, tmp_path: Path) -> None:
    """Both are killed at once, and the source-uri names the other server; then the first server
    comes back as its replica, and is the primary again."""
    with replicated_bank(edition, tmp_path) as (stage, first, second):
        with tellers(first, 0) as at_work:
            life = stage.start("first")
            stage.await_position(end_of_log(first), life)
            await_commits(at_work, 30)
        await_caught_up(second, first)
        life.kill(group=True)
        first.kill()
        promote(second)
        stage.server = second
        with tellers(second, 10) as at_work:
            life = stage.start("second")
            stage.await_position(end_of_log(second), life)
            first.start()
            replicate(first, second)
            await_commits(at_work, 20)
        await_caught_up(first, second)
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
        second.kill()
        promote(first)
        stage.server = first
        with tellers(first, 20) as at_work:
            await_commits(at_work, 20)
            life = stage.start("third")
            stage.await_position(end_of_log(first), life)
            time.sleep(0.5)
