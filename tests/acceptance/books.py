"""Books that balance: a seeded history of a bank and a shop whose tables change shape meanwhile.

    bank   three tables of accounts; the balances of all of them add up to zero. What is paid is
           posted in a table of which the target is the log of its events
    shop   orders, each with the number of its items; items, each of an order that is there or none

Every transaction keeps both, and so does every DDL: where rows go without a DELETE (TRUNCATE, DROP
TABLE, DROP PARTITION), a transaction has taken their money and their orders from them before. So
whatever moment a snapshot shows, the invariants can be checked on what was found, without knowing
what it should be; and ``moments`` has what it should be, cell by cell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from conf.settings import TableRule
from tests.acceptance.books_journal import Journal, Part
from tests.acceptance.changing_partitions import HashPartitions, Partitions, RangePartitions
from tests.acceptance.changing_table import KEY, ChangingTable
from tests.acceptance.shown import BY_ALL_COLUMNS, DELETED_STAY, LOGGED, UPSERTED, VERSIONED, Shown
from tests.shop.history import Event

_NAMES = {  # that tables take from each other, and as which they stand in the settings
    "account": (
        *("bank.checking", "bank.savings", "bank.loans", "bank.spare"),
        *("shop.savings", "vault.loans", "vault.savings"),
    ),
    "order": ("shop.orders", "shop.spare", "vault.orders"),
    "item": ("shop.items", "bank.items", "vault.items"),
    "posting": ("bank.postings", "bank.postings2", "vault.postings"),
}
_FORMS = (UPSERTED, UPSERTED, VERSIONED, DELETED_STAY, BY_ALL_COLUMNS)
NAMES_ALONE = 0.8  # the least roll of a history in which tables are renamed, dropped and made
_TMP = "shop.tmp"
_MOST_ACCOUNTS, _MOST_ORDERS, _MOST_POSTINGS = 40, 30, 30  # of a table
_MOST_NEW_ITEMS = 60  # of a transaction, with other new rows, which have ids of the same kind


class Books(Journal):
    """``events`` is to be read once; ``moments`` and ``ddls`` grow with it."""

    def __init__(
        self,
        seed: int,
        *,
        transactions: int = 1_000_000,
        ddl_every: int = 6,
        rate: float = 500.0,
        has_forms: bool = True,
        least_roll: float = 0.0,
    ) -> None:
        """``ddl_every`` so many transactions; ``has_forms``: a change log, and other tables in
        other forms than upserted; ``least_roll``: of the dice that choose a DDL (`_some_ddl`)."""
        dice = random.Random(seed)
        super().__init__(dice, rate, splits=dice.random() < 0.5)
        self.seed, self.has_forms = seed, has_forms
        self._transactions, self._ddl_every = transactions, ddl_every
        self._least_roll = least_roll
        self._last_id = 0
        parts: tuple[Part, ...] = ("account", "order", "item")
        self._forms: dict[Part, Shown] = {
            each: dice.choice(_FORMS) if has_forms else UPSERTED for each in parts
        }
        if has_forms:
            self._forms["posting"] = LOGGED

        def table(name: str, part: Part, role: str, **options: Any) -> ChangingTable:
            schema, _, name = name.partition(".")
            (role, kind), form = role.split(":"), self._forms.get(part, UPSERTED)
            made = ChangingTable(schema, name, dice, roles={role: kind}, form=form, **options)
            self._parts[made] = part
            return made

        self._accounts = [
            table("bank.checking", "account", "balance:int"),
            table("bank.savings", "account", "balance:int"),
            table("bank.loans", "account", "balance:int", partitioned=HashPartitions),
        ]
        self._orders = table("shop.orders", "order", "count:smallint")
        self._items = table("shop.items", "item", "order:int NULL", partitioned=RangePartitions)
        self._postings = table("bank.postings", "posting", "amount:int")
        self._tables = [*self._accounts, self._orders, self._items]
        if has_forms:
            self._tables.append(self._postings)

    @property
    def rules(self) -> tuple[TableRule, ...]:
        """``[[sink.tables]]``."""
        found = {part: form for part, form in self._forms.items() if form is not UPSERTED}
        return tuple(form.rule(_NAMES[part]) for part, form in found.items())

    def ended(self, name: str, since: int) -> bool:
        """Whether a table has lost this name after this ts."""
        return any(ts > since and name == of for ts, of in [*self.ends])

    def events(self) -> Iterator[Event]:
        """In the order of their commit-ts."""
        for schema in ("bank", "shop", "vault"):
            yield self.passing(schema, "", "QUERY", f"CREATE DATABASE `{schema}`")
        for table in self._tables:
            yield self.created(table)
        actions, weights = zip(*self._actions().items(), strict=True)
        for number in range(1, self._transactions + 1):
            yield from self._new_partitions()
            if number % self._ddl_every == 0:
                yield from self._some_ddl()
            while (transaction := self.commit()) is None:
                self._dice.choices(actions, weights)[0]()
            yield transaction

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
            self.write(table, id, table.new_row(id, balance=0))
            if payer:
                self._pay(*payer, table, id, self._dice.randrange(1, 10_000))

    def _close_account(self) -> None:
        if account := self._any_account():
            table, id = account
            self._free(table, [id])
            self.write(table, id, None)

    def _renumber_account(self) -> None:
        """The key changes: a DELETE and an INSERT."""
        if account := self._any_account():
            table, id = account
            row, new_id = table.rows[id], self._new_id()
            self.write(table, id, None)
            self.write(table, new_id, row | {KEY: new_id})

    def _new_order(self) -> None:
        if len(self._orders.rows) < _MOST_ORDERS:
            id, count = self._new_id(), self._dice.randrange(4)
            self.write(self._orders, id, self._orders.new_row(id, count=count))
            for _ in range(count):
                self._put_item(id)

    def _add_item(self) -> None:
        if (order := self._any(self._orders)) is not None:
            self._put_item(order)
            self._count(order, 1)

    def _remove_item(self) -> None:
        if (item := self._any(self._items)) is not None:
            self._free(self._items, [item])
            self.write(self._items, item, None)

    def _move_item(self) -> None:
        item, order = self._any(self._items), self._any(self._orders)
        if item is not None and order is not None:
            self._free(self._items, [item])
            row = self._items.with_values(self._items.rows[item], order=order)
            self.write(self._items, item, row)
            self._count(order, 1)

    def _return_item(self) -> None:
        if (item := self._any(self._items)) is not None:
            self._free(self._items, [item])

    def _delete_order(self) -> None:
        if (order := self._any(self._orders)) is not None:
            for item in self._items_of({order}):
                self.write(self._items, item, None)
            self.write(self._orders, order, None)

    def _edit(self) -> None:
        for table in self._dice.sample(self._tables, 2):
            if (id := self._any(table)) is not None:
                self.write(table, id, table.edited(table.rows[id]))

    def _put_item(self, order: int) -> None:
        id = self._new_id()
        self.write(self._items, id, self._items.new_row(id, order=order))

    def _count(self, order: int, more: int) -> None:
        row = self._orders.rows[order]
        count = row[self._orders.roles["count"]] + more
        self.write(self._orders, order, self._orders.with_values(row, count=count))

    def _items_of(self, orders: set[int]) -> list[int]:
        name = self._items.roles["order"]
        return [id for id, row in self._items.rows.items() if row[name] in orders]

    def _pay(
        self, table: ChangingTable, id: int, other: ChangingTable, other_id: int, amount: Any
    ) -> None:
        """And it is posted."""
        for to, key, change in ((table, id, -amount), (other, other_id, amount)):
            row = to.rows[key]
            balance = row[to.roles["balance"]] + change
            self.write(to, key, to.with_values(row, balance=balance))
        if (log := self._postings) in self._tables:
            posting = self._new_id()
            self.write(log, posting, log.new_row(posting, amount=amount))
            if len(log.rows) > _MOST_POSTINGS:
                self.write(log, self._dice.choice(list(log.rows)), None)

    def _free(self, table: ChangingTable, ids: Iterable[int]) -> None:
        """Nothing depends on these rows any more: no money, no order, no item."""
        gone = set(ids)
        if table is self._orders:
            self._free(self._items, self._items_of(gone))
        elif table is self._items:
            name = table.roles["order"]
            for id in sorted(gone):
                if (order := table.rows[id][name]) is not None:
                    self.write(table, id, table.with_values(table.rows[id], order=None))
                    self._count(order, -1)
        elif table is not self._postings:
            heir = self._any_account(table, gone)
            if heir is None:  # somewhere the money must go
                other = self._dice.choice([each for each in self._accounts if each is not table])
                heir = other, self._new_id()
                self.write(other, heir[1], other.new_row(heir[1], balance=0))
            for id in sorted(gone):
                self._pay(table, id, *heir, table.rows[id][table.roles["balance"]])

    # DDLs.

    def _some_ddl(self) -> Iterator[Event]:
        table, roll = self._dice.choice(self._tables), self._dice.random()
        roll = self._least_roll + (1 - self._least_roll) * roll
        if roll < 0.08:
            yield self.passing(table.schema, table.name, *table.neutral())
        elif roll < 0.6 or (roll < 0.75 and table.partitions is None):
            yield self.changed(table, "ALTER", table.alter())
        elif roll < 0.75 and table.partitions is not None:
            yield from self._about_partitions(table, table.partitions)
        elif roll < 0.8:
            yield from self._without(table, table.rows)
            table.rows = {}
            yield self.changed(table, "TRUNCATE", f"TRUNCATE TABLE {table.sql_name}")
        elif roll < 0.9:
            yield from self._renamed(table)
        elif roll < 0.96:
            yield from self._made_again(table)
        else:
            yield from self._back_again(table)

    def _made_again(self, table: ChangingTable) -> Iterator[Event]:
        """Under its own name or another one, while its own may be taken."""
        yield from self._without(table, table.rows)
        name = table.full_name
        yield self.dropped(table)
        table.begin(self._last_id)
        if self._dice.random() < 0.4:
            table.rename(self._dice.choice(self._free_names(table)))
            other = self._dice.choice(self._tables)
            if other is not table and self._parts[other] == self._parts[table]:
                yield from self._become(name, other)
        yield self.created(table)

    def _back_again(self, table: ChangingTable) -> Iterator[Event]:
        """With its rows, which nobody depends on: dropped by mistake."""
        yield from self._without(table, table.rows)
        yield self.dropped(table)
        names = [name for name in self._free_names(table) if name.startswith(f"{table.schema}.")]
        query = f"RECOVER TABLE `{table.name}`"
        if names and self._dice.random() < 0.5:
            name = self._dice.choice(names)
            query = f"FLASHBACK TABLE `{table.name}` TO `{name.partition('.')[2]}`"
            table.rename(name)
        yield self.changed(table, "QUERY", query)

    def _renamed(self, table: ChangingTable) -> Iterator[Event]:
        """Alone, behind another one that takes its name, or in exchange for the name of another."""
        roll, name = self._dice.random(), self._dice.choice(self._free_names(table))
        part = self._parts[table]
        other = self._dice.choice([each for each in self._tables if self._parts[each] == part])
        if other is table or roll < 0.4:
            yield from self._become(name, table)
            return
        old, taken = table.full_name, other.full_name
        if roll < 0.7:
            moves = [(taken, name), (old, taken)]
            names = {other: name, table: taken}
        else:
            moves = [(old, _TMP), (taken, old), (_TMP, taken)]
            names = {table: taken, other: old}
        yield from self.renamed(names, moves, "RENAME TABLE {} TO {}")

    def _become(self, name: str, table: ChangingTable) -> Iterator[Event]:
        query = self._dice.choice(("RENAME TABLE {} TO {}", "ALTER TABLE {} RENAME TO {}"))
        yield from self.renamed({table: name}, [(table.full_name, name)], query)

    def _free_names(self, table: ChangingTable) -> list[str]:
        taken = {each.full_name for each in self._tables}
        return [name for name in _NAMES[self._parts[table]] if name not in taken]

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
        return self.changed(table, "ALTER", f"ALTER TABLE {table.sql_name} {part}")

    def _new_partitions(self) -> Iterator[Event]:
        partitions = self._items.partitions
        assert isinstance(partitions, RangePartitions)
        while part := partitions.grown(self._last_id + _MOST_NEW_ITEMS):
            yield self._altered(self._items, part)

    def _without(self, table: ChangingTable, ids: Iterable[int]) -> Iterator[Event]:
        """The transaction before a DDL that removes these rows."""
        self._free(table, ids)
        if transaction := self.commit():
            yield transaction

    # Names and rows.

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
