"""A table whose shape changes while rows come: a seeded history, its messages, and what the table
is at every moment of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.acceptance.small_tables import PARTITIONS, made, marks
from tests.shop.canal_json import Change, Column, Ddl, Op, Table, encode_change, encode_ddl
from tests.shop.feed import Message

SCHEMA, NAME = "shop", "reshaped"
STEP_TS = 10
_TYPES = ("int", "bigint", "varchar(40)")
_DEFAULTS: dict[str, Any] = {"int": 7, "bigint": 8, "varchar(40)": "it's"}

Rows = dict[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Moment:
    """From ``ts`` on: the columns beside ``id``, and the rows by ``id``; or there is no table."""

    ts: int
    columns: tuple[Column, ...]
    rows: Rows
    is_ddl: bool = False  # one that leaves a shape
    is_there: bool = True


class Reshaped:
    """``messages`` has rows, DDLs and watermarks, some of them twice and late. ``is_dropped``: the
    table is dropped now and then, and made again in another shape."""

    def __init__(
        self, seed: int, *, steps: int = 120, ddl_every: int = 8, is_dropped: bool = False
    ) -> None:
        self._dice = random.Random(seed)
        self._names = 0
        self._is_there = True
        self._is_dropped = is_dropped
        self._columns = (Column("n", "int"), Column("v", "varchar(40)"))
        self._rows: Rows = {}
        self._ts = 1_000
        self.moments = [Moment(self._ts, self._columns, {}, is_ddl=True)]
        self.ddls: list[str] = []
        self.messages: list[Message] = [*made(self._ts, self._table()), *marks(self._ts + 1)]
        for step in range(1, steps + 1):
            if step % ddl_every and self._is_there:
                self._change()
            else:
                self._alter()
            if self._dice.random() < 0.3:
                self.messages += marks(self._ts + 5)
            if self._dice.random() < 0.1:
                self._send_again()
        self.last_ts = self._ts
        self.messages += marks(self._ts + 5)

    def at(self, ts: int) -> Moment:
        return next(moment for moment in reversed(self.moments) if moment.ts <= ts)

    def ts_at(self, part: float) -> int:
        return self.moments[int((len(self.moments) - 1) * part)].ts

    def is_there(self, ts: int) -> bool:
        return ts >= self.moments[0].ts and self.at(ts).is_there

    def drops(self) -> list[int]:
        pairs = pairwise(self.moments)
        return [after.ts for before, after in pairs if before.is_there and not after.is_there]

    def differences(
        self, warehouse: str | Path, ts: int, version: int | None = None, name: str = NAME
    ) -> str | None:
        """Columns in their order, and every cell. ``name``: of the table that is looked at."""
        moment = self.at(ts)
        table = DeltaTable(f"{warehouse}/{SCHEMA}/{name}", version=version)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
        names = ["id", *(column.name for column in moment.columns)]
        if found.column_names != names and moment.is_there:
            return f"at {ts} columns {found.column_names}, not {names}"
        rows = {row["id"]: row for row in found.to_pylist()}
        wanted = {id_: {"id": id_, **row} for id_, row in moment.rows.items()}
        if len(rows) != found.num_rows or rows != wanted:
            odd = [(rows.get(i), wanted.get(i)) for i in rows.keys() | wanted.keys()]
            return f"at {ts} found and wanted: {[pair for pair in odd if pair[0] != pair[1]][:3]}"
        return None

    # What happens.

    def _table(self) -> Table:
        columns = (Column("id", "bigint"), *self._columns)
        return Table(
            schema=SCHEMA, name=NAME, columns=columns, primary_key=("id",), handle_key=("id",)
        )

    def _tick(self) -> int:
        self._ts += STEP_TS
        return self._ts

    def _change(self) -> None:
        """A transaction of some rows, each of another key."""
        ts, table = self._tick(), self._table()
        for id_ in self._dice.sample(range(12), self._dice.randint(1, 4)):
            before = self._rows.get(id_)
            op: Op = "INSERT" if before is None else self._dice.choice(("UPDATE", "DELETE"))
            row = {column.name: self._value(column) for column in self._columns}
            if op == "DELETE":
                row = before or {}
                del self._rows[id_]
            else:
                self._rows[id_] = row
            whole = {"id": id_, **row}
            old = {"id": id_, **before} if op == "UPDATE" and before is not None else None
            change = Change(table=table, op=op, row=whole, old=old)
            self.messages.append((id_ % PARTITIONS, None, encode_change(change, ts, 0)))
        self._moment()

    def _value(self, column: Column) -> Any:
        if self._dice.random() < 0.2:
            return None
        number = self._dice.randrange(1 << (40 if column.type == "bigint" else 30))
        return number if column.type in ("int", "bigint") else f"text {number} é"

    def _moment(self, *, is_ddl: bool = False) -> None:
        rows = {id_: dict(row) for id_, row in self._rows.items()}
        self.moments.append(Moment(self._ts, self._columns, rows, is_ddl, self._is_there))

    def _alter(self) -> None:
        if not self._is_there:
            return self._make_again()
        if self._is_dropped and self._dice.random() < 0.4:
            return self._drop_table()
        kinds = [self._add, self._add_filled, self._add_and_drop, self._drop, self._rename]
        kinds += [self._widen, self._truncate, self._reorder]
        query = ""
        while not query:
            query = self._dice.choice(kinds)()
        ts = self._tick()
        kind = "TRUNCATE" if query.startswith("TRUNCATE") else "ALTER"
        message = encode_ddl(Ddl(SCHEMA, NAME, kind, query), ts, 0)
        partitions: Sequence[int] = range(PARTITIONS) if self._dice.random() < 0.3 else (0,)
        self.messages += [(partition, None, message) for partition in partitions]
        self.ddls.append(query)
        self._moment(is_ddl=True)
        return None

    def _drop_table(self) -> None:
        ts, query = self._tick(), f"DROP TABLE `{SCHEMA}`.`{NAME}`"
        self.messages.append((0, None, encode_ddl(Ddl(SCHEMA, NAME, "ERASE", query), ts, 0)))
        self.ddls.append(query)
        self._is_there, self._rows = False, {}
        self._moment()
        if self._dice.random() < 0.5:
            self._make_again()

    def _make_again(self) -> None:
        """In another order of columns, some of which have names of before."""
        self._columns = (self._new("varchar(40)"),)
        self._columns += (self._new("bigint"), Column("v", "int"))
        self._is_there = True
        self.messages += made(self._tick(), self._table())
        self.ddls.append(f"CREATE TABLE `{NAME}`")
        self._moment(is_ddl=True)

    def _send_again(self) -> None:
        """As a TiCDC that has started again from an older checkpoint."""
        begin = self._dice.randrange(len(self.messages))
        self.messages += [each for each in self.messages[begin : begin + 20]]

    # Each changes columns and rows, and gives the statement; the empty text: not now.

    def _new(self, kind: str) -> Column:
        """A name that was never there, or one that has been dropped."""
        here = {column.name for column in self._columns}
        old = [f"c{n}" for n in range(self._names) if f"c{n}" not in here]
        if old and self._dice.random() < 0.4:
            return Column(self._dice.choice(old), kind)
        self._names += 1
        return Column(f"c{self._names - 1}", kind)

    def _put(self, column: Column, at: int, value: Any) -> str:
        columns = list(self._columns)
        columns.insert(at, column)
        self._columns = tuple(columns)
        names = [each.name for each in columns]
        for id_, row in self._rows.items():
            self._rows[id_] = {name: value if name == column.name else row[name] for name in names}
        return f"AFTER `{columns[at - 1].name}`" if at else "AFTER `id`"

    def _add(self) -> str:
        column = self._new(self._dice.choice(_TYPES))
        place = self._put(column, self._dice.randint(0, len(self._columns)), None)
        return f"ALTER TABLE `{NAME}` ADD COLUMN `{column.name}` {column.type.upper()} {place}"

    def _add_filled(self) -> str:
        column = self._new(self._dice.choice(_TYPES))
        value = _DEFAULTS[column.type]
        self._put(column, len(self._columns), value)
        text = str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
        not_null = self._dice.choice(("NULL", "NOT NULL"))
        spelled = f"`{column.name}` {column.type.upper()} {not_null} DEFAULT {text}"
        return f"ALTER TABLE `{NAME}` ADD COLUMN {spelled}"

    def _drop(self) -> str:
        if len(self._columns) < 2:
            return ""
        gone = self._dice.choice(self._columns)
        self._columns = tuple(column for column in self._columns if column is not gone)
        for row in self._rows.values():
            del row[gone.name]
        return f"ALTER TABLE `{SCHEMA}`.`{NAME}` DROP COLUMN `{gone.name}`"

    def _add_and_drop(self) -> str:
        dropped = self._drop()
        if not dropped:
            return ""
        here = {column.name for column in self._columns}
        gone = dropped.split("`")[-2]
        column = self._new("int")
        if column.name == gone or column.name in here:
            column = Column(f"x{self._names}", "int")
            self._names += 1
        self._put(column, len(self._columns), None)
        return f"{dropped}, ADD COLUMN `{column.name}` INT"

    def _rename(self) -> str:
        at = self._dice.randrange(len(self._columns))
        before, after = self._columns[at], self._new(self._columns[at].type)
        columns = list(self._columns)
        columns[at] = after
        self._columns = tuple(columns)
        for id_, row in self._rows.items():
            names = {before.name: after.name}
            self._rows[id_] = {names.get(name, name): value for name, value in row.items()}
        if self._dice.random() < 0.5:
            return f"ALTER TABLE `{NAME}` RENAME COLUMN `{before.name}` TO `{after.name}`"
        kind = after.type.upper()
        return f"ALTER TABLE `{NAME}` CHANGE COLUMN `{before.name}` `{after.name}` {kind}"

    def _widen(self) -> str:
        narrow = [n for n, column in enumerate(self._columns) if column.type == "int"]
        if not narrow:
            return ""
        at = self._dice.choice(narrow)
        columns = list(self._columns)
        columns[at] = replace(columns[at], type="bigint")
        self._columns = tuple(columns)
        return f"ALTER TABLE `{NAME}` MODIFY COLUMN `{columns[at].name}` BIGINT"

    def _reorder(self) -> str:
        if len(self._columns) < 2:
            return ""
        column = self._dice.choice(self._columns)
        self._columns = (column, *(each for each in self._columns if each is not column))
        for id_, row in self._rows.items():
            self._rows[id_] = {each.name: row[each.name] for each in self._columns}
        kind = column.type.upper()
        return f"ALTER TABLE `{NAME}` MODIFY COLUMN `{column.name}` {kind} AFTER `id`"

    def _truncate(self) -> str:
        self._rows = {}
        return f"TRUNCATE TABLE `{NAME}`"


def in_parts(messages: Sequence[Message], count: int) -> Iterator[Sequence[Message]]:
    """The messages in so many stretches."""
    for n in range(count):
        yield messages[len(messages) * n // count : len(messages) * (n + 1) // count]
