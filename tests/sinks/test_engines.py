"""Both commit engines against the contract, and what is particular to each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.spark.merge_engine import SparkEngine, _session_for
from sinks.spark.session_settings import SESSION_CONF
from sinks.target.engine_choice import EngineSetting, engine_choice
from sinks.target.engine_port import Applied, Skipped, TableWrite
from tests.conftest import COMPILED
from tests.contracts.engine_contract import (
    NAMED,
    EngineContract,
    EngineLab,
    delete,
    state,
    upsert,
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session as bootstrap would set it up."""
    session = spark.newSession()
    for name, value in SESSION_CONF.items():
        session.conf.set(name, value)
    return session


@pytest.fixture
def as_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.spark.merge_engine.COMPILED", COMPILED)


@pytest.fixture
def spark_lab(session: SparkSession, tmp_path: Path) -> EngineLab:
    return EngineLab(spark=session, warehouse=tmp_path, engine=SparkEngine({}))


@pytest.fixture
def merge_on_write_lab(session: SparkSession, tmp_path: Path) -> EngineLab:
    return EngineLab(
        spark=session, warehouse=tmp_path, engine=MergeOnWriteEngine({}, keeps_up=False)
    )


@pytest.mark.spark
@pytest.mark.more
class TestSparkEngineContract(EngineContract):
    @pytest.fixture
    def lab(self, spark_lab: EngineLab) -> EngineLab:
        return spark_lab

    @pytest.fixture
    def twin(self, spark_lab: EngineLab) -> EngineLab:
        return replace(spark_lab, engine=SparkEngine({}))

    @pytest.fixture
    def other(self, merge_on_write_lab: EngineLab) -> EngineLab:
        return merge_on_write_lab


@pytest.mark.spark
class TestSparkEngine:
    """What it alone does."""

    @pytest.fixture
    def lab(self, spark_lab: EngineLab) -> EngineLab:
        return spark_lab

    @pytest.mark.usefixtures("as_in_the_program")
    def test_a_merge_is_compiled_though_small_reads_are_not(self, lab: EngineLab) -> None:
        """A new session has the settings of the application, whatever those of its parent."""
        table = lab.table(NAMED)
        compiled = _session_for(lab.write(table, 10, [upsert(id=1, name="a")]), lab.spark).conf
        assert lab.spark.conf.get("spark.sql.codegen.wholeStage") == "false"
        assert {name: compiled.get(name) for name in COMPILED} == COMPILED

    def test_the_number_of_jobs_does_not_grow_with_the_batch(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, *(upsert(id=n, name="a") for n in range(1000)))
        changes = [upsert(id=n, name="b") for n in range(500)]
        with_deletes = [*changes, *(delete(id=n) for n in range(500, 600))]
        counts = []
        for limit, batch in ((20, changes[:10]), (30, changes), (40, with_deletes)):
            write = lab.write(table, limit, batch)
            counts.append(count_jobs(lab, write))
        assert max(counts) <= MOST_JOBS

    @pytest.mark.parametrize(
        ("mysql_type", "values"),
        [
            ("varchar(9)", ["a", "p", "q"]),
            ("timestamp", [datetime(year, 1, 1, tzinfo=UTC) for year in (2000, 2010, 2011)]),
        ],
    )
    def test_files_out_of_the_key_range_are_not_read(
        self, lab: EngineLab, mysql_type: str, values: list[Any]
    ) -> None:
        """The data of a file out of range is broken, its footer is not."""
        table = lab.table({"k": mysql_type, "v": "int"})
        out, one, two = values
        lab.apply(table, 10, upsert(k=out, v=1))
        break_data(only_data_file(table.uri))
        lab.apply(table, 20, upsert(k=one, v=1), upsert(k=two, v=1))
        lab.apply(table, 30, upsert(k=one, v=2), delete(k=two))
        assert state(table).version == 3


@pytest.mark.spark
class TestMergeOnWriteEngine(EngineContract):
    @pytest.fixture
    def lab(self, merge_on_write_lab: EngineLab) -> EngineLab:
        return merge_on_write_lab

    @pytest.fixture
    def twin(self, merge_on_write_lab: EngineLab) -> EngineLab:
        return replace(merge_on_write_lab, engine=MergeOnWriteEngine({}, keeps_up=False))

    @pytest.fixture
    def other(self, spark_lab: EngineLab) -> EngineLab:
        return spark_lab

    def test_starts_no_spark_job(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        assert count_jobs(lab, lab.write(table, 10, [upsert(id=1, name="a")])) == 0

    def test_columns_that_somebody_adds_or_drops_meanwhile(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, upsert(id=1, name="a"))
        lab.spark.sql(f"ALTER TABLE delta.`{table.uri}` ADD COLUMNS (more INT)")
        lab.apply(table, 20, upsert(id=2, name="b"))
        rows = ({"id": 1, "name": "a", "more": None}, {"id": 2, "name": "b", "more": None})
        lab.expect(table, *rows, by_spark=True)
        lab.spark.sql(f"ALTER TABLE delta.`{table.uri}` DROP COLUMN name")
        with pytest.raises(TidelakeError, match="has no column name any more"):
            lab.apply(table, 30, upsert(id=3, name="c"))
        assert state(table).identity(table.app_id) == 20

    @pytest.mark.parametrize("feature", ["delta.enableChangeDataFeed", "delta.enableRowTracking"])
    def test_knows_the_tables_that_it_cannot_write(self, lab: EngineLab, feature: str) -> None:
        table = lab.table(NAMED)
        lab.spark.sql(f"ALTER TABLE delta.`{table.uri}` SET TBLPROPERTIES ('{feature}' = 'true')")
        with pytest.raises(NotForThisEngine, match=f"its property {feature} is true"):
            lab.apply(table, 10, upsert(id=1, name="a"))


@pytest.mark.spark
def test_engines_take_turns_on_one_table(
    merge_on_write_lab: EngineLab, spark_lab: EngineLab
) -> None:
    lab, other = merge_on_write_lab, spark_lab
    table = lab.table(NAMED)
    expected: dict[int, str] = {}
    for turn, side in enumerate((lab, other, lab, lab, other, other, lab), start=1):
        rows = {n: f"turn {turn}" for n in range(turn, turn + 4)}
        expected = {n: name for n, name in {**expected, **rows}.items() if n != turn - 1}
        changes = [upsert(id=n, name=name) for n, name in rows.items()]
        assert side.apply(table, turn, *changes, delete(id=turn - 1)) == Applied(turn)
        for late in (lab, other):
            assert late.apply(table, turn, delete(id=turn)) == Skipped(turn, Ts(turn))
    lab.expect(table, *({"id": n, "name": name} for n, name in expected.items()), by_spark=True)


EVERY_TYPE: dict[str, tuple[str, list[Any]]] = {
    "id": ("bigint", [1, 2]),
    "i8": ("tinyint", [-128, 127]),
    "u8": ("tinyint unsigned", [0, 255]),
    "i32": ("int", [-(2**31), 2**31 - 1]),
    "u32": ("int unsigned", [0, 2**32 - 1]),
    "u64": ("bigint unsigned", [Decimal(0), Decimal(2**64 - 1)]),
    "bits": ("bit(64)", [Decimal(0), Decimal(2**64 - 1)]),
    "f32": ("float", [1.401298464324817e-45, 3.4028234663852886e38]),
    "f64": ("double", [5e-324, -1.7976931348623157e308]),
    "d5": ("decimal(5,2)", [Decimal("-999.99"), Decimal("0.01")]),
    "d38": ("decimal(38,10)", [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10")]),
    "d65": ("decimal(65,30)", ["9" * 35 + "." + "9" * 30, "0"]),
    "text": ("text", ["", "ü列\U0001f600 nul\x00 'q' \"d\" \\ \n"]),
    "bin": ("blob", [b"", bytes(range(256))]),
    "day": ("date", [date(1000, 1, 1), date(9999, 12, 31)]),
    "dt": ("datetime(6)", [datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001
    "ts": (
        "timestamp(6)",
        [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(2038, 1, 19, 3, 14, 7, 1, tzinfo=UTC)],
    ),
    "time": ("time(6)", ["-838:59:59.000000", "838:59:59.000000"]),
    "json": ("json", ['{"a": [1, null]}', "null"]),
    "vec": ("vector", [[], [1.5, -0.25]]),
    "year": ("year", [1901, 2155]),
}


@pytest.mark.spark
@pytest.mark.usefixtures("as_in_the_program")
def test_both_engines_write_equal_cells_of_every_type(
    spark_lab: EngineLab, merge_on_write_lab: EngineLab
) -> None:
    rows = [{n: values[i] for n, (_, values) in EVERY_TYPE.items()} for i in range(2)]
    rows.append({**dict.fromkeys(EVERY_TYPE), "id": 3})
    for lab in (spark_lab, merge_on_write_lab):
        table = lab.table({name: mysql_type for name, (mysql_type, _) in EVERY_TYPE.items()})
        lab.apply(table, 10, *(upsert(**row) for row in rows[::-1]))
        lab.apply(table, 20, *(upsert(**row) for row in rows[:2]))
        lab.expect(table, *rows, by_spark=True)


@pytest.mark.parametrize(
    ("setting", "warehouse", "refused", "engine"),
    [
        ("auto", "/data/lake", None, "merge-on-write"),
        ("auto", "/data/lake", "it is partitioned", "spark"),
        ("auto", "file:///data/lake", None, "merge-on-write"),
        ("auto", "abfss://c@a/lake", None, "merge-on-write"),
        ("auto", "hdfs://name/lake", None, "spark"),
        ("auto", "s3://bucket/lake", None, "merge-on-write"),
        ("merge-on-write", "/data/lake", None, "merge-on-write"),
        ("spark", "/data/lake", None, "spark"),
    ],
)
def test_the_engine_follows_setting_place_and_table(
    setting: EngineSetting, warehouse: str, refused: str | None, engine: str
) -> None:
    choice = engine_choice(setting, warehouse, allow_unsafe_commits=False)
    assert choice.choose("s.t", refused) == engine


@pytest.mark.parametrize(
    ("setting", "warehouse"), [("auto", "s3://b/lake"), ("merge-on-write", "/lake")]
)
def test_a_table_that_no_engine_may_write_is_refused_with_the_reason(
    setting: EngineSetting, warehouse: str
) -> None:
    choice = engine_choice(setting, warehouse, allow_unsafe_commits=False)
    with pytest.raises(TidelakeError, match=r"table s\.t: .* it is partitioned"):
        choice.choose("s.t", "it is partitioned")


def test_two_commit_protocols_on_one_log_are_refused() -> None:
    with pytest.raises(ConfigError, match="allow-unsafe-commits"):
        engine_choice("spark", "s3a://bucket/lake", allow_unsafe_commits=False)
    unsafe = engine_choice("spark", "s3a://bucket/lake", allow_unsafe_commits=True)
    assert unsafe.choose("s.t", None) == "spark"
    with pytest.raises(ConfigError, match="hdfs"):
        engine_choice("merge-on-write", "hdfs://name/lake", allow_unsafe_commits=False)


MOST_JOBS = 20


def count_jobs(lab: EngineLab, write: TableWrite) -> int:
    """Spark jobs of one apply."""
    context = lab.spark.sparkContext
    group = f"apply to {write.limit} of {write.target.uri}"
    context.setJobGroup(group, group)
    try:
        assert isinstance(lab.engine.apply(write), Applied)
    finally:
        context.setLocalProperty("spark.jobGroup.id", "")
    return len(context.statusTracker().getJobIdsForGroup(group))


def only_data_file(uri: str) -> Path:
    (path,) = Path(uri).rglob("*.parquet")
    return path


def break_data(path: Path) -> None:
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:4] + b"\xff" * (footer - 4) + content[footer:])
    for checksum in path.parent.glob(".*.crc"):
        checksum.unlink()
