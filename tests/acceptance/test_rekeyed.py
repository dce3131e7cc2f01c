"""A table whose handle key changes while rows come: every cell after every DDL of it.

All messages are in the topic before a life begins, so rows of every key are read, and decoded, by
who knows only the first one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coordination.failpoint import Failpoint
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import PARTITIONS, MakeLives, marks
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Change, Column, Ddl, Table, encode_change, encode_ddl
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

SCHEMA, NAME = "shop", "rekeyed"
CREATE = (
    f"CREATE TABLE `{NAME}` (`a` INT NOT NULL, `b` INT NOT NULL, `u` VARCHAR(20) NOT NULL, "
    "`v` VARCHAR(20), PRIMARY KEY (`a`), UNIQUE KEY `by_u` (`u`))"
)
FIRST = Table(
    schema=SCHEMA,
    name=NAME,
    columns=(
        *(Column("a", "int"), Column("b", "int")),
        *(Column("u", "varchar(20)"), Column("v", "varchar(20)")),
    ),
    primary_key=("a",),
    handle_key=("a",),
)
Row = dict[str, Any]


def keyed(table: Table, *key: str, is_primary: bool = True) -> Table:
    return replace(table, primary_key=key if is_primary else (), handle_key=key)


def renamed(table: Table, before: str, after: str, kind: str | None = None) -> Table:
    """By both names alike: with another type."""

    def named(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(after if name == before else name for name in names)

    columns = tuple(
        Column(after, kind or each.type) if each.name == before else each for each in table.columns
    )
    keys = {"primary_key": named(table.primary_key), "handle_key": named(table.handle_key)}
    return replace(table, columns=columns, **keys)


# What is said, and what the table is by then.
STEPS: tuple[tuple[str, Callable[[Table], Table]], ...] = (
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (`a`, `b`)", lambda t: keyed(t, "a", "b")),
    ("RENAME COLUMN `a` TO `no`", lambda t: renamed(t, "a", "no")),
    ("MODIFY COLUMN `no` BIGINT NOT NULL", lambda t: renamed(t, "no", "no", "bigint")),
    ("DROP PRIMARY KEY", lambda t: keyed(t, "u", is_primary=False)),
    ("CHANGE COLUMN `u` `code` VARCHAR(30) NOT NULL", lambda t: renamed(t, "u", "code")),
    ("ADD UNIQUE `by_v` (`v`), MODIFY COLUMN `v` VARCHAR(20) NOT NULL", lambda t: t),
    ("DROP INDEX `by_u`", lambda t: keyed(t, "v", is_primary=False)),
    ("ADD PRIMARY KEY (`code`)", lambda t: keyed(t, "code")),
)


@dataclass
class Rekeyed:
    """``messages``; ``moments``: from which ts on what rows are there. Each cell that any key has
    is unique at all times, so that every DDL is allowed, but for `a` beside `b`."""

    seed: int
    changes: int = 12  # transactions between two DDLs
    splits: bool = False  # an UPDATE of a key is sent as TiCDC does by itself: DELETE and INSERT
    messages: list[Message] = field(default_factory=list)
    moments: list[tuple[int, list[Row]]] = field(default_factory=list)
    ddl_ts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._table, self._ts, self._last = FIRST, 1_000, 0
        self._rows: dict[int, Row] = {}  # by what no column shows
        self._ddl("CREATE", CREATE)
        for number in range(len(STEPS) + 1):
            for _ in range(self.changes):
                self._change()
            if number < len(STEPS):
                specification, becomes = STEPS[number]
                self._alter(specification, becomes(self._table))
        self.last_ts = self._ts
        self.messages += marks(self._ts + 5)

    def rows_at(self, ts: int) -> list[Row]:
        return next(rows for at, rows in reversed(self.moments) if at <= ts)

    def _tick(self) -> int:
        self._ts += 10
        return self._ts

    def _moment(self) -> None:
        self.moments.append((self._ts, [dict(row) for row in self._rows.values()]))
        if self._dice.random() < 0.2:
            self.messages += marks(self._ts + 5)
        if self._dice.random() < 0.1:  # as a TiCDC that has started again
            begin = self._dice.randrange(len(self.messages))
            self.messages += self.messages[begin : begin + 25]

    def _ddl(self, kind: str, query: str) -> None:
        ddl = Ddl(SCHEMA, NAME, kind, query)
        self.messages.append((0, None, encode_ddl(ddl, self._tick(), 0)))
        self.ddl_ts.append(self._ts)
        self._moment()

    def _alter(self, specification: str, table: Table) -> None:
        names = dict(zip(self._names(), (each.name for each in table.columns), strict=True))
        for id_, row in self._rows.items():
            self._rows[id_] = {names[name]: value for name, value in row.items()}
        self._table = table
        self._ddl("ALTER", f"ALTER TABLE `{NAME}` {specification}")

    def _names(self) -> list[str]:
        return [each.name for each in self._table.columns]

    def _value(self, position: int) -> Any:
        self._last += 1
        return self._last if position < 2 else f"{'abuv'[position]}{self._last}"

    def _change(self) -> None:
        ts = self._tick()
        for id_ in self._dice.sample(range(10), self._dice.randint(1, 4)):
            before = self._rows.get(id_)
            if before is None:
                row = {name: self._value(n) for n, name in enumerate(self._names())}
                self._rows[id_] = row
                self._send(ts, "INSERT", row)
            elif self._dice.random() < 0.15:
                self._send(ts, "DELETE", self._rows.pop(id_))
            else:
                self._update(ts, id_, before)
        self._moment()

    def _update(self, ts: int, id_: int, before: Row) -> None:
        changed = self._dice.sample(range(4), self._dice.randint(1, 2))
        row = dict(before)
        for position in changed:
            row[self._names()[position]] = self._value(position)
        if 0 not in changed and len(self._table.primary_key) == 2:
            other = self._dice.choice(list(self._rows.values()))  # `a` twice, beside another `b`
            name = self._names()[0]
            row[name] = other[name]
        self._rows[id_] = row
        if self.splits and any(row[name] != before[name] for name in self._table.handle_key):
            self._send(ts, "DELETE", before)
            self._send(ts, "INSERT", row)
        else:
            self._send(ts, "UPDATE", row, before)

    def _send(self, ts: int, op: Any, row: Row, old: Row | None = None) -> None:
        change = Change(table=self._table, op=op, row=dict(row), old=old)
        partition = self._dice.randrange(PARTITIONS)
        self.messages.append((partition, None, encode_change(change, ts, 0)))


def check(lives: Lives, history: Rekeyed, ts: int) -> None:
    """The table now, every published cut of it, and no row that was put aside."""

    def ordered(rows: list[Mapping[str, Any]] | list[Row]) -> list[str]:
        return sorted(repr(list(row.items())) for row in rows)

    uri = f"{lives.uri}/{SCHEMA}/{NAME}"
    assert ordered(read_rows(uri)) == ordered(history.rows_at(ts))
    for cut in lives.ledger():
        version = cut["tables"].get(f"{SCHEMA}.{NAME}")
        if version is not None:
            assert ordered(read_rows(uri, version)) == ordered(history.rows_at(cut["primary_ts"]))
    assert not lives.dead_letters()
    lives.assert_history()


@pytest.mark.parametrize(
    ("seed", "splits"), [(1, False), (2, True), pytest.param(3, False, marks=pytest.mark.soak)]
)
def test_a_table_is_right_by_every_key(new_lives: MakeLives, seed: int, *, splits: bool) -> None:
    lives, history = new_lives(max_messages=60), Rekeyed(seed, splits=splits)
    lives.produce(history.messages)
    middle = history.ddl_ts[4] - 3
    lives.finish(target_ts=middle)
    check(lives, history, middle)
    lives.finish(target_ts=history.last_ts, max_messages=10_000)
    check(lives, history, history.last_ts)


def test_a_key_changes_once_whoever_dies_over_it(new_lives: MakeLives) -> None:
    lives, history = new_lives(), Rekeyed(4, changes=6)
    lives.produce(history.messages)
    for number, point in enumerate([Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL] * 2):
        error = lives.live(f"{point}=raise:{number + 1}", target_ts=history.last_ts)
        assert f"failpoint {point}" in str(error), (point, error)
    lives.finish(target_ts=history.last_ts)
    check(lives, history, history.last_ts)


def test_a_rewind_goes_back_to_a_change_of_the_key_and_not_below(new_lives: MakeLives) -> None:
    lives, history = new_lives(), Rekeyed(5, changes=4)
    lives.produce(history.messages)
    lives.finish(target_ts=history.last_ts)
    last = history.ddl_ts[-1]
    error = lives.live(target_ts=history.last_ts, overwrite_checkpoint_ts=last - 5)
    assert f"table shop.{NAME} cannot go back to {last - 5}" in str(error)
    lives.finish(target_ts=history.last_ts, overwrite_checkpoint_ts=last - 1)
    check(lives, history, history.last_ts)
