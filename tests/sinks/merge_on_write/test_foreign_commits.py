"""Spark and delta-rs change our tables: before our commit, within it and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.pause import set_paused
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.fold import fold
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, TableHeld
from tests.sinks.merge_on_write.log_tables import differences
from tests.sinks.merge_on_write.orders import Changes, Rows, changed, rows_of, write

pytestmark = pytest.mark.spark
OURS: Changes = {12: "ours", 24: None, 34: "ours", 99: "ours"}
LATER: Changes = {12: None, 24: "later", 44: "later", 203: "later"}


def sql(statement: str) -> Callable[[SparkSession, str], object]:
    return lambda spark, uri: spark.sql(statement.format(table=f"delta.`{uri}`"))


def append(_spark: SparkSession, uri: str) -> None:
    rows = pa.table({"id": pa.array([203, 200], pa.int64()), "v": ["theirs", "theirs"]})
    write_deltalake(uri, rows, mode="append")


def deleted(rows: Rows) -> Rows:
    return {key: value for key, value in rows.items() if not 12 <= key <= 33}


def updated(rows: Rows) -> Rows:
    return {key: "theirs" if key % 10 == 4 else value for key, value in rows.items()}


def appended(rows: Rows) -> Rows:
    return rows | {203: "theirs", 200: "theirs"}


def loaded(_rows: Rows) -> Rows:
    return {1: "loaded", 24: "loaded", 203: "loaded"}


def same(rows: Rows) -> Rows:
    return rows


FOREIGN: dict[str, tuple[Callable[[SparkSession, str], object], Callable[[Rows], Rows]]] = {
    "delete": (sql("DELETE FROM {table} WHERE id BETWEEN 12 AND 33"), deleted),
    "update": (sql("UPDATE {table} SET v = 'theirs' WHERE id % 10 = 4"), updated),
    "optimize": (sql("OPTIMIZE {table}"), same),
    "purge": (sql("REORG TABLE {table} APPLY (PURGE)"), same),
    "vacuum": (sql("VACUUM {table} RETAIN 0 HOURS"), same),
    "properties": (sql("ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')"), same),
    "append": (append, appended),
    "overwrite": (  # how rows are loaded anew in place (docs/operations.md)
        sql("INSERT OVERWRITE {table} VALUES (1, 'loaded'), (24, 'loaded'), (203, 'loaded')"),
        loaded,
    ),
}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    return session


def expect(spark: SparkSession, uri: str, engine: MergeOnWriteEngine, rows: Rows) -> None:
    """Spark and delta-rs read these; what the engine keeps is what the log says."""
    assert rows_of(uri) == rows
    found = spark.read.format("delta").load(uri).toArrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in found) == sorted(rows.items())
    table, replayed = engine.table(uri), read_log(LocalStorage(uri))
    assert replayed is not None
    with table.lock:
        table.refresh()
        assert differences(table.state, replayed, tombstones=False) == []


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("purge", marks=pytest.mark.soak),
        pytest.param("update", marks=pytest.mark.more),  # a delete is its half
        *(name for name in FOREIGN if name not in ("purge", "update")),
    ],
)
def test_before_within_and_after(
    session: SparkSession, engine: MergeOnWriteEngine, uri: str, what: str
) -> None:
    """Within: when all is written and nothing committed, so that our try loses."""
    do, model = FOREIGN[what]
    warm: Changes = {0: "warm", 12: "warm"}
    engine.apply(write(uri, 100, warm))  # it knows the files that others now change
    rows = changed(rows_of(uri), {})

    do(session, uri)
    rows = changed(model(rows), OURS)
    assert isinstance(engine.apply(write(uri, 101, OURS)), Applied)
    assert rows_of(uri) == rows

    tries: list[int] = []

    def within() -> None:
        tries.append(1)
        if len(tries) == 1:
            do(session, uri)

    assert isinstance(engine.apply(write(uri, 102, LATER, within)), Applied)
    rows = changed(model(rows) if what != "append" else rows | {200: "theirs"}, LATER)
    if what == "append":  # rows of a key that stood there already: two of 200
        assert isinstance(engine.apply(write(uri, 103, {200: "once"})), Applied)
        rows[200] = "once"
    assert rows_of(uri) == rows
    fold(engine.table(uri), ("id",))
    do(session, uri)
    if what == "append":
        assert isinstance(engine.apply(write(uri, 104, {203: "once", 200: "once"})), Applied)
        rows = changed(rows, {203: "once", 200: "once"})
    else:
        rows = model(rows)
    expect(session, uri, engine, rows)
    assert len(tries) == 2 or what == "vacuum"


@pytest.mark.parametrize("what", [pytest.param("delete", marks=pytest.mark.soak), "optimize"])
def test_a_paused_table_is_all_theirs(
    session: SparkSession, engine: MergeOnWriteEngine, uri: str, what: str
) -> None:
    do, model = FOREIGN[what]
    rows = rows_of(uri)
    set_paused(uri, {}, paused=True)
    with pytest.raises(TableHeld):
        engine.apply(write(uri, 100, OURS))
    do(session, uri)
    with pytest.raises(TableHeld):
        engine.apply(write(uri, 100, OURS))
    set_paused(uri, {}, paused=False)
    assert isinstance(engine.apply(write(uri, 100, OURS)), Applied)
    expect(session, uri, engine, changed(model(rows), OURS))


def test_a_pause_within_our_write_holds_it(
    engine: MergeOnWriteEngine, session: SparkSession, uri: str
) -> None:
    rows = rows_of(uri)
    with pytest.raises(TableHeld):
        engine.apply(write(uri, 100, OURS, lambda: void(set_paused(uri, {}, paused=True))))
    expect(session, uri, engine, rows)


def void(_found: object) -> None: ...


def test_what_the_engine_refuses_is_seen_within_a_write(
    engine: MergeOnWriteEngine, session: SparkSession, uri: str
) -> None:
    """A property that our commits would break, set when all is written."""
    rows = rows_of(uri)
    change = sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    with pytest.raises(NotForThisEngine, match="enableChangeDataFeed"):
        engine.apply(write(uri, 100, OURS, lambda: void(change(session, uri))))
    expect(session, uri, engine, rows)


def test_restored_by_spark(engine: MergeOnWriteEngine, session: SparkSession, uri: str) -> None:
    """Also the identity is back: what was applied since is applied again."""
    rows, version = rows_of(uri), DeltaTable(uri).version()
    engine.apply(write(uri, 100, OURS))
    fold(engine.table(uri), ("id",))
    session.sql(f"RESTORE TABLE delta.`{uri}` TO VERSION AS OF {version}")
    expect(session, uri, engine, rows)
    given = write(uri, 100, LATER)
    engine.apply(replace(given, target=replace(given.target, app_id="another")))
    expect(session, uri, engine, changed(rows, LATER))
