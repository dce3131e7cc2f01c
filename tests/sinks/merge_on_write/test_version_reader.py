"""Any version of a table, read without Spark as it was: rows, columns and names of that moment."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from coordination.errors import TidelakeError
from sinks.merge_on_write.alter import ddl_commit
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.paths import commit_path
from sinks.merge_on_write.log.reader import VersionGone, read_log
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.merge_on_write.version_reader import TableVersion, open_version
from sinks.storage.local_storage import LocalStorage
from tests.sinks.merge_on_write.altering import AlteredHistory
from tests.sinks.merge_on_write.ddls import ADD_FILLED, action, ddl, set_property
from tests.sinks.merge_on_write.orders import UPSERTED, rows_of, write

LATER_MS = 10**10


def opened(uri: str, version: int) -> TableVersion:
    return open_version(uri, version, {})


def rows_at(uri: str, version: int) -> dict[int, str]:
    found = opened(uri, version).to_table().to_pylist()
    assert len(found) == opened(uri, version).count_rows()
    return {row["id"]: row["v"] for row in found}


def test_every_version_is_what_delta_rs_reads(uri: str) -> None:
    for version in range(13):
        assert rows_at(uri, version) == rows_of(uri, version), version


def test_whatever_checkpoints_are_between(uri: str) -> None:
    before = {version: rows_of(uri, version) for version in range(13)}
    storage = LocalStorage(uri)
    for version in (3, 9, 12):
        state = read_log(storage, version=version)
        assert state is not None
        assert (state.version, write_checkpoint(storage, state, now_ms=0)) == (version, True)
    storage.delete(commit_path(version) for version in range(3))
    assert {version: rows_at(uri, version) for version in range(3, 13)} == {
        version: before[version] for version in range(3, 13)
    }
    with pytest.raises(VersionGone, match=r"version 2 of .* is gone: its commits were cleaned up"):
        opened(uri, 2)


def test_columns_and_ways_to_read_them(uri: str) -> None:
    version = opened(uri, 12)
    assert version.types == {"id": "bigint", "v": "string"}
    assert version.schema == pa.schema([("id", pa.int64()), ("v", pa.string())])
    assert version.to_table(["v", "id"]).column_names == ["v", "id"]
    assert set(version.to_table(["v"])["v"].to_pylist()) == set(rows_of(uri, 12).values())
    batches = list(version.batches(["id"]))
    assert len(batches) > 5  # never all of it at once
    low = version.dataset().to_table(columns=["id"], filter=pc.field("id") < 30)
    assert sorted(low["id"].to_pylist()) == sorted(i for i in rows_of(uri, 12) if i < 30)
    with pytest.raises(TidelakeError, match="has no column n, but id, v"):
        version.to_table(["n"])


def test_an_empty_table_has_its_columns(uri: str) -> None:
    found = opened(uri, 0).to_table()
    assert (found.num_rows, found.column_names) == (0, ["id", "v"])
    assert opened(uri, 0).dataset().count_rows() == 0


@pytest.mark.seeds(6)
def test_through_any_ddls_with_the_names_of_then(seed: int, tmp_path: Path) -> None:
    history = AlteredHistory(seed=9000 + seed, folder=tmp_path)
    seen = {}
    try:
        for _ in range(20):
            history.step()
            names = [column.name for column in history.target.schema.columns]
            seen[history.version()] = (names, list(history.rows.values()))
        for version, (names, rows) in seen.items():
            found = opened(history.target.uri, version)
            assert list(found.types) == found.schema.names == names, (version, history.log)
            assert found.count_rows() == len(rows)
            problem = history.difference(found.to_table().to_pylist(), rows)
            assert problem is None, f"version {version}: {problem} after {history.log}"
    finally:
        history.close()


class TestGone:
    def test_files_that_were_cleaned_up(self, uri: str) -> None:
        engine = MergeOnWriteEngine({}, keeps_up=False)
        engine.alter(ddl(uri, ADD_FILLED))
        engine.close()
        kept = opened(uri, 12)
        state = read_log(LocalStorage(uri))
        assert state is not None
        clean_files(LocalStorage(uri), state, now_ms=int(time.time() * 1000) + LATER_MS)
        with pytest.raises(VersionGone, match=r"version 12 of .* is gone: its files were cleaned"):
            opened(uri, 12)
        with pytest.raises(VersionGone, match="its files were cleaned up"):
            kept.to_table()  # it was opened before
        assert opened(uri, 13).count_rows() == len(rows_of(uri, 13))

    def test_its_log_by_our_own_cleaning(self, uri: str) -> None:
        storage = LocalStorage(uri)
        state = read_log(storage, version=10)
        assert state is not None
        write_checkpoint(storage, state, now_ms=0)
        for entry in storage.list("_delta_log/"):
            os.utime(f"{uri}/{entry.path}", (0, 0))
        newest = read_log(storage)
        assert newest is not None
        assert clean_log(storage, newest, now_ms=int(time.time() * 1000)) == 10
        assert rows_at(uri, 10) == rows_of(uri, 10)
        with pytest.raises(VersionGone, match="version 9"):
            opened(uri, 9)

    def test_a_table_that_was_replaced_or_removed(self, uri: str) -> None:
        with pytest.raises(VersionGone, match="has no version 14, its log ends at 12"):
            opened(uri, 14)
        shutil.rmtree(uri)
        with pytest.raises(VersionGone, match="there is no Delta table any more"):
            opened(uri, 12)


def test_a_table_whose_files_are_another_ones(uri: str) -> None:
    """As the kept rows of a dropped table are."""
    before = rows_of(uri)
    dropped = ddl(uri, None, on_drop="keep")
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.alter(dropped)
    engine.close()
    kept = kept_uri(uri, dropped.ddl)
    assert rows_at(kept, DeltaTable(kept).version()) == before
    assert rows_at(uri, 12) == before
    assert rows_at(uri, 13) == {}


def test_what_spark_alone_reads_is_said(uri: str) -> None:
    set_property(uri, "delta.enableChangeDataFeed", "true")
    newest = DeltaTable(uri).version()
    with pytest.raises(TidelakeError, match="is read by Spark alone: its property"):
        opened(uri, newest)
    assert rows_at(uri, newest - 1) == rows_of(uri, newest - 1)


def test_it_reads_on_while_the_table_is_written(uri: str) -> None:
    version = opened(uri, 12)
    before = rows_of(uri, 12)
    batches = version.batches()
    first = batches.read_next_batch()
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.apply(write(uri, 13, UPSERTED))
    engine.close()
    rest = pa.Table.from_batches([first, *batches]).to_pylist()
    assert {row["id"]: row["v"] for row in rest} == before


def test_what_a_long_rewrite_takes_out_is_kept_from_its_commit_on(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it is what readers see."""
    now = [1_800_000_000.0]
    write_all = ddl_commit._write

    def slow(*arguments: Any) -> None:
        write_all(*arguments)
        now[0] += 3600

    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(ddl_commit, "_write", slow)
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.alter(ddl(uri, ADD_FILLED))
    engine.close()
    taken_out = {each["deletionTimestamp"] for each in action(uri, "remove")}
    assert taken_out == {1_800_003_600_000}
