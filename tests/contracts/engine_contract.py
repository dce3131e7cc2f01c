"""What every commit engine promises (``sinks/target/engine_port.py``), as claims over real Delta
tables.

A test module subclasses ``EngineContract`` and gives the fixtures ``lab`` and ``other``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from coordination.errors import Fenced, TryAgain
from coordination.model import SEALED_TS, TableName, Ts
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, Applied, Engine, Skipped, TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.target.target_table import TargetState, inspect, seal, table_uri
from sinks.types.delta_types import delta_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.contracts.key_types import HARDEST, KEY_TYPES
from tests.services.delta_rows import first_difference, read_rows

HARD_TO_ROUND = (
    ("bigint unsigned", Decimal(2**53 + 1)),
    ("decimal(38,10)", Decimal("900719925474099.3")),
    ("datetime(6)", datetime(2024, 1, 1, 0, 0, 0, 123456)),  # noqa: DTZ001
    ("timestamp(6)", datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
    ("varchar(100)", "😀" * 100),
)

Change = tuple[str, Mapping[str, Any]]  # (U or D, cells)
ODD_NAMES = (
    "_op",
    "_error_class",
    "a b",
    "c`d",
    "e.f",
    "größe",
    "select",
    "列名",
    'x"y',
    "q'q",
    "100%",
    "a,;{}()=",
    "t",
    "s.id",
)


def upsert(**cells: Any) -> Change:
    return "U", cells


def delete(**cells: Any) -> Change:
    return "D", cells


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLab:
    """One engine, and tables made by ``create`` in a warehouse of its own."""

    spark: SparkSession
    warehouse: Path
    engine: Engine

    def table(self, types: Mapping[str, str], *key: str) -> Target:
        """A new table with these MySQL column types; the key is the first column if not named."""
        columns = tuple(Column(name=n, type=MySQLType.parse(t)) for n, t in types.items())
        schema = TableSchema(columns=columns, key=key or (next(iter(types)),))
        name = TableName("shop", f"t{sum(1 for _ in self.warehouse.glob('*/*'))}")
        target = Target(
            name=name,
            uri=table_uri(str(self.warehouse), name),
            schema=schema,
            app_id=app_id("shop", 1, name),
        )
        create(target, properties=origin())
        return target

    def changes(self, target: Target, changes: Iterable[Change]) -> DataFrame | pa.Table:
        rows = list(changes)
        columns = {
            column.name: pa.array([cells.get(column.name) for _, cells in rows], arrow_type(column))
            for column in target.schema.delivered
        }
        spark_schema = StructType([StructField(OP_COLUMN, StringType())])
        for column in reversed(target.schema.delivered):
            field = StructField(column.name, DataType.fromDDL(delta_type(column.type)))
            spark_schema = StructType([field, *spark_schema.fields])
        table = pa.table({**columns, OP_COLUMN: pa.array([op for op, _ in rows], pa.string())})
        return (
            table
            if self.engine.name == "merge-on-write"
            else self.spark.createDataFrame(table, spark_schema)
        )

    def write(
        self,
        target: Target,
        limit: int,
        changes: Iterable[Change],
        before_commit: Callable[[], None] = lambda: None,
    ) -> TableWrite:
        return TableWrite(
            target=target,
            checkpoint=Ts(0),
            limit=Ts(limit),
            changes=self.changes(target, changes),
            user_metadata=f'{{"limit": {limit}}}',
            before_commit=before_commit,
        )

    def apply(self, target: Target, limit: int, *changes: Change) -> Applied | Skipped:
        return self.engine.apply(self.write(target, limit, changes))

    def expect(self, target: Target, *rows: Mapping[str, Any], by_spark: bool = False) -> None:
        """As delta-rs reads them; on demand, that Spark reads the same."""
        found = read_rows(target.uri)
        difference = first_difference(rows, found, target.schema.key)
        assert difference is None, difference
        if by_spark:
            frame = self.spark.read.format("delta").load(target.uri)
            assert first_difference(frame.toArrow().to_pylist(), found, None) is None


def origin(changefeed_id: str = "shop", commit_ts: int = 5, incarnation: int = 1) -> dict[str, str]:
    ddl = DdlIdentity(commit_ts=Ts(commit_ts), order=0, query="CREATE TABLE …")
    return ownership(changefeed_id=changefeed_id, incarnation=incarnation, ddl=ddl)


def arrow_type(column: Column) -> pa.DataType:
    return to_arrow_type(DataType.fromDDL(delta_type(column.type)), timezone="UTC")


def state(target: Target) -> TargetState:
    found = inspect(target.uri, {})
    assert found is not None
    return found


NAMED = {"id": "bigint", "name": "varchar(20)"}


class EngineContract:
    """The claims. ``other`` is the other engine, in the same warehouse."""

    def test_inserts_updates_and_deletes_by_key(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        first = lab.apply(table, 10, *(upsert(id=n, name="old") for n in (1, 2, 3)))
        second = lab.apply(
            table, 20, upsert(id=2, name="new"), delete(id=3), upsert(id=4, name=None)
        )
        assert (first, second) == (Applied(1), Applied(2))
        lab.expect(
            table,
            {"id": 1, "name": "old"},
            {"id": 2, "name": "new"},
            {"id": 4, "name": None},
            by_spark=True,
        )

    def test_keys_can_swap_their_rows(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, upsert(id=1, name="a"), upsert(id=2, name="b"))
        lab.apply(table, 20, upsert(id=1, name="b"), upsert(id=2, name="a"))
        lab.expect(table, {"id": 1, "name": "b"}, {"id": 2, "name": "a"})

    def test_skips_what_the_table_has_and_applies_what_it_lacks(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, upsert(id=1, name="a"))
        for limit in (10, 9):
            assert lab.apply(table, limit, upsert(id=1, name="late")) == Skipped(1, Ts(10))
        lab.expect(table, {"id": 1, "name": "a"})
        assert lab.apply(table, 11, upsert(id=1, name="b")) == Applied(2)
        lab.expect(table, {"id": 1, "name": "b"})

    def test_a_late_write_with_the_larger_limit_doubles_nothing(self, lab: EngineLab) -> None:
        """A zombie read (0, 30], its successor has applied (0, 20] meanwhile."""
        table = lab.table(NAMED)
        lab.apply(table, 20, upsert(id=1, name="at 20"), upsert(id=2, name="at 20"))
        lab.apply(table, 30, upsert(id=1, name="at 20"), upsert(id=2, name="at 30"), delete(id=3))
        lab.expect(table, {"id": 1, "name": "at 20"}, {"id": 2, "name": "at 30"})

    def test_a_batch_of_deletes_alone_is_one_commit(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, *(upsert(id=n, name="x") for n in (1, 2, 3)))
        assert lab.apply(table, 20, delete(id=1), delete(id=3), delete(id=99)) == Applied(2)
        lab.expect(table, {"id": 2, "name": "x"})

    def test_a_write_that_changes_no_row_still_brings_the_table_to_its_limit(
        self, lab: EngineLab
    ) -> None:
        table = lab.table(NAMED)
        assert lab.apply(table, 10, delete(id=1)) == Applied(1)
        assert state(table).identity(table.app_id) == 10
        lab.apply(table, 20, upsert(id=1, name="x"))
        assert lab.apply(table, 30, delete(id=7), delete(id=8)) == Applied(3)
        lab.expect(table, {"id": 1, "name": "x"})

    @pytest.mark.parametrize("deletes", [pytest.param(5_000, marks=pytest.mark.soak), 10_001])
    def test_many_deletes_are_one_commit(self, lab: EngineLab, deletes: int) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, *(upsert(id=n, name="x") for n in range(deletes + 2)))
        gone = [delete(id=n) for n in range(1, deletes + 1)]
        assert lab.apply(table, 20, *gone, upsert(id=-1, name="y")) == Applied(2)
        lab.expect(
            table,
            {"id": 0, "name": "x"},
            {"id": deletes + 1, "name": "x"},
            {"id": -1, "name": "y"},
        )
        assert lab.apply(table, 20, *gone, upsert(id=-1, name="z")) == Skipped(2, Ts(20))

    @pytest.mark.soak  # the hardest are in the composite key below
    @pytest.mark.parametrize(("mysql_type", "values"), KEY_TYPES)
    def test_keys_match_exactly(
        self, lab: EngineLab, mysql_type: str, values: Sequence[Any]
    ) -> None:
        table = lab.table({"k": mysql_type, "v": "int"})
        lab.apply(table, 10, *(upsert(k=value, v=0) for value in values))
        gone, *kept = values
        lab.apply(table, 20, delete(k=gone), *(upsert(k=value, v=1) for value in kept))
        lab.expect(table, *({"k": value, "v": 1} for value in kept))
        lab.apply(table, 30, *(delete(k=value) for value in kept[1:]))
        lab.expect(table, {"k": kept[0], "v": 1})

    def test_statistics_of_one_engine_hide_no_row_from_the_other(
        self, lab: EngineLab, other: EngineLab
    ) -> None:
        """A file with one key has the narrowest statistics: rounded ones would exclude the key."""
        key = dict(HARD_TO_ROUND)
        table = lab.table({**dict(zip(key, key, strict=True)), "v": "int"}, *key)
        for limit, engine in enumerate((other, lab, lab), start=1):
            engine.apply(table, limit, upsert(**key, v=limit))
        lab.expect(table, {**key, "v": 3})
        frame = lab.spark.read.format("delta").load(table.uri)
        for name, value in key.items():
            frame = frame.where(frame[name] == lit(value).cast(frame.schema[name].dataType))
        assert frame.count() == 1

    def test_rows_of_a_file_that_no_key_reaches_stay(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        low, high = -(2**63), 2**63 - 1
        rows = {n: f"row {n}" for n in (low, -7, 3, 4, 5, 6, high)}
        lab.apply(table, 10, *(upsert(id=n, name=name) for n, name in rows.items()))
        lab.apply(table, 20, upsert(id=10, name="ten"), upsert(id=11, name="eleven"))
        lab.apply(table, 30, delete(id=4), upsert(id=5, name="new"), upsert(id=9, name="nine"))
        lab.apply(table, 40, delete(id=low), upsert(id=high, name="highest"))
        changed = {5: "new", 9: "nine", 10: "ten", 11: "eleven", high: "highest"}
        left = {n: name for n, name in {**rows, **changed}.items() if n not in (4, low)}
        lab.expect(table, *({"id": n, "name": name} for n, name in left.items()))

    def test_composite_keys_match_exactly_and_as_a_whole(self, lab: EngineLab) -> None:
        """Rows that differ in one column of the key, whose literals are the hardest."""
        keys = {name: values for name, values in KEY_TYPES if name in HARDEST}
        table = lab.table({"v": "int", **{name: name for name in keys}}, *reversed(keys))
        first, second = ({name: values[n] for name, values in keys.items()} for n in (0, 1))
        gone = [{**first, name: second[name]} for name in keys]
        kept = [{**first, name: value} for name in keys for value in keys[name][2:]]
        lab.apply(table, 10, *(upsert(**key, v=0) for key in (first, *gone, *kept)))
        deletes = (delete(**key) for key in (second, *gone))  # of second, each part is there
        lab.apply(table, 20, *deletes, *(upsert(**key, v=1) for key in kept))
        rows = ({**first, "v": 0}, *({**key, "v": 1} for key in kept))
        lab.expect(table, *rows, by_spark=True)
        lab.apply(table, 30, *(delete(**key) for key in kept))
        lab.expect(table, {**first, "v": 0})

    def test_any_column_name_will_do(self, lab: EngineLab) -> None:
        table = lab.table(dict.fromkeys(ODD_NAMES, "varchar(9)"), "c`d", "e.f", 'x"y', "t")
        one, two = (dict.fromkeys(ODD_NAMES, text) for text in ("1", "2"))
        lab.apply(table, 10, upsert(**one), upsert(**two))
        lab.apply(table, 20, delete(**one), upsert(**{**two, "select": "new"}))
        lab.expect(table, {**two, "select": "new"}, by_spark=True)
        lab.apply(table, 30, delete(**two))
        lab.expect(table)

    def test_a_fence_that_is_shut_leaves_no_version(self, lab: EngineLab) -> None:
        def shut() -> None:
            raise Fenced("lease lost")

        table = lab.table(NAMED)
        for changes in ([upsert(id=1, name="a")], [delete(id=1)]):
            with pytest.raises(Fenced):
                lab.engine.apply(lab.write(table, 10, changes, shut))
        assert state(table).version == 0

    def test_a_skip_asks_no_fence(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, upsert(id=1, name="a"))
        asked: list[int] = []
        lab.engine.apply(lab.write(table, 10, [delete(id=1)], lambda: asked.append(1)))
        assert asked == []

    def test_history_shows_the_user_metadata(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, upsert(id=1, name="a"))
        history = lab.spark.sql(f"DESCRIBE HISTORY delta.`{table.uri}`").collect()
        assert [row.userMetadata for row in history] == ['{"limit": 10}', None]

    def test_a_sealed_identity_never_writes_again(self, lab: EngineLab) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, upsert(id=1, name="a"))
        new_id = table.app_id.replace("/1/", "/2/")
        for _ in range(2):
            assert seal(table.uri, [table.app_id], new_id, lambda _: Ts(3), {}).version == 2
        for limit in (11, SEALED_TS - 1):
            assert lab.apply(table, limit, delete(id=1)) == Skipped(2, Ts(SEALED_TS))
        successor = Target(name=table.name, uri=table.uri, schema=table.schema, app_id=new_id)
        assert lab.apply(successor, 3, delete(id=1)) == Skipped(2, Ts(3))
        assert lab.apply(successor, 4, upsert(id=1, name="b")) == Applied(3)
        lab.expect(table, {"id": 1, "name": "b"})

    @pytest.mark.parametrize("first", ["lab", "other"])
    def test_a_commit_that_comes_between_is_noticed(
        self, lab: EngineLab, other: EngineLab, first: str
    ) -> None:
        table = lab.table(NAMED)
        lab.apply(table, 10, upsert(id=1, name="a"), upsert(id=2, name="a"))
        winner = lab if first == "lab" else other

        def come_between() -> None:
            winner.apply(table, 20, upsert(id=1, name="winner"))

        try:
            late = lab.write(table, 15, [upsert(id=1, name="late")], come_between)
            outcome = lab.engine.apply(late)
        except TryAgain:
            pass
        else:
            assert outcome == Skipped(2, Ts(20))  # Spark looks at the identity after the fence
        lab.expect(table, {"id": 1, "name": "winner"}, {"id": 2, "name": "a"})

    def test_of_two_writers_at_once_one_wins_and_one_looks_again(
        self, lab: EngineLab, twin: EngineLab
    ) -> None:
        """As two processes: ``twin`` has an engine of its own."""
        table = lab.table(NAMED)
        lab.apply(table, 10, *(upsert(id=n, name="old") for n in range(4)))
        start = threading.Barrier(2, timeout=120)
        outcomes: dict[str, object] = {}

        def run(side: EngineLab, name: str, limit: int) -> None:
            write = side.write(
                table, limit, [upsert(id=1, name=name), upsert(id=9, name=name)], meet
            )
            try:
                outcomes[name] = side.engine.apply(write)
            except TryAgain as error:
                outcomes[name] = error

        met = set[int]()

        def meet() -> None:  # in its first try alone
            if threading.get_ident() not in met:
                met.add(threading.get_ident())
                start.wait()

        sides = ((lab, 20), (twin, 30))
        threads = [threading.Thread(target=run, args=(s, f"to {n}", n)) for s, n in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winner = f"to {state(table).identity(table.app_id)}"
        assert isinstance(outcomes[winner], Applied)
        old = [{"id": n, "name": "old"} for n in (0, 2, 3)]
        lab.expect(table, *old, {"id": 1, "name": winner}, {"id": 9, "name": winner})
        assert isinstance(outcomes.pop(winner), Applied)
        (loser,) = outcomes.values()  # applied: it was first, and the other came on top of it
        assert isinstance(loser, TryAgain | Skipped | Applied)
