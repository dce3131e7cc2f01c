"""A cluster with one task, of whose two tables one is loaded anew."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
from tests.acceptance.copied_database import ACCOUNT, make_account
from tests.acceptance.processes import ON_THREADS, Life, await_, environment, field
from tests.services.commands_here import run_here
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

NAME = "anew_in_cluster"
JOB, TASK = JobID("copy"), TaskID("one")
FEED = f"{JOB}-{TASK}"
HELD, OTHER = TableName(NAME, "held"), TableName(NAME, "other")
ROWS = {HELD: 300, OTHER: 60}
SLOW = "&chunk-rows=20&connections=1&copy-rows-per-s=70"  # the held one: four seconds


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


@contextmanager
def captures_of(server: DatabaseServer, etcd: EmbeddedEtcd, folder: Path) -> Iterator[Captures]:
    with server.database(NAME):
        server.execute(f"DROP USER IF EXISTS {ACCOUNT}")
        make_account(server)
        for name, rows in ROWS.items():
            server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, t VARCHAR(20))")
            server.insert(str(name), [(number, number * 3, f"t{number}") for number in range(rows)])
        found = Captures(server, etcd.endpoint, folder)
        try:
            yield found
        finally:
            found.close()
