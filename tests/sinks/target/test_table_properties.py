"""Target tables: what create, inspect, seal and table_uri promise."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

from coordination.errors import TidelakeError, TryAgain
from coordination.model import SEALED_TS, TableName, Ts
from sinks.merge_on_write.lifecycle.create import create, table_properties
from sinks.target.engine_port import Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.target.target_table import TargetState, inspect, seal, table_uri
from sinks.types.delta_types import delta_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.contracts.engine_contract import ODD_NAMES, origin, state
from tests.contracts.key_types import KEY_TYPES

STATISTICS = "delta.dataSkippingStatsColumns"


def schema(types: dict[str, str], *key: str) -> TableSchema:
    columns = tuple(Column(name=name, type=MySQLType.parse(text)) for name, text in types.items())
    return TableSchema(columns=columns, key=key)


def target(warehouse: Path, table: str, of: TableSchema) -> Target:
    name = TableName("shop", table)
    uri = table_uri(str(warehouse), name)
    return Target(name=name, uri=uri, schema=of, app_id=app_id("shop", 1, name))


PLAIN = schema({"id": "bigint", "v": "varchar(9)"}, "id")


def test_a_new_table_says_whose_it_is_and_where_it_came_from(tmp_path: Path) -> None:
    of = schema(dict.fromkeys(ODD_NAMES, "enum('it''s','ü')"), "c`d", "列名")
    table = target(tmp_path, "what `a` %2F name/..", of)
    create(table, properties=origin())
    found = state(table)
    assert found.version == 0
    assert (found.changefeed_id, found.incarnation) == ("shop", 1)
    assert found.properties["tidelake.generation"] == "1"
    assert found.schema == of
    assert found.ddl == DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE TABLE …")
    assert {"columnMapping", "deletionVectors"} <= features(found)
    assert found.identity(table.app_id) is None
    assert [field.name for field in found.handle.schema().fields] == list(ODD_NAMES)


@pytest.mark.spark
def test_spark_would_make_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    texts = [text for text, _ in KEY_TYPES]
    texts += ["decimal(65,0)", "double", "float", "blob", "json", "vector(3)", "bit(64)"]
    of = schema({f"column `{n}`": text for n, text in enumerate(texts)}, "column `0`")
    ours, sparks = target(tmp_path, "ours", of), target(tmp_path, "sparks", of)
    create(ours, properties=origin())
    builder = DeltaTable.create(spark).location(sparks.uri)
    for column in of.delivered:
        builder = builder.addColumn(column.name, delta_type(column.type))
    for name, value in table_properties(sparks, origin()).items():
        builder = builder.property(name, value)
    builder.execute()
    (fields, properties, features), theirs = (made(each) for each in (ours, sparks))
    assert (fields, properties) == theirs[:2]
    assert features == theirs[2] - {"appendOnly", "invariants"}  # which Spark lists for any table
    frame = spark.read.format("delta").load(ours.uri)
    assert frame.schema == spark.read.format("delta").load(sparks.uri).schema


def made(table: Target) -> tuple[object, dict[str, str], frozenset[str]]:
    found = state(table)
    fields = [(f.name, str(f.type), f.nullable) for f in found.handle.schema().fields]
    return fields, dict(found.properties), features(found)


def features(found: TargetState) -> frozenset[str]:
    protocol = found.handle.protocol()
    return frozenset({*(protocol.reader_features or ()), *(protocol.writer_features or ())})


def test_a_creation_that_was_killed_before_its_rename_is_done_again(tmp_path: Path) -> None:
    table = target(tmp_path, "t", PLAIN)
    log = Path(table.uri) / "_delta_log"
    log.mkdir(parents=True)
    (log / f".{0:020}.json.8fe1a4b6.tmp").write_text('{"commitInfo":')
    create(table, properties=origin())
    assert state(table).version == 0


def test_creating_again_is_fine_and_two_at_once_make_one_table(tmp_path: Path) -> None:
    table = target(tmp_path, "t", PLAIN)
    with ThreadPoolExecutor(2) as pool:
        for attempt in [pool.submit(create, table, properties=origin()) for _ in range(2)]:
            attempt.result()
    create(table, properties=origin())
    assert state(table).version == 0


def test_somebody_elses_table_is_refused_with_a_way_on(tmp_path: Path) -> None:
    table = target(tmp_path, "t", PLAIN)
    create(table, properties=origin(incarnation=2))
    for properties, sentence in (
        (origin(changefeed_id="other"), "belongs to changefeed 'shop'"),
        (origin(incarnation=1), "incarnation 2"),
        (origin(incarnation=2, commit_ts=6), "created by another DDL"),
    ):
        with pytest.raises(TidelakeError, match=sentence):
            create(table, properties=properties)
    create(table, properties=origin(incarnation=3))

    foreign = target(tmp_path, "foreign", PLAIN)
    write_deltalake(foreign.uri, pa.table({"id": [1]}))
    with pytest.raises(TidelakeError, match="not made by Tidelake"):
        create(foreign, properties=origin())

    files = target(tmp_path, "files", PLAIN)
    Path(files.uri).mkdir(parents=True)
    Path(files.uri, "x.parquet").write_bytes(b"x")
    with pytest.raises(TidelakeError, match=r"the folder holds x\.parquet and no Delta"):
        create(files, properties=origin())


def test_a_seal_is_one_commit_with_both_identities_and_new_properties(tmp_path: Path) -> None:
    table = target(tmp_path, "t", PLAIN)
    create(table, properties=origin())
    for _ in range(2):
        newer = {"tidelake.incarnation": "2"}
        sealed = seal(table.uri, [table.app_id], "new", at(7), {}, properties=newer)
        assert sealed.version == 1
    found = state(table)
    assert (found.identity(table.app_id), found.identity("new")) == (SEALED_TS, 7)
    assert (found.incarnation, found.schema) == (2, PLAIN)


def test_sealing_what_is_gone_is_refused(tmp_path: Path) -> None:
    assert inspect(str(tmp_path / "t"), {}) is None
    with pytest.raises(TidelakeError, match="restore it"):
        seal(str(tmp_path / "t"), ["old"], "new", at(1), {})


def at(start: int) -> Callable[[Ts], Ts]:
    return lambda _reached: Ts(start)


def test_a_commit_between_the_look_and_the_seal_breaks_it_off(tmp_path: Path) -> None:
    table = target(tmp_path, "t", PLAIN)
    create(table, properties=origin())
    rows = pa.table({"id": pa.array([1], pa.int64()), "v": ["x"]})

    def commit_and_begin(reached: Ts) -> Ts:
        identity = CommitProperties(app_transactions=[Transaction(table.app_id, 50)])
        write_deltalake(table.uri, rows, mode="append", commit_properties=identity)
        return reached

    with pytest.raises(TryAgain):
        seal(table.uri, [table.app_id], "new", commit_and_begin, {})
    assert state(table).identity("new") is None
    sealed = seal(table.uri, [table.app_id], "new", lambda reached: Ts(reached + 1), {})
    assert sealed.identity("new") == 51


def test_key_columns_have_statistics_wherever_they_stand() -> None:
    many = {f"c{n}": "int" for n in range(40)}
    wide = target(Path("w"), "t", schema({**many, "a`b": "bigint"}, "a`b"))
    properties = table_properties(wide, {})
    columns = properties[STATISTICS].split(",")
    assert (columns[0], len(columns)) == ("`a``b`", 32)


def test_columns_whose_statistics_cannot_be_trusted_have_none() -> None:
    types = {"id": "bigint unsigned", "d": "decimal(10,2)", "b": "blob", "v": "vector", "n": "int"}
    assert table_properties(target(Path("w"), "t", schema(types, "id")), {})[STATISTICS] == "`n`"
    del types["n"]
    properties = table_properties(target(Path("w"), "t", schema(types, "id")), {})
    assert STATISTICS not in properties
    assert properties["delta.dataSkippingNumIndexedCols"] == "0"


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        (TableName("shop", "orders"), "/lake/shop/orders"),
        (TableName("größe", "a b.c#1"), "/lake/größe/a b.c#1"),
        (TableName("_tidelake", ".."), "/lake/~5Ftidelake/~2E."),
        (TableName("a/b", "50%`\\~"), "/lake/a~2Fb/50~25~60~5C~7E"),
    ],
)
def test_names_that_a_path_cannot_keep_are_escaped(name: TableName, uri: str) -> None:
    assert table_uri("/lake", name) == uri


def test_what_ends_the_path_of_a_uri_is_escaped_there() -> None:
    assert table_uri("s3://lake", TableName("a?", "b#1")) == "s3://lake/a~3F/b~231"


def test_ownership_survives_the_way_through_properties() -> None:
    ddl = DdlIdentity(commit_ts=Ts(9), order=2, query="CREATE TABLE `ü` (id INT)")
    properties = ownership(changefeed_id="shop", incarnation=3, ddl=ddl)
    assert DdlIdentity.from_json(properties["tidelake.ddl"]) == ddl
    assert properties["tidelake.incarnation"] == "3"
