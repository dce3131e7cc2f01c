"""Rounds of random DDLs over some hundred tables of one server, and the verdict on each.

    a life: tables are made and filled, copied, followed; then round by round each table gets
    changes of rows, one ALTER TABLE, changes of rows; when the stream has caught up, every cell is
    compared with the server's own, and `tidelake diff` must say the same.

A table that a DDL holds, or that differs, gets no more of them. A life has few rounds, so that held
tables do not fill it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from pymysql import Connection
from pymysql.cursors import Cursor

from tests.differential.followed_tables import DATABASE, Stopped
from tests.differential.oracle import Findings, Oracle, Table, enter, run
from tests.differential.sessions import LAX, Session, random_session
from tests.differential.shown_tables import ShownColumn, read_columns
from tests.differential.statements import Alteration, TableStatements

ROUNDS = 6  # of one life
TABLES = 100
_TRIES = 6  # of one table in one round, until the server takes a DDL


class DifferentialRun:
    """On one server that is up, which the oracle asks."""

    def __init__(self, oracle: Oracle, seed: int, *, tables: int = TABLES) -> None:
        self._oracle = oracle
        self._is_mariadb = oracle.server.edition.is_mariadb
        self._seed = seed
        self._tables = tables
        self._rounds = 0

    def run(self, is_over: Callable[[int], bool]) -> Findings:
        """Life by life until ``is_over`` (of the rounds so far) says so."""
        lives = 0
        while not is_over(self._rounds):
            self._life(random.Random(f"{self._seed}/{lives}"), is_over)
            lives += 1
        return self._oracle.findings

    def _life(self, dice: random.Random, is_over: Callable[[int], bool]) -> None:
        with self._oracle.stage() as (connection, followed):
            tables = self._filled(connection, dice)
            try:
                followed.copy()
                with followed.followed() as life:
                    self._oracle.look(connection, followed, life, tables, "the copy")
                    for number in range(ROUNDS):
                        if is_over(self._rounds):
                            break
                        self._round(connection, dice, tables, number)
                        self._oracle.look(connection, followed, life, tables, f"round {number}")
                        self._rounds += 1
            except Stopped as stopped:
                self._oracle.stopped(str(stopped), tables)
                self._rounds += 1

    def _filled(self, connection: Connection[Cursor], dice: random.Random) -> dict[str, Table]:
        found: dict[str, Table] = {}
        while len(found) < self._tables:
            name = f"t{len(found)}"
            made = TableStatements.random(dice, f"{DATABASE}.{name}", self._is_mariadb)
            table = Table(name, made)
            self._enter(connection, table, LAX)
            if run(connection, table, made.create(dice)):
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
        tables: dict[str, Table],
        number: int,
    ) -> None:
        columns = read_columns(connection, DATABASE)
        for table in list(tables.values()):
            table.altered = None
            self._enter(connection, table, LAX)
            self._insert(connection, dice, table, columns[table.name])
            if dice.random() < 0.5:
                self._change(connection, dice, table, columns[table.name])
            if dice.random() < 0.06:
                self._rename(connection, dice, tables, table, number)
                continue
            for attempt in range(_TRIES):
                session = random_session(dice, self._is_mariadb)
                ddl = table.made.alteration(dice, columns[table.name], number * 10 + attempt)
                if not self._enter(connection, table, session):
                    continue
                if run(connection, table, ddl.sql(table.path)):
                    table.altered = ddl, session
                    break
                self._oracle.findings.coverage.add(ddl.covers, session.mode, "refused")
                self._oracle.findings.coverage.add_ddl("refused")
        columns = read_columns(connection, DATABASE)
        for table in tables.values():
            if dice.random() < 0.7:
                self._enter(connection, table, LAX)
                self._insert(connection, dice, table, columns[table.name])
                self._change(connection, dice, table, columns[table.name])

    def _rename(
        self,
        connection: Connection[Cursor],
        dice: random.Random,
        tables: dict[str, Table],
        table: Table,
        number: int,
    ) -> None:
        statement, name = table.made.renaming(dice, number)
        if run(connection, table, statement):
            del tables[table.name]
            table.rename(name)
            tables[table.name] = table
            chain = str(statement.count(" TO "))
            table.altered = Alteration(specs=(), covers=(("rename", "table", chain),)), LAX

    def _insert(
        self,
        connection: Connection[Cursor],
        dice: random.Random,
        table: Table,
        columns: Sequence[ShownColumn],
    ) -> None:
        table.numbers += 1
        for _ in range(3):
            if run(connection, table, table.made.insert(dice, columns, table.numbers)):
                return

    def _change(
        self,
        connection: Connection[Cursor],
        dice: random.Random,
        table: Table,
        columns: Sequence[ShownColumn],
    ) -> None:
        newest = list(range(max(1, table.numbers - 2), table.numbers + 1))
        run(connection, table, table.made.change(dice, columns, newest))

    def _enter(self, connection: Connection[Cursor], table: Table, session: Session) -> bool:
        if table.session == session and session is LAX:
            enter(connection, session)
            return True
        is_so = enter(connection, session)
        if is_so:
            table.session = session
            table.statements += session.settings
        return is_so


def timed(minutes: float) -> Callable[[int], bool]:
    """Whether so much time is up, whatever the rounds."""
    begun = time.monotonic()
    return lambda _rounds: time.monotonic() - begun > minutes * 60
