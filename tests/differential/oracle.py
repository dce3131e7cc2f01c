"""What the tables of a server must be, and what they came to: each cell beside the server's own
SELECT, and `tidelake diff` must say the same."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pymysql import Connection
from pymysql.cursors import Cursor
from pymysql.err import Error

from tests.acceptance.one_process import Life
from tests.differential.compared_cells import compared, is_delivered, server_rows
from tests.differential.coverage import Coverage
from tests.differential.followed_tables import BESIDE, DATABASE, FollowedTables
from tests.differential.sessions import Session
from tests.differential.shown_tables import ShownColumn, read_columns
from tests.differential.statements import Alteration, TableStatements
from tests.services.database_editions import MARIADB_11_8
from tests.services.database_server import DatabaseServer

_ASKED = 4  # of so many tables one is asked of `tidelake diff` in a round, and each that differs
Told = Callable[[str, "Failure"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """``statements``: all of the table in order, with their sessions; a file of them is replayed
    by ``--replay``."""

    table: str
    why: str
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"-- {self.table}: {self.why}".replace("\n", "\n-- ")
            + "\n"
            + ";\n".join((*self.statements, ""))
        )


@dataclass(slots=True)
class Table:
    name: str
    made: TableStatements
    statements: list[str] = field(default_factory=list)
    numbers: int = 0
    altered: tuple[Alteration, Session] | None = None  # of this round
    session: Session | None = None  # in which the last statement was

    @property
    def path(self) -> str:
        return f"{DATABASE}.{self.name}"

    def rename(self, path: str) -> None:
        self.name = path.removeprefix(f"{DATABASE}.")
        self.made = replace(self.made, table=path)


@dataclass(slots=True)
class Findings:
    coverage: Coverage
    failures: list[Failure] = field(default_factory=list)
    holds: list[Failure] = field(default_factory=list)


class Oracle:
    """On one server that is up. ``told`` gets each failure and hold at once; ``asks_each``: of
    `tidelake diff` too."""

    def __init__(
        self,
        server: DatabaseServer,
        *,
        asks_each: bool = False,
        told: Told = lambda _verdict, _failure: None,
    ) -> None:
        self.server = server
        self._asked = 1 if asks_each else _ASKED
        self._told = told
        self._looks = 0
        self._omits = server.edition is MARIADB_11_8
        self.findings = Findings(Coverage(server.edition.name))

    @contextmanager
    def stage(self) -> Iterator[tuple[Connection[Cursor], FollowedTables]]:
        with (
            tempfile.TemporaryDirectory(prefix="tidelake-differential-") as folder,
            self.server.database(DATABASE, "CHARACTER SET utf8mb4"),
            self.server.connect(charset="utf8mb4", database=DATABASE) as connection,
        ):
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TABLE {BESIDE} (id INT PRIMARY KEY)")
            yield connection, FollowedTables(self.server, Path(folder))

    def look(
        self,
        connection: Connection[Cursor],
        followed: FollowedTables,
        life: Life,
        tables: dict[str, Table],
        behind: str,
    ) -> None:
        self._looks += 1
        held = followed.wait(life, list(tables))
        columns = read_columns(connection, DATABASE)
        differs: dict[str, str] = {}
        for name, table in tables.items():
            shown = [e for e in columns[name] if is_delivered(e, self._omits)]
            if name not in held and (why := self._differs(connection, followed, table, shown)):
                differs[name] = why
        asked = [name for name in tables if name not in held]
        asked = [
            each
            for at, each in enumerate(asked)
            if each in differs or at % self._asked == self._looks % self._asked
        ]
        for name, found in (followed.diff(asked) if asked else {}).items():
            if found.problem is not None:
                differs.setdefault(name, f"diff cannot compare it: {found.problem}")
            elif found.is_equal == (name in differs):
                told = differs.get(name, f"the cells are equal; diff: {found}")
                differs[name] = f"diff says {found.result}, not so: {told}"
        for name, table in list(tables.items()):
            verdict = "failure" if name in differs else "held" if name in held else "equal"
            if table.altered is not None:
                ddl, session = table.altered
                self.findings.coverage.add(ddl.covers, session.mode, verdict)
                self.findings.coverage.add_ddl(verdict)
            if verdict != "equal":
                why = differs.get(name) or held[name]
                failure = Failure(
                    table=table.path, why=f"{behind}: {why}", statements=tuple(table.statements)
                )
                kept = self.findings.failures if verdict == "failure" else self.findings.holds
                kept.append(failure)
                self._told(verdict, failure)
                del tables[name]

    def _differs(
        self,
        connection: Connection[Cursor],
        followed: FollowedTables,
        table: Table,
        shown: Sequence[ShownColumn],
    ) -> str | None:
        rows = followed.rows(table.name)
        if rows is None:
            return "it has no Delta table"
        found = compared(server_rows(connection, table.path, shown), rows, shown)
        return None if found is None else str(found)

    def stopped(self, why: str, tables: Mapping[str, Table]) -> None:
        """All of its tables that the line names, or else all with what they had last."""
        named = [each for each in tables.values() if re.search(rf"\b{each.name}\b", why)]
        for table in named or list(tables.values())[:1]:
            failure = Failure(
                table=table.path, why=f"it stopped: {why}", statements=tuple(table.statements)
            )
            self.findings.failures.append(failure)
            self._told("stopped", failure)


def enter(connection: Connection[Cursor], session: Session) -> bool:
    """Whether the server took it."""
    try:
        with connection.cursor() as cursor:
            for each in session.settings:
                cursor.execute(each)
    except Error:
        return False
    return True


def run(connection: Connection[Cursor], table: Table, statement: str) -> bool:
    """Whether the server took it."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
    except Error:
        return False
    table.statements.append(statement)
    return True
