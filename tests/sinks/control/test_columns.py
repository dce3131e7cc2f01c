"""A control table has the columns of the version that made it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from coordination.errors import TidelakeError
from sinks.control.columns import column
from sinks.control.control_table import Change, ControlTable, TableView

COUNTED = pa.schema([column("name", pa.string(), "whose"), column("n", pa.int64(), "how many")])


def table_of(warehouse: Path, schema: pa.Schema) -> ControlTable:
    return ControlTable(str(warehouse), "counter", schema, {}, description="test")


def count(table: ControlTable) -> None:
    def plan(view: TableView) -> Change:
        row = {"name": "a", "n": sum(view.rows()["n"].to_pylist()) + 1}
        return Change(rows=pa.Table.from_pylist([row], schema=table.schema), mode="overwrite")

    table.commit(plan, "count in")


@pytest.mark.parametrize(
    "other",
    [
        COUNTED.append(column("note", pa.string(), "why")),
        COUNTED.remove(1),
    ],
    ids=["one-more", "one-less"],
)
def test_a_table_of_another_version_is_refused_with_its_columns(tmp_path: Path, other: pa.Schema):
    count(table_of(tmp_path, COUNTED))
    names = "note" if len(other) > len(COUNTED) else "n"
    with pytest.raises(TidelakeError, match=rf"another version .* other columns \({names}\)"):
        table_of(tmp_path, other).read(lambda view: view.version)
    with pytest.raises(TidelakeError, match="another version"):
        count(table_of(tmp_path, other))


def test_a_column_that_is_described_otherwise_today_is_the_same_column(tmp_path: Path):
    count(table_of(tmp_path, COUNTED))
    reworded = pa.schema([column(f.name, f.type, f"today: {f.name}") for f in COUNTED])
    count(table_of(tmp_path, reworded))
    found = table_of(tmp_path, reworded).read(lambda view: view.rows().to_pylist())
    assert found == [{"name": "a", "n": 2}]
