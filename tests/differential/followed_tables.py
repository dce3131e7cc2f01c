"""Some hundred small tables of one database, copied and followed by the real program on threads,
with the account that docs/mysql.md asks for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from sinks.control.progress import ProgressRow
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
from streaming.operations.diff.findings import TableFinding
from tests.acceptance.copied_database import CopiedDatabase, make_account
from tests.acceptance.followed_database import CHANGEFEED
from tests.acceptance.one_process import Life
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

DATABASE = "c"
BESIDE = f"{DATABASE}.beside"
PATIENCE_S = 240.0  # of one round of a hundred DDLs: some seven seconds alone
_HELD = ("blocked", "warning", "stopped")


class Stopped(Exception):
    """The program ended, or stands still."""


class FollowedTables:
    def __init__(self, server: DatabaseServer, folder: Path) -> None:
        make_account(server)
        self.server = server
        self._database = CopiedDatabase(server, folder)
        self._marks = 0

    def copy(self) -> None:
        try:
            self._database.copy()
        except Exception as error:
            raise Stopped(f"the copy: {error!r}") from error

    @contextmanager
    def followed(self) -> Iterator[Life]:
        try:
            with self._database.followed() as life:
                yield life
        except Stopped:
            raise
        except Exception as error:
            raise Stopped(f"at its end: {error!r}") from error

    def wait(self, life: Life, tables: Sequence[str]) -> Mapping[str, str]:
        """Until each of these has all that is in the log now; those that a DDL holds, and why."""
        self._marks += 1
        self.server.execute(f"INSERT INTO {BESIDE} VALUES ({self._marks})")
        deadline = time.monotonic() + PATIENCE_S
        reached: int | None = None
        while time.monotonic() < deadline:
            progress = self._database.progress()
            if life._ended.is_set():
                raise Stopped(f"it ended: {life._error!r}")
            reached = reached or self._mark_reached()
            if reached is not None:
                late = [
                    name for name in tables if not _is_there(progress.get(_full(name)), reached)
                ]
                if not late:
                    return self._held(progress, tables)
            time.sleep(0.1)
        late = [f"{name}: {progress.get(_full(name))}" for name in tables]
        late = [each for each in late if f"checkpoint_ts={reached}" not in each]
        raise Stopped(f"it stands still: {late[:3]}")

    def _mark_reached(self) -> int | None:
        """To which commit-ts the commit has brought its table that has the mark. A row of progress
        may name the commit's version before it names its ts."""
        path = self._database.path(BESIDE)
        if not DeltaTable.is_deltatable(path):
            return None
        table = DeltaTable(path)
        ids = (row["id"] for row in read_rows(path, table.version()))
        if max(ids, default=0) < self._marks:
            return None
        return table.transaction_version(f"tidelake/{CHANGEFEED}/1/{BESIDE}#1")

    def _held(
        self, progress: Mapping[str, ProgressRow], tables: Sequence[str]
    ) -> Mapping[str, str]:
        rows = {name: progress[_full(name)] for name in tables if _full(name) in progress}
        return {
            name: f"{row.state}, {row.dead_letters} dead letters: {row.error}"
            for name, row in rows.items()
            if row.state in _HELD or row.error or row.dead_letters
        }

    def rows(self, table: str) -> list[dict[str, Any]] | None:
        path = self._database.path(_full(table))
        return read_rows(path) if DeltaTable.is_deltatable(path) else None

    def diff(self, tables: Sequence[str]) -> Mapping[str, TableFinding]:
        """What `tidelake diff` says of these."""
        report = compare_with_database(
            self._database.sink,
            CHANGEFEED,
            [_full(name) for name in tables],
            self._database.source,
            limits=DiffLimits(wait_s=30.0),
            told=lambda _done, _total: None,
        )
        return {each.name.table: each for each in report.tables}


def _full(table: str) -> str:
    return f"{DATABASE}.{table}"


def _is_there(row: ProgressRow | None, reached: int) -> bool:
    return row is not None and (row.checkpoint_ts >= reached or row.state in _HELD)
