"""One process on a database with two tables, of which one is loaded anew."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordination.model import TableName
from sinks.control.progress import Progress, ProgressRow
from sinks.control.reloads import Reload, Reloads
from streaming.cli.main import main
from tests.acceptance.binlog_stage import CHANGEFEED, BinlogStage, end_of_log
from tests.acceptance.copied_database import ACCOUNT, make_account
from tests.acceptance.processes import ON_THREADS, Life, await_
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

NAME = "anew"
RULES = f"[filter]\nrules = ['{NAME}.*']\n"
HELD, OTHER = TableName(NAME, "held"), TableName(NAME, "other")
CHUNKS = "&chunk-rows=50&connections=1"
# At each step of a reload.
DEATHS = (
    "after-chunk=kill:3",
    "before-load=kill:1",
    "after-load-one=kill:1",
    "before-first-rows=kill:1",
    "after-first-progress=kill:1",
    "after-first-rows=kill:1",
)


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
