"""Partitions of dates that Delta does not have: NULL in the target (docs/types.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import TidelakeError
from sinks.target.table_properties import DdlIdentity
from tests.sinks.merge_on_write.alter.test_partition_rows import Row, Table, schema_of
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Table]]:
    made: list[Table] = []

    def table(columns: str, clause: str, rows: list[Row]) -> Table:
        made.append(Table(tmp_path / "t", schema_of(columns, clause), rows))
        return made[-1]

    yield table
    for each in made:
        each.engine.close()


@pytest.mark.parametrize(
    ("kind", "clause", "gone"),
    [
        ("DATE", "RANGE COLUMNS (`day`) (PARTITION a VALUES LESS THAN ('2000-01-01'),", (None,)),
        ("DATE", "RANGE COLUMNS (`day`) (PARTITION a VALUES LESS THAN ('0000-00-00'),", ()),
        (
            "DATETIME",
            "RANGE COLUMNS (`day`) (PARTITION a VALUES LESS THAN ('2000-01-01'),",
            (None,),
        ),
        ("DATE", "RANGE (YEAR(`day`)) (PARTITION a VALUES LESS THAN (0),", ()),
        ("DATE", "RANGE (YEAR(`day`)) (PARTITION a VALUES LESS THAN (1),", (None,)),
        ("DATE", "RANGE (TO_DAYS(`day`)) (PARTITION a VALUES LESS THAN (100),", (None,)),
    ],
)
def test_null_in_a_key_is_a_zero_date(
    make: Callable[..., Table], kind: str, clause: str, gone: tuple[None, ...]
) -> None:
    day: Any = date(2025, 1, 2) if kind == "DATE" else datetime(2025, 1, 2)  # noqa: DTZ001
    rows = [{"id": n, "day": each} for n in range(9) for each in (None, day)]
    clause += "PARTITION b VALUES LESS THAN (MAXVALUE))"
    table = make(f"id INT, day {kind} NOT NULL, PRIMARY KEY (id, day)", clause, rows)
    table.run("ALTER TABLE t TRUNCATE PARTITION a")
    table.expect_without(lambda row: row["day"] in gone)


def test_null_in_a_list_of_days_is_the_zero_date(make: Callable[..., Table]) -> None:
    rows = [{"id": n, "day": each} for n in range(9) for each in (None, date(2025, 1, 2))]
    clause = "LIST COLUMNS (`day`) (PARTITION a VALUES IN ('0000-00-00'),"
    clause += "PARTITION b VALUES IN ('2025-01-02'))"
    table = make("id INT, day DATE NOT NULL, PRIMARY KEY (id, day)", clause, rows)
    table.run("ALTER TABLE t TRUNCATE PARTITION a")
    table.expect_without(lambda row: row["day"] is None)


def test_null_for_a_date_that_delta_has_not_is_in_no_known_partition(
    make: Callable[..., Table],
) -> None:
    rows = [{"id": n, "day": date(2025, 1, 2) if n % 2 else None} for n in range(9)]
    clause = "RANGE COLUMNS (`day`) (PARTITION a VALUES LESS THAN (MAXVALUE))"
    table = make("id INT PRIMARY KEY, day DATE", clause, rows)
    ddl = DdlIdentity(commit_ts=1000, order=0, query="")
    order = table_ddl(target=table.target, ddl=ddl, partitions=("a",))
    with pytest.raises(TidelakeError, match="their partition is not known"):
        table.engine.alter(replace(order, null_dates=frozenset({"day"})))
    table.engine.alter(order)
    table.expect_without(lambda _: True)
