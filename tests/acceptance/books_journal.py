"""What has happened to the books: transactions, DDLs, and what every table was at each moment."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from coordination.model import TSO_LOGICAL_BITS
from tests.acceptance.changing_table import ChangingTable, Row
from tests.shop.canal_json import Change, Ddl, Op
from tests.shop.history import START_TS, SchemaChange, Transaction

Part = Literal["account", "order", "item", "posting"]


@dataclass(frozen=True, slots=True)
class TableThen:
    """What a target is from some moment on. ``roles`` as `ChangingTable` has them; ``key`` tells
    its rows apart, and ``is_live`` those of the table as it is."""

    part: Part
    columns: tuple[str, ...]
    key: tuple[str, ...]
    roles: Mapping[str, str]
    rows: Sequence[Row]
    is_live: Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """From ``ts`` on: the tables that are there, by ``schema.table``."""

    ts: int
    tables: Mapping[str, TableThen]


class Journal:
    """``ddls``: those that change a target, by commit-ts; ``ends``: when a table lost its name."""

    def __init__(self, dice: random.Random, rate: float, *, splits: bool) -> None:
        """``rate``: transactions a second, on TiDB's clock; ``splits``: an UPDATE that changes a
        key is sent as a DELETE and an INSERT."""
        self.moments: list[Moment] = []
        self.ddls: dict[int, str] = {}
        self.ends: list[tuple[int, str]] = []
        self._dice, self._rate, self._splits = dice, rate, splits
        self._ts = START_TS
        self._before: dict[tuple[ChangingTable, int], Row | None] = {}  # the open transaction
        self._then: dict[ChangingTable, TableThen] = {}
        self._parts: dict[ChangingTable, Part] = {}

    @property
    def last_ts(self) -> int:
        return self.moments[-1].ts

    def ts_at(self, part: float) -> int:
        return self.moments[int((len(self.moments) - 1) * part)].ts

    def at(self, ts: int) -> Moment:
        """As everything was at this ts."""
        return self.moments[bisect_right(self.moments, ts, key=lambda each: each.ts) - 1]

    # Transactions.

    def write(self, table: ChangingTable, id: int, row: Row | None) -> None:
        """In the open transaction; None: it is gone."""
        self._before.setdefault((table, id), table.rows.get(id))
        if row is None:
            del table.rows[id]
        else:
            table.rows[id] = row

    def commit(self) -> Transaction | None:
        """What the open transaction has changed in all, deletes first; None if that is nothing."""
        found: dict[ChangingTable, list[Change]] = {table: [] for table, _ in self._before}
        for (table, id), old in self._before.items():
            if (row := table.rows.get(id)) != old:
                found[table] += self._changes(table, old, row)
        self._before = {}
        changes = [change for each in found.values() for change in each]
        if not changes:
            return None
        ts = self._next_ts()
        for table, each in found.items():
            if table.form.after is not None:
                table.shown = table.form.after(table.shown, each, ts)
            self._look_at(table)
        self._note()
        return Transaction(ts, tuple(sorted(changes, key=lambda change: change.op)))

    def _changes(self, table: ChangingTable, old: Row | None, row: Row | None) -> list[Change]:
        if old is None or row is None:
            said = old or row
            assert said is not None
            op: Op = "INSERT" if old is None else "DELETE"
            return [Change(table=table.table(), op=op, row=said)]
        if self._splits and any(old[name] != row[name] for name in table.key):
            return [*self._changes(table, old, None), *self._changes(table, None, row)]
        return [Change(table=table.table(), op="UPDATE", row=row, old=old)]

    # DDLs.

    def passing(self, schema: str, table: str, kind: str, query: str) -> SchemaChange:
        """One that changes no target that is there."""
        event = SchemaChange(self._next_ts(), Ddl(schema, table, kind, query))
        self._note()
        return event

    def created(self, table: ChangingTable) -> SchemaChange:
        self._look_at(table)
        return self.passing(table.schema, table.name, "CREATE", table.creation)

    def changed(self, table: ChangingTable, kind: str, query: str) -> SchemaChange:
        """The DDL, which has changed ``table`` here already."""
        ts = self._next_ts()
        table.shown = table.form.ended(table.shown, table.rows, ts)
        self._look_at(table)
        self._note()
        return self._effective(SchemaChange(ts, Ddl(table.schema, table.name, kind, query)))

    def dropped(self, table: ChangingTable) -> SchemaChange:
        del self._then[table]
        query = f"DROP TABLE {table.sql_name}"
        event = self.passing(table.schema, table.name, "ERASE", query)
        self.ends.append((event.commit_ts, table.full_name))
        return self._effective(event)

    def renamed(
        self, tables: Mapping[ChangingTable, str], moves: Sequence[tuple[str, str]], query: str
    ) -> list[SchemaChange]:
        """One statement: of each of its ``moves`` TiCDC sends a message, all of one commit-ts.
        ``tables``: those that have another name afterwards."""
        ts = self._next_ts()
        for table, name in tables.items():
            self.ends.append((ts, table.full_name))
            table.rename(name)
        self._note()
        events = []
        for old, new in moves:
            told = query.format(*(f"`{name.replace('.', '`.`')}`" for name in (old, new)))
            schema, _, name = new.partition(".")
            events.append(SchemaChange(ts, Ddl(schema, name, "RENAME", told)))
        self.ddls[ts] = ", ".join(event.ddl.query for event in events)
        return events

    def _effective(self, event: SchemaChange) -> SchemaChange:
        self.ddls[event.commit_ts] = event.ddl.query
        return event

    # Moments.

    def _look_at(self, table: ChangingTable) -> None:
        form = table.form
        columns = [column.name for column in table.columns]
        self._then[table] = TableThen(
            part=self._parts[table],
            columns=(*columns, *form.columns),
            key=form.key,
            roles=dict(table.roles),
            rows=table.shown if form.after is not None else list(table.rows.values()),
            is_live=form.is_live,
        )

    def _note(self) -> None:
        tables = {table.full_name: then for table, then in self._then.items()}
        self.moments.append(Moment(self._ts, tables))

    def _next_ts(self) -> int:
        gap_ms = self._dice.expovariate(self._rate / 1000)
        self._ts += max(int(gap_ms * (1 << TSO_LOGICAL_BITS)), 1)
        return self._ts
