"""Dead letters that a later shape of their table can cast: in the other columns they are what the
DDLs made of old rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.model import Ts
from sinks.ddl.past_schemas import older_shapes
from streaming.apply.changes import TableChanges, changes
from streaming.apply.table_task import TableTask
from tests.sinks.ddl.test_past_schemas import row as schema_row
from tests.sinks.ddl.test_past_schemas import schema
from tests.streaming.apply.blocks import A, blocks_of
from tests.streaming.apply.resolved import RULES, errors, numbered, row

FIRST = schema_row(10, "CREATE TABLE a …", "id int", "v tinyint")
ADDED = schema_row(20, "ALTER TABLE a ADD n INT DEFAULT 7", "id int", "v tinyint", "n int")
WIDENED = schema_row(
    30, "ALTER TABLE a MODIFY v INT, MODIFY n BIGINT", "id int", "v int", "n bigint"
)
PRESENT = schema("id int", "v int", "n bigint")


def cast(
    later: int, *rows: Any, known: Any = (FIRST, ADDED, WIDENED), of: Any = PRESENT, **rules: Any
) -> TableChanges:
    older = older_shapes(known, of, made_ts=Ts(10), on_add_default="rewrite")
    task = TableTask(name=A, schema=of, checkpoint=Ts(0), older=older).by_later_shapes(later)
    return changes(task, blocks_of(numbered(rows)), Ts(100), replace(RULES, **rules))


def test_a_column_that_was_added_in_between_has_its_default() -> None:
    rows = row("INSERT", 15, {"id": "1", "v": "300"}), row("INSERT", 25, {"id": "2", "v": "5"})
    assert set(errors(cast(0, *rows))) == {0}
    assert set(errors(cast(1, rows[0]))) == {0}  # by the shape with n, whose v is as small
    found = {each["id"]: (each["v"], each["n"]) for each in cast(2, *rows).rows.to_pylist()}
    assert found == {1: (300, 7), 2: (5, None)}  # the second one's own shape has n


def test_the_value_that_a_row_has_of_such_a_column_stays() -> None:
    """It was sent before the DDL that an operator had passed over."""
    sent = row("INSERT", 15, {"id": "1", "v": "3", "n": "8"})
    other = row("INSERT", 16, {"id": "2", "v": "3", "n": None})
    found = cast(1, sent, other).rows.to_pylist()
    assert [(each["id"], each["n"]) for each in found] == [(1, 8), (2, None)]


def test_no_shape_casts_it_behind_a_new_name_of_a_column() -> None:
    """What is in the old one would be dropped, and the new one NULL."""
    renamed = schema_row(40, "ALTER TABLE a CHANGE v w INT", "id int", "w int", "n bigint")
    of = schema("id int", "w int", "n bigint")
    bad, wide = row("INSERT", 15, {"id": "1", "v": "x"}), row("INSERT", 16, {"id": "2", "v": "300"})
    known = FIRST, ADDED, WIDENED, renamed
    for later in (2, 3, 4):
        found = cast(later, bad, wide, known=known, of=of, unknown_column="drop")
        assert set(errors(found)) == {0}
        assert [(each["w"], each["n"]) for each in found.rows.to_pylist()] == [(300, 7)]
