"""Target tables: built once, copied for every run, checked afterwards.

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

from tests.benchmarks.rows import FIRST_KEY, FIRST_VER, SCHEMA, Cells
from tests.benchmarks.workload import DEAD

ROWS_PER_FILE = 300_000  # 22 MB: an initial load leaves files of 16 to 30 MB, sorted by key
WHOLE_ROWS = 10_000_000  # of a table up to this size every cell is compared
WHOLE_EACH = 64
_CHECKED_BATCH = 200_000
_TABLE = "t"
_VERSIONS = pa.schema([SCHEMA.field("id"), SCHEMA.field("ver")])


class TablesDiffer(AssertionError):
    """A contender's table is not what the changes lead to."""


def append_base(path: Path, base_rows: int) -> None:
    """Rows 1 … base_rows at version 0, by key, in files of ROWS_PER_FILE; a new table if needed."""
    for first in range(1, base_rows + 1, ROWS_PER_FILE):
        ids = np.arange(first, min(first + ROWS_PER_FILE, base_rows + 1), dtype=np.int64)
        rows = Cells(ids, np.zeros(len(ids), dtype=np.int32)).arrow()
        write_deltalake(str(path), rows, mode="append")


def copy_warehouse(source: Path, target: Path) -> None:
    """Data files are linked, everything else is copied."""
    shutil.copytree(source, target, copy_function=_link_data)


def _link_data(source: str, target: str) -> None:
    if source.endswith(".parquet") and "/_delta_log/" not in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def check(path: Path, state: np.ndarray, base_rows: int) -> None:
    """Raise TablesDiffer unless the table holds exactly the rows of ``state``.

    Keys and versions are compared in every row; all cells in every row that is new or was
    updated, and of a large table in one of WHOLE_EACH of the others.
    """
    seen = np.zeros(len(state), dtype=np.int8)
    for batch in _read(path, f'SELECT "id", "ver" FROM {_TABLE}', _VERSIONS):
        ids = _index(path, batch, state)
        if (batch.column("ver").to_numpy() - FIRST_VER != state[ids]).any():
            raise TablesDiffer(f"{path.name}: {_wrong_version(ids, batch, state)}")
        np.add.at(seen, ids, 1)
    alive = state >= 0
    if (seen != alive).any():
        n = int(np.flatnonzero(seen != alive)[0])
        raise TablesDiffer(
            f"{path.name}: {int(seen.sum())} rows, {int(alive.sum())} expected; key {n} is there "
            f"{int(seen[n])} times"
        )
    names = ", ".join(f'"{name}"' for name in SCHEMA.names)
    where = f'"ver" > {FIRST_VER} OR "id" > {FIRST_KEY + base_rows} OR "id" % {WHOLE_EACH} = 7'
    query = f"SELECT {names} FROM {_TABLE}"
    whole = base_rows <= WHOLE_ROWS
    for batch in _read(path, query if whole else f"{query} WHERE {where}", SCHEMA):
        ids = _index(path, batch, state)
        expected = Cells(ids, state[ids]).arrow()
        if not batch.equals(expected):
            raise TablesDiffer(f"{path.name}: {_first_difference(batch, expected)}")


def _index(path: Path, batch: pa.Table, state: np.ndarray) -> np.ndarray:
    ids = batch.column("id").to_numpy() - FIRST_KEY
    if ids.min(initial=1) < 1 or ids.max(initial=1) >= len(state):
        raise TablesDiffer(f"{path.name}: keys outside 1 … {len(state) - 1}")
    return ids


def _read(path: Path, query: str, schema: pa.Schema) -> Iterator[pa.Table]:
    """What is selected, in the schema's types, in batches of no particular order."""
    reader = QueryBuilder().register(_TABLE, DeltaTable(str(path))).execute(query)
    waiting: list[pa.RecordBatch] = []
    for batch in pa.RecordBatchReader.from_stream(reader):
        waiting.append(batch)
        if sum(map(len, waiting)) >= _CHECKED_BATCH:
            yield _as_schema(waiting, schema)
            waiting = []
    if waiting:
        yield _as_schema(waiting, schema)


def _as_schema(waiting: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    table = pa.Table.from_batches(waiting)
    return pa.Table.from_arrays(
        [pc.cast(table.column(f.name), f.type).combine_chunks() for f in schema], schema=schema
    )


def _wrong_version(ids: np.ndarray, batch: pa.Table, state: np.ndarray) -> str:
    vers = batch.column("ver").to_numpy() - FIRST_VER
    n = int(np.flatnonzero(vers != state[ids])[0])
    wanted = "must be gone" if state[ids[n]] == DEAD else f"must be at {state[ids[n]]}"
    return f"key {ids[n]} is at version {vers[n]}, {wanted}"


def _first_difference(batch: pa.Table, expected: pa.Table) -> str:
    for name in SCHEMA.names:
        same = pc.fill_null(pc.equal(batch.column(name), expected.column(name)), False).to_numpy()
        if not same.all():
            n = int(np.flatnonzero(~same)[0])
            return (
                f"{name}: {batch.slice(n, 1).to_pylist()}, not {expected.slice(n, 1).to_pylist()}"
            )
    return "no column differs alone"
