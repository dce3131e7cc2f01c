"""A target is refused after somebody has altered its columns by hand. Without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.altered_by_hand import altered, how_altered, unaltered_schema
from sinks.target.target_table import TargetState, inspect
from sinks.target.write_mode import UPSERT, WriteMode
from tests.sinks.merge_on_write import orders
from tests.sinks.merge_on_write.event_logs import ORIGIN

NAME = TableName("shop", "orders")
FORMS = [
    UPSERT,
    WriteMode(mode="append"),
    WriteMode(mode="history"),
    WriteMode(soft_delete=True, extra_columns=("_tidelake_commit_ts",)),
]


def made(folder: Path, form: WriteMode = UPSERT) -> TargetState:
    target = replace(orders.target(str(folder / "t")), form=form)
    create(target, properties=ORIGIN)
    found = inspect(target.uri, {})
    assert found is not None
    return found


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_table_as_it_was_made_has_its_schema(tmp_path: Path, form: WriteMode) -> None:
    state = made(tmp_path, form)
    assert altered(state, NAME) == ""
    assert unaltered_schema(NAME, state) == state.schema


@pytest.mark.parametrize(
    ("there", "shown"),
    [
        ({"id": "long", "v": "string", "note": "string"}, "id bigint, v string, note string"),
        ({"id": "long"}, "id bigint"),
        ({"v": "string"}, "v string"),
        ({"id": "long", "w": "string"}, "id bigint, w string"),
        ({"id": "long", "v": "integer"}, "id bigint, v int"),
        ({"id": "string", "v": "string"}, "id string, v string"),
    ],
    ids=["added", "dropped", "without-its-key", "renamed", "of-another-type", "another-key"],
)
def test_other_columns_are_told_beside_the_streams(
    tmp_path: Path, there: dict[str, str], shown: str
) -> None:
    fields = [{"name": name, "type": kind} for name, kind in there.items()]
    why = how_altered(made(tmp_path), fields)
    assert f"The table has ({shown}), and the stream gives it (id bigint, v string). " in why
    assert "or load it anew: `tidelake table reload` where" in why


def test_the_order_of_columns_means_nothing(tmp_path: Path) -> None:
    fields = [{"name": "v", "type": "string"}, {"name": "id", "type": "long"}]
    assert how_altered(made(tmp_path), fields) == ""


def test_what_the_log_has_is_told_with_the_tables_name(tmp_path: Path) -> None:
    columns = [Field(name, PrimitiveType(kind)) for name, kind in (("id", "long"), ("n", "byte"))]
    handle = DeltaTable.create(str(tmp_path / "other"), Schema(columns))
    properties = dict(made(tmp_path).properties)
    state = TargetState(handle=handle, version=0, properties=properties)
    with pytest.raises(TidelakeError, match=r"^table shop\.orders: .*\(id bigint, n tinyint\)"):
        unaltered_schema(NAME, state)
