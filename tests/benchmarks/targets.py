"""Target tables: built once, copied for every run, checked cell by cell afterwards.

A run must not see what another did, and 10 M rows are not worth writing again: Parquet files
never change, so a copy links them and copies the log alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tests.benchmarks.workload import DEAD, SCHEMA, rows

ROWS_PER_FILE = 300_000  # 22 MB: an initial load leaves files of 16 to 30 MB, sorted by key
_CHECKED_BATCH = 200_000


class TablesDiffer(AssertionError):
    """A contender's table is not what the changes lead to."""


def append_base(path: Path, base_rows: int) -> None:
    """Rows 1 … base_rows at version 0, by key, in files of ROWS_PER_FILE; a new table if needed."""
    for first in range(1, base_rows + 1, ROWS_PER_FILE):
        ids = np.arange(first, min(first + ROWS_PER_FILE, base_rows + 1), dtype=np.int64)
        write_deltalake(str(path), rows(ids, np.zeros(len(ids), dtype=np.int32)), mode="append")


def copy_warehouse(source: Path, target: Path) -> None:
    """Data files are linked, everything else is copied."""
    shutil.copytree(source, target, copy_function=_link_data)


def _link_data(source: str, target: str) -> None:
    if source.endswith(".parquet") and "/_delta_log/" not in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def check(path: Path, state: np.ndarray) -> None:
    """Raise TablesDiffer unless the table holds exactly the rows of ``state``, in every cell."""
    seen = np.zeros(len(state), dtype=bool)
    count = 0
    for batch in _read(path):
        ids = batch.column("id").to_numpy()
        if ids.min(initial=1) < 1 or ids.max(initial=1) >= len(state):
            raise TablesDiffer(f"{path.name}: keys outside 1 … {len(state) - 1}")
        expected = rows(ids, np.maximum(state[ids], 0))
        if (state[ids] == DEAD).any() or not batch.equals(expected):
            raise TablesDiffer(f"{path.name}: {_first_difference(batch, expected, state)}")
        seen[ids] = True
        count += len(ids)
    alive = state >= 0
    if count != int(alive.sum()) or (seen != alive).any():
        raise TablesDiffer(f"{path.name}: {count} rows, {int(alive.sum())} expected")


def _read(path: Path) -> Iterator[pa.Table]:
    """The table's rows in SCHEMA's types, in batches of no particular order."""
    names = ", ".join(f'"{name}"' for name in SCHEMA.names)
    reader = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"SELECT {names} FROM t")
    waiting: list[pa.RecordBatch] = []
    for batch in pa.RecordBatchReader.from_stream(reader):
        waiting.append(batch)
        if sum(map(len, waiting)) >= _CHECKED_BATCH:
            yield _as_schema(waiting)
            waiting = []
    if waiting:
        yield _as_schema(waiting)


def _as_schema(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return pa.Table.from_arrays(
        [pc.cast(table.column(f.name), f.type).combine_chunks() for f in SCHEMA], schema=SCHEMA
    )


def _first_difference(batch: pa.Table, expected: pa.Table, state: np.ndarray) -> str:
    dead = state[batch.column("id").to_numpy()] == DEAD
    if dead.any():
        return f"row that must be gone: {batch.slice(int(np.flatnonzero(dead)[0]), 1).to_pylist()}"
    for name in SCHEMA.names:
        same = pc.fill_null(pc.equal(batch.column(name), expected.column(name)), False).to_numpy()
        if not same.all():
            n = int(np.flatnonzero(~same)[0])
            return (
                f"{name}: {batch.slice(n, 1).to_pylist()}, not {expected.slice(n, 1).to_pylist()}"
            )
    return "no column differs alone"
