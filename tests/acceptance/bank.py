"""A bank in a real database: transfers that keep the sum, and what a lake of it must show.

Every transaction does the same to each of `FORMS`, tables that are written in different ways.
Beside that it notes the transfer, and how many events a change log of its rows has.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pymysql

from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import Row, first_difference, read_rows

FORMS: Final = ("accounts", "marked", "log", "past")
RULES: Final = """
[[sink.tables]]
matcher = ["bank.marked"]
soft-delete = true
[[sink.tables]]
matcher = ["bank.log"]
write-mode = "append"
[[sink.tables]]
matcher = ["bank.past"]
write-mode = "history"
"""
ACCOUNTS: Final = 30
START: Final = 1_000  # in each account
KEY: Final = ("id",)
_NEW: Final = ("insert", "update_postimage")


def opened(server: DatabaseServer) -> None:
    """The tables, with the accounts in them."""
    columns = "(id INT PRIMARY KEY, owner VARCHAR(40), balance BIGINT NOT NULL)"
    rows = ", ".join(f"({id_}, 'owner {id_}', {START})" for id_ in range(ACCOUNTS))
    server.execute(
        "CREATE DATABASE bank",
        *(f"CREATE TABLE bank.{table} {columns}" for table in FORMS),
        "CREATE TABLE bank.transfers (id BIGINT PRIMARY KEY AUTO_INCREMENT, events INT NOT NULL, "
        "note VARCHAR(200))",
        "BEGIN",
        *(f"INSERT INTO bank.{table} VALUES {rows}" for table in FORMS),
        f"INSERT INTO bank.transfers (events, note) VALUES ({ACCOUNTS}, 'opened')",
        "COMMIT",
    )


class Teller:
    """A thread with a connection of its own, which makes random transactions until it is told to
    stop. A database that is away is tried again."""

    def __init__(self, server: DatabaseServer, seed: int, *, rest_s: float = 0.25) -> None:
        self._server = server
        self._dice = random.Random(seed)
        self._seed = seed
        self._rest_s = rest_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._events = 0
        self.committed = 0

    def __enter__(self) -> Teller:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a teller hangs"

    def _run(self) -> None:
        while not self._stopping.is_set():
            with (
                suppress(pymysql.err.MySQLError, OSError),
                self._server.connect(
                    autocommit=False, database="bank", connect_timeout=2, read_timeout=60
                ) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SET innodb_lock_wait_timeout = 2")
                self._work(connection, cursor)
            self._stopping.wait(0.1)

    def _work(self, connection: Any, cursor: Any) -> None:
        while not self._stopping.wait(self._rest_s * self._dice.random()):
            try:
                self._transaction(cursor)
                if self._dice.random() < 0.1:
                    connection.rollback()
                    continue
                connection.commit()
                self.committed += 1
            except (pymysql.err.IntegrityError, pymysql.err.OperationalError) as error:
                if error.args[0] not in (1062, 1205, 1213, 1020):  # in the way of another teller
                    raise
                connection.rollback()

    def _transaction(self, cursor: Any) -> None:
        dice, self._events = self._dice, 0
        for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
            steps = (self._move, self._again, self._there_and_back, self._flash)
            step = dice.choice((*steps, *[self._transfer] * 3))
            if dice.random() < 0.15:
                before = self._events
                cursor.execute("SAVEPOINT s")
                step(cursor)
                cursor.execute("ROLLBACK TO SAVEPOINT s")
                self._events = before
            else:
                step(cursor)
        cursor.execute(
            "INSERT INTO transfers (events, note) VALUES (%s, %s)",
            (self._events, f"teller {self._seed} " + "x" * dice.randint(0, 150)),
        )

    def _transfer(self, cursor: Any) -> None:
        some = self._some(cursor, 2)
        amount = self._dice.randint(1, 50)
        for id_, by in zip(some, (amount, -amount), strict=True):
            self._each(cursor, f"UPDATE {{}} SET balance = balance + {by} WHERE id = {id_}", 1)

    def _move(self, cursor: Any) -> None:
        """Another key."""
        (id_,) = self._some(cursor, 1)
        to = self._dice.randrange(10_000)
        self._each(cursor, f"UPDATE {{}} SET id = {to} WHERE id = {id_}", int(to != id_))

    def _there_and_back(self, cursor: Any) -> None:
        (id_,) = self._some(cursor, 1)
        to = self._dice.randrange(10_000, 20_000)
        self._each(cursor, f"UPDATE {{}} SET id = {to} WHERE id = {id_}", 1)
        self._each(cursor, f"UPDATE {{}} SET id = {id_} WHERE id = {to}", 1)

    def _again(self, cursor: Any) -> None:
        """The same account, deleted and inserted."""
        (id_,) = self._some(cursor, 1)
        cursor.execute(f"SELECT owner, balance FROM accounts WHERE id = {id_} FOR UPDATE")
        owner, balance = cursor.fetchone()
        self._each(cursor, f"DELETE FROM {{}} WHERE id = {id_}", 1)
        self._each(cursor, f"INSERT INTO {{}} VALUES ({id_}, '{owner}!', {balance})"[:200], 1)

    def _flash(self, cursor: Any) -> None:
        """An account that lives for a part of the transaction."""
        id_ = self._dice.randrange(20_000, 30_000)
        self._each(cursor, f"INSERT INTO {{}} VALUES ({id_}, 'flash', 5)", 1)
        self._each(cursor, f"DELETE FROM {{}} WHERE id = {id_}", 1)

    def _some(self, cursor: Any, count: int) -> list[int]:
        cursor.execute("SELECT id FROM accounts ORDER BY id FOR UPDATE")
        return self._dice.sample([row[0] for row in cursor.fetchall()], count)

    def _each(self, cursor: Any, statement: str, events: int) -> None:
        for table in FORMS:
            cursor.execute(statement.format(table))
        self._events += events


def differences(server: DatabaseServer, warehouse: Path) -> list[str]:
    """Between what the database selects and what the tables have now."""
    found = {table: read_rows(warehouse / "bank" / table) for table in (*FORMS, "transfers")}
    out = _of_a_cut(found)
    for table in (*FORMS, "transfers"):
        with server.connect(cursorclass=pymysql.cursors.DictCursor) as link, link.cursor() as ask:
            ask.execute(f"SELECT * FROM bank.{table}")
            expected: Sequence[Row] = list(ask.fetchall())
        if (line := first_difference(expected, as_it_is(table, found[table]), KEY)) is not None:
            out.append(f"{table}: {line}")
    return out


def cut_differences(warehouse: Path, versions: Mapping[str, int]) -> list[str]:
    """What does not balance in a published snapshot."""
    names = {name.rpartition(".")[2]: version for name, version in versions.items()}
    if names.keys() != {*FORMS, "transfers"}:
        return []  # some were not made yet
    return _of_a_cut(
        {table: read_rows(warehouse / "bank" / table, at) for table, at in names.items()}
    )


def _of_a_cut(found: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    if not found["transfers"]:
        return [f"rows before any transfer: {found}"] if any(found.values()) else []
    out = []
    states = {table: list(as_it_is(table, found[table])) for table in FORMS}
    for table, rows in states.items():
        total = sum(row["balance"] for row in rows)
        if (total, len(rows)) != (ACCOUNTS * START, ACCOUNTS):
            out.append(f"{table}: {len(rows)} accounts have {total}")
        if (line := first_difference(states["accounts"], rows, KEY)) is not None:
            out.append(f"{table}, beside accounts: {line}")
    events = sum(row["_op"] != "update_preimage" for row in found["log"])
    if events != (told := sum(row["events"] for row in found["transfers"])):
        out.append(f"log: {events} events, {told} were written")
    return out


def as_it_is(table: str, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows that the database has, out of those of a form."""
    match table:
        case "marked":
            kept = (row for row in rows if not row["_tidelake_deleted"])
        case "past":
            kept = (row for row in rows if row["_is_current"])
        case "log":
            kept = iter(_played(rows))
        case _:
            kept = iter(rows)
    return ({name: row[name] for name in row if not name.startswith("_")} for row in kept)


def _played(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    by_event: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_event[row["_commit_ts"], row["_commit_order"]].append(row)
    for at in sorted(by_event):
        for row in sorted(
            by_event[at], key=lambda row: row["_op"] in ("insert", "update_postimage")
        ):
            if row["_op"] in ("delete", "update_preimage"):
                state.pop(row["id"], None)
            else:
                state[row["id"]] = row
    return list(state.values())
