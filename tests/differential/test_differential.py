"""Random DDLs on real servers: each table is its server's cell by cell, or it is held aloud. More
by hand: ``python -m tests.differential``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.mutate import halves_of, mutations, the_one_bug
from tests.differential.one_run import SERVERS as NAMES
from tests.differential.oracle import Oracle
from tests.differential.replay import read_statements, replay_together
from tests.differential.run import DifferentialRun, timed
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import second
from tests.simulation.mutate import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

CASES = Path(__file__).parent / "cases"
SERVERS = [MARIADB_10_11, *second(MARIADB_11_8, MYSQL_9_7)]
SOAKED_MINUTES = 20.0  # of each server


@pytest.fixture(params=SERVERS, ids=lambda edition: edition.name, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as server:
        yield server


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A run writes thousands of lines."""
    caplog.set_level(logging.ERROR)


def test_a_few_tables_of_one_seed(server: DatabaseServer) -> None:
    run = DifferentialRun(Oracle(server), seed=7, tables=20)
    found = run.run(lambda rounds: rounds >= 2)
    assert not found.failures, "\n".join(map(str, found.failures))
    assert found.coverage.of_ddls("equal") >= 15, found.coverage.table()


def test_the_cases_of_their_own(server: DatabaseServer) -> None:
    """By the name of a table where it is held."""
    cases = {each.stem: read_statements(each) for each in CASES.glob("*.sql")}
    held = {"c.zero_dates", "c.copied_zero_date", "c.zeros_of_nulls", "c.w", "c.stored_column"}
    if server.edition.is_mariadb:
        held |= {"c.null_fills", "c.null_fills_of_dates", "c.blob_default", "c.lost_names"}
    else:  # its own SELECT gives bytes that are no utf8mb4 then
        del cases["lost_names"]
        held.add("c.beyond_bigint")
    if server.edition is MARIADB_11_8:  # its targets have no generated columns
        del cases["stored_column"]
        held.remove("c.stored_column")
    oracle = Oracle(server)
    replay_together(oracle, cases)
    assert not oracle.findings.failures, "\n".join(map(str, oracle.findings.failures))
    assert {each.table for each in oracle.findings.holds} == held


@pytest.mark.soak
@pytest.mark.parametrize(
    "edition", [MARIADB_10_11, MARIADB_11_8, MYSQL_9_7], ids=lambda edition: edition.name
)
def test_a_long_run(edition: object) -> None:
    with DatabaseServer(edition) as server:  # type: ignore[arg-type]
        found = DifferentialRun(Oracle(server), seed=10_000).run(timed(SOAKED_MINUTES))
    print(found.coverage.table())
    assert not found.failures, "\n".join(map(str, found.failures))


def test_each_bug_of_the_list_can_be_planted() -> None:
    for mutation, servers in mutations():
        assert set(servers) <= set(NAMES)
        assert mutation.planted((ROOT / mutation.file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("count", [1, 2, 5, 48])
def test_a_failure_tells_its_one_bug(count: int) -> None:
    for bug in range(count):
        fails = {half: bug in half for half in halves_of(count)}
        assert the_one_bug(count, fails) == bug
    by_two = {half: bool({0, 1} & half) for half in halves_of(count)}
    assert count < 2 or the_one_bug(count, by_two) is None
