"""Random histories of one table: its rows as messages have them, and ALTER TABLEs between them.

A column gets another type only when all values that are there have a place in it, as TiDB demands:
rows whose values have none are changed or deleted right before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa

from sinks.types.casts.columns import CastRules, cast_column
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from sinks.types.type_changes import CannotConvert, converted
from tests.streaming.apply.blocks import Row, Text

RULES = CastRules(time_zone="Asia/Tokyo", zero_date="null", ddl_time_zone="Asia/Tokyo")
TSO = 1 << 18  # a millisecond
POOLS = {  # texts as messages have them
    "tinyint": ("0", "7", "-128"),
    "int": ("0", "70000", "-5"),
    "bigint unsigned": ("1", "18446744073709551615"),
    "decimal(10,2)": ("1.50", "-99999999.99", "12.00"),
    "double": ("0.5", "1e300"),
    "varchar(90)": ("", "abc", "12", "it's é", "2024-02-03"),
    "varbinary(90)": ("a", "12"),
    "enum('x','y')": ("1", "2"),
    "date": ("2024-02-03", "0000-00-00"),
    "datetime(6)": ("2024-02-03 04:05:06.789000",),
    "timestamp": ("2024-02-03 04:05:06",),
    "json": ('{"a": 1}',),
}
DEFAULTS = {  # in a statement; CURRENT_TIMESTAMP is the time of the DDL
    "tinyint": ("5",),
    "int": ("-7",),
    "decimal(10,2)": ("1.5",),
    "varchar(90)": ("'12'", "''", "'new'"),
    "enum('x','y')": ("'Y'",),
    "date": ("'2020-01-02'",),
    "timestamp": ("CURRENT_TIMESTAMP",),
}
KEYS = {"smallint": 300, "int": 70_000, "bigint": 1 << 40}  # the greatest value that is used
NAMES = ("a", "b", "c", "D d", "e`", "ö", "values")
Step = Row | tuple[int, str]  # a row, or a DDL with its commit-ts


@dataclass
class _Table:
    """What it is at the moment. A cell is an array of one value; None: it is not followed."""

    columns: dict[str, str]
    rows: dict[str, dict[str, pa.Array | None]] = field(default_factory=dict)


class Reshaping:
    """``steps`` in the order of their commit-ts. ``keeps_all``: what was changed or deleted since
    has a place in a new type too, since the table keeps it."""

    def __init__(self, seed: int, *, steps: int = 40, keeps_all: bool = False) -> None:
        self._dice = random.Random(seed)
        self._keeps_all = keeps_all
        self._ts = 1_000 * TSO
        self._key = ("id", "int")
        self._table = _Table({"a": "int", "b": "varchar(90)"})
        self.steps: list[Step] = []
        self.made_ts = self._ts
        columns = (_column("id", "int"), _column("a", "int"), _column("b", "varchar(90)"))
        self.schema = TableSchema(columns=columns, key=("id",))
        for _ in range(steps):
            self._alter() if self._dice.random() < 0.2 else self._change()
        self._change()
        self.last_ts = self._ts

    @property
    def ddls(self) -> list[str]:
        return [step[1] for step in self.steps if not isinstance(step, Row)]

    def moments(self) -> list[int]:
        return [self.made_ts, *(step.ts for step in self.steps if isinstance(step, Row))]

    # Rows.

    def _tick(self) -> int:
        self._ts += self._dice.choice((1, 3, TSO, 5 * TSO))
        return self._ts

    def _row(self, op: str, key: str, text: Text, old_key: str | None = None) -> None:
        name = self._key[0]
        data = {name: key, **text}
        old = None if old_key is None else {name: old_key}
        row = Row(op=op, ts=self._ts, data=data, old=old, position=len(self.steps), key=(name,))
        self.steps.append(row)

    def _change(self) -> None:
        """A transaction of a few rows, each of another key."""
        self._tick()
        rows = self._table.rows
        first, *keys = self._keys(self._dice.randint(2, 5))
        for key in keys:
            if key not in rows:
                self._put("INSERT", key)
            elif self._dice.random() < 0.3:
                self._delete(key)
            elif self._dice.random() < 0.3 and key == keys[0] and first not in rows:
                del rows[key]
                self._put("UPDATE", first, old_key=key)
            else:
                self._put("UPDATE", key)
        self._tick()

    def _keys(self, count: int) -> list[str]:
        """Some that are far from 0: they have no place in a narrower key."""
        among = [*map(str, range(-12, 13)), str(KEYS[self._key[1]])]
        return self._dice.sample(among, count)

    def _put(
        self,
        op: str,
        key: str,
        *,
        old_key: str | None = None,
        only: dict[str, list[str]] | None = None,
    ) -> None:
        text: dict[str, str | None] = {}
        for name, kind in self._table.columns.items():
            pool = (only or {}).get(name, [*POOLS[kind]])
            text[name] = self._dice.choice([*pool, None])
        cells = {name: _cell(each, self._table.columns[name]) for name, each in text.items()}
        self._table.rows[key] = cells
        self._row(op, key, text, old_key)

    def _delete(self, key: str) -> None:
        del self._table.rows[key]
        self._row("DELETE", key, dict.fromkeys(self._table.columns))

    # DDLs.

    def _alter(self) -> None:
        """One change or two in a statement, each of other columns."""
        luck = self._dice.random()
        if luck < 0.05:
            self._table.rows.clear()
            self._run("TRUNCATE TABLE a")
        elif luck < 0.1:
            self._run(f"ALTER TABLE a ADD INDEX i{self._ts} ({_quoted(self._key[0])})")
        elif luck < 0.25:
            self._run("ALTER TABLE a " + self._rekey())
        else:
            before = set(self._table.columns)
            kinds = (self._retype, self._drop, self._rename, self._move, self._add)
            chosen = self._dice.sample(kinds, self._dice.choice((1, 1, 2)))
            # `_retype` is first: it changes rows in their old shape.
            found = [change(before) for change in sorted(chosen, key=kinds.index)]
            if parts := [each for each in found if each is not None]:
                self._run("ALTER TABLE a " + ", ".join(parts))

    def _run(self, sql: str) -> None:
        self.steps.append((self._tick(), sql))

    def _free(self) -> list[str]:
        return [name for name in NAMES if name not in self._table.columns]

    def _add(self, _: set[str]) -> str | None:
        free = self._free()
        if not free:
            return None
        name, kind = self._dice.choice(free), self._dice.choice([*POOLS])
        default = ""
        if kind in DEFAULTS and self._dice.random() < 0.7:
            default = " DEFAULT " + self._dice.choice(DEFAULTS[kind])
        self._table.columns[name] = kind
        for cells in self._table.rows.values():
            cells[name] = None if default else _cell(None, kind)
        place = self._dice.choice(("", " FIRST"))
        return f"ADD COLUMN {_quoted(name)} {kind}{default}{place}"

    def _drop(self, before: set[str]) -> str | None:
        able = sorted(before & self._table.columns.keys())
        if not able:
            return None
        name = self._dice.choice(able)
        before.discard(name)
        del self._table.columns[name]
        for cells in self._table.rows.values():
            del cells[name]
        return f"DROP COLUMN {_quoted(name)}"

    def _rename(self, before: set[str]) -> str | None:
        able, free = sorted(before & self._table.columns.keys()), self._free()
        if not able or not free:
            return None
        old, new = (
            self._dice.choice(able),
            self._dice.choice([n for n in free if n not in before] or [""]),
        )
        if not new:
            return None
        before.discard(old)
        self._renamed(old, new, self._table.columns[old])
        return f"RENAME COLUMN {_quoted(old)} TO {_quoted(new)}"

    def _renamed(self, old: str, new: str, kind: str) -> None:
        columns = self._table.columns.items()
        self._table.columns = dict((new, kind) if each[0] == old else each for each in columns)
        for cells in self._table.rows.values():
            cells[new] = cells.pop(old)

    def _move(self, before: set[str]) -> str | None:
        able = sorted(before & self._table.columns.keys())
        if not able:
            return None
        name = self._dice.choice(able)
        before.discard(name)
        return f"MODIFY {_quoted(name)} {self._table.columns[name]} FIRST"

    def _retype(self, before: set[str]) -> str | None:
        """Only to what some text of the present type can be converted."""
        able = sorted(before & self._table.columns.keys())
        if not able:
            return None
        old = self._dice.choice(able)
        was = self._table.columns[old]
        into = self._dice.choice([kind for kind in POOLS if _fitting(was, kind)])
        if self._keeps_all:
            into = "varchar(90)" if len(_fitting(was, "varchar(90)")) == len(POOLS[was]) else was
        if into == was:
            return None
        self._tick()
        for key, cells in list(self._table.rows.items()):
            if _converted(cells[old], was, into) is None:
                if self._dice.random() < 0.3:
                    self._delete(key)
                else:
                    self._put("UPDATE", key, only={old: _fitting(was, into)})
        for cells in self._table.rows.values():
            cells[old] = _converted(cells[old], was, into)
        before.discard(old)
        free = [name for name in self._free() if name not in before]
        new = self._dice.choice([old, *free[:1]])
        self._renamed(old, new, into)
        return f"CHANGE {_quoted(old)} {_quoted(new)} {into}"

    def _rekey(self) -> str:
        """Another width of whole numbers, perhaps another name."""
        old, _ = self._key
        kind = "bigint" if self._keeps_all else self._dice.choice([*KEYS])
        new = "key" if old == "id" and self._dice.random() < 0.5 else old
        self._tick()
        for key in list(self._table.rows):
            if abs(int(key)) > KEYS[kind]:
                self._delete(key)
        self._key = (new, kind)
        return f"CHANGE {_quoted(old)} {_quoted(new)} {kind} NOT NULL"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _column(name: str, kind: str) -> Column:
    return Column(name=name, type=MySQLType.parse(kind), nullable=name != "id")


def _cell(text: str | None, kind: str) -> pa.Array:
    cast = cast_column(pa.array([text], pa.string()), _column("", kind), RULES)
    assert cast.failed is None, (text, kind)
    return cast.values


def _converted(cell: pa.Array | None, old: str, new: str) -> pa.Array | None:
    """None: it has no place, or is not followed."""
    if cell is None:
        return None
    try:
        return converted(cell, MySQLType.parse(old), MySQLType.parse(new), RULES.time_zone)
    except CannotConvert:
        return None


def _fitting(old: str, new: str) -> list[str]:
    """The texts of the one type that have a place in the other."""
    return [text for text in POOLS[old] if _converted(_cell(text, old), old, new) is not None]
