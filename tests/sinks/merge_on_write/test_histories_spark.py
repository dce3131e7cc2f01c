"""The random histories again, on a sample: read by Spark and by Delta Kernel.

Of what delta-rs wrote some predicates are not asked: it says bounds of decimals as doubles, so that
rows at the extremes are out of their own file's bounds, and those of DATETIME with a blank, which
Kernel cannot parse. Both are so in files that we never touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from sinks.types.delta_types import delta_type
from tests.seeds import hunted_seeds
from tests.sinks.merge_on_write.altering import AlteredHistory
from tests.sinks.merge_on_write.histories import COMPARISONS, History, Row, quoted
from tests.sinks.merge_on_write.kernel_reader import KernelReader

pytestmark = pytest.mark.spark
STEPS = 12
FIRST = 1000  # seeds that delta-rs alone does not read
SOAKED = 10  # of each test; Kernel takes seconds for one, and Spark's plans do

Predicate = tuple[str, str, Any]  # column, sign, value
Seen = dict[int, list[Row]]


def seeds(count: int) -> pytest.MarkDecorator:
    """So many in make test, and SOAKED in make soak."""
    more = range(FIRST + count, FIRST + SOAKED)
    soaked = (pytest.param(seed, marks=pytest.mark.soak) for seed in more)
    return pytest.mark.parametrize("seed", [*range(FIRST, FIRST + count), *soaked])


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Days and times before 1582 as they are."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def lived(
    seed: int, folder: Path, seen: Seen | None = None, kind: type[History] = History
) -> History:
    """``seen``: takes what each step left, by its version."""
    history = kind(seed=seed, folder=folder)
    try:
        for _ in range(STEPS):
            history.step()
            if seen is not None:
                history.reader.update_incremental()
                seen[history.reader.version()] = list(history.rows.values())
    finally:
        history.close()
    return history


def predicates(history: History, *, told_badly: Callable[[str], bool]) -> Iterator[Predicate]:
    """One value a column, each comparison. ``told_badly``: types of which delta-rs' statistics are
    wrong, or are none to the reader."""
    paths = history.reader
    paths.update_incremental()
    is_ours = all(Path(path).name.startswith("tidelake-") for path in paths.file_uris())
    for column in history.target.schema.delivered:
        kind = delta_type(column.type)
        if is_ours or not told_badly(kind):
            value = history.dice.choice(history.pools[column.name])
            yield from ((column.name, sign, value) for sign in COMPARISONS)


def wanted(history: History, predicate: Predicate) -> list[Row]:
    name, sign, value = predicate
    holds = COMPARISONS[sign]
    return [
        row for row in history.rows.values() if row[name] is not None and holds(row[name], value)
    ]


@seeds(1)
def test_spark_reads_the_model(session: SparkSession, tmp_path: Path, seed: int) -> None:
    spark_reads(session, lived(seed, tmp_path))


@seeds(1)
def test_spark_reads_what_each_commit_left(
    session: SparkSession, tmp_path: Path, seed: int
) -> None:
    seen: Seen = {}
    history = lived(seed, tmp_path, seen)
    reader = session.read.format("delta")
    versions = [reader.option("versionAsOf", version).load(history.target.uri) for version in seen]
    for found, (version, rows) in zip(each_of(versions), seen.items(), strict=True):
        problem = history.difference(found, rows)
        assert problem is None, f"version {version}: {problem} after {history.log}"


@seeds(1)
def test_kernel_reads_what_each_commit_left(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    seen: Seen = {}
    history = lived(seed, tmp_path, seen)
    for version, rows in seen.items():
        found = KernelReader(spark, history.target.uri, version).rows()
        problem = history.difference((row for part in found.values() for row in part), rows)
        assert problem is None, f"version {version}: {problem} after {history.log}"


@seeds(1)
def test_spark_and_kernel_read_a_table_whose_shape_changes(
    session: SparkSession, tmp_path: Path, seed: int
) -> None:
    """What each commit left in the shape of that version, and the last one by predicates."""
    seen: Seen = {}
    history = lived(seed, tmp_path, seen, AlteredHistory)
    for version, rows in seen.items():
        reader = session.read.format("delta").option("versionAsOf", version)
        found = reader.load(history.target.uri).toArrow().to_pylist()
        problem = history.difference(found, rows)
        assert problem is None, f"version {version}: {problem} after {history.log}"
    spark_reads(session, history)
    kernel_reads(session, history)


@pytest.mark.soak
def test_spark_and_kernel_read_the_model(session: SparkSession, tmp_path: Path) -> None:
    for seed in hunted_seeds(100):
        history = lived(seed, tmp_path)
        spark_reads(session, history)
        kernel_reads(session, history)


def spark_reads(session: SparkSession, history: History) -> None:
    table = session.read.format("delta").load(history.target.uri)
    every = list(predicates(history, told_badly=lambda kind: kind.startswith("decimal")))
    left_out = history.dice.choice(("<=", ">="))  # each is a scan of its own in Spark's plan
    asked = [each for each in every if each[1] != left_out]
    found = answers(table, [f.lit(True), *(condition(history, each) for each in asked)])
    history.check_rows(found[0])
    for predicate, rows in zip(asked, found[1:], strict=True):
        problem = history.difference(rows, wanted(history, predicate))
        assert problem is None, f"WHERE {predicate}: {problem} after {history.log}"


def answers(table: DataFrame, conditions: list[Column]) -> list[list[Row]]:
    """The rows of each condition; each scan skips files by itself."""
    return each_of([table.filter(each) for each in conditions])


def each_of(tables: list[DataFrame]) -> list[list[Row]]:
    """The rows of each, all in one job."""
    parts = [table.withColumn(" nr", f.lit(at)) for at, table in enumerate(tables)]
    found: list[list[Row]] = [[] for _ in tables]
    for row in reduce(DataFrame.unionAll, parts).toArrow().to_pylist():
        found[row.pop(" nr")].append(row)
    return found


def condition(history: History, predicate: Predicate) -> Column:
    """With a literal of exactly the column's type: a cast around the column would skip no file."""
    name, sign, value = predicate
    kind = next(
        delta_type(each.type) for each in history.target.schema.delivered if each.name == name
    )
    text = isinstance(value, Decimal | datetime) or kind == "date"
    literal = f.lit(str(value) if text else value).cast(kind)
    column = f.col(quoted(name, "`"))
    return {"=": column == literal, "<=": column <= literal, ">=": column >= literal}[sign]


@seeds(1)
def test_kernel_reads_the_model(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    kernel_reads(spark, lived(seed, tmp_path))


def kernel_reads(spark: SparkSession, history: History) -> None:
    reader = KernelReader(spark, history.target.uri)
    found = reader.rows()
    history.check_rows(row for rows in found.values() for row in rows)
    types = history.arrow([]).schema
    for predicate in predicates(history, told_badly=told_badly_to_kernel):
        name, sign, value = predicate
        files = reader.files(name, sign, value, types.field(name).type)
        rows = wanted(history, predicate)
        left = [row for path in files for row in found[path] if row in rows]
        problem = history.difference(left, rows)
        assert problem is None, f"WHERE {predicate}: {problem} after {history.log}"


def told_badly_to_kernel(kind: str) -> bool:
    return kind.startswith("decimal") or kind == "timestamp_ntz"
