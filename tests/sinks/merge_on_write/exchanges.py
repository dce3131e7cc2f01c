"""Two tables that exchange rows: one of partitions, and one with which they change places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from coordination.model import Ts
from sinks.ddl.effects import CreateTable
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.exchange_partition import PartitionExchange, exchange
from sinks.target.engine_port import Target
from sinks.target.table_properties import DdlIdentity
from sinks.types.table_schema import TableSchema
from sinks.types.text_arrays import CastRules
from tests.sinks.merge_on_write.alter.test_partition_rows import Row, Table, schema_of, target_at

C = 1000
COLUMNS = "id INT, v INT, PRIMARY KEY (id)"
RANGES = "RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)"
RULES = CastRules(time_zone="UTC", zero_date="null")


def plain(columns: str = COLUMNS) -> TableSchema:
    (made,) = read_ddl(f"CREATE TABLE `t` ({columns})", "CREATE", "shop", "t").effects
    assert isinstance(made, CreateTable)
    return made.schema


def numbered(*ids: int) -> list[Row]:
    return [{"id": n, "v": n} for n in ids]


def exchange_order(
    parts: Target, table: Target, partition: str = "p1", ts: int = C, **options: Any
) -> PartitionExchange:
    return PartitionExchange(
        partitioned=parts,
        partition=partition,
        table=table,
        ddl=DdlIdentity(commit_ts=Ts(ts), order=0, query="ALTER TABLE … EXCHANGE …"),
        rules=RULES,
        **options,
    )


class Pair:
    """A table of partitions, and one with which they change rows."""

    def __init__(
        self,
        folder: Path,
        clause: str = RANGES,
        *,
        rows: list[Row] | None = None,
        more: list[Row] | None = None,
        columns: str = COLUMNS,
        other: str = COLUMNS,
    ) -> None:
        self.folder = folder
        rows = numbered(*range(20)) if rows is None else rows
        self.partitioned = Table(folder / "parts", schema_of(columns, clause), rows)
        more = numbered(*range(100, 130)) if more is None else more
        self.table = Table(folder / "plain", plain(other), more)
        self.partitioned.ts = self.table.ts = C - 1

    def order(self, partition: str = "p1", ts: int = C, **options: Any) -> PartitionExchange:
        return exchange_order(self.partitioned.target, self.table.target, partition, ts, **options)

    @property
    def rows(self) -> list[dict[Any, Row]]:
        return [self.partitioned.rows, self.table.rows]

    def move(self, folder: str) -> None:
        """To look at a copy of both."""
        self.partitioned.uri, self.table.uri = f"{folder}/parts", f"{folder}/plain"

    def expect(self, is_inside: Callable[[Row], bool]) -> None:
        """What the model has in the partition and in the table changes places."""
        parts, table = self.partitioned.rows, self.table.rows
        inside = {key: row for key, row in parts.items() if is_inside(row)}
        outside = {key: row for key, row in parts.items() if key not in inside}
        self.partitioned.rows, self.table.rows = {**outside, **table}, inside

    def check(self) -> None:
        assert (self.partitioned.read(), self.table.read()) == (
            self.partitioned.rows,
            self.table.rows,
        )

    def put(self, ts: int = C) -> None:
        """Rows above the DDL, to both."""
        for each, key in ((self.partitioned, 150), (self.table, 12)):
            each.ts = ts
            row = {"id": key, "v": -ts}
            each.write([row], "U")
            each.rows[key,] = row

    def versions(self) -> list[int]:
        return [DeltaTable(each.uri).version() for each in (self.partitioned, self.table)]

    def close(self) -> None:
        self.partitioned.engine.close()
        self.table.engine.close()


def exchanged(folder: str) -> None:
    """By an engine of its own, of tables that were made as `Pair` makes them."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    parts = target_at(f"{folder}/parts", schema_of(COLUMNS, RANGES))
    exchange(engine, exchange_order(parts, target_at(f"{folder}/plain", plain())))
    engine.close()
