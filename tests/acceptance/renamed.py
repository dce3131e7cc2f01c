"""A few tables of two shapes that change their names, one by one and several at once, while rows
come; some are dropped, and made again under names that others had."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.acceptance.small_tables import PARTITIONS, marks
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import (
    Change,
    Column,
    Ddl,
    Op,
    Table,
    encode_change,
    encode_ddl,
)
from tests.shop.feed import Message
from tests.shop.tables import create_table

STEP_TS = 10
NAMES = ("shop.a", "shop.b", "shop.c", "other.d", "other.e")
TMP = "shop.tmp"
Rows = dict[Any, dict[str, Any]]  # by key
# The columns of a table, the first of which is its key.
SHAPES = (
    (Column("id", "bigint"), Column("v", "varchar(40)")),
    (Column("name", "varchar(40)"), Column("n", "int"), Column("id", "int")),
)


def table_of(name: str, shape: int) -> Table:
    columns = SHAPES[shape]
    schema, _, table = name.partition(".")
    key = (columns[0].name,)
    return Table(schema=schema, name=table, columns=columns, primary_key=key, handle_key=key)


class Renames:
    """``messages`` has rows, DDLs and watermarks, some of them twice and late."""

    def __init__(self, seed: int, *, steps: int = 120, ddl_every: int = 8) -> None:
        self._dice = random.Random(seed)
        self._ts = 1_000
        self._shapes: dict[str, int] = {}  # of the tables that are there
        self._rows: dict[str, Rows] = {}
        self.moments: list[tuple[int, dict[str, int], dict[str, Rows]]] = []
        self.ddls: list[str] = []
        self.messages: list[Message] = []
        for name in NAMES[:3]:
            self._create(name)
        for step in range(1, steps + 1):
            if step % ddl_every and self._shapes:
                self._change()
            else:
                self._ddl()
            if step % 5 == 0:
                self.messages += marks(self._ts + 1)
            if step % 20 == 0:
                begin = self._dice.randrange(len(self.messages))
                self.messages += [each for each in self.messages[begin : begin + 20]]
        self.last_ts = self._ts
        self.messages += marks(self._ts + 10)

    def ts_at(self, part: float) -> int:
        return self.moments[int((len(self.moments) - 1) * part)][0]

    def differences(
        self,
        warehouse: Path,
        ts: int,
        versions: Mapping[str, int] | None = None,
        read: Callable[[Path, int | None], list[dict[str, Any]]] = read_rows,
    ) -> str | None:
        """Which tables there are, and every cell. ``versions``: a published cut."""
        _, shapes, wanted = max(
            (moment for moment in self.moments if moment[0] <= ts), key=lambda moment: moment[0]
        )
        if versions is not None and versions.keys() != wanted.keys():
            return f"at {ts} tables {sorted(versions)}, not {sorted(wanted)}"
        for name in versions or (*NAMES, TMP):
            place = warehouse / name.replace(".", "/")
            if not DeltaTable.is_deltatable(str(place)):
                found: list[dict[str, Any]] = []
            else:
                found = read(place, None if versions is None else versions[name])
            rows = wanted.get(name, {})
            key = SHAPES[shapes.get(name, 0)][0].name
            if sorted(map(str, found)) != sorted(map(str, rows.values())):
                return f"at {ts} table {name}: {found}, not {list(rows.values())} by {key}"
        return None

    def _tick(self) -> int:
        self._ts += STEP_TS
        return self._ts

    def _moment(self) -> None:
        rows = {name: {k: dict(v) for k, v in each.items()} for name, each in self._rows.items()}
        self.moments.append((self._ts, dict(self._shapes), rows))

    def _change(self) -> None:
        """One transaction on one or two tables."""
        ts = self._tick()
        for name in self._dice.sample(sorted(self._shapes), min(2, len(self._shapes))):
            shape, rows = self._shapes[name], self._rows[name]
            key, *others = (column.name for column in SHAPES[shape])
            for number in self._dice.sample(range(9), self._dice.randint(1, 3)):
                at: Any = number if shape == 0 else f"é {number}"
                before = rows.get(at)
                op: Op = "INSERT" if before is None else self._dice.choice(("UPDATE", "DELETE"))
                row = before if op == "DELETE" else {key: at, **self._values(shape, others)}
                assert row is not None
                if op == "DELETE":
                    del rows[at]
                else:
                    rows[at] = row
                change = Change(
                    table=table_of(name, shape),
                    op=op,
                    row=row,
                    old=before if op == "UPDATE" else None,
                )
                message = encode_change(change, ts, 0)
                self.messages.append((number % PARTITIONS, None, message))
        self._moment()

    def _values(self, shape: int, names: Sequence[str]) -> dict[str, Any]:
        number = self._dice.randrange(1 << 30)
        return {name: f"text {number}" if shape == 0 else number for name in names}

    def _ddl(self) -> None:
        there, free = sorted(self._shapes), [name for name in NAMES if name not in self._shapes]
        kinds = {"create": len(free), "drop": len(there) > 2, "one": min(3, len(there))}
        kinds |= {"swap": 3 * (len(there) > 1), "take": 2 * (len(there) > 1 and bool(free))}
        kinds["one"] *= bool(free)
        (kind,) = self._dice.choices([*kinds], [int(weight) for weight in kinds.values()])
        one, other = (*self._dice.sample(there, min(2, len(there))), "", "")[:2]
        to = self._dice.choice(free) if free else ""
        match kind:
            case "create":
                self._create(to)
            case "drop":
                self._send("ERASE", "DROP TABLE {}", (one,))
                del self._shapes[one], self._rows[one]
                self._moment()
            case "one":
                query = self._dice.choice(("RENAME TABLE {} TO {}", "ALTER TABLE {} RENAME TO {}"))
                self._rename((one, to), query=query)
            case "swap":
                self._rename((one, TMP), (other, one), (TMP, other))
            case "take":
                self._rename((other, to), (one, other))

    def _create(self, name: str) -> None:
        shape = self._dice.randrange(len(SHAPES))
        self._shapes[name], self._rows[name] = shape, {}
        ddl = create_table(table_of(name, shape))
        self.messages.append((0, None, encode_ddl(ddl, self._tick(), 0)))
        self.ddls.append(ddl.query)
        self._moment()

    def _rename(self, *moves: tuple[str, str], query: str = "RENAME TABLE {} TO {}") -> None:
        """One message for each, all of one commit-ts."""
        self._tick()
        for old, new in moves:
            self._shapes[new], self._rows[new] = self._shapes.pop(old), self._rows.pop(old)
            self._send("RENAME", query, (old, new), is_same=True)
        self._moment()

    def _send(self, kind: str, query: str, names: Sequence[str], *, is_same: bool = False) -> None:
        ts = self._ts if is_same else self._tick()
        spelled = [f"`{name.replace('.', '`.`')}`" for name in names]
        text = query.format(*spelled)
        schema, _, table = names[-1].partition(".")
        self.messages.append((0, None, encode_ddl(Ddl(schema, table, kind, text), ts, 0)))
        self.ddls.append(text)
