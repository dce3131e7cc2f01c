"""Books that balance: a seeded history of a bank and a shop whose tables change shape meanwhile.

    bank   three tables of accounts; the balances of all of them add up to zero
    shop   orders, each with the number of its items; items, each of an order that is there or none

Every transaction keeps both, and so does every DDL: where rows go without a DELETE (TRUNCATE, DROP
TABLE, DROP PARTITION), a transaction has taken their money and their orders from them before. So
whatever moment a snapshot shows, the invariants can be checked on what was found, without knowing
what it should be; and ``moments`` has what it should be, cell by cell.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coordination.model import TSO_LOGICAL_BITS
from tests.acceptance.changing_partitions import HashPartitions, Partitions, RangePartitions
from tests.acceptance.changing_table import KEY, ChangingTable, Row
from tests.shop.canal_json import Change, Ddl, Op
from tests.shop.history import START_TS, Event, SchemaChange, Transaction

Part = Literal["account", "order", "item"]
_MOST_ACCOUNTS, _MOST_ORDERS = 40, 30  # of a table
_MOST_NEW_ITEMS = 20  # of a transaction, with other new rows, which have ids of the same kind


@dataclass(frozen=True, slots=True)
class TableThen:
    """What a table is from some moment on. ``roles`` as `ChangingTable` has them."""

    part: Part
    columns: tuple[str, ...]
    roles: Mapping[str, str]
    rows: Mapping[int, Row]


@dataclass(frozen=True, slots=True)
class Moment:
    """From ``ts`` on: the tables that are there, by ``schema.table``."""

    ts: int
    tables: Mapping[str, TableThen]


class Books:
    """``events`` is to be read once; ``moments`` and ``ddls`` grow with it."""

    def __init__(
        self, seed: int, *, transactions: int = 1_000_000, ddl_every: int = 6, rate: float = 500.0
    ) -> None:
        """``ddl_every`` so many transactions; ``rate``: of them a second, on TiDB's clock."""
        self.seed = seed
        self.moments: list[Moment] = []
        self.ddls: dict[int, str] = {}  # that change a target, by commit-ts
        self._dice = random.Random(seed)
        self._transactions, self._ddl_every, self._rate = transactions, ddl_every, rate
        self._ts = START_TS
        self._last_id = 0
        self._before: dict[tuple[ChangingTable, int], Row | None] = {}  # the open transaction
        self._then: dict[ChangingTable, TableThen] = {}
        account = {"balance": "int"}
        self._accounts = [
            ChangingTable("bank", "checking", self._dice, roles=account),
            ChangingTable("bank", "savings", self._dice, roles=account),
            ChangingTable("bank", "loans", self._dice, roles=account, partitioned=HashPartitions),
        ]
        self._orders = ChangingTable("shop", "orders", self._dice, roles={"count": "smallint"})
        item = {"order": "int NULL"}
        self._items = ChangingTable(
            "shop", "items", self._dice, roles=item, partitioned=RangePartitions
        )
        self._tables = [*self._accounts, self._orders, self._items]

    @property
    def last_ts(self) -> int:
        return self.moments[-1].ts

    def ts_at(self, part: float) -> int:
        return self.moments[int((len(self.moments) - 1) * part)].ts

    def at(self, ts: int) -> Moment:
        """As everything was at this ts."""
        return self.moments[bisect_right(self.moments, ts, key=lambda each: each.ts) - 1]

    def events(self) -> Iterator[Event]:
        """In the order of their commit-ts."""
        for schema in ("bank", "shop"):
            yield self._ddl(schema, "", "QUERY", f"CREATE DATABASE `{schema}`")
        for table in self._tables:
            yield self._created(table)
        actions, weights = zip(*self._actions().items(), strict=True)
        for number in range(1, self._transactions + 1):
            yield from self._new_partitions()
            if number % self._ddl_every == 0:
                yield from self._some_ddl()
            while not (changes := self._commit()):
                self._dice.choices(actions, weights)[0]()
            yield self._transaction(changes)

    # What happens in the bank and in the shop.

    def _actions(self) -> Mapping[Callable[[], None], int]:
        return {
            self._transfer: 8,
            self._pay_wages: 1,
            self._open_account: 4,
            self._close_account: 2,
            self._renumber_account: 2,
            self._new_order: 5,
            self._add_item: 4,
            self._remove_item: 3,
            self._move_item: 2,
            self._return_item: 1,
            self._delete_order: 2,
            self._edit: 4,
        }

    def _transfer(self) -> None:
        one, other = self._any_account(), self._any_account()
        if one and other:
            self._pay(*one, *other, self._dice.randrange(1, 10_000))

    def _pay_wages(self) -> None:
        """A large transaction."""
        for _ in range(self._dice.randint(10, 30)):
            self._transfer()

    def _open_account(self) -> None:
        table, payer = self._dice.choice(self._accounts), self._any_account()
        if len(table.rows) < _MOST_ACCOUNTS:
            id = self._new_id()
            self._write(table, id, table.new_row(id, balance=0))
            if payer:
                self._pay(*payer, table, id, self._dice.randrange(1, 10_000))

    def _close_account(self) -> None:
        if account := self._any_account():
            table, id = account
            self._free(table, [id])
            self._write(table, id, None)

    def _renumber_account(self) -> None:
        """The key changes: a DELETE and an INSERT."""
        if account := self._any_account():
            table, id = account
            row, new_id = table.rows[id], self._new_id()
            self._write(table, id, None)
            self._write(table, new_id, row | {KEY: new_id})

    def _new_order(self) -> None:
        if len(self._orders.rows) < _MOST_ORDERS:
            id, count = self._new_id(), self._dice.randrange(4)
            self._write(self._orders, id, self._orders.new_row(id, count=count))
            for _ in range(count):
                self._put_item(id)

    def _add_item(self) -> None:
        if (order := self._any(self._orders)) is not None:
            self._put_item(order)
            self._count(order, 1)

    def _remove_item(self) -> None:
        if (item := self._any(self._items)) is not None:
            self._free(self._items, [item])
            self._write(self._items, item, None)

    def _move_item(self) -> None:
        item, order = self._any(self._items), self._any(self._orders)
        if item is not None and order is not None:
            self._free(self._items, [item])
            row = self._items.with_values(self._items.rows[item], order=order)
            self._write(self._items, item, row)
            self._count(order, 1)

    def _return_item(self) -> None:
        if (item := self._any(self._items)) is not None:
            self._free(self._items, [item])

    def _delete_order(self) -> None:
        if (order := self._any(self._orders)) is not None:
            for item in self._items_of({order}):
                self._write(self._items, item, None)
            self._write(self._orders, order, None)

    def _edit(self) -> None:
        for table in self._dice.sample(self._tables, 2):
            if (id := self._any(table)) is not None:
                self._write(table, id, table.edited(table.rows[id]))

    def _put_item(self, order: int) -> None:
        id = self._new_id()
        self._write(self._items, id, self._items.new_row(id, order=order))

    def _count(self, order: int, more: int) -> None:
        row = self._orders.rows[order]
        count = row[self._orders.roles["count"]] + more
        self._write(self._orders, order, self._orders.with_values(row, count=count))

    def _items_of(self, orders: set[int]) -> list[int]:
        name = self._items.roles["order"]
        return [id for id, row in self._items.rows.items() if row[name] in orders]

    def _pay(
        self, table: ChangingTable, id: int, other: ChangingTable, other_id: int, amount: Any
    ) -> None:
        for to, key, change in ((table, id, -amount), (other, other_id, amount)):
            row = to.rows[key]
            balance = row[to.roles["balance"]] + change
            self._write(to, key, to.with_values(row, balance=balance))

    def _free(self, table: ChangingTable, ids: Iterable[int]) -> None:
        """Nothing depends on these rows any more: no money, no order, no item."""
        gone = set(ids)
        if table is self._orders:
            self._free(self._items, self._items_of(gone))
        elif table is self._items:
            name = table.roles["order"]
            for id in sorted(gone):
                if (order := table.rows[id][name]) is not None:
                    self._write(table, id, table.with_values(table.rows[id], order=None))
                    self._count(order, -1)
        else:
            heir = self._any_account(table, gone)
            if heir is None:  # somewhere the money must go
                other = self._dice.choice([each for each in self._accounts if each is not table])
                heir = other, self._new_id()
                self._write(other, heir[1], other.new_row(heir[1], balance=0))
            for id in sorted(gone):
                self._pay(table, id, *heir, table.rows[id][table.roles["balance"]])

    # DDLs.

    def _some_ddl(self) -> Iterator[Event]:
        table, roll = self._dice.choice(self._tables), self._dice.random()
        if roll < 0.08:
            yield self._ddl(table.schema, table.name, *table.neutral())
        elif roll < 0.75 or (roll < 0.9 and table.partitions is None):
            yield self._effective(table, "ALTER", table.alter())
        elif roll < 0.9 and table.partitions is not None:
            yield from self._about_partitions(table, table.partitions)
        elif roll < 0.95:
            yield from self._without(table, table.rows)
            table.rows = {}
            yield self._effective(table, "TRUNCATE", f"TRUNCATE TABLE {table.sql_name}")
        else:
            yield from self._without(table, table.rows)
            yield self._dropped(table)
            table.begin(self._last_id)
            yield self._created(table)

    def _about_partitions(self, table: ChangingTable, partitions: Partitions) -> Iterator[Event]:
        if self._dice.random() < 0.3:
            yield self._altered(table, partitions.changed())
            return
        part, gone = partitions.emptied(table.rows)
        yield from self._without(table, gone)
        for id in gone:
            del table.rows[id]
        yield self._altered(table, part)

    def _altered(self, table: ChangingTable, part: str) -> Event:
        return self._effective(table, "ALTER", f"ALTER TABLE {table.sql_name} {part}")

    def _new_partitions(self) -> Iterator[Event]:
        partitions = self._items.partitions
        assert isinstance(partitions, RangePartitions)
        while part := partitions.grown(self._last_id + _MOST_NEW_ITEMS):
            yield self._altered(self._items, part)

    def _created(self, table: ChangingTable) -> Event:
        self._then[table] = self._now(table)
        return self._ddl(table.schema, table.name, "CREATE", table.creation)

    def _dropped(self, table: ChangingTable) -> Event:
        del self._then[table]
        query = f"DROP TABLE {table.sql_name}"
        event = self._ddl(table.schema, table.name, "ERASE", query)
        self.ddls[event.commit_ts] = query
        return event

    def _without(self, table: ChangingTable, ids: Iterable[int]) -> Iterator[Event]:
        """The transaction before a DDL that removes these rows."""
        self._free(table, ids)
        if changes := self._commit():
            yield self._transaction(changes)

    def _effective(self, table: ChangingTable, kind: str, query: str) -> Event:
        """The DDL, which has changed ``table`` here already."""
        self._then[table] = self._now(table)
        event = self._ddl(table.schema, table.name, kind, query)
        self.ddls[event.commit_ts] = query
        return event

    def _ddl(self, schema: str, table: str, kind: str, query: str) -> SchemaChange:
        event = SchemaChange(self._next_ts(), Ddl(schema, table, kind, query))
        self._note()
        return event

    # Transactions and moments.

    def _write(self, table: ChangingTable, id: int, row: Row | None) -> None:
        self._before.setdefault((table, id), table.rows.get(id))
        if row is None:
            del table.rows[id]
        else:
            table.rows[id] = row

    def _commit(self) -> list[Change]:
        """What the open transaction has changed in all, deletes first."""
        changes = []
        for (table, id), old in self._before.items():
            row = table.rows.get(id)
            if row == old:
                continue
            op: Op = "INSERT" if old is None else "UPDATE" if row is not None else "DELETE"
            said = row if row is not None else old
            assert said is not None
            before = old if op == "UPDATE" else None
            changes.append(Change(table=table.table(), op=op, row=said, old=before))
        for table in {table for table, _ in self._before}:
            self._then[table] = self._now(table)
        self._before = {}
        return sorted(changes, key=lambda change: change.op)

    def _transaction(self, changes: list[Change]) -> Transaction:
        event = Transaction(self._next_ts(), tuple(changes))
        self._note()
        return event

    def _note(self) -> None:
        tables = {table.full_name: then for table, then in self._then.items()}
        self.moments.append(Moment(self._ts, tables))

    def _now(self, table: ChangingTable) -> TableThen:
        names: Mapping[ChangingTable, Part] = {self._orders: "order", self._items: "item"}
        columns = tuple(column.name for column in table.columns)
        part = names.get(table, "account")
        return TableThen(part, columns, dict(table.roles), dict(table.rows))

    def _next_ts(self) -> int:
        gap_ms = self._dice.expovariate(self._rate / 1000)
        self._ts += max(int(gap_ms * (1 << TSO_LOGICAL_BITS)), 1)
        return self._ts

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _any(self, table: ChangingTable) -> int | None:
        return self._dice.choice(list(table.rows)) if table.rows else None

    def _any_account(
        self, table: ChangingTable | None = None, besides: Iterable[int] = ()
    ) -> tuple[ChangingTable, int] | None:
        """But none of those ``besides`` in ``table``."""
        gone = set(besides)
        found = [
            (each, id)
            for each in self._accounts
            for id in each.rows
            if each is not table or id not in gone
        ]
        return self._dice.choice(found) if found else None
