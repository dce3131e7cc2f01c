"""A bank that is copied while it is open: what must hold of the tables that a first copy began.

Beside the bank's own tables there are savings, many rows in many chunks, between which movers
transfer; and slips, a table without a key that gets a row with each transfer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pymysql

from tests.acceptance import bank
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import first_difference, read_rows

RULES: Final = (
    bank.RULES
    + """
[[sink.tables]]
matcher = ["bank.transfers", "bank.slips"]
write-mode = "append"
"""
)
SAVINGS: Final = 6_000
CHUNK_ROWS: Final = 100


def opened(server: DatabaseServer) -> None:
    bank.opened(server)
    server.execute(
        "CREATE TABLE bank.savings (id INT PRIMARY KEY, balance BIGINT NOT NULL, moved INT)",
        "CREATE TABLE bank.slips (mover INT, number INT, amount INT)",
    )
    server.insert("bank.savings", [(2 * id_, 100, 0) for id_ in range(SAVINGS)])


class Mover(bank.Teller):
    """Transfers between savings: an amount, or the whole row to another key."""

    def _work(self, connection: Any, cursor: Any) -> None:
        while not self._stopping.wait(self._rest_s * self._dice.random()):
            try:
                self._move_savings(cursor)
                connection.commit()
                self.committed += 1
            except (pymysql.err.IntegrityError, pymysql.err.OperationalError) as error:
                if error.args[0] not in (1062, 1205, 1213, 1020):
                    raise
                connection.rollback()

    def _move_savings(self, cursor: Any) -> None:
        dice = self._dice
        amount = dice.randint(1, 9)
        for by in (amount, -amount):
            at = 2 * dice.randrange(SAVINGS)
            cursor.execute(
                "UPDATE savings SET balance = balance + %s, moved = moved + 1 WHERE id >= %s "
                "ORDER BY id LIMIT 1",
                (by, at),
            )
        if dice.random() < 0.5:
            at, to = dice.randrange(2 * SAVINGS), dice.randrange(2 * SAVINGS)
            cursor.execute("UPDATE savings SET id = %s WHERE id = %s", (to, at))
        cursor.execute(
            "INSERT INTO slips VALUES (%s, %s, %s)", (self._seed, self.committed, amount)
        )


def differences(server: DatabaseServer, warehouse: Path) -> list[str]:
    """Between what the database selects and what the tables have now."""
    found = {table: read_rows(warehouse / "bank" / table) for table in TABLES}
    out = _of_a_cut(found)
    for table in TABLES:
        with server.connect(cursorclass=pymysql.cursors.DictCursor) as link, link.cursor() as ask:
            ask.execute(f"SELECT * FROM bank.{table}")
            expected = list(ask.fetchall())
        key = None if table == "slips" else bank.KEY
        if (line := first_difference(expected, _as_it_is(table, found[table]), key)) is not None:
            out.append(f"{table}: {line}")
    return out


def cut_differences(warehouse: Path, versions: Mapping[str, int]) -> list[str]:
    """What does not balance in a published snapshot."""
    names = {name.rpartition(".")[2]: version for name, version in versions.items()}
    assert names.keys() == set(TABLES), names
    return _of_a_cut(
        {table: read_rows(warehouse / "bank" / table, at) for table, at in names.items()}
    )


TABLES: Final = (*bank.FORMS, "transfers", "savings", "slips")


def _of_a_cut(found: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    out = []
    states = {table: list(_as_it_is(table, found[table])) for table in bank.FORMS}
    for table, rows in states.items():
        total = sum(row["balance"] for row in rows)
        if (total, len(rows)) != (bank.ACCOUNTS * bank.START, bank.ACCOUNTS):
            out.append(f"{table}: {len(rows)} accounts have {total}")
        if (line := first_difference(states["accounts"], rows, bank.KEY)) is not None:
            out.append(f"{table}, beside accounts: {line}")
    savings = found["savings"]
    if sum(row["balance"] for row in savings) != 100 * SAVINGS or len(savings) != SAVINGS:
        out.append(f"{len(savings)} savings have {sum(row['balance'] for row in savings)}")
    for table, key in (("transfers", ("id",)), ("slips", ("mover", "number"))):
        times = Counter(tuple(row[name] for name in key) for row in found[table])
        out += [f"{table} {at} is there {n} times" for at, n in times.items() if n > 1]
    out += _unlike_events(found)
    return out


def _unlike_events(found: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Transactions behind both logs' beginnings: each has as many events as it noted."""
    begin = max(
        min((row["_commit_ts"] for row in found[table]), default=0)
        for table in ("log", "transfers")
    )
    events = Counter(
        row["_commit_ts"]
        for row in found["log"]
        if row["_commit_ts"] > begin and row["_op"] != "update_preimage"
    )
    told = {
        row["_commit_ts"]: row["events"]
        for row in found["transfers"]
        if row["_commit_ts"] > begin and row["events"]
    }
    return [
        f"log: {events[ts]} events at {ts}, {told.get(ts)} were written"
        for ts in events.keys() | told.keys()
        if events[ts] != told.get(ts)
    ]


def _as_it_is(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(bank.as_it_is(table, rows))
