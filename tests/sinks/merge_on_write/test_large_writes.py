"""One write of more text than an Arrow array can hold: a transaction has no bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.files.sorted_files import gathered
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import DELETE, OP_COLUMN, UPSERT, Applied, TableWrite, Target
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema

CHUNK_ROWS, TEXT_BYTES = 1_000, 100_000
CHUNKS = 25  # of 100 MB, which are one in memory: an array of text ends at 2 GiB
ROWS = CHUNKS * CHUNK_ROWS


def new_table(path: Path) -> Target:
    schema = TableSchema(
        columns=(
            Column(name="id", type=MySQLType.parse("bigint")),
            Column(name="v", type=MySQLType.parse("mediumtext")),
        ),
        key=("id",),
    )
    target = Target(name=TableName("shop", "t"), uri=str(path), schema=schema, app_id="large")
    made = DdlIdentity(commit_ts=Ts(1), order=0, query="CREATE TABLE shop.t")
    create(target, properties=ownership(changefeed_id="c", incarnation=1, ddl=made))
    return target


def texts() -> pa.ChunkedArray:
    text = pa.array([f"{number:04}".ljust(TEXT_BYTES, ".") for number in range(CHUNK_ROWS)])
    return pa.chunked_array([text] * CHUNKS)


def test_rows_aregathered_from_more_text_than_an_array_holds() -> None:
    rows = pa.table({"id": pa.chunked_array([pa.array(range(ROWS))]), "v": texts()})
    for at in ([ROWS - 1, 0, 12_345, 12_344, 5], [3, 999, 1_000, 24_999]):
        found = gathered(rows, np.array(at), rows.nbytes)
        assert found["id"].to_pylist() == at
        assert [v.as_py()[:5] for v in found["v"]] == [f"{each % CHUNK_ROWS:04}." for each in at]


@pytest.mark.soak  # gigabytes are compressed
def test_more_than_2_gib_of_text_are_one_commit(tmp_path: Path) -> None:
    """Keys in no order, every tenth row a DELETE."""
    target = new_table(tmp_path / "t")
    ids = np.random.default_rng(1).permutation(ROWS)
    ops = np.where(ids % 10 == 0, DELETE, UPSERT)
    changes = pa.table({
        "id": pa.chunked_array(np.split(ids, CHUNKS)),
        "v": texts(),
        OP_COLUMN: pa.chunked_array([pa.array(part) for part in np.split(ops, CHUNKS)]),
    })  # fmt: skip
    engine = MergeOnWriteEngine({}, keeps_up=False)

    applied = engine.apply(
        TableWrite(
            target=target,
            checkpoint=Ts(0),
            limit=Ts(9),
            changes=changes,
            user_metadata="{}",
            before_commit=lambda: None,
        )
    )

    engine.close()
    assert applied == Applied(1)
    found: dict[int, str] = {}
    for path in DeltaTable(target.uri).file_uris():
        before = len(found)
        for batch in pq.ParquetFile(path).iter_batches(512):
            texts_here = batch.column(1).to_pylist()
            assert {len(text) for text in texts_here} == {TEXT_BYTES}
            heads = (text[:5] for text in texts_here)
            found.update(zip(batch.column(0).to_pylist(), heads, strict=True))
        here = list(found)[before:]
        assert here == sorted(here)
    wanted = {int(id_): f"{at % CHUNK_ROWS:04}." for at, id_ in enumerate(ids) if id_ % 10}
    assert found == wanted
