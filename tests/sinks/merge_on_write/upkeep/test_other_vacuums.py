"""What the documents warn of: a way to clean up that takes live vectors for orphans."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.target.engine_port import OP_COLUMN, TableWrite, Target
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema


def test_delta_rs_full_vacuum_deletes_live_vectors(tmp_path: Path) -> None:
    """When this fails, delta-rs knows vectors: README and docs need not warn any more."""
    uri = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2], "v": ["a", "a"]})
    write_deltalake(uri, rows, configuration={"delta.enableDeletionVectors": "true"})
    columns = (
        Column(name="id", type=MySQLType.parse("bigint")),
        Column(name="v", type=MySQLType.parse("text")),
    )
    schema = TableSchema(columns=columns, key=("id",))
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.apply(
        TableWrite(
            target=Target(name=TableName("shop", "t"), uri=uri, schema=schema, app_id="a"),
            checkpoint=Ts(0),
            limit=Ts(1),
            changes=pa.table({"id": [1], "v": ["b"], OP_COLUMN: ["U"]}),
            user_metadata="",
            before_commit=lambda: None,
        )
    )
    engine.close()
    (vector,) = (path.name for path in Path(uri).glob("*.bin"))
    unsafe = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    assert DeltaTable(uri).vacuum(**unsafe) == []
    assert DeltaTable(uri).vacuum(**unsafe, full=True) == [vector]
