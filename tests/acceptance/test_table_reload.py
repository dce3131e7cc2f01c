"""`tidelake table reload`: a table that cannot go on is loaded anew from its database, and every
cell is the server's afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.processes import ON_SPARK, ON_THREADS, await_
from tests.acceptance.reloaded_table import CHUNKS, HELD, NAME, OTHER, RULES, Reloaded, hold, staged
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]


@pytest.fixture
def stage(
    mariadb: DatabaseServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Reloaded]:
    program = getattr(request, "param", ON_THREADS)
    with staged(mariadb, tmp_path, RULES, program) as found:
        yield found


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(ON_THREADS, id="threads"),
        pytest.param(ON_SPARK, id="spark", marks=pytest.mark.more),
    ],
    indirect=True,
)
def test_a_table_that_a_ddl_holds_goes_on(stage: Reloaded) -> None:
    life = stage.start("first")
    life.await_line("copied and loaded")
    hold(stage, life)
    before = read_rows(stage.stage.warehouse / NAME / HELD.table)
    stage.order(HELD, "--dry-run")
    stage.order()
    stage.server.execute(f"DELETE FROM {HELD} WHERE id = 50", f"DELETE FROM {OTHER} WHERE id = 50")
    life.await_line("loaded the table anew")
    stage.until_equal(life)
    stage.await_state(HELD, "replicating", life)
    stage.server.execute(f"INSERT INTO {HELD} (id, v) VALUES (1000, 7)")
    stage.until_equal(life)
    assert stage.ordered().state == "done"
    assert len(before) == 300
    stage.diff()
    stage.stop(life)
    life = stage.start("second")
    stage.server.execute(f"UPDATE {HELD} SET v = 1 WHERE id = 1000")
    stage.until_equal(life)
    stage.stop(life)


@pytest.mark.more
def test_two_processes_of_one_changefeed_end_their_streams_and_one_loads(
    stage: Reloaded, etcd: EmbeddedEtcd
) -> None:
    lives = [stage.start(each, etcd=etcd.endpoint) for each in ("first",)]
    lives[0].await_line("copied and loaded")
    lives.append(stage.start("second", etcd=etcd.endpoint))
    lives[1].await_line("capture starts")
    hold(stage, lives[0])
    stage.order()
    await_("it is done", lambda: stage.ordered().state == "done")
    for life in lives:
        life.await_line("capture starts", nth=2)
    stage.server.execute(f"UPDATE {HELD} SET v = 5 WHERE id < 100")
    stage.until_equal(lives[0])
    stage.await_state(HELD, "replicating", lives[1])
    assert sum(len(life.lines("loaded the table anew")) for life in lives) == 1
    for life in lives:
        stage.stop(life)


@pytest.mark.more
def test_a_table_that_is_written_all_the_time_is_exact_behind_each_reload(stage: Reloaded) -> None:
    over = threading.Event()

    def write() -> None:
        number = 1000
        with stage.server.connect(autocommit=False) as link, link.cursor() as cursor:
            while not over.is_set():
                number += 1
                for name in (HELD, OTHER):
                    cursor.execute(f"INSERT INTO {name} (id, v) VALUES ({number}, 0)")
                    cursor.execute(f"UPDATE {name} SET v = v + 1 WHERE id % 40 = {number % 40}")
                    cursor.execute(f"UPDATE {name} SET id = -id WHERE id = {number - 20}")
                    cursor.execute(f"DELETE FROM {name} WHERE id = {number % 300}")
                link.commit()

    life = stage.start("first", parameters=CHUNKS)
    life.await_line("copied and loaded")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for nth in range(1, 4):
            stage.order()
            life.await_line("loaded the table anew", nth=nth)
            stage.server.execute(f"ALTER TABLE {HELD} ADD COLUMN c{nth} INT NOT NULL DEFAULT {nth}")
    finally:
        over.set()
        writer.join()
    stage.until_equal(life)
    stage.diff()
    stage.stop(life)


def test_a_table_is_loaded_anew_by_itself(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Once for each DDL, however the order ended; and no table that is too large."""
    rules = f"on-unknown-values = 'reload'\nreload-most-rows = 300\n{RULES}"
    with staged(mariadb, tmp_path, rules) as stage:
        life = stage.start("first")
        life.await_line("copied and loaded")
        life.await_line("all is well: every table is there, and fresh tables=2")
        mariadb.execute(f"ALTER TABLE {HELD} ADD COLUMN s INT AS (v * 2) STORED")
        mariadb.execute(f"UPDATE {HELD} SET v = v + 1 WHERE id < 10")
        life.await_line("is to be loaded anew rows=300")
        life.await_line("loaded the table anew")
        stage.await_state(HELD, "replicating", life)
        stage.until_equal(life)
        first = stage.ordered()
        assert first.ddl_ts is not None
        mariadb.execute(f"INSERT INTO {HELD} (id) VALUES (1000)")
        stage.until_equal(life)
        mariadb.execute(f"ALTER TABLE {HELD} ADD COLUMN s3 INT AS (v * 3) STORED")
        life.await_line("not loaded anew by itself: it has 301 rows")
        stage.await_state(HELD, "blocked", life)
        assert stage.ordered() == first
        stage.stop(life)
