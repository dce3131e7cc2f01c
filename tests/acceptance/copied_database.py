"""A database that is copied first, by an account with the rights that docs/mysql.md asks for."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from conf.settings import Changefeed, DeltaSink, SourceSettings
from sinks.control.reloads import Reload
from sinks.control.warehouse import ControlTables
from streaming.operations.orders.reloads import order_reload
from streaming.spans.copies.first_copy import FirstCopy
from streaming.spans.copies.reload import TableReloads
from tests.acceptance.followed_database import FollowedDatabase
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

ACCOUNT = "reader"


def make_account(server: DatabaseServer) -> None:
    """With the rights that docs/mysql.md asks for, and no others."""
    is_mariadb = server.edition.is_mariadb
    monitor = "BINLOG MONITOR" if is_mariadb else "REPLICATION CLIENT, LOCK TABLES"
    server.execute(
        f"CREATE USER IF NOT EXISTS {ACCOUNT}@'%'",
        f"GRANT SELECT, REPLICATION SLAVE, {monitor} ON *.* TO {ACCOUNT}@'%'",
    )


class CopiedDatabase(FollowedDatabase):
    def __init__(self, server: DatabaseServer, folder: Path, **given: Any) -> None:
        super().__init__(server, folder, rules=("c.*",), **given)
        self._staging = folder / "staging"
        changefeed = self._settings.changefeed
        source = replace(
            changefeed.source, user=ACCOUNT, task_mode="all", binlog_name=None, binlog_pos=None
        )
        self._settings = replace(self._settings, changefeed=replace(changefeed, source=source))

    def copy(self, **changes: Any) -> None:
        """The copy of a start: the first one, or that of tables which join."""
        changefeed = replace(self._settings.changefeed, **changes)
        with closing(FirstCopy(changefeed, self._staging)) as copy:
            if copy.is_done:
                copy.join()
            else:
                copy.run()

    def load_anew(self, *tables: str, **changes: Any) -> None:
        """As an operator orders it, between two lives."""
        changefeed = replace(self._settings.changefeed, **changes)
        for each in tables:
            order_reload(self.sink, None, each, is_dry=False)
        TableReloads(changefeed, self._staging).run()

    def orders(self) -> dict[str, Reload]:
        rows = ControlTables.of(self.sink).reloads.read(self._settings.changefeed.id)
        return {str(name): each for name, each in rows.items()}

    @property
    def changefeed(self) -> Changefeed:
        return self._settings.changefeed

    @property
    def sink(self) -> DeltaSink:
        return self._settings.changefeed.sink

    @property
    def source(self) -> SourceSettings:
        return self._settings.changefeed.source

    def snapshots(self) -> set[str]:
        path = self.warehouse / "_tidelake" / "snapshots"
        rows = read_rows(path) if DeltaTable.is_deltatable(str(path)) else []
        return {name for row in rows for name, _ in row["tables"]}

    def wait_beside(self, life: Any, table: str = "c.beside") -> None:
        """Until all that is in the log now is applied."""
        self.server.execute(f"INSERT INTO {table} VALUES (NULL)")
        life.wait_until(self.is_same(table))
