"""The answer of a comparison, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coordination.model import TableName

Cell = Any  # a value as Arrow gives it to Python
Kind = Literal["missing", "extra", "changed", "unfit", "several", "counted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFinding:
    """A row that is not equal. ``missing``: the database alone has it; ``extra``: the table alone;
    ``unfit``: the database's row has a value that the table's type cannot hold; ``several``: one
    side has more than one with this key; ``counted``: one side has it more often, where rows are
    counted. ``cells``: the columns that differ, with the value of the
    table and of the database. ``is_settled``: it is no change on its way."""

    key: Mapping[str, Cell]
    kind: Kind
    cells: Mapping[str, tuple[Cell, Cell]] = field(default_factory=dict)
    is_settled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFinding:
    """One table. ``differing`` rows are not equal for certain. ``open_rows``: they differ too, but
    may be changes on their way: the table has not passed their reading, or they change again and
    again. ``repeats``: rows of the database that equal another one, where the target is a set.
    ``not_asked``: differing rows beyond those that are asked again. ``rows`` are the first
    of all these. ``other_rows`` of the target are of upstream tables that it has no more: they were
    not compared. ``problem``: why the table cannot be compared; then nothing else is known."""

    name: TableName
    version: int | None = None  # the table's, as it was read last
    lake_rows: int = 0
    database_rows: int = 0
    other_rows: int = 0
    repeats: int = 0
    differing: int = 0
    open_rows: int = 0
    not_asked: int = 0
    rows: tuple[RowFinding, ...] = ()
    columns: tuple[str, ...] = ()  # sentences on columns that cannot be compared
    not_here: tuple[str, ...] = ()  # columns that the target is not to have
    problem: str | None = None

    @property
    def is_equal(self) -> bool:
        return self.problem is None and not (
            self.differing or self.open_rows or self.not_asked or self.columns
        )

    @property
    def result(self) -> str:
        """A few words."""
        if self.problem is not None:
            return "not compared"
        if self.is_equal:
            return "equal as a set" if self.repeats else "equal"
        return "differs" if self.differing or self.columns else "not settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """The content that `diff` shows. ``tables`` are in the order of their names. ``snapshot_ts``:
    as of which both sides were read; None: they went on."""

    tables: tuple[TableFinding, ...]
    snapshot_ts: int | None = None

    @property
    def is_equal(self) -> bool:
        return all(each.is_equal for each in self.tables)

    @property
    def differing(self) -> int:
        """How many tables were compared and are not equal."""
        return sum(each.problem is None and not each.is_equal for each in self.tables)

    def to_json(self) -> dict[str, Any]:
        tables = [_as_json(each) for each in self.tables]
        return {"equal": self.is_equal, "snapshot_ts": self.snapshot_ts, "tables": tables}


def _as_json(table: TableFinding) -> dict[str, Any]:
    return {
        "table": str(table.name),
        "result": table.result,
        "version": table.version,
        "lake_rows": table.lake_rows,
        "database_rows": table.database_rows,
        "rows_of_dropped_tables": table.other_rows,
        "repeats": table.repeats,
        "differing": table.differing,
        "not_settled": table.open_rows,
        "not_asked_again": table.not_asked,
        "columns": list(table.columns),
        "columns_not_compared": list(table.not_here),
        "problem": table.problem,
        "rows": [
            {
                "kind": row.kind,
                "is_settled": row.is_settled,
                "key": {name: shown(value) for name, value in row.key.items()},
                "cells": {
                    name: {"table": shown(ours), "database": shown(theirs)}
                    for name, (ours, theirs) in row.cells.items()
                },
            }
            for row in table.rows
        ],
    }


def shown(value: Cell) -> str | None:
    """A value as a text: bytes in hexadecimal."""
    if value is None:
        return None
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
