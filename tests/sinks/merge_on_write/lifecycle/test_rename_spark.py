"""A renamed table as Spark and Delta Kernel see it, with their own commands in both places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.spark.merge_engine import SparkEngine
from sinks.target.engine_port import Applied
from tests.sinks.merge_on_write.ddls import C
from tests.sinks.merge_on_write.kernel_reader import KernelReader
from tests.sinks.merge_on_write.orders import Changes, changed, rows_of, write
from tests.sinks.merge_on_write.renames import (
    contents,
    named,
    origin,
    put,
    put_users,
    renamed,
    two_tables,
)

pytestmark = pytest.mark.spark
MORE: Changes = {0: "new", 12: None, 99: "new"}


@pytest.mark.more
def test_two_tables_swap_their_names(spark: SparkSession, tmp_path: Path) -> None:
    folder = two_tables(tmp_path / "a shop~41 é")
    before = contents(folder)
    renamed(folder, {"a": "b", "b": "a"})
    engine = MergeOnWriteEngine({}, keeps_up=False)
    put(engine, f"{folder}/b", C, MORE)
    put_users(engine, f"{folder}/a", C, {"b1": -1})
    wanted = {"a": {**before["b"], "b1": -1}, "b": changed(before["a"], MORE)}

    def check() -> None:
        for name, rows in wanted.items():
            read = spark.read.format("delta").load(f"{folder}/{name}")
            assert dict(map(tuple, read.collect())) == rows
            files = KernelReader(spark, f"{folder}/{name}").rows()
            assert dict(tuple(row.values()) for each in files.values() for row in each) == rows
        assert contents(folder) == wanted

    check()
    spark.sql(f"DELETE FROM delta.`{folder}/b` WHERE id IN (1, 21)")
    spark.sql(f"OPTIMIZE delta.`{folder}/a`")
    wanted["b"] = changed(wanted["b"], {1: None, 21: None})
    check()
    put(engine, f"{folder}/b", C + 1, {0: None, 2: "again"})
    put_users(engine, f"{folder}/a", C + 1, {"b2": -2})
    engine.close()
    wanted["a"]["b2"] = -2
    wanted["b"] = changed(wanted["b"], {0: None, 2: "again"})
    for name in wanted:
        spark.sql(f"VACUUM delta.`{folder}/{name}` RETAIN 0 HOURS")
    check()
    old = spark.read.format("delta").option("versionAsOf", 4).load(f"{folder}/a")
    assert dict(map(tuple, old.collect())) == before["a"]


def put_by_spark(spark: SparkSession, uri: str, limit: int, changes: Changes) -> None:
    """Merged by Spark."""
    ours = replace(write(uri, limit, changes), target=named(uri))
    frame = spark.createDataFrame(ours.changes)
    assert isinstance(SparkEngine({}).apply(replace(ours, changes=frame)), Applied)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["c"], marks=pytest.mark.soak),
        ["c", "a"],
        pytest.param(["c", "d", "c", "a"], marks=pytest.mark.soak),
    ],
)
def test_spark_writes_it_under_every_name(
    spark: SparkSession, tmp_path: Path, names: list[str]
) -> None:
    """Its files are where they were: under the name before, or under this very one."""
    folder = f"{tmp_path}/shop"
    create(named(f"{folder}/a"), properties=origin(5))
    put_by_spark(spark, f"{folder}/a", 10, {at: "old" for at in range(5)})
    engine = MergeOnWriteEngine({}, keeps_up=False)
    put(engine, f"{folder}/a", 20, {at: "old" for at in range(10, 15)})
    put(engine, f"{folder}/a", 21, {0: None, 10: None})
    engine.close()
    wanted = rows_of(f"{folder}/a")
    at_ts, before = 100, "a"
    for name in names:
        renamed(folder, {before: name}, commit_ts=at_ts)
        changes: Changes = {1: f"of {at_ts}", 11: f"of {at_ts}", 12: None, at_ts: "new"}
        put_by_spark(spark, f"{folder}/{name}", at_ts, changes)
        wanted = changed(wanted, changes)
        assert rows_of(f"{folder}/{name}") == wanted
        at_ts, before = at_ts + 10, name
