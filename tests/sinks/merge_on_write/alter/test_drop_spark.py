"""Kept rows of a dropped table as Spark sees them, and its VACUUM in the place where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.engine import MergeOnWriteEngine
from tests.sinks.merge_on_write.ddls import ADD_N, C, ddl
from tests.sinks.merge_on_write.orders import made, rows_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("on_drop", ["keep", pytest.param("drop", marks=pytest.mark.soak)])
def test_sparks_vacuum_leaves_what_is_kept(
    spark: SparkSession, tmp_path: Path, on_drop: str
) -> None:
    uri = made(tmp_path / "a table")
    before = rows_of(uri)
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.alter(ddl(uri, ADD_N))
    dropped = ddl(uri, None, C + 1, on_drop=on_drop)
    engine.alter(dropped)
    engine.close()
    spark.sql(f"VACUUM delta.`{uri}` RETAIN 0 HOURS")
    assert spark.read.format("delta").load(uri).count() == 0
    left = {path.suffix for path in Path(uri).iterdir() if path.is_file()}
    assert left == ({".parquet", ".bin"} if on_drop == "keep" else set())
    if on_drop == "keep":
        found = spark.read.format("delta").load(kept_uri(uri, dropped.ddl)).collect()
        assert {row["id"]: row["v"] for row in found} == before
        assert {row["n"] for row in found} == {None}
