"""A table whose rows are told apart by all its columns: random transactions and DDLs, and what its
target must hold at each moment.

Upstream it is a bag: cells come from small pools, so that rows are equal again and again, and NULL
is one of them. The target is what the events say of each row, in the order of commits: within one
commit-ts DELETEs first, and an UPDATE is the DELETE of its old row and its new row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.shop.canal_json import (
    Change,
    Column,
    Ddl,
    Op,
    Table,
    encode_change,
    encode_ddl,
    encode_watermark,
)
from tests.shop.feed import Message

SCHEMA, NAME = "shop", "bag"
PARTITIONS = 3
POOLS: dict[str, tuple[Any, ...]] = {
    "int": (None, -1, 0, 1, 2),
    "bigint": (None, -1, 0, 1, 2, 2**40),
    "double": (None, 0.0, 0.5, -1.5),
    "decimal(6,2)": (None, Decimal("0.50"), Decimal("1.49"), Decimal("-0.51"), Decimal("1.00")),
    "varchar(20)": (None, "", "a", "A", "0", "NULL"),
    "varbinary(9)": (None, b"", b"\x00", b"a"),
}
DEFAULTS: dict[str, tuple[str, Any]] = {
    "int": ("1", 1),
    "varchar(20)": ("'a'", "a"),
    "decimal(6,2)": ("1.00", Decimal("1.00")),
}


CONVERSIONS = {"int": "bigint", "bigint": "int"}  # in others two values may become one
Row = dict[str, Any]


@dataclass
class RowsAsKeys:
    """``messages``; ``moments``: from which ts on which rows are there."""

    seed: int
    transactions: int = 60
    first_ts: int = 1_000
    tick: int = 10
    replays: float = 0.1
    messages: list[Message] = field(default_factory=list)
    moments: list[tuple[int, list[Row]]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)  # of its DDLs

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._ts, self._ids, self._names = self.first_ts, 0, 0
        self._columns = [self._new_column() for _ in range(3)]
        self._bag: dict[int, Row] = {}  # upstream, by what no column shows
        self._target: dict[tuple[Any, ...], Row] = {}
        body = ", ".join(f"`{each.name}` {each.type}" for each in self._columns)
        self._ddl("create", f"CREATE TABLE `{NAME}` ({body})", "CREATE")
        for _ in range(self.transactions):
            if self._dice.random() < 0.2:
                self._alter()
            else:
                self._transact()
        self.last_ts = self._ts
        self.messages += self._marks()

    def rows_at(self, ts: int) -> list[Row]:
        return next(rows for at, rows in reversed(self.moments) if at <= ts)

    # Rows.

    def _transact(self) -> None:
        ts = self._tick()
        changes = []
        for _ in range(self._dice.randint(1, 3)):
            id_ = self._ids = self._ids + 1
            self._bag[id_] = row = self._new_row()
            changes.append(self._change("INSERT", row))
        for id_ in self._dice.sample(sorted(self._bag), min(len(self._bag), 4)):
            before = self._bag[id_]
            if any(before is change.row for change in changes):
                continue
            if self._dice.random() < 0.5:
                changes.append(self._change("DELETE", self._bag.pop(id_)))
            else:
                self._bag[id_] = row = {**before, **self._edit()}
                changes.append(self._change("UPDATE", row, before))
        self._commit(ts, changes)

    def _commit(self, ts: int, changes: Iterable[Change]) -> None:
        for gone in (True, False):
            for change in changes:
                old = change.row if change.op == "DELETE" else change.old
                if gone and old is not None:
                    self._target.pop(tuple(old.values()), None)
                elif not gone and change.op != "DELETE":
                    self._target[tuple(change.row.values())] = change.row
        sent = [encode_change(change, ts, 0) for change in changes]
        for message in self._dice.sample(sent, len(sent)):
            self.messages.append((self._dice.randrange(PARTITIONS), None, message))
        self._moment()

    def _change(self, op: Op, row: Row, old: Row | None = None) -> Change:
        columns = tuple(self._columns)
        table = Table(schema=SCHEMA, name=NAME, columns=columns, primary_key=(), handle_key=())
        return Change(table=table, op=op, row=row, old=old)

    def _new_row(self) -> Row:
        return {each.name: self._dice.choice(POOLS[each.type]) for each in self._columns}

    def _edit(self) -> Row:
        """Some cells of an UPDATE; perhaps they are the same again."""
        chosen = self._dice.sample(self._columns, self._dice.randint(1, 2))
        return {each.name: self._dice.choice(POOLS[each.type]) for each in chosen}

    # DDLs.

    def _alter(self) -> None:
        steps = [self._add, self._add_filled, self._rename, self._convert, self._truncate]
        self._dice.choices(steps, (4, 4, 4, 4, 1))[0]()

    def _add(self) -> None:
        column = self._new_column()
        place = self._dice.choice(["", " FIRST"])
        self._columns = [column, *self._columns] if place else [*self._columns, column]
        clause = f"ADD COLUMN `{column.name}` {column.type}{place}"
        self._reshape("add", clause, lambda row: {column.name: None, **row})

    def _add_filled(self) -> None:
        column = self._new_column(sorted(DEFAULTS))
        text, value = DEFAULTS[column.type]
        self._columns = [*self._columns, column]
        clause = f"ADD COLUMN `{column.name}` {column.type} DEFAULT {text}"
        self._reshape("add filled", clause, lambda row: {**row, column.name: value})

    def _rename(self) -> None:
        column = self._dice.choice(self._columns)
        new = self._new_column([column.type])
        self._columns[self._columns.index(column)] = new
        clause = f"RENAME COLUMN `{column.name}` TO `{new.name}`"
        self._reshape("rename", clause, lambda row: {**row, new.name: row[column.name]})

    def _convert(self) -> None:
        able = [each for each in self._columns if each.type in CONVERSIONS]
        if not able:
            return
        column = self._dice.choice(able)
        kind = CONVERSIONS[column.type]
        if kind == "int":
            self._make_room(column.name)
        self._columns[self._columns.index(column)] = Column(column.name, kind)
        clause = f"MODIFY COLUMN `{column.name}` {kind}"
        self._reshape("convert", clause)

    def _make_room(self, name: str) -> None:
        """What has no place in the narrower type goes first: TiDB sees to that."""
        changes = []
        for id_, row in self._bag.items():
            if isinstance(row[name], int) and row[name] >= 2**31:
                self._bag[id_] = new = {**row, name: 0}
                changes.append(self._change("UPDATE", new, row))
        self._commit(self._tick(), changes)

    def _truncate(self) -> None:
        self._bag, self._target = {}, {}
        self._ddl("truncate", f"TRUNCATE TABLE `{NAME}`", "TRUNCATE")

    def _reshape(
        self, kind: str, clause: str, becomes: Callable[[Row], Row] = lambda row: row
    ) -> None:
        def shaped(row: Row) -> Row:
            made = becomes(row)
            return {each.name: made[each.name] for each in self._columns}

        self._bag = {id_: shaped(row) for id_, row in self._bag.items()}
        rows = [shaped(row) for row in self._target.values()]
        self._target = {tuple(row.values()): row for row in rows}
        self._ddl(kind, f"ALTER TABLE `{NAME}` {clause}", "ALTER")

    def _new_column(self, types: Iterable[str] = ()) -> Column:
        self._names += 1
        return Column(f"c{self._names}", self._dice.choice([*types] or sorted(POOLS)))

    # The stream.

    def _ddl(self, kind: str, query: str, wire_kind: str) -> None:
        ddl = Ddl(SCHEMA, NAME, wire_kind, query)
        self.messages.append((0, None, encode_ddl(ddl, self._tick(), 0)))
        self.kinds.append(kind)
        self._moment()

    def _tick(self) -> int:
        self._ts += self.tick
        return self._ts

    def _moment(self) -> None:
        self.moments.append((self._ts, [*self._target.values()]))
        if self._dice.random() < 0.3:
            self.messages += self._marks()
        if self._dice.random() < self.replays:  # as a TiCDC that has started again
            begin = self._dice.randrange(len(self.messages))
            self.messages += self.messages[begin : begin + 25]

    def _marks(self) -> list[Message]:
        mark = encode_watermark(self._ts + self.tick // 2, 0)
        return [(partition, None, mark) for partition in range(PARTITIONS)]


def ordered(rows: Iterable[Row]) -> list[str]:
    """To compare: each row in the order of its columns."""
    return sorted(repr(list(row.items())) for row in rows)
