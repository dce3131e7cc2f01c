"""What the benchmark of commits writes: tables of any size and key, and batches upon them.

A row's content is a pure function of ``(id, ver)``, and a table's digest is a sum over its rows: so
the digest that a table must have after each batch is known without keeping a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.sorted_files import write_sorted
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, TableWrite, Target
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.types.key_hash import keys_of
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.benchmarks.rows import MYSQL_TYPES, Cells, mix, strings_of
from tests.benchmarks.targets import TablesDiffer
from tests.benchmarks.workload import DEAD

KEYS = {"integer": ("id",), "text": ("k",), "composite": ("cust", "id")}
INSERT_SHARE, DELETE_SHARE = 0.40, 0.05  # and the rest are updates
RECENT_SHARE, RECENT_PART = 0.9, 0.1  # 90 % of updates and deletes on the newest 10 % of rows
FILE_ROWS = 1_000_000
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_DASHES = (8, 13, 18, 23)
_NAME = TableName("bench", "t")
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class Digest:
    """Of a table's rows in no order: their number, and the sum of their 128-bit hashes."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def plus(self, other: Digest, times: int = 1) -> Digest:
        return Digest(
            self.rows + times * other.rows,
            (self.first + times * other.first) % _WORD,
            (self.second + times * other.second) % _WORD,
        )

    @classmethod
    def of(cls, rows: pa.Table) -> Digest:
        if not rows.num_rows:
            return cls()
        keys = keys_of([rows[name].combine_chunks() for name in rows.column_names])
        assert keys.second is not None
        return cls(len(keys), int(keys.first.sum()) % _WORD, int(keys.second.sum()) % _WORD)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes with ``OP_COLUMN``, unique per key, and what the table is afterwards."""

    number: int
    changes: pa.Table
    after: Digest


def schema_of(key: str) -> TableSchema:
    types = {**({"k": "varchar(36)"} if key == "text" else {}), **MYSQL_TYPES}
    columns = (Column(name=name, type=MySQLType.parse(text)) for name, text in types.items())
    return TableSchema(columns=tuple(columns), key=KEYS[key])


def rows(key: str, ids: np.ndarray, vers: np.ndarray) -> pa.Table:
    """The rows with these ids and versions, in the table's column order."""
    table = Cells(ids, vers).arrow()
    return table.add_column(0, "k", _uuids(ids)) if key == "text" else table


def _uuids(ids: np.ndarray) -> pa.Array:
    """Text like a random UUID, a function of the id."""
    words = np.stack([mix(ids, 101), mix(ids, 202)], axis=1)
    data = words.view(np.uint8).reshape(len(ids), 16)
    letters = np.empty((len(ids), 32), np.uint8)
    letters[:, 0::2], letters[:, 1::2] = _HEX[data >> 4], _HEX[data & 15]
    text = np.full((len(ids), 36), ord("-"), np.uint8)
    text[:, [at for at in range(36) if at not in _DASHES]] = letters
    return strings_of(text.view("S36")[:, 0])


def target_at(path: Path, key: str) -> Target:
    return Target(name=_NAME, uri=str(path), schema=schema_of(key), app_id="bench")


def make_base(path: Path, key: str, count: int) -> Digest:
    """A table as the program makes it, with rows 1 … count in files of a million."""
    target = target_at(path, key)
    made = DdlIdentity(commit_ts=Ts(1), order=0, query="CREATE TABLE bench.t")
    create(
        target,
        properties=ownership(changefeed_id="bench", incarnation=1, ddl=made),
    )
    engine = MergeOnWriteEngine({}, keeps_up=False)
    table = engine.table(target.uri)
    digest = Digest()
    with table.lock:
        for first in range(1, count + 1, FILE_ROWS):
            ids = np.arange(first, min(first + FILE_ROWS, count + 1), dtype=np.int64)
            here = rows(key, ids, np.zeros(len(ids), dtype=np.int32))
            digest = digest.plus(Digest.of(here))
            table.refresh()
            physical = data_files.physical_rows(here, table.shape)
            new = write_sorted(table.storage, physical, KEYS[key], table.shape)
            actions = [each.file.add(data_change=True) for each in new]
            table.commit(table.state.version, actions, operation="WRITE", user_metadata="{}")
    engine.close()
    return digest


def batches(
    key: str, base: int, digest: Digest, *, changes: int, recent: bool, count: int
) -> Iterator[Batch]:
    """One after the other over a base of so many rows; the same ones for the same arguments."""
    rng = np.random.default_rng([base, changes, recent])
    vers = np.full(base + 1 + count * changes, DEAD, dtype=np.int32)
    vers[1 : base + 1] = 0
    highest = base
    inserts, deletes = int(changes * INSERT_SHARE), int(changes * DELETE_SHARE)
    for number in range(1, count + 1):
        ids = _some_alive(rng, vers, highest, changes - inserts, recent)
        gone, updated = ids[:deletes], ids[deletes:]
        added = np.arange(highest + 1, highest + 1 + inserts, dtype=np.int64)
        highest += inserts
        digest = digest.plus(Digest.of(rows(key, ids, vers[ids])), -1)
        deleted = rows(key, gone, vers[gone])
        vers[gone] = DEAD
        written = np.concatenate([updated, added])
        rng.shuffle(written)
        vers[written] += 1
        upserted = rows(key, written, vers[written])
        digest = digest.plus(Digest.of(upserted))
        yield Batch(number, pa.concat_tables([_with(upserted, "U"), _with(deleted, "D")]), digest)


def check_digest(path: Path, key: str, wanted: Digest) -> None:
    """Raise TablesDiffer unless the table holds these rows."""
    found = digest_of(path, key)
    if found != wanted:
        raise TablesDiffer(f"{found}, not {wanted}")


def _some_alive(
    rng: np.random.Generator, vers: np.ndarray, highest: int, count: int, recent: bool
) -> np.ndarray:
    """Different ids of rows that are there, in no order."""
    found = np.empty(0, np.int64)
    while len(found) < count:
        more = rng.integers(1, highest + 1, 2 * count)
        if recent:
            near = highest - rng.integers(0, max(int(highest * RECENT_PART), 1), 2 * count)
            more = np.where(rng.random(2 * count) < RECENT_SHARE, near, more)
        found = np.union1d(found, more[vers[more] != DEAD])
    rng.shuffle(found)
    return found[:count]


def _with(table: pa.Table, operation: str) -> pa.Table:
    return table.append_column(OP_COLUMN, pa.array([operation] * table.num_rows, pa.string()))


def write_of(target: Target, batch: Batch, changes: object) -> TableWrite:
    return TableWrite(
        target=target,
        checkpoint=Ts(batch.number - 1),
        limit=Ts(batch.number),
        changes=changes,
        user_metadata="{}",
        before_commit=lambda: None,
    )


def digest_of(path: Path, key: str) -> Digest:
    """Of the table as delta-rs reads it, over all columns."""
    kinds = rows(key, np.ones(1, np.int64), np.zeros(1, np.int32)).schema
    listed = ", ".join(f'"{name}"' for name in kinds.names)
    reader = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"SELECT {listed} FROM t")
    found = Digest()
    for batch in pa.RecordBatchReader.from_stream(reader):
        table = pa.Table.from_batches([batch])
        arrays = [pc.cast(table[field.name], field.type) for field in kinds]
        found = found.plus(Digest.of(pa.Table.from_arrays(arrays, schema=kinds)))
    return found
