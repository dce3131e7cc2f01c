"""TRUNCATE and DROP PARTITION take out the rows that MySQL's partitions have: the model deals rows
out by a rule of its own, plainly and one by one."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from sinks.ddl.effects import AlterTable, CreateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, Applied, Skipped, TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity
from sinks.target.write_mode import WriteMode
from sinks.types.delta_types import arrow_type
from sinks.types.table_schema import TableSchema
from streaming.owner.ddl.steps import DdlEvent, DdlStep, step_of
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.ddls import assert_in_memory
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl

NAME = TableName("shop", "t")
Row = dict[str, Any]


def schema_of(columns: str, clause: str) -> TableSchema:
    query = f"CREATE TABLE `t` ({columns}) PARTITION BY {clause}"
    (made,) = read_ddl(query, "CREATE", "shop", "t").effects
    assert isinstance(made, CreateTable)
    return made.schema


def target_at(uri: str, schema: TableSchema) -> Target:
    return Target(name=NAME, uri=uri, schema=schema, app_id=app_id("shop", 1, NAME))


class Table:
    """A target of several files with vectors, made from rows."""

    def __init__(self, uri: Path, schema: TableSchema, rows: list[Row]) -> None:
        self.schema = schema
        self.rows = {tuple(row[name] for name in schema.key): row for row in rows}
        self.uri = str(uri)
        self.engine = MergeOnWriteEngine({}, keeps_up=False)
        create(self.target, properties={})
        self.ts = 10
        for at in range(0, len(rows), 7):
            self.write(rows[at : at + 7], "U")
        self.write(rows[::5], "D")
        for row in rows[::5]:
            del self.rows[tuple(row[name] for name in schema.key)]

    @property
    def target(self) -> Target:
        return target_at(self.uri, self.schema)

    def write(self, rows: list[Row], op: str) -> None:
        columns = {
            column.name: pa.array([row[column.name] for row in rows], arrow_type(column.type))
            for column in self.schema.columns
        }
        self.ts += 1
        write = TableWrite(
            target=self.target,
            checkpoint=Ts(self.ts - 1),
            limit=Ts(self.ts),
            changes=pa.table({**columns, OP_COLUMN: [op] * len(rows)}),
            user_metadata="{}",
            before_commit=lambda: None,
        )
        self.engine.apply(write)

    def run(self, query: str) -> Applied | Skipped:
        """As the stream does; the ts goes on."""
        self.ts += 10
        event = DdlEvent(commit_ts=Ts(self.ts), place=1, name=NAME, ddl_type="", query=query)
        statement = read_ddl(query, "ALTER", "shop", "t")
        step = step_of(event, statement, {NAME: self.schema}, {}, {})
        assert isinstance(step, DdlStep), step
        result = self.engine.alter(self.order(step))
        self.engine.alter(self.order(step))  # a replay
        if step.change is not None:
            self.schema = step.change.after
        return result

    def order(self, step: DdlStep) -> TableDdl:

        return table_ddl(
            target=self.target,
            ddl=DdlIdentity(commit_ts=step.event.commit_ts, order=0, query=step.event.query),
            change=step.change,
            empties=step.empties,
            partitions=step.partitions,
        )

    def expect_without(self, is_gone: Callable[[Row], bool]) -> None:
        gone = [key for key, row in self.rows.items() if is_gone(row)]
        for key in gone:
            del self.rows[key]
        assert self.read() == self.rows
        assert_in_memory(self.engine, self.uri)

    def read(self) -> dict[Any, Row]:
        rows = read_rows(self.uri)
        return {tuple(row[name] for name in self.schema.key): row for row in rows}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Table]]:
    made: list[Table] = []

    def table(columns: str, clause: str, rows: list[Row]) -> Table:
        made.append(Table(tmp_path / "t", schema_of(columns, clause), rows))
        return made[-1]

    yield table
    for each in made:
        each.engine.close()


def test_range_of_an_integer(make: Callable[..., Table]) -> None:
    table = make(
        "id INT PRIMARY KEY, v INT",
        "RANGE (`id`) (PARTITION p0 VALUES LESS THAN (10),PARTITION p1 VALUES LESS THAN (20),"
        "PARTITION `Rest` VALUES LESS THAN (MAXVALUE))",
        [{"id": n, "v": n} for n in range(-5, 40)],
    )
    assert isinstance(table.run("ALTER TABLE t TRUNCATE PARTITION `P1`"), Applied)
    table.expect_without(lambda row: 10 <= row["id"] < 20)

    table.write([{"id": 15, "v": 1}], "U")
    table.rows[15,] = {"id": 15, "v": 1}
    table.run("ALTER TABLE t DROP PARTITION `p0`,`rest`")
    table.expect_without(lambda row: row["id"] != 15)
    assert table.schema.partitioning is not None
    assert [each.name for each in table.schema.partitioning.partitions] == ["p1"]

    table.run("ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))")
    table.write([{"id": n, "v": n} for n in range(20, 30)], "U")
    table.rows |= {(n,): {"id": n, "v": n} for n in range(20, 30)}
    table.run(
        "ALTER TABLE t REORGANIZE PARTITION `p1`,`p2` INTO (PARTITION a VALUES LESS THAN (22),"
        "PARTITION b VALUES LESS THAN (30))"
    )
    table.expect_without(lambda _: False)
    table.run("ALTER TABLE t TRUNCATE PARTITION `a`")
    table.expect_without(lambda row: row["id"] < 22)
    table.run("ALTER TABLE t TRUNCATE PARTITION ALL")
    table.expect_without(lambda _: True)


def test_a_partition_is_one_commit_and_says_what_it_was(make: Callable[..., Table]) -> None:
    table = make(
        "id INT PRIMARY KEY, v INT",
        "RANGE (`id`) (PARTITION p0 VALUES LESS THAN (10),PARTITION p1 VALUES LESS THAN (20))",
        [{"id": n, "v": n} for n in range(20)],
    )
    before = DeltaTable(table.uri).version()
    table.run("ALTER TABLE t DROP PARTITION p0")
    assert DeltaTable(table.uri).version() == before + 1
    told = json.loads(DeltaTable(table.uri).metadata().configuration["tidelake.schema"])
    assert [each["name"] for each in told["partitioning"]["partitions"]] == ["p1"]


def test_null_is_below_all_bounds(make: Callable[..., Table]) -> None:
    table = make(
        "id INT, day DATE, UNIQUE KEY (id), PRIMARY KEY (id)",
        "RANGE COLUMNS (`day`) (PARTITION old VALUES LESS THAN ('2026-01-01'),"
        "PARTITION new VALUES LESS THAN (MAXVALUE))",
        [
            {"id": n, "day": None if n % 3 == 0 else date(2025 + n % 2, 12 if n % 2 == 0 else 1, 1)}
            for n in range(30)
        ],
    )
    table.run("ALTER TABLE t TRUNCATE PARTITION old")
    table.expect_without(lambda row: row["day"] is None or row["day"] < date(2026, 1, 1))


@pytest.mark.parametrize(
    ("kind", "function", "bound", "value"),
    [
        ("DATE", "YEAR", "2020", lambda d: d.year),
        ("DATETIME(3)", "YEAR", "2020", lambda d: d.year),
        ("DATE", "TO_DAYS", "TO_DAYS('2020-03-01')", lambda d: d.toordinal() + 365),
        ("DATETIME", "TO_DAYS", "737850", lambda d: d.toordinal() + 365),
        ("TIMESTAMP", "UNIX_TIMESTAMP", "1583020800", lambda d: d.timestamp()),
    ],
)
def test_functions_of_a_day(
    make: Callable[..., Table],
    kind: str,
    function: str,
    bound: str,
    value: Callable[[Any], float],
) -> None:
    random = Random(16)
    days: list[Any] = [date.fromordinal(random.randrange(737_000, 738_500)) for _ in range(60)]
    if kind != "DATE":
        days = [datetime.combine(d, time(random.randrange(24), 59, 59)) for d in days]
    if kind == "TIMESTAMP":
        days = [d.replace(tzinfo=UTC) for d in days]
    table = make(
        f"id INT, at {kind}, PRIMARY KEY (id, at)",
        f"RANGE ({function}(`at`)) (PARTITION p0 VALUES LESS THAN ({bound}),"
        "PARTITION p1 VALUES LESS THAN MAXVALUE)",
        [{"id": n, "at": day} for n, day in enumerate(days)],
    )
    limit = date(2020, 3, 1).toordinal() + 365 if "TO_DAYS" in bound else int(bound)
    table.run("ALTER TABLE t TRUNCATE PARTITION p0")
    table.expect_without(lambda row: value(row["at"]) < limit)
    assert 0 < len(table.rows) < 48


def test_range_by_several_columns(make: Callable[..., Table]) -> None:
    bounds = [(2, 5), (2, 8), (4, 3)]
    table = make(
        "a INT, b INT, PRIMARY KEY (a, b)",
        "RANGE COLUMNS (`a`,`b`) ("
        + ",".join(f"PARTITION p{n} VALUES LESS THAN {bound}" for n, bound in enumerate(bounds))
        + ",PARTITION p3 VALUES LESS THAN (MAXVALUE,MAXVALUE))",
        [{"a": a, "b": b} for a in range(6) for b in range(10)],
    )
    for wanted in (1, 3):
        table.run(f"ALTER TABLE t TRUNCATE PARTITION p{wanted}")
        table.expect_without(
            lambda row, wanted=wanted: bisect_right(bounds, (row["a"], row["b"])) == wanted
        )


def test_lists(make: Callable[..., Table]) -> None:
    table = make(
        "id INT, region VARCHAR(9), PRIMARY KEY (id, region)",
        "LIST COLUMNS (`region`) (PARTITION east VALUES IN ('x','y '),"
        "PARTITION west VALUES IN (_UTF8MB4'z'))",
        [{"id": n, "region": "xyz"[n % 3]} for n in range(30)],
    )
    table.run("ALTER TABLE t DROP PARTITION east")
    table.expect_without(lambda row: row["region"] in "xy")


def test_lists_of_several_with_null_and_default(make: Callable[..., Table]) -> None:
    table = make(
        "id INT PRIMARY KEY, a INT, b INT",
        "LIST COLUMNS (`a`,`b`) (PARTITION p0 VALUES IN ((1,2),(NULL,3)),PARTITION p1 DEFAULT)",
        [{"id": n, "a": None if n % 4 == 0 else n % 4, "b": 2 + n % 2} for n in range(40)],
    )
    table.run("ALTER TABLE t TRUNCATE PARTITION p0")
    table.expect_without(lambda row: (row["a"], row["b"]) in ((1, 2), (None, 3)))
    table.run("ALTER TABLE t TRUNCATE PARTITION p1")
    table.expect_without(lambda _: True)


@pytest.mark.parametrize("kind", ["INT", "BIGINT UNSIGNED", "SMALLINT"])
def test_hash(make: Callable[..., Table], kind: str) -> None:
    low, high = (0, (2**63 - 1, 2**63 + 1, 2**64 - 1)) if "UNSIGNED" in kind else (-15, ())
    table = make(
        f"id {kind} PRIMARY KEY",
        "HASH (`id`) PARTITIONS 4",
        [{"id": n} for n in (*range(low, 40), *high)],
    )

    def number(row: Row) -> int:
        """Of 64 bits with a sign, as TiDB takes them."""
        return abs((int(row["id"]) + 2**63) % 2**64 - 2**63)

    table.run("ALTER TABLE t TRUNCATE PARTITION p3")
    table.expect_without(lambda row: number(row) % 4 == 3)
    table.run("ALTER TABLE t ADD PARTITION PARTITIONS 2")
    table.run("ALTER TABLE t TRUNCATE PARTITION p5")
    table.expect_without(lambda row: number(row) % 6 == 5)
    table.run("ALTER TABLE t COALESCE PARTITION 3")
    table.run("ALTER TABLE t TRUNCATE PARTITION p0")
    table.expect_without(lambda row: number(row) % 3 == 0)


@pytest.mark.parametrize(
    ("columns", "clause", "why"),
    [
        (
            "id INT, v VARCHAR(9), PRIMARY KEY (id, v)",
            "RANGE COLUMNS (`v`) (PARTITION p0 VALUES LESS THAN ('m'))",
            "not known of RANGE by the value of varchar",
        ),
        (
            "id INT, v VARCHAR(9), PRIMARY KEY (id, v)",
            "LIST COLUMNS (`v`) (PARTITION p0 VALUES IN ('m'),PARTITION p1 DEFAULT)",
            "text and DEFAULT",
        ),
        (
            "id INT, v DATETIME, PRIMARY KEY (id, v)",
            "RANGE (UNIX_TIMESTAMP(`v`)) (PARTITION p0 VALUES LESS THAN (99))",
            "RANGE by UNIX_TIMESTAMP of datetime",
        ),
        (
            "id INT PRIMARY KEY",
            "RANGE (`id`) (PARTITION p0 VALUES LESS THAN (5))",
            "rows that are in none of its known partitions",
        ),
        (
            "id INT PRIMARY KEY",
            "LIST (`id`) (PARTITION p0 VALUES IN (5))",
            "rows that are in none of its known partitions",
        ),
    ],
)
def test_what_is_not_certain_takes_nothing_out(
    make: Callable[..., Table], columns: str, clause: str, why: str
) -> None:
    days = datetime(2026, 1, 1)  # noqa: DTZ001
    values: dict[str, Any] = {"varchar": "x", "datetime": days, "int": 3}
    schema = schema_of(columns, clause)
    rows = [
        {c.name: n if c.name == "id" else values[c.type.name] for c in schema.columns}
        for n in range(12)
    ]
    table = make(columns, clause, rows)
    before = DeltaTable(table.uri).version()
    with pytest.raises(TidelakeError, match=why):
        table.run("ALTER TABLE t TRUNCATE PARTITION p0")
    assert DeltaTable(table.uri).version() == before
    table.expect_without(lambda _: False)


@pytest.mark.parametrize(
    "clause",
    [
        "KEY (`id`) PARTITIONS 3",
        "LINEAR HASH (`id`) PARTITIONS 3",
        "RANGE (`id` + 1) (PARTITION p0 VALUES LESS THAN (5))",
        "RANGE (`id`) INTERVAL (10) FIRST PARTITION LESS THAN (0) LAST PARTITION LESS THAN (90)",
        "HASH (YEAR(`id`)) PARTITIONS 3",
    ],
)
def test_unknown_partitions_are_refused(clause: str) -> None:
    schema = schema_of("id INT PRIMARY KEY", clause)
    assert schema.partitioning is None
    query = "ALTER TABLE t TRUNCATE PARTITION p0"
    event = DdlEvent(commit_ts=Ts(1), place=1, name=NAME, ddl_type="", query=query)
    why = step_of(event, read_ddl(query, "ALTER", "shop", "t"), {NAME: schema}, {}, {})
    assert isinstance(why, str)
    assert "which rows those are is not known" in why


def test_a_schema_keeps_its_partitions_in_the_table() -> None:
    schema = schema_of(
        "id INT, at DATE, PRIMARY KEY (id, at)",
        "RANGE (TO_DAYS(`at`)) (PARTITION p0 VALUES LESS THAN (737000),"
        "PARTITION p1 VALUES LESS THAN (MAXVALUE))",
    )
    assert TableSchema.from_json(schema.to_json()) == schema
    (effect,) = read_ddl("ALTER TABLE t ADD COLUMN x INT", "ALTER", "shop", "t").effects
    assert isinstance(effect, AlterTable)
    assert evolved(schema, effect.changes).after.partitioning == schema.partitioning
    (effect,) = read_ddl("ALTER TABLE t REMOVE PARTITIONING", "ALTER", "shop", "t").effects
    assert isinstance(effect, AlterTable)
    after = evolved(schema, effect.changes).after
    assert after == replace(schema, partitioning=None)


def test_all_columns_stay_the_key_of_a_table_that_has_none() -> None:
    clause = "RANGE (`id`) (PARTITION p0 VALUES LESS THAN (5),PARTITION p1 VALUES LESS THAN (9))"
    form = WriteMode(all_columns=True)
    schema = form.keyed(schema_of("id INT, v INT", clause))
    query = "ALTER TABLE t DROP PARTITION p0"
    event = DdlEvent(commit_ts=Ts(50), place=1, name=NAME, ddl_type="", query=query)
    statement = read_ddl(query, "ALTER", "shop", "t")
    step = step_of(event, statement, {NAME: schema}, {}, {}, form=form)
    assert isinstance(step, DdlStep)
    assert step.change is not None
    assert step.change.after.key == ("id", "v")
    assert step.change.after.key_is_row


def test_partitions_of_a_later_ddl_tell_nothing_of_an_earlier_one() -> None:
    """A table that was rewound has its newer shape: a name may have other bounds in it, or none."""
    clause = "RANGE (`id`) (PARTITION p0 VALUES LESS THAN (5),PARTITION p1 VALUES LESS THAN (9))"
    schemas = {NAME: schema_of("id INT PRIMARY KEY", clause)}
    query = "ALTER TABLE t TRUNCATE PARTITION p0"
    event = DdlEvent(commit_ts=Ts(50), place=1, name=NAME, ddl_type="", query=query)
    statement = read_ddl(query, "ALTER", "shop", "t")
    for shape_ts in (49, 50, 51):
        step = step_of(event, statement, schemas, {}, {NAME: Ts(shape_ts)})
        assert isinstance(step, DdlStep)
        assert step.partitions == ("p0",)
        assert step.is_rewound == (shape_ts >= 50)
