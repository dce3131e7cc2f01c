"""`tidelake table reload` where captures of a cluster replicate the database, for a job's task:
whoever dies amid it, the table is exact afterwards."""

from __future__ import annotations

import json
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conf.settings import EtcdSettings
from coordination.errors import TidelakeError
from coordination.etcd.embedded import EmbeddedEtcd, free_ports
from coordination.etcd.etcd3_client import connect
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.records import TaskCfg
from coordination.metadata.lookup import read_controller
from coordination.model import JobID, TableName, TaskID
from sinks.control.changefeeds import Changefeeds
from sinks.control.progress import Progress, ProgressRow
from sinks.control.reloads import Reload, Reloads
from streaming.source.binlog.source import PART
from streaming.spans.cluster_reloads import LOOK_EVERY_S
from tests.acceptance.copied_database import ACCOUNT, make_account
from tests.acceptance.processes import ON_THREADS, Life, await_, environment, field
from tests.services.commands_here import run_here
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]

NAME = "anew_in_cluster"
JOB, TASK = JobID("copy"), TaskID("one")
FEED = f"{JOB}-{TASK}"
HELD, OTHER = TableName(NAME, "held"), TableName(NAME, "other")


class Captures:
    """A cluster with one task; the two tables of its database."""

    def __init__(self, server: DatabaseServer, etcd: str, folder: Path) -> None:
        self.server = server
        self.lake = folder / "lake"
        self.lives: list[Life] = []
        self._etcd, self._folder = etcd, folder
        self._cluster_id = f"anew-{uuid.uuid4().hex[:8]}"
        self.client = connect(EtcdSettings(endpoints=(etcd,), embedded=False))

    def start(self, failpoints: str = "") -> Life:
        number = len(self.lives) + 1
        place = self._folder / f"server-{number}"
        place.mkdir()
        command = [
            *(sys.executable, "-m", ON_THREADS, "server", "--etcd", self._etcd),
            *("--cluster-id", self._cluster_id, "--addr", f"127.0.0.1:{free_ports(1)[0]}"),
        ]
        env = environment(place, capture_session_ttl=5, session_safety_margin_s=1.0)
        life = Life(f"server-{number}", place, command, {**env, "TIDELAKE_FAILPOINTS": failpoints})
        self.lives.append(life)
        return life

    def close(self) -> None:
        for life in self.lives:
            life.end()
        self.client.close()

    def create(self, parameters: str = "", **document: object) -> None:
        uri = f"mysql://{ACCOUNT}@{self.server.host}:{self.server.port}/?task-mode=all{parameters}"
        config = {
            "source-uri": uri,
            "sink-uri": f"delta://{self.lake}",
            "document": {"filter": {"rules": [f"{NAME}.*"]}, **document},
        }
        operator = JobOperator(self.client, self._cluster_id)
        operator.create(JOB, {TASK: TaskCfg(task_mode="all", config=config)})
        self.await_equal()
        await_("both replicate", lambda: self.states() == {"replicating"})

    def task(self, *command: str) -> dict[str, Any]:
        where = ("--etcd", self._etcd, "--cluster-id", self._cluster_id, "--format", "json")
        found = run_here("task", *command, JOB, *where)
        assert found.code == 0, found.err
        rows = json.loads(found.out).get("rows") or [{}]
        return dict(rows[0])

    def order(self) -> str:
        sink = ("--sink-uri", f"delta://{self.lake}", "-c", FEED, "--format", "json")
        found = run_here("table", "reload", str(HELD), *sink)
        assert found.code == 0, found.err
        return found.out

    def ordered(self) -> Reload:
        return Reloads(str(self.lake)).read(FEED)[HELD]

    def await_done(self) -> None:
        def is_done() -> bool:
            now = self.ordered()
            assert now.state != "given up", now.error
            return now.state == "done"

        self._await("the order is done", is_done)

    def rows(self) -> dict[TableName, ProgressRow]:
        return Progress(str(self.lake)).read(FEED)

    def has_read(self) -> bool:
        row = Changefeeds(str(self.lake)).read(FEED)
        return row is not None and PART in row.watermarks and PART in row.source_positions

    def states(self) -> set[str]:
        return {row.state for row in self.rows().values()}

    def leader(self) -> Life | None:
        with suppress(TidelakeError):
            found = read_controller(self.client, self._cluster_id).id
            return next((each for each in self.living() if self.capture(each) == found), None)
        return None

    def living(self) -> list[Life]:
        return [each for each in self.lives if not each.is_over]

    def capture(self, life: Life) -> str:
        starts = life.lines("capture starts")
        return field(starts[-1], "capture_id") if starts else ""

    def created(self, source_uri: str) -> None:
        """A changefeed of no task."""
        rules = self._folder / "changefeed.toml"
        rules.write_text(f"[filter]\nrules = ['{NAME}.*']\n")
        uris = ("--source-uri", source_uri, "--sink-uri", f"delta://{self.lake}")
        where = ("--etcd", self._etcd, "--cluster-id", self._cluster_id, "--config", str(rules))
        found = run_here("changefeed", "create", "--changefeed-id", FEED, *uris, *where)
        assert found.code == 0, found.err

    def await_equal(self, *names: TableName) -> None:
        for name in names or (HELD, OTHER):
            self._await(f"{name} is equal", lambda name=name: self._is_equal(name))

    def _await(self, what: str, is_so: Any) -> None:
        try:
            await_(what, is_so, every_s=0.5)
        except AssertionError as error:
            tails = "\n".join(each.tail() for each in self.lives)
            raise AssertionError(f"{error}\n{self.rows()}\n{tails}") from None

    def _is_equal(self, name: TableName) -> bool:
        folder = self.lake / name.schema / name.table
        if not (folder / "_delta_log").exists():
            return False
        columns = [each for each, *_ in self.server.query(f"SHOW COLUMNS FROM {name}")]
        theirs = sorted(self.server.query(f"SELECT * FROM {name}"), key=repr)
        rows = read_rows(folder)
        found = sorted((tuple(r.get(c) for c in columns) for r in rows), key=repr)
        return found == theirs

    def hold(self, column: str) -> None:
        """By a DDL whose values nobody can compute here."""
        self.server.execute(
            f"ALTER TABLE {HELD} ADD COLUMN {column} INT AS (v * 2) STORED",
            f"UPDATE {HELD} SET v = v + 1 WHERE id < 10",
            f"UPDATE {OTHER} SET v = v + 1 WHERE id < 10",
        )
        self._await("it is held", lambda: self.rows()[HELD].state == "blocked")

    def write(self) -> None:
        self.server.execute(
            f"UPDATE {HELD} SET v = v + 1 WHERE id BETWEEN 100 AND 200",
            f"DELETE FROM {HELD} WHERE id = (SELECT m FROM (SELECT MIN(id) m FROM {HELD}) x)",
            f"INSERT INTO {HELD} (id, v) VALUES ({uuid.uuid4().int % 10**8 + 1000}, 0)",
            f"UPDATE {OTHER} SET v = v + 1 WHERE id < 50",
        )


@pytest.fixture
def captures(mariadb: DatabaseServer, etcd: EmbeddedEtcd, tmp_path: Path) -> Iterator[Captures]:
    with mariadb.database(NAME):
        mariadb.execute(f"DROP USER IF EXISTS {ACCOUNT}")
        make_account(mariadb)
        for name in (HELD, OTHER):
            mariadb.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, t VARCHAR(20))")
            mariadb.insert(str(name), [(number, number * 3, f"t{number}") for number in range(300)])
        found = Captures(mariadb, etcd.endpoint, tmp_path)
        try:
            yield found
        finally:
            found.close()


SLOW = "&chunk-rows=20&connections=1&copy-rows-per-s=70"


def test_a_held_table_goes_on_though_a_capture_dies_and_then_the_leader(
    captures: Captures,
) -> None:
    for _ in range(2):
        captures.start()
    captures.create(SLOW)
    captures.hold("s")
    assert "tidelake table reload" in (captures.rows()[HELD].error or "")
    assert "the cluster's leader does it" in captures.order()
    await_("it copies", lambda: captures.ordered().rows > 0)
    leader = captures.leader()
    writer = next(each for each in captures.living() if each is not leader)
    writer.kill(group=True)
    assert captures.ordered().state == "copying"
    captures.write()
    captures.await_done()
    captures.write()
    captures.await_equal()
    await_("both replicate", lambda: captures.states() == {"replicating"})
    captures.start()
    captures.hold("s2")
    captures.order()
    await_("it copies", lambda: captures.ordered().rows > 0)
    leader = captures.leader()
    assert leader is not None
    leader.kill(group=True)
    assert captures.ordered().state == "copying"
    captures.write()
    captures.await_done()
    captures.write()
    captures.await_equal()
    await_("both replicate", lambda: captures.states() == {"replicating"})
    await_("the unit follows", lambda: captures.task("query")["stage"] == "Running")
    assert captures.task("query")["error"] is None
    captures.order()
    await_("it copies", lambda: captures.ordered().rows > 0)
    captures.task("pause")
    await_("it is paused", lambda: captures.task("query")["stage"] == "Paused")
    assert captures.ordered().state == "done"
    captures.write()
    captures.task("resume")
    captures.await_equal()


DEATHS = (
    "after-chunk=kill:3",
    "before-load=kill:1",
    "after-load-one=kill:1",
    "before-first-rows=kill:1",
    "after-first-progress=kill:1",
    "after-first-rows=kill:1",
)


@pytest.mark.more  # by one process, each step: test_table_reload
def test_the_leader_dies_at_each_step(captures: Captures) -> None:
    first = captures.start()
    captures.create("&chunk-rows=50&connections=1")
    captures.hold("s")
    first.end()
    captures.order()
    for point in DEATHS:
        captures.start(point).await_exit()
        captures.write()
    captures.start()
    captures.await_equal()
    captures.await_done()
    await_("both replicate", lambda: captures.states() == {"replicating"})
    await_("the unit follows", lambda: captures.task("query")["stage"] == "Running")


def test_a_task_that_cannot_go_on_does_and_a_paused_one_waits_for_its_operator(
    captures: Captures,
) -> None:
    captures.start()
    captures.create(**{"on-unknown-values": "reload"})
    captures.task("pause")
    await_("it is paused", lambda: captures.task("query")["stage"] == "Paused")
    shutil.move(captures.lake / NAME / HELD.table, captures.lake.parent / "moved")
    captures.task("resume")
    await_("the error", lambda: "table reload" in (captures.task("query")["error"] or ""))
    captures.write()
    captures.order()
    captures.await_done()
    captures.await_equal()
    await_("no error", lambda: captures.task("query")["error"] is None)
    captures.task("pause")
    await_("it is paused again", lambda: captures.task("query")["stage"] == "Paused")
    assert "as soon as the changefeed or task is resumed" in captures.order()
    captures.write()
    time.sleep(2 * LOOK_EVERY_S)
    assert captures.ordered().state == "ordered"
    captures.task("resume")
    captures.await_done()
    captures.await_equal()
    await_("the unit follows", lambda: captures.task("query")["stage"] == "Running")
    captures.server.execute(f"ALTER TABLE {HELD} ADD COLUMN s INT AS (v * 2) STORED")
    captures.write()  # and it is loaded by itself
    captures.await_equal()
    assert captures.ordered().ddl_ts is not None


def test_a_changefeed_that_copied_nothing_gets_a_table_whole(captures: Captures) -> None:
    captures.start()
    ((file, position, *_),) = captures.server.query("SHOW MASTER STATUS")
    uri = f"mysql://{ACCOUNT}@{captures.server.host}:{captures.server.port}/?task-mode=incremental"
    captures.created(f"{uri}&binlog-name={file}&binlog-pos={position}")
    captures.write()
    await_("both are there", lambda: len(captures.rows()) == 2)
    await_("a place is stored", captures.has_read)
    captures.order()
    captures.await_done()
    captures.write()
    captures.await_equal(HELD)
