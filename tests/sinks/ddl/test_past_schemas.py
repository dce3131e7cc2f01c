"""Which shapes of a table can be known, and what becomes of their rows' columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import Ts
from sinks.control.schemas import SchemaRow, columns_of, partitioning_of
from sinks.ddl.past_schemas import PastSchema, older_shapes, partitions_then
from sinks.types.mysql_type import MySQLType
from sinks.types.partitioning import Partition, Partitioning
from sinks.types.table_schema import Column, TableSchema
from sinks.types.text_arrays import CastRules

RULES = CastRules(time_zone="UTC", zero_date="null")
MADE_TS = 10


def schema(*columns: str, key: str = "id") -> TableSchema:
    """Each as ``name type``."""
    pairs = [each.split(" ", 1) for each in columns]
    found = tuple(Column(name=name, type=MySQLType.parse(kind)) for name, kind in pairs)
    return TableSchema(columns=found, key=(key,))


def row(ts: int, statement: str, *columns: str, key: str = "id") -> SchemaRow:
    of = schema(*columns, key=key)
    return SchemaRow(
        changefeed_id="shop",
        schema_name="shop",
        table_name="a",
        generation=1,
        commit_ts=ts,
        statement=statement,
        columns=columns_of(of),
        key=of.key,
        delta_version=0,
    )


FIRST = row(MADE_TS, "CREATE TABLE a …", "id int", "v varchar(20)")
ADDED = row(20, "ALTER TABLE a ADD n INT DEFAULT 7", "id int", "v varchar(20)", "n int")
RETYPED = row(30, "ALTER TABLE a MODIFY v INT, DROP n", "id int", "v int")
PRESENT = schema("id int", "v int")


def known(
    rows: Sequence[SchemaRow], present: TableSchema = PRESENT, made_ts: int = MADE_TS, **more: Any
) -> list[tuple[int, list[str], bool]]:
    """Of each shape: where it ends, its columns, whether it is known."""
    return [
        (shape.last_ts, [column.name for column in shape.schema.columns], shape.is_known)
        for shape in found(rows, present, made_ts, **more)
    ]


def found(
    rows: Sequence[SchemaRow], present: TableSchema = PRESENT, made_ts: int = MADE_TS, **more: Any
) -> tuple[PastSchema, ...]:
    options = {"on_add_default": "rewrite", **more}
    return older_shapes(rows, present, made_ts=Ts(made_ts), **options)


def carried(shape: PastSchema, rows: int, **columns: list[Any]) -> dict[str, list[Any]]:
    arrays = {name: pa.array(values) for name, values in columns.items()}
    made = shape.carried(arrays, RULES, rows=rows).columns
    return {name: array.to_pylist() for name, array in made.items()}


def test_each_shape_ends_below_the_ddl_that_changed_it() -> None:
    rows = [RETYPED, FIRST, ADDED]
    assert known(rows) == [(19, ["id", "v"], True), (29, ["id", "v", "n"], True)]
    assert known([FIRST], schema("id int", "v varchar(20)")) == []


def test_rows_go_through_every_ddl_that_came_after_them() -> None:
    renamed = row(40, "ALTER TABLE a CHANGE v w BIGINT, ADD z INT", "id int", "w bigint", "z int")
    first, added, retyped = found(
        [FIRST, ADDED, RETYPED, renamed], schema("id int", "w bigint", "z int")
    )
    assert carried(first, 2, id=[1, 2], v=["5", "x"]) == {
        "id": [1, 2],
        "w": [5, None],
        "z": [None] * 2,
    }
    assert carried(added, 1, id=[1], v=["5"], n=[9]) == {"id": [1], "w": [5], "z": [None]}
    assert carried(retyped, 1, id=[1], v=[5]) == {"id": [1], "w": [5], "z": [None]}
    lost = first.carried({"v": pa.array(["5", "x", None])}, RULES).has_lost
    assert lost is not None
    assert lost.tolist() == [False, True, False]


@pytest.mark.parametrize(("on_add_default", "shown"), [("rewrite", 7), ("null", None)])
def test_an_added_column_shows_what_rows_of_that_time_show(
    on_add_default: str, shown: int | None
) -> None:
    present = schema("id int", "v varchar(20)", "n int")
    (first,) = found([FIRST, ADDED], present, on_add_default=on_add_default)
    assert carried(first, 1, id=[1], v=["x"]) == {"id": [1], "v": ["x"], "n": [shown]}


def test_a_column_that_was_dropped_and_added_again_is_another() -> None:
    anew = row(20, "ALTER TABLE a DROP v, ADD v VARCHAR(20)", "id int", "v varchar(20)")
    (first,) = found([FIRST, anew], schema("id int", "v varchar(20)"))
    assert carried(first, 1, id=[1], v=["x"]) == {"id": [1], "v": [None]}


def test_a_ddl_that_was_passed_over_changes_nothing() -> None:
    passed = replace(FIRST, commit_ts=15, statement="ALTER TABLE a DROP v")
    assert known([FIRST, passed], schema("id int", "v varchar(20)")) == []
    assert known([FIRST, passed, replace(ADDED)], schema("id int", "v varchar(20)", "n int")) == [
        (19, ["id", "v"], True)
    ]


def test_below_a_row_that_is_missing_or_not_understood_nothing_is_known() -> None:
    assert known([FIRST, RETYPED]) == [(29, ["id", "v"], False)]
    odd = replace(ADDED, statement="ALTER TABLE a TO BE ODD")
    shapes = [(19, ["id", "v"], False), (29, ["id", "v", "n"], True)]
    assert known([FIRST, odd, RETYPED]) == shapes
    assert known([ADDED, RETYPED]) == shapes


def test_a_table_with_other_columns_than_its_last_row_is_not_known_below() -> None:
    assert known([FIRST, ADDED, RETYPED], schema("id int", "v int", "mine text")) == [
        (29, ["id", "v", "mine"], False)
    ]


def test_what_rows_told_is_the_shape_of_older_rows_too() -> None:
    told = replace(FIRST, statement="")
    assert known([told, ADDED, RETYPED], made_ts=0)[0] == (19, ["id", "v"], True)
    assert known([FIRST, ADDED, RETYPED], made_ts=0)[0] == (9, ["id", "v"], False)


def test_the_shapes_of_a_dropped_table_of_that_name_do_not_count() -> None:
    before = row(5, "CREATE TABLE a …", "id int", "q int")
    assert known([before, FIRST, ADDED, RETYPED])[0] == (19, ["id", "v"], True)


def test_the_key_keeps_its_name_of_that_time() -> None:
    wide = row(20, "ALTER TABLE a CHANGE id no BIGINT", "no bigint", "v varchar(20)", key="no")
    (first,) = found([FIRST, wide], schema("no bigint", "v varchar(20)", key="no"))
    assert first.schema.key == ("id",)
    assert first.carried({"id": pa.array([1], pa.int32())}, RULES).columns["no"].type == pa.int64()


def test_text_of_a_table_of_bytes_is_bytes() -> None:
    added = row(20, "ALTER TABLE a ADD b TEXT", "id int", "v varchar(20)", "b blob")
    assert known([FIRST, added], schema("id int", "v varchar(20)", "b blob")) == [
        (19, ["id", "v"], True)
    ]


def by(column: str, *bounds: int) -> Partitioning:
    names = [Partition(name=f"p{n}", less_than=(str(bound),)) for n, bound in enumerate(bounds)]
    return Partitioning(method="range", columns=(column,), partitions=tuple(names))


def divided(row: SchemaRow, partitioning: Partitioning | None) -> SchemaRow:
    of = replace(schema("id int"), partitioning=partitioning)
    return replace(row, partitioning=partitioning_of(of))


CUT = row(MADE_TS, "CREATE TABLE a …", "id int", "d int")
GROWN = row(20, "ALTER TABLE a ADD PARTITION …", "id int", "d int")
LATER = {  # the columns that a DDL at 30 makes, and what the column d is called then
    "ALTER TABLE a ADD x INT": (("id int", "d int", "x int"), "d"),
    "ALTER TABLE a RENAME COLUMN D TO e": (("id int", "e int"), "e"),
    "ALTER TABLE a CHANGE d e BIGINT": (("id int", "e bigint"), "e"),
    "ALTER TABLE a MODIFY d VARCHAR(9)": (("id int", "d varchar(9)"), None),
    "ALTER TABLE a DROP d": (("id int",), None),
    "ALTER TABLE a DROP d, ADD d INT": (("id int", "d int"), None),
}


@pytest.mark.parametrize("statement", LATER)
def test_partitions_of_then_have_the_names_of_now(statement: str) -> None:
    columns, name = LATER[statement]
    rows = [
        divided(CUT, by("d", 5)),
        divided(GROWN, by("d", 5, 9)),
        divided(row(30, statement, *columns), by("d", 5, 9)),
    ]

    def then(ts: int, of: Sequence[SchemaRow] = rows) -> Partitioning | None:
        return partitions_then(of, schema(*columns), made_ts=Ts(MADE_TS), ddl_ts=Ts(ts))

    assert then(20) == (name and by(name, 5))
    assert then(25) == then(30) == (name and by(name, 5, 9))
    assert then(MADE_TS) is None
    assert then(25, [rows[0], divided(GROWN, None), rows[2]]) is None
    assert then(20, [divided(CUT, None), *rows[1:]]) is None


def test_partitions_of_a_shape_that_is_not_known_are_not() -> None:
    skipped = row(30, "ALTER TABLE a ADD y INT", "id int", "x int", "d int")
    rows = [divided(each, by("d", 5)) for each in (CUT, GROWN, skipped)]
    present = schema("id int", "x int", "d int")
    assert partitions_then(rows, present, made_ts=Ts(MADE_TS), ddl_ts=Ts(20)) is None
    assert partitions_then(rows, present, made_ts=Ts(MADE_TS), ddl_ts=Ts(40)) == by("d", 5)


def test_rows_go_through_new_digits_of_a_time() -> None:
    older = row(0, "", "id int", "t time", "u time(?)")
    change = "ALTER TABLE a MODIFY t TIME(3), MODIFY u TIME(1)"
    newer = row(30, change, "id int", "t time(3)", "u time(1)")
    (shape,) = found([older, newer], schema("id int", "t time(3)", "u time(1)"), 0)
    made = carried(shape, 1, id=[1], t=["-08:00:00"], u=["00:00:00.25"])
    assert made == {"id": [1], "t": ["-08:00:00.000"], "u": ["00:00:00.3"]}


def test_digits_that_are_not_known_are_told_by_the_schema_file_or_not_followed() -> None:
    told = row(0, "", "id int", "d datetime(?)")
    change = row(30, "ALTER TABLE a MODIFY d VARCHAR(30)", "id int", "d varchar(30)")
    later = row(40, "ALTER TABLE a ADD n INT", "id int", "d varchar(30)", "n int")
    present = schema("id int", "d varchar(30)", "n int")
    assert known([told, change, later], present, 0) == [
        (29, ["id", "d", "n"], False), (39, ["id", "d"], True),
    ]  # fmt: skip
    file = schema("id int", "d datetime(1)")
    shape, _ = found([told, change, later], present, 0, file=file)
    moment = pa.array([1_500_000], pa.timestamp("us"))
    assert shape.carried({"d": moment}, RULES).columns["d"].to_pylist() == ["1970-01-01 00:00:01.5"]
