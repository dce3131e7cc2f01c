"""All tables of one moment as views of a Spark session."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordination.errors import TidelakeError
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.reader import VersionGone, read_log
from sinks.merge_on_write.upkeep.clean_up import clean_files
from sinks.storage.local_storage import LocalStorage
from streaming.operations.snapshots import register_views, sql_text
from tests.sinks.merge_on_write.ddls import truncate
from tests.sinks.merge_on_write.orders import write
from tests.streaming.lake import Lake
from tests.streaming.operations.test_snapshots import AFTER, BEFORE, filled

pytestmark = pytest.mark.spark
DAY_S = 24 * 3600


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return filled(Lake(tmp_path / "a lake"))


def rows(session: SparkSession, view: str) -> list[dict[str, object]]:
    return [row.asDict() for row in session.sql(f"SELECT * FROM {view} ORDER BY id").collect()]


def test_both_sides_of_a_ddl_in_one_session(spark: SparkSession, lake: Lake) -> None:
    session = spark.newSession()
    old = register_views(session, lake.find(BEFORE), prefix="old ")
    new = register_views(session, lake.find(), tables=["shop.orders"])
    assert old == {"shop.customers": "old shop_customers", "shop.orders": "old shop_orders"}
    assert new == {"shop.orders": "shop_orders"}
    assert rows(session, "`old shop_orders`") == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert rows(session, "shop_orders") == [{"id": n, "w": v} for n, v in enumerate("abc", 1)]
    joined = "SELECT o.w FROM shop_orders o JOIN `old shop_customers` c USING (id) ORDER BY 1"
    assert [row.w for row in session.sql(joined).collect()] == ["a", "b"]


def test_a_table_that_rarely_changes_stays_readable(spark: SparkSession, lake: Lake) -> None:
    """Its version was committed days ago, was the newest until now, and all its files are there:
    Delta refuses it by the commit's age."""
    uri = str(lake.tables / "customers")
    for commit in Path(uri, "_delta_log").glob("*.json"):
        os.utime(commit, 2 * (time.time() - 3 * DAY_S,))
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.apply(write(uri, 11, {1: "changed"}))
    engine.close()
    session = spark.newSession()
    register_views(session, lake.find())
    both = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert rows(session, "shop_customers") == both
    session = spark.newSession()
    for statement in sql_text(lake.find(), "spark").split(";\n"):
        session.sql(statement.rstrip(";"))
    assert rows(session, "shop_customers") == both


def test_what_is_gone_is_said_before_a_query(spark: SparkSession, lake: Lake) -> None:
    session = spark.newSession()
    uri = str(lake.tables / "customers")
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.alter(truncate(uri))
    engine.close()
    before = lake.find(BEFORE)
    assert len(register_views(session, before)) == 2
    state = read_log(LocalStorage(uri))
    assert state is not None
    clean_files(LocalStorage(uri), state, now_ms=int((time.time() + 2 * DAY_S) * 1000))
    gone = r"table shop\.customers: version 1 of .* is gone: its files were cleaned up"
    with pytest.raises(VersionGone, match=gone):
        register_views(session.newSession(), before)


def test_what_spark_cannot_read_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.publish(AFTER, orders=1)
    (lake.tables / "orders").mkdir(parents=True)
    with pytest.raises(TidelakeError, match="there is no Delta table any more") as caught:
        register_views(spark.newSession(), lake.find())
    assert "\n" not in str(caught.value)
