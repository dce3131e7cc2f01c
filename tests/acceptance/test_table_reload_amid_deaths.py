"""`tidelake table reload` by one process that is killed at each step of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.model import TableName
from tests.acceptance.processes import await_
from tests.acceptance.reloaded_table import (
    CHUNKS,
    DEATHS,
    HELD,
    NAME,
    OTHER,
    RULES,
    Reloaded,
    hold,
    staged,
)
from tests.services.database_server import DatabaseServer

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]


@pytest.fixture
def stage(mariadb: DatabaseServer, tmp_path: Path) -> Iterator[Reloaded]:
    with staged(mariadb, tmp_path, RULES) as found:
        yield found


@pytest.mark.parametrize(
    "deaths", [DEATHS[::2], pytest.param(DEATHS, marks=pytest.mark.more)], ids=["some", "all"]
)
def test_it_is_killed_at_each_step_and_nothing_is_lost_or_doubled(
    stage: Reloaded, deaths: tuple[str, ...]
) -> None:
    life = stage.start("first", parameters=CHUNKS)
    life.await_line("copied and loaded")
    hold(stage, life)
    stage.stop(life)
    stage.order()
    others = version_of(stage, OTHER)
    for nth, point in enumerate(deaths):
        life = stage.start(parameters=CHUNKS, given={"TIDELAKE_FAILPOINTS": point})
        assert life.await_exit() == -signal.SIGKILL, life.tail()
        stage.server.execute(
            f"UPDATE {HELD} SET v = v + 1 WHERE id BETWEEN 100 AND 200",
            f"INSERT INTO {HELD} (id, v) VALUES ({1000 + nth}, 0)",
            f"DELETE FROM {HELD} WHERE id = {nth}",
        )
    assert version_of(stage, OTHER) == others
    life = stage.start("last", parameters=CHUNKS)
    await_("it is done", lambda: stage.ordered().state == "done")
    stage.until_equal(life)
    stage.await_state(HELD, "replicating", life)
    assert not list((stage.stage.warehouse / "_tidelake" / "staging").glob("*"))
    stage.diff()
    stage.stop(life)


def version_of(stage: Reloaded, name: TableName) -> int:
    return DeltaTable(str(stage.stage.warehouse / NAME / name.table)).version()
