"""Lives of the program on a real database's binlog, as `processes` has them on a topic."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conf.sources.binlog_uri import BinlogSettings
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from streaming.source.binlog.database import Database, server_of
from streaming.source.binlog.position import BinlogPosition, LogIdentity
from tests.acceptance.processes import ON_THREADS, Life, await_, environment
from tests.acceptance.progress_watch import ProgressWatch
from tests.services.database_server import DatabaseServer
from tests.shop import proof

CHANGEFEED = "bank"


class BinlogStage:
    """One changefeed with its database and warehouse; a context manager, which ends its lives and
    then says what fell."""

    def __init__(
        self,
        server: DatabaseServer,
        folder: Path,
        *,
        rules: str = "",
        mode: str = "incremental",
        program: str = ON_THREADS,
    ) -> None:
        """``rules``: the changefeed file; ``mode``: the task-mode, which may change; ``program``:
        `ON_SPARK` where the stream is killed or is the claim."""
        self.server = server
        self.mode = mode
        self._program = program
        self.warehouse = folder / "warehouse"
        self.lives: list[Life] = []
        self._ids: dict[int, str] = {}
        self.watch = ProgressWatch(self.warehouse)
        self._folder = folder
        self._file = folder / "changefeed.toml"
        self.write_rules(rules)
        self._cluster_id = f"bank-{uuid.uuid4().hex[:8]}"

    def write_rules(self, rules: str) -> None:
        self._file.write_text(rules)

    def __enter__(self) -> BinlogStage:
        self.watch.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for life in self.lives:
            life.end()
        self.watch.stop()
        if kind is None:
            self.watch.assert_nothing_fell()

    def start(
        self,
        name: str = "",
        *,
        user: str = "root",
        etcd: str = "embedded",
        port: int | None = None,
        others: tuple[DatabaseServer, ...] = (),
        parameters: str = "",
        arguments: tuple[str, ...] = (),
        given: Mapping[str, str] | None = None,
        **settings: object,
    ) -> Life:
        """``settings`` as for `processes.Stage.start`; ``parameters``: further ones of the URI;
        ``port``: of a proxy, say; ``others``: further servers of the URI."""
        name = f"{len(self.lives) + 1}-{name}".rstrip("-")
        folder = self._folder / name
        folder.mkdir()
        places = [f"{self.server.host}:{port or self.server.port}"]
        places += [f"{each.host}:{each.port}" for each in others]
        address = f"{user}@{','.join(places)}"
        command = [
            *(sys.executable, "-m", self._program, "run", "--changefeed-id", CHANGEFEED),
            *("--source-uri", f"mysql://{address}/?task-mode={self.mode}{parameters}"),
            *("--sink-uri", f"delta://{self.warehouse}", "--config", str(self._file)),
            *("--etcd", etcd, "--cluster-id", self._cluster_id),
            *arguments,
        ]
        margins = {"capture_session_ttl": 5, "session_safety_margin_s": 1.0}
        env = environment(folder, **margins | settings) | dict(given or {})
        life = Life(name, folder, command, env)
        self.lives.append(life)
        return life

    def row(self) -> ChangefeedRow | None:
        return Changefeeds(str(self.warehouse)).read(CHANGEFEED)

    def position(self) -> int:
        """Up to where the changefeed has nothing left to do, in the log of ``server``; 0 where it
        is in another one's."""
        row = self.row()
        if row is None or "binlog" not in row.source_positions:
            return 0
        identity = LogIdentity.parse(row.source_identities["binlog"])
        if identity.lift and identity.server != self._server_id():
            return 0
        at = BinlogPosition.of(row.source_positions["binlog"])
        return int(BinlogPosition(at.number - identity.lift, at.offset))

    def _server_id(self) -> str:
        if self.server.pid not in self._ids:
            with self.server.connect() as link, link.cursor() as cursor:
                self._ids[self.server.pid] = server_of(cursor)
        return self._ids[self.server.pid]

    def await_position(self, at: int, life: Life, *, within_s: float = 120.0) -> None:
        """Until everything before this position is in the tables; fails when the life ends."""

        def is_there() -> bool:
            assert not life.is_over, f"{life.name} ended:\n{life.tail()}"
            return self.position() >= at

        try:
            await_(f"position {at}, {self.position()} is seen", is_there, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{life.tail()}") from None

    def await_checkpoint(self, ts: int, life: Life) -> None:
        """Until the changefeed's row is there; fails when this life ends before it is."""

        def is_there() -> bool:
            assert not life.is_over, f"{life.name} ended:\n{life.tail()}"
            return self.watch.checkpoint >= ts

        try:
            await_(f"checkpoint {ts}, {self.watch.checkpoint} is seen", is_there)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{life.tail()}") from None

    def cuts(self) -> list[dict[str, Any]]:
        return proof.ledger(self.warehouse, CHANGEFEED)


def end_of_log(server: DatabaseServer) -> int:
    database = Database(BinlogSettings(host=server.host, port=server.port, user="root"))
    try:
        return int(database.end())
    finally:
        database.close()
