"""What the rows of a table that nobody created tell of it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import Ts
from streaming.apply.newest_whole_row import newest_whole_row
from streaming.apply.row_block import RowBlock
from streaming.changefeed.schema_from_rows import Untold, WholeRow, schema_of_row, unlike
from tests.streaming.apply.blocks import A, Row, block_of, blocks_of

CUT = ("handle-key-only", "only the key")


def row(op: str, ts: int, **more: Any) -> Row:
    types = more.pop("types", {"id": "bigint", "v": "text"})
    data = dict.fromkeys(more.pop("names", types), "1")
    return Row(op=op, ts=ts, data=data, types=types, **more)


def test_the_newest_whole_row_tells_whatever_order_they_come_in() -> None:
    rows = [
        row("INSERT", 10),
        row("INSERT", 30, types={"id": "bigint", "v": "text", "w": "int"}),
        row("UPDATE", 20, types={"id": "int"}),
    ]
    for order in permutations(rows):
        blocks = [RowBlock.of(block_of([each])) for each in order]
        assert newest_whole_row(blocks, Ts(100)) == WholeRow(
            {"id": "bigint", "v": "text", "w": "int"}, ("id",)
        )
        assert newest_whole_row(blocks, Ts(29)) == WholeRow({"id": "int"}, ("id",))
        assert newest_whole_row(blocks, Ts(9)) is Untold.NOT_WRITTEN


def test_columns_come_in_the_rows_order_not_in_that_of_their_types() -> None:
    only = row("INSERT", 10, types={"v": "text", "id": "bigint"}, names=["id", "v"])
    found = newest_whole_row(blocks_of([only]), Ts(100))
    assert isinstance(found, WholeRow)
    assert list(found.types.items()) == [("id", "bigint"), ("v", "text")]


def test_of_one_commit_ts_the_later_message_tells() -> None:
    rows = [row("INSERT", 10, position=2, types={"id": "bigint"}), row("INSERT", 10, position=1)]
    found = newest_whole_row(blocks_of(rows), Ts(100))
    assert isinstance(found, WholeRow)
    assert list(found.types) == ["id"]


def test_deletes_and_rows_that_were_cut_tell_nothing() -> None:
    cut, deleted = row("UPDATE", 20, types={"id": "int"}, error=CUT), row("DELETE", 30)
    assert newest_whole_row(blocks_of([deleted]), Ts(100)) is Untold.NOT_WRITTEN
    assert newest_whole_row(blocks_of([cut, deleted]), Ts(100)) is Untold.ONLY_CUT
    assert newest_whole_row(blocks_of([cut, deleted]), Ts(19)) is Untold.NOT_WRITTEN
    found = newest_whole_row(blocks_of([cut, row("INSERT", 10), deleted]), Ts(100))
    assert isinstance(found, WholeRow)
    mixed = [row("INSERT", 10), row("UPDATE", 20, error=CUT)]
    assert newest_whole_row(blocks_of(mixed), Ts(100)) == found


@pytest.mark.parametrize("names", [["id", "v"], []])
def test_rows_of_which_a_column_has_no_type_tell_nothing(names: list[str]) -> None:
    whole, odd = row("INSERT", 10), row("INSERT", 20, types={"id": "bigint"}, names=names)
    found = newest_whole_row(blocks_of([whole]), Ts(100))
    assert newest_whole_row(blocks_of([whole]) + blocks_of([odd]), Ts(100)) == found
    assert newest_whole_row(blocks_of([odd]), Ts(100)) is Untold.ONLY_CUT


def test_a_key_that_nobody_says_is_none() -> None:
    assert newest_whole_row(blocks_of([row("INSERT", 10, key=None)]), Ts(100)) == WholeRow(
        {"id": "bigint", "v": "text"}, ()
    )


def test_a_value_tells_the_digits_of_its_fraction_where_it_is_not_null() -> None:
    types = {"id": "bigint", "d": "datetime", "s": "timestamp", "t": "time", "v": "varchar(9)"}
    data = {"id": "1", "d": "2024-01-01 00:00:00.120", "s": "2024-01-01 00:00:00", "t": None}
    newest = Row(op="INSERT", ts=20, data={**data, "v": "a.b"}, types=types)
    older = Row(op="INSERT", ts=10, data={**newest.data, "t": "08:00:00.5"}, types=types)
    found = newest_whole_row(blocks_of([older, newest]), Ts(100))
    assert isinstance(found, WholeRow)
    assert found.types == {**types, "d": "datetime(3)", "s": "timestamp(0)"}
    found = newest_whole_row(blocks_of([older, newest]), Ts(15))
    assert isinstance(found, WholeRow)
    assert found.types["t"] == "time(1)"
    odd = Row(op="INSERT", ts=30, data={"id": "1", "t": "x.1234567"}, types=types)
    found = newest_whole_row(blocks_of([odd]), Ts(100))
    assert isinstance(found, WholeRow)
    assert found.types == {"id": "bigint", "t": "time"}


def test_types_of_typed_cells_are_full() -> None:
    types = {
        "id": "bigint unsigned", "d": "datetime", "s": "timestamp(6)", "t": "time",
        "n": "decimal(12,2)", "e": "enum('it''s','b')", "b": "bit(12)", "v": "varchar(30)",
        "f": "float", "g": "double unsigned", "y": "date",
    }  # fmt: skip
    kinds = {"id": pa.uint64(), "d": pa.timestamp("us"), "y": pa.date32(), "t": pa.duration("us")}
    data = dict.fromkeys(types, None) | {"id": 1, "y": -719_528}  # a day that Python has not
    found = newest_whole_row(
        blocks_of([Row(op="INSERT", ts=20, data=data, types=types, kinds=kinds)]), Ts(100)
    )
    assert isinstance(found, WholeRow)
    schema = schema_of_row(A, found)
    assert [str(column.type) for column in schema.columns] == [
        "bigint unsigned", "datetime", "timestamp(6)", "time", "decimal(12,2)",
        "enum('it''s','b')", "bit(12)", "varchar(30)", "float(?)", "double(?) unsigned", "date",
    ]  # fmt: skip
    assert [schema.column(name).type.digits for name in "dst"] == [0, 6, 0]
    assert unlike(schema, found.types, ["id"]) == []
    assert len(unlike(schema, {**found.types, "d": "datetime(3)"}, ["id"])) == 1


def test_where_only_some_types_have_something_to_tell_all_are_full() -> None:
    types = {"id": "bigint", "d": "datetime", "f": "float"}
    row = Row(
        op="INSERT",
        ts=20,
        data={"id": 1, "d": None, "f": None},
        types=types,
        kinds={"id": pa.int64()},
    )
    found = newest_whole_row(blocks_of([row]), Ts(100))
    assert isinstance(found, WholeRow)
    told = [str(column.type) for column in schema_of_row(A, found).columns]
    assert told == ["bigint", "datetime", "float(?)"]
