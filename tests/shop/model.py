"""What the tables must hold: the history applied by plain Python, and the comparison with Delta."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.services.delta_rows import first_difference, read_rows
from tests.shop.canal_json import Row, Table
from tests.shop.history import Event, Transaction
from tests.shop.tables import SCHEMA, TABLES

Rows = dict[tuple[Any, ...], Row]
_TABLES = {table.name: table for table in TABLES}


class Model:
    """The shop's tables at a point in time; feed it events in the order of their commit-ts."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = {}
        self.ts = 0

    @classmethod
    def of(cls, events: Iterable[Event], up_to: int | None = None) -> Model:
        """All events, or those with a commit-ts at or below ``up_to``."""
        model = cls()
        for event in events:
            if up_to is not None and event.commit_ts > up_to:
                break
            model.apply(event)
        return model

    def apply(self, event: Event) -> None:
        assert event.commit_ts >= self.ts, "events must come in the order of their commit-ts"
        self.ts = event.commit_ts
        if isinstance(event, Transaction):
            self._apply_transaction(event)
        elif event.ddl.kind == "CREATE":
            self.tables[event.ddl.table] = {}

    def _apply_transaction(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            rows = self.tables[change.table.name]
            match change.op:
                case "DELETE":
                    del rows[change.key]
                case "UPDATE":
                    assert change.key in rows
                    rows[change.key] = change.row
                case "INSERT":
                    assert change.key not in rows
                    rows[change.key] = change.row

    def paid_and_payments(self) -> tuple[Decimal, Decimal]:
        """The two sums that are equal after every transaction."""
        orders, payments = self.tables["orders"].values(), self.tables["payments"].values()
        paid = sum((row["amount"] for row in orders if row["status"] == "paid"), Decimal(0))
        return paid, sum((row["amount"] for row in payments), Decimal(0))

    def differences(
        self,
        warehouse: str | Path,
        versions: Mapping[str, int] | None = None,
        read: Callable[[str, int | None], list[dict[str, Any]]] = read_rows,
    ) -> list[str]:
        """One line per target table that is not, row for row, as it is here.

        ``versions`` (``schema.table`` -> Delta version, as in the ledger) reads the tables there.
        """
        found = []
        for name, rows in self.tables.items():
            version = versions[f"{SCHEMA}.{name}"] if versions is not None else None
            actual = read(f"{warehouse}/{SCHEMA}/{name}", version)
            if (line := table_difference(_TABLES[name], rows.values(), actual)) is not None:
                found.append(line)
        return found


def table_difference(
    table: Table, expected: Iterable[Row], actual: list[dict[str, Any]]
) -> str | None:
    """None where both are equal; else the first difference, with the table's name."""
    surplus = {column for row in actual for column in row} - set(table.by_name)
    if surplus:
        return f"{table.name}: columns {sorted(surplus)} should not be there"
    line = first_difference(expected, actual, table.primary_key)
    return f"{table.name}: {line}" if line else None
