"""Changes of a table whose rows are told apart by all columns: equal in the target's cells is one
row, the last event of a row counts, and what comes without a whole row is a dead letter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import Ts
from sinks.ddl.column_origin import ColumnOrigin
from sinks.ddl.past_schemas import PastSchema, SchemaStep
from sinks.target.write_mode import ROW_DELETED, WriteMode
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import TableSchema
from streaming.apply.row_block import RowBlock
from streaming.apply.values.row_errors import NO_OLD_ROW_MESSAGE, NO_WHOLE_ROW, UNKNOWN_COLUMN
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.contract import Kind, Messages, WantedTable
from tests.shop.canal_json import Change, Column, Table, encode_change
from tests.streaming.apply.blocks import A
from tests.streaming.apply.resolved import RULES, errors, numbered, resolved, row, schema

X = "x", "y"


def by_all(**types: str) -> TableSchema:
    return schema((), **types).by_all_columns()


TEXTS = by_all(x="varchar(20)", y="varchar(20)")


def said(rows: Any, of: TableSchema = TEXTS, **more: Any) -> dict[tuple[Any, ...], str]:
    """Row -> what becomes of it; no row twice."""
    found = resolved(numbered(rows), of, **more)
    assert not errors(found)
    names = [column.name for column in of.delivered]
    told = [(tuple(each[n] for n in names), each["_op "]) for each in found.rows.to_pylist()]
    assert len(dict(told)) == len(told)
    return dict(told)


def text(x: str | None, y: str | None = None) -> dict[str, str | None]:
    return {"x": x, "y": y}


def test_the_last_event_of_each_whole_row_counts() -> None:
    assert said(
        [
            row("INSERT", 10, text("a")),
            row("INSERT", 10, text("a")),
            row("INSERT", 10, text("b", "1")),
            row("DELETE", 20, text("a")),
            row("DELETE", 20, text("c")),
            row("INSERT", 30, text("c")),
            row("DELETE", 9, text("b", "1")),
            row("INSERT", 40, text("d")),
            row("DELETE", 40, text("d")),
        ]
    ) == {("a", None): "D", ("b", "1"): "U", ("c", None): "U", ("d", None): "U"}


def test_an_update_is_the_delete_of_its_old_row_and_its_new_one() -> None:
    assert said(
        [
            row("UPDATE", 10, text("a", "2"), text("a", "1")),
            row("UPDATE", 10, text("a", "3"), text("a", "2")),
            row("UPDATE", 10, text("n", "v"), text("n")),
            row("UPDATE", 10, text(None, "w"), text("v", "w")),
            row("UPDATE", 10, text("same"), text("same")),
        ]
    ) == {
        ("a", "1"): "D",
        ("a", "2"): "U",  # another row has come to it
        ("a", "3"): "U",
        ("n", None): "D",
        ("n", "v"): "U",
        ("v", "w"): "D",
        (None, "w"): "U",
        ("same", None): "U",
    }


def test_null_is_neither_empty_nor_a_word() -> None:
    rows = [text(None), text(""), text("", ""), text(None, ""), text("NULL"), text("null")]
    assert len(said([row("INSERT", 10, each) for each in rows])) == len(rows)
    gone = [row("INSERT", 10, text(None)), row("DELETE", 20, text(None))]
    assert said(gone) == {(None, None): "D"}


@pytest.mark.parametrize(
    ("kind", "one", "other", "value"),
    [
        ("int", "7", "7", 7),
        ("bigint", None, None, None),
        ("bigint", str(-(2**63)), str(-(2**63)), -(2**63)),
        ("double", "0", "-0", 0.0),
        ("double", "1", "1.0", 1.0),
        ("float", "1.5", "1.50", 1.5),
        ("decimal(6,2)", "1.5", "1.50", "1.50"),
        ("bigint unsigned", str(2**64 - 1), str(2**64 - 1), str(2**64 - 1)),
        ("json", '{"a": 1}', '{"a": 1}', '{"a": 1}'),
        ("varbinary(9)", "\u00ff\u0000", "\u00ff\u0000", b"\xff\x00"),
        ("enum('p','q')", "2", "2", "q"),
        ("set('p','q')", "3", "3", "p,q"),
        ("bit(8)", "5", "5", "5"),
        ("date", "2024-02-29", "2024-02-29", "2024-02-29"),
        ("date", "0000-00-00", None, None),  # zero-date = "null"
        ("datetime(6)", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000000", None),
        ("timestamp(6)", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000000", None),
        ("vector", "[1,2.5]", "[1,2.5]", [1.0, 2.5]),
        ("vector", "[]", "[]", []),
    ],
)
def test_equal_means_equal_in_the_targets_cells(
    kind: str, one: str | None, other: str | None, value: Any
) -> None:
    of = by_all(x=kind)
    inserted, deleted = row("INSERT", 10, {"x": one}), row("DELETE", 20, {"x": other})
    found = resolved(numbered([inserted, deleted, inserted]), of)
    assert found.rows["_op "].to_pylist() == ["D"]
    assert resolved(numbered([inserted, row("INSERT", 20, {"x": other})]), of).rows.num_rows == 1
    (cell,) = found.rows["x"].to_pylist()
    assert value is None or cell == value or str(cell) == value


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("varchar(9)", "a", "A"),  # whatever the collation says
        ("varchar(9)", "a", "a "),
        ("json", '{"a": 1}', '{"a": 1.0}'),
        ("double", "1", "1.0000000000000002"),
        ("varbinary(9)", "a", "a\u0000"),
        ("int", "0", None),
        ("vector", "[1,2]", "[2,1]"),
        ("vector", "[0]", "[0,0]"),
    ],
)
def test_what_differs_in_the_cells_is_two_rows(kind: str, one: str, other: str | None) -> None:
    rows = [row("INSERT", 10, {"x": each}) for each in (one, other)]
    assert resolved(numbered(rows), by_all(x=kind)).rows.num_rows == 2


def test_without_a_whole_row_nothing_is_guessed() -> None:
    rows = [
        row("UPDATE", 10, text("a", "2")),
        row("DELETE", 10, {"x": "b"}),
        row("INSERT", 10, {"x": "b"}),
        row("DELETE", 10, {}),
        row("DELETE", 10, text("c")),
        row("UPDATE", 10, {"x": "d"}, {"x": "e"}),
        row("DELETE", 10, text("f"), error=("claim-check", "elsewhere")),
    ]
    found = resolved(numbered(rows), TEXTS)
    assert found.rows.to_pylist() == [{"x": "c", "y": None, "_op ": "D"}]
    lacks = "and the table's rows are found by all columns (key = 'all-columns')"
    assert errors(found) == {
        0: (NO_WHOLE_ROW, NO_OLD_ROW_MESSAGE),
        1: (NO_WHOLE_ROW, f"the message lacks column y, {lacks}"),
        2: (NO_WHOLE_ROW, f"the message lacks column y, {lacks}"),
        3: (NO_WHOLE_ROW, f"the message lacks column x, y, {lacks}"),
        5: (NO_WHOLE_ROW, f"the message lacks column y, {lacks}"),
        6: ("claim-check", "elsewhere"),
    }


def test_a_row_with_a_column_that_the_table_lacks_finds_none() -> None:
    """Not even by the others: another row may have them."""
    rows = [row(op, 10, {**text("a"), "z": "1"}) for op in ("INSERT", "DELETE")]
    found = resolved(numbered(rows), TEXTS)
    assert {of for of, _ in errors(found).values()} == {UNKNOWN_COLUMN}
    assert len(errors(found)) == 2
    assert not found.rows.num_rows
    drops = replace(RULES, unknown_column="drop")
    assert said(rows, rules=drops) == {("a", None): "U"}


def test_a_bad_new_row_leaves_the_old_one() -> None:
    of = by_all(x="int")
    rows = [row("UPDATE", 10, {"x": "many"}, {"x": "1"}), row("INSERT", 10, {"x": "2"})]
    found = resolved(numbered(rows), of)
    assert found.rows.to_pylist() == [{"x": 2, "_op ": "U"}]
    assert [*errors(found)] == [0]


def test_a_soft_delete_keeps_the_row_that_was() -> None:
    rows = [row("UPDATE", 10, text("a", "2"), text("a")), row("DELETE", 20, text("b"))]
    found = resolved(numbered(rows), TEXTS, form=WriteMode(soft_delete=True, all_columns=True))
    told = {(each["x"], each["y"]): each[ROW_DELETED] for each in found.rows.to_pylist()}
    assert told == {("a", None): True, ("a", "2"): False, ("b", None): True}


def test_rows_of_an_older_shape_are_rows_of_the_present_one() -> None:
    """Both halves of an UPDATE, and what has been added since is in the key."""
    of = by_all(x="varchar(20)", y="varchar(20)", n="int")
    origins = [
        (ColumnOrigin(name="x", source="x"), pa.string()),
        (ColumnOrigin(name="y", source="y"), pa.string()),
        (ColumnOrigin(name="n", source=None), pa.int32()),
    ]
    older = PastSchema(last_ts=Ts(50), schema=TEXTS, steps=(SchemaStep(origins=origins, ddl_ms=0),))
    rows = [
        row("UPDATE", 10, text("a", "2"), text("a")),
        row("UPDATE", 60, {**text("a", "2"), "n": "7"}, {**text("a", "2"), "n": None}),
        row("INSERT", 20, text("b")),
    ]
    assert said(rows, of, older=(older,)) == {
        ("a", None, None): "D",
        ("a", "2", None): "D",
        ("a", "2", 7): "U",
        ("b", None, None): "U",
    }


def test_a_row_without_a_place_in_a_later_type_is_in_no_table_any_more() -> None:
    """It comes again after a rewind, as do the changes that took it away before that DDL."""
    wide, narrow = MySQLType.parse("bigint"), MySQLType.parse("int")
    origin = ColumnOrigin(name="x", source="x", types=(wide, narrow))
    step = SchemaStep(origins=[(origin, pa.int32())], ddl_ms=0)
    older = PastSchema(last_ts=Ts(50), schema=by_all(x="bigint"), steps=(step,))
    large = {"x": str(2**40)}
    rows = [
        row("INSERT", 10, large),
        row("UPDATE", 20, {"x": "7"}, large),
        row("INSERT", 20, {"x": None}),
        row("UPDATE", 30, large, {"x": "8"}),
        row("DELETE", 40, large),
    ]
    told = {(7,): "U", (None,): "U", (8,): "D"}
    assert said(rows, by_all(x="int"), older=(older,)) == told


@pytest.mark.parametrize("leaves_out", [False, True])
def test_an_update_as_it_is_sent(leaves_out: bool) -> None:
    """``only-output-updated-columns`` leaves out of the old row what is as in the new one."""
    columns = (Column("x", "varchar(20)"), Column("y", "varchar(20)"))
    table = Table(schema="shop", name="a", columns=columns, primary_key=(), handle_key=())
    sent = []
    for ts, old, new in ((10, text("a"), text("a", "2")), (20, text("b", "1"), text("b"))):
        message = encode_change(Change(table=table, op="UPDATE", row=new, old=old), ts, 0)
        if leaves_out:
            x = f'"x":"{old["x"]}",'.encode()
            head, begin, rest = message.partition(b'"old":[{')
            message = head + begin + rest.replace(x, b"", 1)
        sent.append(message)
    chunk = Messages(part="t/0", positions=pa.array([0, 1]), values=pa.array(sent))
    wanted = {A: WantedTable(above_ts=Ts(0), key=None)}
    blocks = [RowBlock.of(each) for each in decode(chunk, wanted) if each.kind is Kind.ROW]
    found = resolved(blocks, TEXTS)
    assert not errors(found)
    told = {(each["x"], each["y"]): each["_op "] for each in found.rows.to_pylist()}
    assert told == {("a", None): "D", ("a", "2"): "U", ("b", "1"): "D", ("b", None): "U"}
