"""Rounds of random DDLs over some hundred tables of one server, and the verdict on each.

    a life: tables are made and filled, copied, followed; then round by round each table gets
    changes of rows, one ALTER TABLE, changes of rows; when the stream has caught up, every cell is
    compared with the server's own, and `tidelake diff` must say the same.

A table that a DDL holds, or that differs, gets no more of them. A life has few rounds, so that held
tables do not fill it.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pymysql import Connection
from pymysql.cursors import Cursor
from pymysql.err import Error

from tests.acceptance.one_process import Life
from tests.differential.compared_cells import compared, is_delivered, server_rows
from tests.differential.coverage import Coverage
from tests.differential.followed_tables import BESIDE, DATABASE, FollowedTables, Stopped
from tests.differential.sessions import LAX, Session, random_session
from tests.differential.shown_tables import ShownColumn, read_columns
from tests.differential.statements import Alteration, TableStatements
from tests.services.database_editions import MARIADB_11_8
from tests.services.database_server import DatabaseServer

ROUNDS = 6  # of one life
TABLES = 100
_TRIES = 6  # of one table in one round, until the server takes a DDL
_ASKED = 4  # of so many tables one is asked of `tidelake diff` in a round, and each that differs


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
class _Table:
    name: str
    made: TableStatements
    statements: list[str] = field(default_factory=list)
    numbers: int = 0
    altered: tuple[Alteration, Session] | None = None  # of this round
    session: Session | None = None  # in which the last statement was

    @property
    def path(self) -> str:
        return f"{DATABASE}.{self.name}"


@dataclass(slots=True)
class Findings:
    coverage: Coverage
    failures: list[Failure] = field(default_factory=list)
    holds: list[Failure] = field(default_factory=list)


class DifferentialRun:
    """On one server that is up. ``told`` gets each failure and hold at once."""

    def __init__(
        self,
        server: DatabaseServer,
        seed: int,
        *,
        tables: int = TABLES,
        told: Callable[[str, Failure], None] = lambda _verdict, _failure: None,
    ) -> None:
        self._server = server
        self._seed = seed
        self._tables = tables
        self._told = told
        self._looks = self._rounds = 0
        self._omits = server.edition is MARIADB_11_8
        self.findings = Findings(Coverage(server.edition.name))

    def run(self, is_over: Callable[[int], bool]) -> Findings:
        """Life by life until ``is_over`` (of the rounds so far) says so."""
        lives = 0
        while not is_over(self._rounds):
            self._life(random.Random(f"{self._seed}/{lives}"), is_over)
            lives += 1
        return self.findings

    def replay(self, statements: Sequence[str], table: str, *, looks_often: bool = True) -> None:
        """Of one table, in order: what stands before the first ALTER is copied. ``looks_often``:
        behind each ALTER, not only at the end."""
        made = TableStatements(table=f"{DATABASE}.{table}", is_mariadb=True, flavour="")
        one = _Table(table, made)
        first = next((at for at, each in enumerate(statements) if _is_alter(each)), len(statements))
        with self._stage() as (connection, followed):
            for each in statements[:first]:
                self._run(connection, one, each)
            followed.copy()
            with followed.followed() as life:
                tables = {table: one}
                self._look(connection, followed, life, tables, "the copy")
                for each in statements[first:]:
                    if table not in tables:
                        break
                    self._run(connection, one, each)
                    if looks_often and _is_alter(each):
                        self._look(connection, followed, life, tables, each)
                if tables:
                    self._look(connection, followed, life, tables, "the end")

    def _life(self, dice: random.Random, is_over: Callable[[int], bool]) -> None:
        with self._stage() as (connection, followed):
            tables = self._filled(connection, dice)
            try:
                followed.copy()
                with followed.followed() as life:
                    self._look(connection, followed, life, tables, "the copy")
                    for number in range(ROUNDS):
                        if is_over(self._rounds):
                            break
                        self._round(connection, dice, tables, number)
                        self._look(connection, followed, life, tables, f"round {number}")
                        self._rounds += 1
            except Stopped as stopped:
                self._stopped(str(stopped), tables)
                self._rounds += 1

    @contextmanager
    def _stage(self) -> Iterator[tuple[Connection[Cursor], FollowedTables]]:
        with (
            tempfile.TemporaryDirectory(prefix="tidelake-differential-") as folder,
            self._server.database(DATABASE, "CHARACTER SET utf8mb4"),
            self._server.connect(charset="utf8mb4", database=DATABASE) as connection,
        ):
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TABLE {BESIDE} (id INT PRIMARY KEY)")
            yield connection, FollowedTables(self._server, Path(folder))

    def _filled(self, connection: Connection[Cursor], dice: random.Random) -> dict[str, _Table]:
        found: dict[str, _Table] = {}
        is_mariadb = self._server.edition.is_mariadb
        while len(found) < self._tables:
            name = f"t{len(found)}"
            made = TableStatements.random(dice, f"{DATABASE}.{name}", is_mariadb)
            table = _Table(name, made)
            self._enter(connection, table, LAX)
            if self._run(connection, table, made.create(dice)):
                found[name] = table
        columns = read_columns(connection, DATABASE)
        for table in found.values():
            for _ in range(7):
                self._insert(connection, dice, table, columns[table.name])
        return found

    def _round(
        self,
        connection: Connection[Cursor],
        dice: random.Random,
        tables: Mapping[str, _Table],
        number: int,
    ) -> None:
        columns = read_columns(connection, DATABASE)
        for table in tables.values():
            table.altered = None
            self._enter(connection, table, LAX)
            self._insert(connection, dice, table, columns[table.name])
            if dice.random() < 0.5:
                self._change(connection, dice, table, columns[table.name])
            for attempt in range(_TRIES):
                session = random_session(dice, self._server.edition.is_mariadb)
                ddl = table.made.alteration(dice, columns[table.name], number * 10 + attempt)
                if not self._enter(connection, table, session):
                    continue
                if self._run(connection, table, ddl.sql(table.path)):
                    table.altered = ddl, session
                    break
                self.findings.coverage.add(ddl.covers, session.mode, "refused")
                self.findings.coverage.add_ddl("refused")
        columns = read_columns(connection, DATABASE)
        for table in tables.values():
            if dice.random() < 0.7:
                self._enter(connection, table, LAX)
                self._insert(connection, dice, table, columns[table.name])
                self._change(connection, dice, table, columns[table.name])

    def _look(
        self,
        connection: Connection[Cursor],
        followed: FollowedTables,
        life: Life,
        tables: dict[str, _Table],
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
            if each in differs or at % _ASKED == self._looks % _ASKED
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
        table: _Table,
        shown: Sequence[ShownColumn],
    ) -> str | None:
        rows = followed.rows(table.name)
        if rows is None:
            return "it has no Delta table"
        found = compared(server_rows(connection, table.path, shown), rows, shown)
        return None if found is None else str(found)

    def _stopped(self, why: str, tables: Mapping[str, _Table]) -> None:
        """All of its tables that the line names, or else all with what they had last."""
        named = [each for each in tables.values() if re.search(rf"\b{each.name}\b", why)]
        for table in named or list(tables.values())[:1]:
            failure = Failure(
                table=table.path, why=f"it stopped: {why}", statements=tuple(table.statements)
            )
            self.findings.failures.append(failure)
            self._told("stopped", failure)

    def _insert(
        self,
        connection: Connection[Cursor],
        dice: random.Random,
        table: _Table,
        columns: Sequence[ShownColumn],
    ) -> None:
        table.numbers += 1
        for _ in range(3):
            if self._run(connection, table, table.made.insert(dice, columns, table.numbers)):
                return

    def _change(
        self,
        connection: Connection[Cursor],
        dice: random.Random,
        table: _Table,
        columns: Sequence[ShownColumn],
    ) -> None:
        newest = list(range(max(1, table.numbers - 2), table.numbers + 1))
        self._run(connection, table, table.made.change(dice, columns, newest))

    def _enter(self, connection: Connection[Cursor], table: _Table, session: Session) -> bool:
        if table.session == session and session is LAX:
            self._set(connection, session)
            return True
        is_so = self._set(connection, session)
        if is_so:
            table.session = session
            table.statements += session.settings
        return is_so

    @staticmethod
    def _set(connection: Connection[Cursor], session: Session) -> bool:
        try:
            with connection.cursor() as cursor:
                for each in session.settings:
                    cursor.execute(each)
        except Error:
            return False
        return True

    @staticmethod
    def _run(connection: Connection[Cursor], table: _Table, statement: str) -> bool:
        """Whether the server took it."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        except Error:
            return False
        table.statements.append(statement)
        return True


def _is_alter(statement: str) -> bool:
    return statement.startswith("ALTER")


def timed(minutes: float) -> Callable[[int], bool]:
    """Whether so much time is up, whatever the rounds."""
    begun = time.monotonic()
    return lambda _rounds: time.monotonic() - begun > minutes * 60


def read_statements(file: Path) -> tuple[list[str], str]:
    """Those of a file, one a line, and the table that they are about."""
    lines = file.read_text(encoding="utf-8").splitlines()
    statements = [each.rstrip(";") for each in lines if each and not each.startswith("--")]
    made = next(each for each in statements if each.startswith(f"CREATE TABLE {DATABASE}."))
    return statements, made.split()[2].removeprefix(f"{DATABASE}.")
