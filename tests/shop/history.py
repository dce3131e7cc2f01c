"""What happened in the shop: a seeded, endless-if-asked history of transactions and DDLs.

After every transaction the sum of paid orders is the sum of payments: paying an order updates
``orders`` and inserts into ``payments`` in one transaction, and so on. At a cut that mixes two
moments it mostly is not. The same settings give the same history, in any process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from coordination.model import TSO_LOGICAL_BITS
from tests.shop.canal_json import Change, Ddl, Op, Table
from tests.shop.rows import RowDict, Rows
from tests.shop.tables import (
    CREATE_ARCHIVE,
    CREATE_INDEX,
    CUSTOMERS,
    OPENING,
    ORDER_LINES,
    ORDER_LINES_ARCHIVE,
    ORDERS,
    PAYMENTS,
    TABLES,
)

START_TS = 470_000_000_000_000_000  # some day in October 2026
_ORDER_OF_OPS: dict[Op, int] = {"DELETE": 0, "UPDATE": 1, "INSERT": 2}
_TEXTS = (
    "",
    "plain",
    'it\'s "quoted" and `ticked`',
    "back\\slash \\n \\u0041",
    "naïve café 中文\uff0c内容 😀🚀",
    "ctrl\x00\x01\x08\x0c\x1f\x7f|",
    "tab\there\r\nnew line",
    "<a href='x?y=1&z=2'>&amp;</a>",
    "line\u2028para\u2029end\ufeff",
    "null",
    "NULL",
    " lead and trail ",
    "100%_$dollar",
    '{"a": [1, "two", null]}',
    "é vs é",
)
_SHARED_TS = 0.1  # so many transactions have the commit-ts of the one before
_MOST_LINES = 3  # of an order
_METHODS = ("card", "cash", "wire", "voucher")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """What makes a history; equal settings make equal ones."""

    seed: int = 1
    transactions: int = 1000
    start_ts: int = START_TS  # everything happens after it
    rate: float = 500.0  # transactions a second, on TiDB's clock
    customers: int = 50  # that are there before the first transaction, in one big transaction
    later_ddls: bool = True  # CREATE TABLE … LIKE and CREATE INDEX in the middle


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction; two may share a commit-ts, never a row then."""

    commit_ts: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A DDL and the ts it finished at; no other event has this ts, but another part of it."""

    commit_ts: int
    ddl: Ddl


Event = Transaction | SchemaChange


def history(settings: HistorySettings) -> Iterator[Event]:
    """All events in the order of their commit-ts."""
    return _Shop(settings).events()


class _Shop:
    """The shop's state, and the hands that change it; `_changes` is the open transaction."""

    def __init__(self, settings: HistorySettings) -> None:
        self._settings = settings
        self._random = random.Random(settings.seed)
        self._rows = {table: Rows() for table in TABLES}
        self._changes: list[Change] = []
        self._touched: set[tuple[Table, tuple[Any, ...]]] = set()
        self._ts = settings.start_ts
        self._last_id = 0
        self._archive = False
        self._dice_of_ts = random.Random(
            settings.seed + 1
        )  # the clock does not change what happens

    def events(self) -> Iterator[Event]:
        for ddl in OPENING:
            yield SchemaChange(self._next_ts(), ddl)
        for _ in range(self._settings.customers):
            self._new_customer()
        yield Transaction(self._next_ts(), self._commit())
        middle = self._settings.transactions // 2
        actions, weights = zip(*self._actions().items(), strict=True)
        for number in range(self._settings.transactions):
            if number == middle and self._settings.later_ddls:
                yield SchemaChange(self._next_ts(), CREATE_ARCHIVE)
                yield SchemaChange(self._next_ts(), CREATE_INDEX)
                self._archive = True
                self._next_ts()
            while not self._changes:
                self._random.choices(actions, weights)[0]()
            yield self._transaction()

    def _actions(self) -> dict[Callable[[], None], int]:
        return {
            self._new_customer: 4,
            self._edit_customer: 8,
            self._change_customer_key: 2,
            self._swap_customer_keys: 1,
            self._new_order: 14,
            self._pay_orders: 14,
            self._correct_amount: 5,
            self._refund: 3,
            self._delete_order: 4,
            self._swap_lines: 3,
            self._write_line_anew: 3,
            self._edit_line: 3,
        }

    def _transaction(self) -> Transaction:
        """Close the open transaction, sometimes at the commit-ts of the one before."""
        changes = self._commit()
        rows = {(change.table, change.key) for change in changes}
        if self._dice_of_ts.random() > _SHARED_TS or rows & self._touched:
            self._next_ts()
        self._touched |= rows
        return Transaction(self._ts, changes)

    def _next_ts(self) -> int:
        gap_ms = self._dice_of_ts.expovariate(self._settings.rate / 1000)
        ticks = int(gap_ms * (1 << TSO_LOGICAL_BITS))
        self._ts += max(ticks, 1)
        self._touched = set()
        return self._ts

    def _commit(self) -> tuple[Change, ...]:
        changes, self._changes = self._changes, []
        return tuple(sorted(changes, key=lambda change: _ORDER_OF_OPS[change.op]))

    # What people do in the shop.

    def _new_customer(self) -> None:
        row = {
            "id": self._new_customer_id(),
            "name": self._text(),
            "email": self._random.choice((None, "a@b.example", self._text())),
            "points": self._random.choice((0, 2**32 - 1, self._random.randrange(10_000))),
            "avatar": self._random.choice((None, b"", self._random.randbytes(16))),
            "note": self._text(),
            "born": date(1900, 1, 1) + timedelta(days=self._random.randrange(40_000)),
            "joined_at": self._moment(timedelta(milliseconds=1)),
        }
        self._insert(CUSTOMERS, row)

    def _edit_customer(self) -> None:
        if customer := self._any(CUSTOMERS):
            note = self._text() * self._random.choice((1, 1, 1, 50))
            self._update(CUSTOMERS, customer, points=self._random.randrange(10_000), note=note)

    def _change_customer_key(self) -> None:
        if customer := self._any(CUSTOMERS):
            self._delete(CUSTOMERS, customer)
            self._insert(CUSTOMERS, {**customer, "id": self._new_customer_id()})

    def _swap_customer_keys(self) -> None:
        """A clustered key: TiKV sees two rows overwritten, so TiCDC writes two UPDATEs."""
        one, other = self._any(CUSTOMERS), self._any(CUSTOMERS)
        if one and other and one["id"] != other["id"]:
            self._update(CUSTOMERS, one, **{**other, "id": one["id"]})
            self._update(CUSTOMERS, other, **{**one, "id": other["id"]})

    def _new_order(self) -> None:
        if not (customer := self._any(CUSTOMERS)):
            return
        order = {
            "id": self._new_id(),
            "customer_id": customer["id"],
            "status": "new",
            "amount": self._amount(),
            "note": self._random.choice((None, self._text())),
            "placed_at": self._moment(timedelta(seconds=1)),
        }
        self._insert(ORDERS, order)
        for line in range(1, self._random.randint(1, _MOST_LINES) + 1):
            self._insert(ORDER_LINES, self._line(order["id"], line))
        points = min(customer["points"] + 1, 2**32 - 1)
        if points != customer["points"]:
            self._update(CUSTOMERS, customer, points=points)

    def _pay_orders(self) -> None:
        count = self._random.choice((1, 1, 1, 1, 20))
        chosen = {
            order["id"]: order for order in (self._any(ORDERS) for _ in range(count)) if order
        }
        for order in chosen.values():
            if order["status"] == "new":
                self._update(ORDERS, order, status="paid")
                self._pay(order["id"], order["amount"])

    def _pay(self, order_id: int, amount: Decimal) -> None:
        payment = {
            "id": _payment_id(order_id),
            "order_id": order_id,
            "amount": amount,
            "method": self._random.choice(_METHODS),
            "fee": self._random.choice((0.0, 0.1, 1e-7, self._random.random() * 100)),
            "paid_at": self._moment(timedelta(microseconds=1)).replace(tzinfo=UTC),
        }
        self._insert(PAYMENTS, payment)

    def _correct_amount(self) -> None:
        if order := self._any(ORDERS):
            amount = self._amount()
            self._update(ORDERS, order, amount=amount)
            if payment := self._payment_of(order):
                self._update(PAYMENTS, payment, amount=amount)

    def _refund(self) -> None:
        order = self._any(ORDERS)
        if order and (payment := self._payment_of(order)):
            self._update(ORDERS, order, status="refunded")
            self._delete(PAYMENTS, payment)

    def _delete_order(self) -> None:
        if not (order := self._any(ORDERS)):
            return
        if payment := self._payment_of(order):
            self._delete(PAYMENTS, payment)
        for line in self._lines_of(order):
            self._delete(ORDER_LINES, line)
            if self._archive:
                self._insert(ORDER_LINES_ARCHIVE, line)
        self._delete(ORDERS, order)

    def _swap_lines(self) -> None:
        """A key that is not clustered: two DELETEs and two INSERTs with one commit-ts."""
        order = self._any(ORDERS)
        lines = self._lines_of(order) if order else []
        if len(lines) > 1:
            one, other = lines[:2]
            self._delete(ORDER_LINES, one)
            self._delete(ORDER_LINES, other)
            self._insert(ORDER_LINES, {**one, "line": other["line"]})
            self._insert(ORDER_LINES, {**other, "line": one["line"]})

    def _write_line_anew(self) -> None:
        """DELETE and INSERT of one key in one transaction (the key is not clustered)."""
        if line := self._any(ORDER_LINES):
            self._delete(ORDER_LINES, line)
            self._insert(ORDER_LINES, self._line(line["order_id"], line["line"]))

    def _edit_line(self) -> None:
        if line := self._any(ORDER_LINES):
            self._update(ORDER_LINES, line, quantity=self._random.randrange(-5, 1000))

    # Values.

    def _line(self, order_id: int, line: int) -> RowDict:
        discounts = (None, 0.0, 0.1, 0.25, self._random.random())
        discount = self._random.choice(discounts)
        return {
            "order_id": order_id,
            "line": line,
            "sku": f"sku-{self._random.randrange(500)}",
            "quantity": self._random.randrange(1, 20),
            "discount": None if discount is None else float(np.float32(discount)),
        }

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _new_customer_id(self) -> int:
        return self._new_id() - 20  # some keys are negative

    def _amount(self) -> Decimal:
        return Decimal(self._random.randrange(1, 100_000_00)).scaleb(-2)

    def _text(self) -> str:
        return self._random.choice(_TEXTS)[:64]

    def _moment(self, step: timedelta) -> datetime:
        steps = timedelta(days=15_000) // step
        return datetime(1995, 1, 1) + self._random.randrange(steps) * step  # noqa: DTZ001

    def _payment_of(self, order: RowDict) -> RowDict | None:
        return self._rows[PAYMENTS].get((_payment_id(order["id"]),))

    def _lines_of(self, order: RowDict) -> list[RowDict]:
        rows = self._rows[ORDER_LINES]
        found = (rows.get((order["id"], line)) for line in range(1, _MOST_LINES + 1))
        return [line for line in found if line is not None]

    def _any(self, table: Table) -> RowDict | None:
        rows = self._rows[table]
        return rows.any(self._random) if rows else None

    def _insert(self, table: Table, row: RowDict) -> None:
        self._rows[table].put(_key(table, row), row)
        self._changes.append(Change(table=table, op="INSERT", row=row))

    def _update(self, table: Table, old: RowDict, **values: Any) -> None:
        row = {**old, **values}
        self._rows[table].put(_key(table, row), row)
        self._changes.append(Change(table=table, op="UPDATE", row=row, old=old))

    def _delete(self, table: Table, row: RowDict) -> None:
        self._rows[table].remove(_key(table, row))
        self._changes.append(Change(table=table, op="DELETE", row=row))


def _key(table: Table, row: RowDict) -> tuple[Any, ...]:
    return tuple(row[column] for column in table.handle_key)


def _payment_id(order_id: int) -> Decimal:
    """BIGINT UNSIGNED, decimal(20,0) in Delta; some are beyond a signed bigint."""
    return Decimal(order_id + 2**63 if order_id % 7 == 0 else order_id)
