"""A checkpoint says what the state says, to us and to delta-rs, with all commits before it gone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyroaring import BitMap64

from sinks.merge_on_write.log.actions import AppTransaction, DeletionVectorDescriptor
from sinks.merge_on_write.log.checkpoint_reader import stats_text
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.deletion_vector import vector_files
from sinks.merge_on_write.log.paths import LAST_CHECKPOINT, checkpoint_path, commit_path
from sinks.merge_on_write.log.reader import LogMoved, read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.local_storage import LocalStorage
from sinks.storage.table_storage import TableStorage
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.log_tables import (
    DAY_MS,
    add_files,
    assert_as_read,
    assert_same,
    data_file,
    make,
    now_ms,
    put,
    touch,
    write_history,
)


def checkpoint(storage: TableStorage, state: LogState) -> None:
    """And nothing before it."""
    assert write_checkpoint(storage, state, now_ms=0)
    storage.delete(commit_path(version) for version in range(state.version))


@pytest.mark.seeds(12)
def test_a_checkpoint_is_read_as_the_replay(local: LocalStorage, seed: int):
    state = write_history(local, seed=seed, commits=40)
    checkpoint(local, state)
    found = read_log(local)
    assert_same(found, state)
    assert found is not None
    for key, each in state.tombstones.items():
        back = found.tombstones[key]
        assert back.deletion_timestamp_ms == each.deletion_timestamp_ms
        assert back.deletion_vector == each.deletion_vector
        assert back.fields["size"] == each.fields["size"]
        assert back.fields["extendedFileMetadata"] is True
    delta_rs = DeltaTable(local.uri)
    assert delta_rs.version() == state.version
    assert state.metadata is not None
    assert delta_rs.metadata().configuration == state.metadata.configuration
    for app_id, each in state.transactions.items():
        assert delta_rs.transaction_version(app_id) == each.version


def test_it_goes_on_from_there(storage: TableStorage):
    state = make(storage)
    for number in range(3):
        add_files(storage, state, f"{number}.parquet")
    checkpoint(storage, state)
    found = read_log(storage)
    assert found is not None
    add_files(storage, found, "more.parquet")
    assert_as_read(storage, found)
    assert set(found.files) == {"0.parquet", "1.parquet", "2.parquet", "more.parquet"}


def test_rows_of_tables_with_vectors_are_the_same_to_delta_rs(tmp_path: Path):
    local = real_table(tmp_path)
    state = read_log(local)
    assert state is not None
    checkpoint(local, state)
    table = DeltaTable(local.uri)
    (vector,) = pa.table(table.deletion_vectors()).to_pylist()
    assert vector["selection_vector"] == [False, True, False, True]
    (row,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert row["num_records"] == 4
    assert table.transaction_version("app") == 7
    assert read_rows_sorted(table) == [1, 3]


def read_rows_sorted(table: DeltaTable) -> list[int]:
    batches = QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
    return sorted(pa.table(batches)["id"].to_pylist())


def real_table(tmp_path: Path) -> LocalStorage:
    """One file of four rows, of which two are deleted."""
    local = LocalStorage(tmp_path / "table")
    state = make(local)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array(range(4), pa.int64())}), sink)
    content = sink.getvalue()
    local.write("part.parquet", content)
    stats = '{"numRecords":4,"minValues":{"id":0},"maxValues":{"id":3},"nullCount":{"id":0}}'
    put(
        local,
        state,
        [data_file("part.parquet", size=content.size, stats=stats).add(data_change=True)],
    )
    ((path, body, (descriptor,)),) = vector_files([BitMap64([0, 2])])
    local.write(path, body)
    app = AppTransaction(app_id="app", version=7).to_json()
    put(local, state, [app, *touch(state, "part.parquet", descriptor, now_ms())])
    return local


def test_delta_rs_goes_on_from_our_checkpoint(local: LocalStorage):
    write_deltalake(local.uri, pa.table({"id": [1]}))
    state = read_log(local)
    assert state is not None
    checkpoint(local, state)
    for number in range(3):
        write_deltalake(local.uri, pa.table({"id": [number]}), mode="append")
    DeltaTable(local.uri).create_checkpoint()
    found = read_log(local)
    assert found is not None
    assert (found.version, len(found.files)) == (3, 4)
    local.delete(commit_path(version) for version in range(3))
    assert_as_read(local, found)


@pytest.mark.parametrize("v2", [False, True])
def test_checkpoints_of_delta_rs_are_read(local: LocalStorage, v2: bool):
    features = {"delta.checkpointPolicy": "v2"} if v2 else {}
    write_deltalake(
        local.uri,
        pa.table({"id": [1, 2], "p": ["x", "y"]}),
        partition_by=["p"],
        configuration={**features, "delta.checkpoint.writeStatsAsStruct": "true"},
    )
    DeltaTable(local.uri).delete("id = 2")
    before = read_log(local)
    assert before is not None
    DeltaTable(local.uri).create_checkpoint()
    local.delete(commit_path(version) for version in range(before.version))
    assert_as_read(local, before)
    (live,) = before.files.values()
    assert live.fields["partitionValues"] == {"p": "x"}


def test_expired_tombstones_are_left_out(local: LocalStorage):
    state = make(local, delta_deletedFileRetentionDuration="interval 1 day")
    add_files(local, state, "a", "b")
    at_ms = now_ms()
    removes = [
        state.files["a"].remove(at_ms - 2 * DAY_MS, data_change=True),
        state.files["b"].remove(at_ms, data_change=True),
    ]
    put(local, state, removes)
    write_checkpoint(local, state, now_ms=at_ms)
    found = read_log(local)
    assert found is not None
    assert list(found.tombstones) == [("b", None)]
    assert len(state.tombstones) == 2  # who cleans up still needs it


def test_the_hint_leads_to_it(local: LocalStorage):
    state = make(local)
    add_files(local, state, "a", "b")
    assert write_checkpoint(local, state, now_ms=0)
    hint = json.loads(local.read(LAST_CHECKPOINT))
    size = local.size(checkpoint_path(1))
    assert hint == {"version": 1, "size": 5, "sizeInBytes": size, "numOfAddFiles": 2}


def test_one_that_is_there_already_stays(local: LocalStorage):
    state = make(local)
    assert write_checkpoint(local, state, now_ms=0)
    before = local.read(checkpoint_path(0))
    assert not write_checkpoint(local, state, now_ms=0)
    assert local.read(checkpoint_path(0)) == before


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_of_a_table_that_was_made_again_there_is_none(local: LocalStorage, when: str):
    """Its version would be newer than all of the new table's log."""
    faulty = FaultyStorage(local)
    state = make(faulty)
    add_files(faulty, state, "old")

    def again(_path: str) -> None:
        local.delete([each.path for each in local.list("")])
        make(local)

    if when == "before":
        again("")
    else:
        faulty.before = once(again)
    with pytest.raises(LogMoved):
        write_checkpoint(faulty, state, now_ms=0)
    assert (checkpoint_path(1) in faulty.creates) == (when == "meanwhile")
    found = read_log(local)
    assert found is not None
    assert (found.version, found.files) == (0, {})


def test_vectors_of_all_kinds_are_kept(local: LocalStorage):
    state = make(local)
    vectors = {
        "none": None,
        "inline": DeletionVectorDescriptor(
            storage_type="i", path_or_inline="abc", offset=None, size_in_bytes=3, cardinality=1
        ),
        "absolute": DeletionVectorDescriptor(
            storage_type="p",
            path_or_inline="s3://x/y.bin",
            offset=0,
            size_in_bytes=3,
            cardinality=1,
        ),
    }
    files = [
        data_file(name, deletionVector=each and each.to_json()) for name, each in vectors.items()
    ]
    put(local, state, [each.add(data_change=True) for each in files])
    checkpoint(local, state)
    found = read_log(local)
    assert found is not None
    assert {path: each.deletion_vector for path, each in found.files.items()} == vectors


def test_an_empty_table_has_one_too(local: LocalStorage):
    state = make(local)
    checkpoint(local, state)
    assert_as_read(local, state)
    assert DeltaTable(local.uri).file_uris() == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (-7, "-7"),
        (2**63 - 1, "9223372036854775807"),
        (0.1, "0.1"),
        (float("nan"), None),
        (float("-inf"), None),
        ('a"b\u00e9', '"a\\"b\u00e9"'),
        (b"bytes", None),
        (None, None),
        (pa.scalar("0.10", pa.string()).cast(pa.decimal128(38, 2)).as_py(), "0.10"),
        (
            pa.scalar("12345678901234567890123456789012345678").cast(pa.decimal128(38, 0)).as_py(),
            "12345678901234567890123456789012345678",
        ),
        (pa.scalar(19_000, pa.date32()).as_py(), '"2022-01-08"'),
        (pa.scalar(1_001, pa.timestamp("us", "UTC")).as_py(), '"1970-01-01T00:00:00.001001Z"'),
        (pa.scalar(-1, pa.timestamp("us")).as_py(), '"1969-12-31T23:59:59.999999"'),
    ],
)
def test_a_bound_is_written_exactly_or_not_at_all(value: object, text: str | None):
    parsed = {"numRecords": 3, "minValues": {"a": value, "deep": {"b": value}}, "maxValues": None}
    bounds = "" if text is None else f',"minValues":{{"a":{text},"deep":{{"b":{text}}}}}'
    assert stats_text(parsed) == f'{{"numRecords":3{bounds}}}'


def test_no_statistics_are_no_text():
    assert stats_text(None) is None
    assert stats_text({"numRecords": None, "minValues": {"a": None}}) is None
