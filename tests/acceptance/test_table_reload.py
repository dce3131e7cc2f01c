"""`tidelake table reload`: a table that cannot go on is loaded anew from its database, and every
cell is the server's afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.model import TableName
from sinks.control.progress import Progress, ProgressRow
from sinks.control.reloads import Reload, Reloads
from streaming.cli.main import main
from tests.acceptance.binlog_stage import CHANGEFEED, BinlogStage, end_of_log
from tests.acceptance.copied_database import ACCOUNT, make_account
from tests.acceptance.processes import ON_SPARK, ON_THREADS, Life, await_
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

NAME = "anew"
RULES = f"[filter]\nrules = ['{NAME}.*']\n"
HELD, OTHER = TableName(NAME, "held"), TableName(NAME, "other")


class Reloaded:
    """A stage with two tables of ``NAME``, followed by the documented account."""

    def __init__(self, stage: BinlogStage) -> None:
        self.stage = stage
        self.server = stage.server

    def start(self, name: str = "", **given: object) -> Life:
        return self.stage.start(name, user=ACCOUNT, **given)  # type: ignore[arg-type]

    def stop(self, life: Life) -> None:
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()

    def row(self, name: TableName) -> ProgressRow | None:
        return Progress(str(self.stage.warehouse)).read(CHANGEFEED).get(name)

    def await_state(self, name: TableName, state: str, life: Life) -> None:
        def is_so() -> bool:
            assert not life.is_over, life.tail()
            row = self.row(name)
            return row is not None and row.state == state

        try:
            await_(f"{name} is {state}", is_so)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.row(name)}\n{life.tail()}") from None

    def order(self, name: TableName = HELD, *options: str) -> None:
        sink = f"delta://{self.stage.warehouse}"
        main(["table", "reload", str(name), "--sink-uri", sink, *options])

    def ordered(self, name: TableName = HELD) -> Reload:
        return Reloads(str(self.stage.warehouse)).read(CHANGEFEED)[name]

    def diff(self) -> None:
        """By `tidelake diff`, which ends with 0 if all cells are equal."""
        source = f"mysql://{ACCOUNT}@{self.server.host}:{self.server.port}/"
        main(["diff", "--source-uri", source, "--sink-uri", f"delta://{self.stage.warehouse}"])

    def until_equal(self, life: Life) -> None:
        self.stage.await_position(end_of_log(self.server), life)
        for name in (HELD, OTHER):
            columns = [each for each, *_ in self.server.query(f"SHOW COLUMNS FROM {name}")]
            theirs = sorted(self.server.query(f"SELECT * FROM {name}"), key=repr)
            rows = read_rows(self.stage.warehouse / NAME / name.table)
            assert sorted((tuple(r[c] for c in columns) for r in rows), key=repr) == theirs
            assert not rows or set(rows[0]) == set(columns)


@pytest.fixture
def stage(
    mariadb: DatabaseServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Reloaded]:
    program = getattr(request, "param", ON_THREADS)
    with staged(mariadb, tmp_path, RULES, program) as found:
        yield found


@contextmanager
def staged(
    mariadb: DatabaseServer, tmp_path: Path, rules: str, program: str = ON_THREADS
) -> Iterator[Reloaded]:
    with mariadb.database(NAME):
        mariadb.execute(f"DROP USER IF EXISTS {ACCOUNT}")
        make_account(mariadb)
        for name in (HELD, OTHER):
            mariadb.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, t VARCHAR(20))")
            mariadb.insert(str(name), [(number, number * 3, f"t{number}") for number in range(300)])
        with BinlogStage(mariadb, tmp_path, rules=rules, mode="all", program=program) as stage:
            yield Reloaded(stage)


def hold(stage: Reloaded, life: Life) -> None:
    """By a DDL whose values nobody can compute here."""
    stage.server.execute(f"ALTER TABLE {HELD} ADD COLUMN s INT AS (v * 2) STORED")
    stage.server.execute(f"UPDATE {HELD} SET v = v + 1 WHERE id < 10")
    stage.server.execute(f"UPDATE {OTHER} SET v = v + 1 WHERE id < 10")
    stage.await_state(HELD, "blocked", life)


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


CHUNKS = "&chunk-rows=50&connections=1"
DEATHS = (
    "after-chunk=kill:3",
    "before-load=kill:1",
    "after-load-one=kill:1",
    "before-first-rows=kill:1",
    "after-first-progress=kill:1",
    "after-first-rows=kill:1",
)


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
