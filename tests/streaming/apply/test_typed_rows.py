"""Rows with typed cells come to what the same rows as texts come to: keys, values, errors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pytest

from sinks.target.write_mode import COMMIT_ORDER, ROW_OP, ROW_TS, UPSERT, WriteMode
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.apply import rows_to_apply
from streaming.apply.changes import TableChanges
from streaming.protocols.contract import Order
from tests.sinks.types.typed_values import cell_type
from tests.streaming.apply.blocks import Row
from tests.streaming.apply.resolved import RULES, errors, resolved
from tests.streaming.apply.test_change_log import LOG, logged

Cell = tuple[Any, str]  # typed, and as a text
ZERO: Cell = ("0000-00-00", "0000-00-00")
NO_DAY: Cell = ("2021-02-31", "2021-02-31")
KEYS: dict[str, list[Cell]] = {
    "bigint unsigned": [(0, "0"), (1, "1"), (2**64 - 1, str(2**64 - 1))],
    "int": [(-1, "-1"), (0, "0"), (2, "2")],
    "date": [(date(2020, 1, 2), "2020-01-02"), (date(1, 1, 1), "0001-01-01"), ZERO, NO_DAY],
    "datetime(3)": [
        (datetime(2020, 1, 2, 3, 4, 5, 120000), "2020-01-02 03:04:05.120"),  # noqa: DTZ001
        (datetime(9999, 12, 31), "9999-12-31 00:00:00.000"),  # noqa: DTZ001
        *[(each + " 00:00:00.000",) * 2 for each in (ZERO[0], NO_DAY[0])],
    ],
    "timestamp": [
        (datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "2020-01-02 03:04:05"),
        (datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC), "2038-01-19 03:14:07"),
        ("0000-00-00 00:00:00",) * 2,
    ],
    "time(2)": [
        (timedelta(hours=-838, minutes=-59), "-838:59:00.00"),
        (timedelta(seconds=1, microseconds=500_000), "00:00:01.50"),
    ],
    "decimal(10,2)": [(Decimal("1.50"), "1.50"), (Decimal("-0.01"), "-0.01")],
    "decimal(65,30)": [(Decimal("1e-30"), "0." + "0" * 29 + "1"), (Decimal(7), "7." + "0" * 30)],
    "double": [(0.0, "0"), (1e300, "1" + "0" * 300), (0.1, "0.1")],
    "varchar(9)": [("", ""), ("a", "a"), ("A", "A")],
    "varbinary(9)": [(b"", ""), (b"\xff\x00", "\u00ff\u0000"), (b"a", "a")],
    "bit(9)": [(5, "5"), (511, "511")],
    "year": [(0, "0000"), (1999, "1999")],
    "enum('1','2','')": [("1", "1"), ("2", "2"), ("", "3")],
    "set('b','a')": [("", "0"), ("b,a", "3"), ("a", "2")],
}
FORMS = (
    UPSERT,
    WriteMode(soft_delete=True, extra_columns=(ROW_TS, ROW_OP)),
    WriteMode(mode="history"),
    WriteMode(all_columns=True),
    LOG,
)


class Rows:
    """Random rows twice: with typed cells, and as texts."""

    def __init__(self, types: Mapping[str, str], seed: str) -> None:
        self._dice = random.Random(seed)
        self._types = types
        self._no_days = self._dice.random() < 0.5
        self.typed: list[Row] = []
        self.texts: list[Row] = []

    def add(self, ts: int) -> None:
        op = self._dice.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
        data = {name: self._cell(of) for name, of in self._types.items()}
        old = None
        if op == "UPDATE":
            old = {name: self._cell(of) for name, of in self._types.items()}
            if self._dice.random() < 0.5:
                old = {**data, "w": old["w"]}
        common: dict[str, Any] = {"op": op, "ts": ts, "position": ts * 7, "types": self._types}
        sides = {"data": data, "old": old}
        self.texts.append(Row(**common, **{k: v and _side(v, 1) for k, v in sides.items()}))
        self.typed.append(
            Row(
                **common,
                **{k: v and _side(v, 0) for k, v in sides.items()},
                order=Order.PLACE,
                kinds=self._kinds(data),
                old_kinds=self._kinds(old or data),
            )
        )

    def _cell(self, of: str) -> Cell:
        cells = KEYS[of]
        if of.partition("(")[0] in ("date", "datetime", "timestamp") and not self._no_days:
            cells = cells[:2]
        return self._dice.choice(cells)

    def _kinds(self, cells: Mapping[str, Cell]) -> dict[str, pa.DataType]:
        """A column with a date of no calendar is a text."""
        kinds = {name: cell_type(MySQLType.parse(of)) for name, of in self._types.items()}
        is_text = {n for n, (cell, _) in cells.items() if isinstance(cell, str)}
        return {n: pa.string() if n in is_text else kind for n, kind in kinds.items()}


def _side(cells: Mapping[str, Cell], at: int) -> dict[str, Any]:
    return {name: cell[at] for name, cell in cells.items()}


def made(of: TableSchema, rows: list[Row], form: WriteMode, **more: Any) -> TableChanges:
    if form.is_log:
        return logged(rows, of, **more)
    return resolved(rows, form.keyed(of), form=form, **more)


def written(found: TableChanges) -> list[str]:
    """The number of an event within its commit-ts tells the order, which is another here."""
    rows = found.rows
    rows = rows.drop_columns([COMMIT_ORDER]) if COMMIT_ORDER in rows.column_names else rows
    return sorted(map(repr, rows.to_pylist()))


def refused(found: TableChanges) -> list[str]:
    """With both errors of an UPDATE whose old row is bad too."""
    return sorted(map(repr, found.errors.to_pylist()))


@pytest.mark.parametrize("form", FORMS, ids=("upsert", "soft", "history", "by row", "log"))
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.seeds(2)
def test_typed_rows_are_what_their_texts_are(
    kind: str, form: WriteMode, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"{kind}{form}{seed}")
    if dice.random() < 0.5:
        monkeypatch.setattr(rows_to_apply, "HELD_BYTES", 500)
        monkeypatch.setattr(rows_to_apply, "PIECE_BYTES", 700)
    other = dice.choice(list(KEYS))
    types = {"id": kind, "k": dice.choice(list(KEYS)), "w": other}
    key = () if form.all_columns else dice.choice((("id",), ("k", "id")))
    columns = tuple(Column(name=n, type=MySQLType.parse(of)) for n, of in types.items())
    schema = TableSchema(columns=columns, key=key)
    rows = Rows(types, f"{kind}{form}{seed}")
    for ts in range(1, 25):
        rows.add(ts)
    zero_date: Literal["null", "fail"] = dice.choice(("null", "fail"))
    rules = replace(RULES, zero_date=zero_date)
    typed, texts = (made(schema, each, form, rules=rules) for each in (rows.typed, rows.texts))
    assert written(typed) == written(texts)
    assert refused(typed) == refused(texts)
    assert typed.nulled == texts.nulled


def test_a_cell_that_does_not_fit_is_told_as_its_text() -> None:
    of = TableSchema(
        columns=(
            Column(name="id", type=MySQLType.parse("int")),
            Column(name="n", type=MySQLType.parse("tinyint")),
            Column(name="d", type=MySQLType.parse("date")),
        ),
        key=("id",),
    )
    kinds = {"id": pa.int64(), "n": pa.int32(), "d": pa.date32()}
    cells = [(1, 5, None), (2, 300, None), (2**40, 5, None), (3, 5, date(2020, 1, 1))]
    given = [
        Row(
            op="INSERT", ts=7, position=at, order=Order.PLACE, kinds=kinds,
            data={"id": id, "n": n, "d": d},
        )
        for at, (id, n, d) in enumerate(cells)
    ]  # fmt: skip
    found = resolved(given, of)
    assert errors(found) == {
        1: ("cast", "column n: cannot read '300' as tinyint"),
        2: ("cast", f"column id: cannot read '{2**40}' as int"),
    }
    assert found.rows["id"].to_pylist() == [1, 3]


def test_a_column_that_the_table_lacks_is_one_of_typed_rows_too() -> None:
    of = TableSchema(columns=(Column(name="id", type=MySQLType.parse("int")),), key=("id",))
    kinds = {"id": pa.int32(), "x": pa.float64()}
    row = Row(op="INSERT", ts=7, data={"id": 1, "x": 0.5}, order=Order.PLACE, kinds=kinds)
    assert set(errors(resolved([row], of))) == {0}
    found = resolved([row], of, rules=replace(RULES, unknown_column="drop"))
    assert (found.rows["id"].to_pylist(), found.dropped) == ([1], {"x": 1})
