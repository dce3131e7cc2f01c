"""A table that changes shape: what it holds now, and DDLs of every kind that change its columns and
its key, in the words in which TiCDC sends them. Whatever its key is, ``id`` is in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.acceptance.changing_partitions import Partitions
from tests.acceptance.changing_values import (
    CONVERSIONS,
    DEFAULTS,
    KEY_CONVERSIONS,
    KEY_TYPES,
    VALUES,
    ZEROS,
    with_four_digits,
)
from tests.acceptance.shown import UPSERTED, Shown
from tests.shop.canal_json import Column, Table
from tests.shop.tables import type_sql

KEY = "id"
Row = dict[str, Any]  # by column, in the table's order; never changed once it is in a table

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
        form: Shown = UPSERTED,
    ) -> None:
        """``roles`` -> types, ``NULL`` behind one that may be; ``partitioned``: by what, from which
        id on; ``form``: what its target shows."""
        self.schema, self.name, self.form = schema, name, form
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
        self.shown: list[Row] = []  # by the target, where that is not `rows`; never changed
        self.key: tuple[str, ...] = (KEY,)
        self._key_index = ""  # the unique one that is the key; empty: the primary key is
        self._table: Table | None = None
        key = Defined(KEY, dice.choice(("int", "bigint")), nullable=False)
        given = [
            Defined(role, kind.removesuffix(" NULL"), nullable=kind.endswith(" NULL"))
            for role, kind in roles.items()
        ]
        self.columns: tuple[Defined, ...] = (key, *given)
        for _ in range(2):
            self.columns += (self._new(dice.choice(list(VALUES))),)

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def creation(self) -> str:
        key = [f"PRIMARY KEY({quoted(KEY)})"] if self.form.has_key else []
        body = ",".join([*(column.sql for column in self.columns), *key])
        clause = self.partitions.clause if self.partitions else ""
        return f"CREATE TABLE {self.sql_name} ({body}){clause}"

    def table(self) -> Table:
        """As it is now; one object for all messages of one shape."""
        if self._table is None:
            self._table = Table(
                schema=self.schema,
                name=self.name,
                columns=self.columns,
                primary_key=() if self._key_index or not self.form.has_key else self.key,
                handle_key=self.key if self.form.has_key else (),
            )
        return self._table

    def rename(self, full_name: str) -> None:
        self.schema, _, self.name = full_name.partition(".")
        self._table = None

    # Rows.

    def new_row(self, id: int, **by_role: Any) -> Row:
        row = {column.name: self._value(column) for column in self.columns} | {KEY: id}
        return self.with_values(row, **by_role)

    def with_values(self, row: Row, **by_role: Any) -> Row:
        types = {column.name: column.type for column in self.columns}
        for role, value in by_role.items():
            name = self.roles[role]
            whole = with_four_digits if types[name].startswith("decimal") else int
            row = row | {name: None if value is None else whole(value)}
        return row

    def edited(self, row: Row) -> Row:
        """With other values where no role depends on them."""
        return row | {column.name: self._value(column) for column in self._free()}

    def _value(self, column: Defined) -> Any:
        if column.nullable and self._dice.random() < 0.2:
            return None
        return VALUES[column.type](self._dice)

    # DDLs. A kind changes the table and gives its part of the statement; empty: not now.

    def alter(self) -> str:
        """By a DDL of some kind; the statement."""
        kinds = [self._add, self._add_filled, self._add_zero, self._add_two, self._rename]
        kinds += [self._convert, self._reorder, self._set_default, self._widen_key]
        if self.form.has_key:  # else rows could become equal, and the table would be held
            kinds += [self._drop, self._drop_two, self._drop_and_add]
        kinds += [self._change_key] if self.form.takes_other_keys else []
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
        *,
        added: Mapping[str, Any] | None = None,
    ) -> None:
        """``values``: of columns whose values are not those of the same name; ``added``: what old
        rows show in new ones, but for events of a log, which have nothing there."""
        self.columns, self._table = tuple(columns), None
        found, new = values or {}, added or {}
        names = [column.name for column in self.columns]

        def of(row: Row, filled: Mapping[str, Any]) -> Row:
            return {
                name: filled[name]
                if name in filled
                else found[name](row)
                if name in found
                else row[name]
                for name in names
            }

        self.rows = {id: of(row, new) for id, row in self.rows.items()}
        filled = new if self.form.fills_columns else dict.fromkeys(new)
        extra = self.form.columns
        self.shown = [of(row, filled) | {name: row[name] for name in extra} for row in self.shown]

    def _free(self) -> list[Defined]:
        taken = {KEY, *self.roles.values()}
        return [column for column in self.columns if column.name not in taken]

    def _loose(self) -> list[Defined]:
        return [column for column in self._free() if column.name not in self.key]

    def _values_of(self, column: Defined) -> list[Any]:
        return [row[column.name] for row in (*self.rows.values(), *self.shown)]

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
        self._become(columns, added={column.name: value})
        return f"{column.sql}{default}{place}"

    @staticmethod
    def _place(columns: list[Defined], at: int) -> str:
        return f" AFTER {quoted(columns[at - 1].name)}" if at else " FIRST"

    def _add(self) -> str:
        kind = self._dice.choice(list(VALUES))
        return f"ADD COLUMN {self._put(self._new(kind), None)}" if self._room() else ""

    def _add_filled(self, *, last: bool = False) -> str:
        kind = self._dice.choice(list(DEFAULTS))
        if not self._room():
            return ""
        text, value = DEFAULTS[kind]
        column = self._new(kind, nullable=self._dice.random() < 0.5)
        return f"ADD COLUMN {self._put(column, value, f' DEFAULT {text}', last=last)}"

    def _add_zero(self) -> str:
        kind = self._dice.choice(list(ZEROS))
        column = self._new(kind, nullable=False)
        return f"ADD COLUMN {self._put(column, ZEROS[kind])}" if self._room() else ""

    def _add_two(self) -> str:
        """The second one behind all others: TiDB refuses AFTER a column of the same statement."""
        first, second = self._add(), self._add_filled(last=True)
        return ", ".join(part for part in (first, second) if part)

    def _drop(self) -> str:
        loose = self._loose()
        if not loose:
            return ""
        gone = self._dice.choice(loose)
        self._become(column for column in self.columns if column is not gone)
        return f"DROP COLUMN {quoted(gone.name)}"

    def _drop_two(self) -> str:
        return f"{self._drop()}, {self._drop()}" if len(self._loose()) > 1 else ""

    def _drop_and_add(self) -> str:
        before = {column.name for column in self.columns}
        if not self._loose():
            return ""
        dropped = self._drop()
        column = self._new(self._dice.choice(list(VALUES)))
        while column.name in before:  # TiDB refuses one name in two parts of a statement
            column = self._new(column.type)
        self._become([*self.columns, column], added={column.name: None})
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
        self.key = tuple(renamed.get(name, name) for name in self.key)

    def _convert(self) -> str:
        """To another type, sometimes with another name too."""
        ways = [
            (column, kind)
            for column in self.columns
            for kind in CONVERSIONS.get(column.type, ())
            if self._may_become(column, kind)
        ]
        if not ways:
            return ""
        column, kind = self._dice.choice(ways)
        new = replace(column, type=kind)
        if self._dice.random() < 0.3:
            new = self._new(kind, nullable=column.nullable)
        self._replace(column, new, CONVERSIONS[column.type][kind])
        if new.name == column.name:
            return f"MODIFY COLUMN {new.sql}"
        return f"CHANGE COLUMN {quoted(column.name)} {new.sql}"

    def _may_become(self, column: Defined, kind: str) -> bool:
        if column.name == KEY:  # has a kind of its own
            return False
        if not self.form.has_key and not {column.type, kind} <= {"int", "bigint"}:
            return False
        if column.name in self.key and (column.type, kind) not in KEY_CONVERSIONS:
            return False
        if (column.type, kind) == ("bigint", "int"):
            values = self._values_of(column)
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
        able = [column for column in self._free() if column.type in DEFAULTS]
        if not able:
            return ""
        column = self._dice.choice(able)
        return f"ALTER COLUMN {quoted(column.name)} SET DEFAULT {DEFAULTS[column.type][0]}"

    def _widen_key(self) -> str:
        key = next(column for column in self.columns if column.name == KEY)
        if key.type == "bigint":
            return ""
        wider = replace(key, type="bigint")
        self._become(wider if column is key else column for column in self.columns)
        return f"MODIFY COLUMN {wider.sql}"

    def _change_key(self) -> str:
        """To a longer one, a shorter one, or to a unique index and back."""
        others = [
            column.name
            for column in self.columns
            if column.name != KEY and not column.nullable and column.type in KEY_TYPES
            if None not in self._values_of(column)
        ]
        keys = [(KEY,), *((KEY, name) for name in others), *((name, KEY) for name in others)]
        key, is_primary = self._dice.choice(keys), self._dice.random() < 0.6
        if key == self.key and is_primary == (not self._key_index):
            return ""
        gone = f"DROP INDEX `{self._key_index}`" if self._key_index else "DROP PRIMARY KEY"
        self._names += 1
        self.key, self._key_index, self._table = key, "" if is_primary else f"u{self._names}", None
        index = "PRIMARY KEY" if is_primary else f"UNIQUE INDEX `{self._key_index}`"
        return f"{gone}, ADD {index} ({','.join(map(quoted, key))})"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _name(number: int) -> str:
    """Plain ones, and some that must be quoted."""
    return ("c{}", "Ürlaub {}", "select_{}", "a.b`{}", "C{}x")[number % 5].format(number)
