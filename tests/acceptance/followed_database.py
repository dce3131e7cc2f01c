"""A database whose binlog a changefeed follows in this process, and what must hold then: the tables
of the warehouse are those of the database, cell by cell."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from conf.route_rules import RouteRule
from conf.settings import (
    BatchSettings,
    Changefeed,
    DeltaSink,
    FilterSettings,
    SessionSettings,
    Settings,
    TableRule,
)
from conf.sources.binlog_uri import BinlogSettings
from coordination.trust.clock import SystemClock
from sinks.control.progress import Progress, ProgressRow
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import TTL_S, Life
from tests.fakes.fake_etcd import FakeEtcd
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

CHANGEFEED = "followed"


class FollowedDatabase:
    """``since``: (file, position) from which the binlog is read; None: from its end now."""

    def __init__(
        self,
        server: DatabaseServer,
        folder: Path,
        *,
        rules: Sequence[str] = ("*.*",),
        routes: Sequence[RouteRule] = (),
        tables: Sequence[TableRule] = (),
        since: tuple[str, int] | None = None,
        **changefeed: Any,
    ) -> None:
        self.server = server
        self.warehouse = folder / "warehouse"
        self._etcd = FakeEtcd(SystemClock())
        self._number = 0
        name, position = since or end_of_log(server)
        source = BinlogSettings(
            host=server.host,
            port=server.port,
            user="root",
            task_mode="incremental",
            binlog_name=name,
            binlog_pos=position,
        )
        self._settings = Settings(
            changefeed=Changefeed(
                id=CHANGEFEED,
                source=source,
                sink=DeltaSink(
                    warehouse=str(self.warehouse), routes=tuple(routes), tables=tuple(tables)
                ),
                filter=FilterSettings(rules=tuple(rules)),
                **changefeed,
            ),
            batch=BatchSettings(quiet_s=1.0),
            session=SessionSettings(ttl_s=TTL_S, safety_margin_s=1.0),
        )

    @contextmanager
    def followed(self, **changes: Any) -> Iterator[Life]:
        """One life of the changefeed; it is stopped in order. ``changes``: of its settings."""
        self._number += 1
        changefeed = replace(self._settings.changefeed, **changes)
        settings = replace(self._settings, changefeed=changefeed)
        life = Life(settings, ThreadsOfProcess(), self._etcd, self._number).start()
        try:
            yield life
        finally:
            error = life.stop()
        if error is not None:
            raise error

    def path(self, table: str) -> str:
        return str(self.warehouse / table.replace(".", "/"))

    def delta_rows(self, table: str) -> list[dict[str, Any]]:
        path = self.path(table)
        return _sorted(read_rows(path)) if DeltaTable.is_deltatable(path) else []

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Names and Delta's types, in order."""
        fields = DeltaTable(self.path(table)).schema().fields
        return [(field.name, str(field.type.type)) for field in fields]  # type: ignore[union-attr]

    def database_rows(self, table: str, columns: str = "*") -> list[dict[str, Any]]:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {table}")
            assert cursor.description is not None
            names = [each[0] for each in cursor.description]
            return _sorted([dict(zip(names, row, strict=True)) for row in cursor.fetchall()])

    def progress(self) -> dict[str, ProgressRow]:
        rows = Progress(str(self.warehouse)).read(CHANGEFEED)
        return {str(name): row for name, row in rows.items()}

    def is_same(self, table: str, columns: str = "*") -> Callable[[], bool]:
        """Whether a table's rows are the database's."""
        return lambda: self.delta_rows(table) == self.database_rows(table, columns)


def end_of_log(server: DatabaseServer) -> tuple[str, int]:
    name = server.query("SHOW BINARY LOGS")[-1]
    return str(name[0]), int(name[1])


def _sorted(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return sorted(plain, key=lambda row: tuple(map(repr, row.values())))


def _plain(value: Any) -> Any:
    """A moment as MySQL's texts have it, a number as itself."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return value.normalize() if isinstance(value, Decimal) else value
