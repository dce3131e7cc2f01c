"""A table that changes shape: what it holds now, and DDLs of every kind that change its columns,
in the words in which TiCDC sends them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from tests.acceptance.changing_partitions import Partitions
from tests.shop.canal_json import Column, Table
from tests.shop.tables import type_sql

KEY = "id"
Row = dict[str, Any]  # by column, in the table's order; never changed once it is in a table

_ENUM, _LONGER_ENUM = "enum('new','it''s')", "enum('new','it''s','last')"
_TEXTS = ("", "plain", "it's", "naïve 😀", "a\tb\\n", "NULL", " blank ", "2020-01-02")
_FIRST_MOMENT = datetime(1995, 1, 1)  # noqa: DTZ001

_VALUES: dict[str, Callable[[random.Random], Any]] = {
    "smallint": lambda dice: dice.randrange(-(2**15), 2**15),
    "int": lambda dice: dice.randrange(-(2**31), 2**31),
    "bigint": lambda dice: dice.choice((1, dice.randrange(-(2**39), 2**39))),
    "int unsigned": lambda dice: dice.randrange(2**32),
    "decimal(12,2)": lambda dice: Decimal(dice.randrange(-(10**6), 10**6)).scaleb(-2),
    "decimal(16,4)": lambda dice: Decimal(dice.randrange(-(10**6), 10**6)).scaleb(-4),
    "double": lambda dice: dice.choice((0.5, -1e-7, 1e300, dice.random())),
    "varchar(40)": lambda dice: dice.choice(_TEXTS),
    "varchar(200)": lambda dice: dice.choice(_TEXTS) * 5,
    "text": lambda dice: dice.choice(_TEXTS) * 9,
    "varbinary(32)": lambda dice: dice.randbytes(dice.randrange(9)),
    "date": lambda dice: date(1900, 1, 1) + timedelta(days=dice.randrange(40_000)),
    "datetime": lambda dice: _FIRST_MOMENT + timedelta(seconds=dice.randrange(10**9)),
    "datetime(6)": lambda dice: _FIRST_MOMENT + timedelta(microseconds=dice.randrange(10**15)),
    _ENUM: lambda dice: dice.choice(("new", "it's")),
    _LONGER_ENUM: lambda dice: dice.choice(("new", "it's", "last")),
}
_DEFAULTS: dict[str, tuple[str, Any]] = {  # in SQL, and what old rows then show
    "smallint": ("7", 7),
    "int": ("-8", -8),
    "bigint": ("9", 9),
    "decimal(12,2)": ("1.5", Decimal("1.50")),
    "double": ("0.25", 0.25),
    "varchar(40)": ("_UTF8MB4'it''s'", "it's"),
    "varbinary(32)": ("_UTF8MB4'abc'", b"abc"),
    "date": ("_UTF8MB4'2020-02-29'", date(2020, 2, 29)),
    "datetime": ("_UTF8MB4'2020-02-29 01:02:03'", datetime(2020, 2, 29, 1, 2, 3)),  # noqa: DTZ001
    _ENUM: ("_UTF8MB4'it''s'", "it's"),
}
_ZEROS: dict[str, Any] = {  # what old rows show in a NOT NULL column without a default
    "smallint": 0,
    "int": 0,
    "bigint": 0,
    "int unsigned": 0,
    "double": 0.0,
    "text": "",
    "decimal(12,2)": Decimal("0.00"),
    "varchar(40)": "",
    "varbinary(32)": b"",
    _ENUM: "new",
}


def _with_four_digits(value: int | Decimal) -> Decimal:
    return Decimal(value).quantize(Decimal("0.0001"))


_CONVERSIONS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "smallint": {"int": int, "bigint": int, "varchar(40)": str},
    "int": {"bigint": int, "decimal(16,4)": _with_four_digits, "varchar(40)": str},
    "bigint": {"int": int, "decimal(16,4)": _with_four_digits, "varchar(40)": str},
    "int unsigned": {"bigint": int},
    "decimal(12,2)": {"decimal(16,4)": _with_four_digits, "varchar(40)": lambda v: f"{v:f}"},
    "varchar(40)": {"varchar(200)": str, "text": str},
    "varchar(200)": {"text": str},
    "date": {
        "datetime": lambda v: datetime.combine(v, time()),
        "varchar(40)": lambda v: v.isoformat(),
    },
    "datetime": {
        "datetime(6)": lambda v: v,
        "varchar(40)": lambda v: v.isoformat(" ", "seconds"),
    },
    "datetime(6)": {"varchar(40)": lambda v: v.isoformat(" ", "microseconds")},
    _ENUM: {_LONGER_ENUM: str, "varchar(40)": str},
}
_MOST_FREE_COLUMNS = 6


@dataclass(frozen=True)
class Defined(Column):
    nullable: bool = True

    @property
    def sql(self) -> str:
        return f"{quoted(self.name)} {type_sql(self.type)}{'' if self.nullable else ' NOT NULL'}"


class ChangingTable:
    """``roles``: what some of the columns are for -> their names now. They may get another name or
    a wider type, but stay."""

    def __init__(
        self,
        schema: str,
        name: str,
        dice: random.Random,
        *,
        roles: Mapping[str, str],
        partitioned: Callable[[random.Random, int], Partitions] | None = None,
    ) -> None:
        """``roles`` -> types, ``NULL`` behind one that may be; ``partitioned``: by what, from which
        id on."""
        self.schema, self.name = schema, name
        self._dice = dice
        self._types, self._partitioned = roles, partitioned
        self._names = 0
        self.begin(0)

    def begin(self, first_id: int) -> None:
        """Made anew, in whatever shape, without rows."""
        dice, roles = self._dice, self._types
        self.partitions = self._partitioned(dice, first_id) if self._partitioned else None
        self.roles = {role: role for role in roles}
        self.rows: dict[int, Row] = {}
        self._table: Table | None = None
        key = Defined(KEY, dice.choice(("int", "bigint")), nullable=False)
        given = [
            Defined(role, kind.removesuffix(" NULL"), nullable=kind.endswith(" NULL"))
            for role, kind in roles.items()
        ]
        self.columns: tuple[Defined, ...] = (key, *given)
        for _ in range(2):
            self.columns += (self._new(dice.choice(list(_VALUES))),)

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def creation(self) -> str:
        body = ",".join([*(column.sql for column in self.columns), f"PRIMARY KEY({quoted(KEY)})"])
        clause = self.partitions.clause if self.partitions else ""
        return f"CREATE TABLE {self.sql_name} ({body}){clause}"

    def table(self) -> Table:
        """As it is now; one object for all messages of one shape."""
        if self._table is None:
            self._table = Table(
                schema=self.schema,
                name=self.name,
                columns=self.columns,
                primary_key=(KEY,),
                handle_key=(KEY,),
            )
        return self._table

    # Rows.

    def new_row(self, id: int, **by_role: Any) -> Row:
        row = {column.name: self._value(column) for column in self.columns} | {KEY: id}
        return self.with_values(row, **by_role)

    def with_values(self, row: Row, **by_role: Any) -> Row:
        types = {column.name: column.type for column in self.columns}
        for role, value in by_role.items():
            name = self.roles[role]
            whole = _with_four_digits if types[name].startswith("decimal") else int
            row = row | {name: None if value is None else whole(value)}
        return row

    def edited(self, row: Row) -> Row:
        """With other values where no role depends on them."""
        return row | {column.name: self._value(column) for column in self._free()}

    def _value(self, column: Defined) -> Any:
        if column.nullable and self._dice.random() < 0.2:
            return None
        return _VALUES[column.type](self._dice)

    # DDLs. A kind changes the table and gives its part of the statement; empty: not now.

    def alter(self) -> str:
        """By a DDL of some kind; the statement."""
        kinds = [self._add, self._add_filled, self._add_zero, self._add_two, self._drop]
        kinds += [self._drop_two, self._drop_and_add, self._rename, self._convert, self._reorder]
        kinds += [self._set_default, self._widen_key]
        while not (part := self._dice.choice(kinds)()):
            pass
        return f"ALTER TABLE {self.sql_name} {part}"

    def neutral(self) -> tuple[str, str]:
        """A DDL that changes neither columns nor rows: its type, and the statement."""
        self._names += 1
        parts = {
            f"ADD INDEX `i{self._names}`({quoted(KEY)})": "CINDEX",
            f"COMMENT = _UTF8MB4'it''s {self._names}'": "ALTER",
            f"AUTO_INCREMENT = {self._names * 1000}": "QUERY",
        }
        part = self._dice.choice(list(parts))
        return parts[part], f"ALTER TABLE {self.sql_name} {part}"

    def _become(
        self,
        columns: Iterable[Defined],
        values: Mapping[str, Callable[[Row], Any]] | None = None,
    ) -> None:
        """``values``: of columns whose values are not those of the same name."""
        self.columns, self._table, found = tuple(columns), None, values or {}
        self.rows = {
            id: {
                column.name: found[column.name](row) if column.name in found else row[column.name]
                for column in self.columns
            }
            for id, row in self.rows.items()
        }

    def _free(self) -> list[Defined]:
        taken = {KEY, *self.roles.values()}
        return [column for column in self.columns if column.name not in taken]

    def _new(self, kind: str, *, nullable: bool = True) -> Defined:
        """Of a name that was never there, or that was dropped."""
        here = {column.name for column in self.columns}
        old = [name for name in map(_name, range(self._names)) if name not in here]
        if old and self._dice.random() < 0.4:
            return Defined(self._dice.choice(old), kind, nullable=nullable)
        self._names += 1
        return Defined(_name(self._names - 1), kind, nullable=nullable)

    def _room(self) -> bool:
        return len(self._free()) < _MOST_FREE_COLUMNS

    def _put(self, column: Defined, value: Any, default: str = "", *, last: bool = False) -> str:
        """A new column somewhere; its definition."""
        at = len(self.columns) if last else self._dice.randint(0, len(self.columns))
        columns = [*self.columns[:at], column, *self.columns[at:]]
        place = "" if at == len(self.columns) else self._place(columns, at)
        self._become(columns, {column.name: lambda _row: value})
        return f"{column.sql}{default}{place}"

    @staticmethod
    def _place(columns: list[Defined], at: int) -> str:
        return f" AFTER {quoted(columns[at - 1].name)}" if at else " FIRST"

    def _add(self) -> str:
        kind = self._dice.choice(list(_VALUES))
        return f"ADD COLUMN {self._put(self._new(kind), None)}" if self._room() else ""

    def _add_filled(self, *, last: bool = False) -> str:
        kind = self._dice.choice(list(_DEFAULTS))
        if not self._room():
            return ""
        text, value = _DEFAULTS[kind]
        column = self._new(kind, nullable=self._dice.random() < 0.5)
        return f"ADD COLUMN {self._put(column, value, f' DEFAULT {text}', last=last)}"

    def _add_zero(self) -> str:
        kind = self._dice.choice(list(_ZEROS))
        column = self._new(kind, nullable=False)
        return f"ADD COLUMN {self._put(column, _ZEROS[kind])}" if self._room() else ""

    def _add_two(self) -> str:
        """The second one behind all others: TiDB refuses AFTER a column of the same statement."""
        first, second = self._add(), self._add_filled(last=True)
        return ", ".join(part for part in (first, second) if part)

    def _drop(self) -> str:
        free = self._free()
        if not free:
            return ""
        gone = self._dice.choice(free)
        self._become(column for column in self.columns if column is not gone)
        return f"DROP COLUMN {quoted(gone.name)}"

    def _drop_two(self) -> str:
        return f"{self._drop()}, {self._drop()}" if len(self._free()) > 1 else ""

    def _drop_and_add(self) -> str:
        before = {column.name for column in self.columns}
        if not self._free():
            return ""
        dropped = self._drop()
        column = self._new(self._dice.choice(list(_VALUES)))
        while column.name in before:  # TiDB refuses one name in two parts of a statement
            column = self._new(column.type)
        self._become([*self.columns, column], {column.name: lambda _row: None})
        return f"{dropped}, ADD COLUMN {column.sql}"

    def _rename(self) -> str:
        column = self._dice.choice([each for each in self.columns if each.name != KEY])
        renamed = self._new(column.type, nullable=column.nullable)
        self._replace(column, renamed, lambda value: value)
        if self._dice.random() < 0.5:
            return f"RENAME COLUMN {quoted(column.name)} TO {quoted(renamed.name)}"
        return f"CHANGE COLUMN {quoted(column.name)} {renamed.sql}"

    def _replace(self, old: Defined, new: Defined, convert: Callable[[Any], Any]) -> None:
        def value(row: Row) -> Any:
            return None if row[old.name] is None else convert(row[old.name])

        columns = [new if column is old else column for column in self.columns]
        self._become(columns, {new.name: value})
        renamed = {old.name: new.name}
        self.roles = {role: renamed.get(name, name) for role, name in self.roles.items()}

    def _convert(self) -> str:
        """To another type, sometimes with another name too."""
        ways = [
            (column, kind)
            for column in self.columns
            for kind in _CONVERSIONS.get(column.type, ())
            if self._may_become(column, kind)
        ]
        if not ways:
            return ""
        column, kind = self._dice.choice(ways)
        new = replace(column, type=kind)
        if self._dice.random() < 0.3:
            new = self._new(kind, nullable=column.nullable)
        self._replace(column, new, _CONVERSIONS[column.type][kind])
        if new.name == column.name:
            return f"MODIFY COLUMN {new.sql}"
        return f"CHANGE COLUMN {quoted(column.name)} {new.sql}"

    def _may_become(self, column: Defined, kind: str) -> bool:
        if column.name == KEY:  # has a kind of its own
            return False
        if (column.type, kind) == ("bigint", "int"):
            values = (row[column.name] for row in self.rows.values())
            is_small = all(value is None or abs(value) < 2**31 for value in values)
            return is_small and column.name not in self.roles.values()
        if column.name == self.roles.get("balance"):
            return not kind.startswith("varchar")
        return column.name not in self.roles.values() or kind in ("int", "bigint")

    def _reorder(self) -> str:
        column = self._dice.choice(self.columns)
        columns = [each for each in self.columns if each is not column]
        at = self._dice.randint(0, len(columns))
        columns.insert(at, column)
        self._become(columns)
        return f"MODIFY COLUMN {column.sql}{self._place(columns, at)}"

    def _set_default(self) -> str:
        """For later rows, which say themselves what they have."""
        able = [column for column in self._free() if column.type in _DEFAULTS]
        if not able:
            return ""
        column = self._dice.choice(able)
        return f"ALTER COLUMN {quoted(column.name)} SET DEFAULT {_DEFAULTS[column.type][0]}"

    def _widen_key(self) -> str:
        key = next(column for column in self.columns if column.name == KEY)
        if key.type == "bigint":
            return ""
        wider = replace(key, type="bigint")
        self._become(wider if column is key else column for column in self.columns)
        return f"MODIFY COLUMN {wider.sql}"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _name(number: int) -> str:
    """Plain ones, and some that must be quoted."""
    return ("c{}", "Ürlaub {}", "select_{}", "a.b`{}", "C{}x")[number % 5].format(number)
