"""kill -9 between any two writes of an upsert, a fold, a DDL and the upkeep: the table is as it was
before or after, and the next write goes through."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.file_locations import files_of, is_in_table
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.gather import gather
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, Skipped
from tests.conftest import ROOT
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.ddls import ADD_FILLED, ddl
from tests.sinks.merge_on_write.event_logs import EVENTS, events_of, rewound_log, rewound_write
from tests.sinks.merge_on_write.exchanges import Pair, exchanged
from tests.sinks.merge_on_write.orders import UPSERTED, Changes, Rows, changed, made, rows_of, write
from tests.sinks.merge_on_write.recoveries import drop, recovered
from tests.sinks.merge_on_write.renames import contents, put, renamed, two_tables
from tests.sinks.merge_on_write.row_histories import (
    CHANGES,
    expected,
    history_of,
    rewound_history,
    rewound_history_write,
    rewound_truncate,
)

LEAST_STEPS = 8  # of each deed: what counts fewer has not looked everywhere
SWAP = {"a": "b", "b": "a"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("killed") / "table")


@pytest.mark.parametrize("deed", ["upsert", "fold", "upkeep"])
def test_a_process_is_killed_between_any_two_steps(table: str, tmp_path: Path, deed: str) -> None:
    copies = killed_at_each_step(table, tmp_path, deed)
    before = rows_of(table)
    after = changed(before, UPSERTED) if deed == "upsert" else before
    seen = [rows_of(uri) for uri in copies]
    turn = seen.index(after) if after != before else 0
    assert seen == [before] * turn + [after] * (len(seen) - turn)
    assert seen[-1] == after
    assert len(copies) > LEAST_STEPS
    for uri in copies:
        nothing_is_missing(uri)
        goes_on(uri, before)


def test_a_process_is_killed_at_a_write_of_a_change_log(tmp_path: Path) -> None:
    """Another does it again, and goes on: every event is there once, at every step."""
    log = rewound_log(str(tmp_path / "log"))
    before = Counter(event for event in EVENTS if event[0] <= 40)
    assert events_of(log) == before
    copies = killed_at_each_step(log, tmp_path / "copies", "append")
    assert len(copies) > LEAST_STEPS
    for uri in copies:
        nothing_is_missing(uri)
        assert events_of(uri) == before
        engine = MergeOnWriteEngine({}, keeps_up=False)
        assert isinstance(engine.apply(rewound_write(uri)), Applied | Skipped)
        assert isinstance(engine.apply(rewound_write(uri, 100)), Applied)
        engine.close()
        assert events_of(uri) == Counter(EVENTS)


@pytest.mark.parametrize("deed", ["history", pytest.param("close", marks=pytest.mark.more)])
def test_a_process_is_killed_at_a_write_of_a_history(tmp_path: Path, deed: str) -> None:
    """Another does it again, and goes on: every version is there once, at every step."""
    uri = rewound_history(str(tmp_path / "history"))
    before = expected([each for each in CHANGES if each[0] <= 40])
    changes = [each for each in CHANGES if each[0] <= 36]
    if deed == "close":
        changes = [each for each in CHANGES if each[0] <= 20] + [(21, id, None) for id in range(4)]
    after = expected(changes)
    assert history_of(uri) == before
    seen = []
    for copy in killed_at_each_step(uri, tmp_path / "copies", deed):
        nothing_is_missing(copy)
        seen.append(history_of(copy))
        engine = MergeOnWriteEngine({}, keeps_up=False)
        if deed == "close":
            assert isinstance(engine.alter(rewound_truncate(copy)), Applied | Skipped)
        assert isinstance(engine.apply(rewound_history_write(copy)), Applied | Skipped)
        assert isinstance(engine.apply(rewound_history_write(copy, 100)), Applied)
        engine.close()
        more = [each for each in CHANGES if each[0] > (20 if deed == "close" else 36)]
        assert history_of(copy) == expected([*changes, *more])
    assert len(seen) > LEAST_STEPS
    turn = seen.index(after)
    assert seen == [before] * turn + [after] * (len(seen) - turn)


@pytest.mark.parametrize(
    ("deed", "order"),
    [("alter", ADD_FILLED), pytest.param("truncate", None, marks=pytest.mark.more), ("drop", None)],
)
def test_a_process_is_killed_at_a_ddl(
    table: str, tmp_path: Path, deed: str, order: SchemaChange | None
) -> None:
    """Another does it again: it has taken effect once, and rows go on."""
    copies = killed_at_each_step(table, tmp_path, deed)
    before = rows_of(table)
    after = before if order else {}
    versions = [DeltaTable(uri).version() for uri in copies]
    turn = versions.index(13)
    assert versions == [12] * turn + [13] * (len(versions) - turn)
    assert turn >= 3
    for number, uri in enumerate(copies):
        nothing_is_missing(uri)
        assert rows_of(uri) == (before if number < turn else after)
        engine = MergeOnWriteEngine({}, keeps_up=False)
        on_drop = "keep" if deed == "drop" else None
        outcome = engine.alter(ddl(uri, order, empties=deed == "truncate", on_drop=on_drop))
        assert isinstance(outcome, Applied if number < turn else Skipped)
        assert rows_of(uri) == after
        if deed == "drop":
            assert rows_of(f"{uri}~dropped-100") == before
        assert {row.get("n") for row in read_rows(uri)} <= {7 if order else None}
        assert isinstance(engine.apply(write(uri, 100, UPSERTED)), Applied)
        engine.close()
        assert rows_of(uri) == changed(after, UPSERTED)


@pytest.mark.parametrize(
    ("deed", "names"), [pytest.param("rename", {"a": "c"}, marks=pytest.mark.more), ("swap", SWAP)]
)
def test_a_process_is_killed_at_a_rename(tmp_path: Path, deed: str, names: dict[str, str]) -> None:
    """Nothing is lost or there twice on the way, and another finishes it."""
    tables = two_tables(tmp_path / "tables")
    before = contents(tables)
    after = {name: rows for name, rows in before.items() if name not in names}
    after |= {new: before[old] for old, new in names.items()}
    copies = killed_at_each_step(tables, tmp_path / "copies", deed)
    seen = [contents(folder) for folder in copies]
    assert (seen[0], seen[-1]) == (before, after)
    for folder, found in zip(copies, seen, strict=True):
        assert all(rows in before.values() for rows in found.values())
        for _ in range(2):
            renamed(folder, names)
            assert contents(folder) == after
        engine = MergeOnWriteEngine({}, keeps_up=False)
        uri = f"{folder}/{names['a']}"
        assert isinstance(put(engine, uri, 100, UPSERTED), Applied)
        engine.close()
        assert contents(folder)[names["a"]] == changed(before["a"], UPSERTED)


def test_a_process_is_killed_while_a_table_comes_back(tmp_path: Path) -> None:
    folder = two_tables(tmp_path / "tables")
    before = contents(folder)["a"]
    engine = MergeOnWriteEngine({}, keeps_up=False)
    drop(engine, folder)
    copies = killed_at_each_step(folder, tmp_path / "copies", "recover")
    assert ["c" in contents(copy) for copy in (copies[0], copies[-1])] == [False, True]
    for copy in copies:
        assert contents(copy).get("c", before) == before
        for _ in range(2):
            recovered(engine, copy, "c")
            assert contents(copy)["c"] == before
        assert isinstance(put(engine, f"{copy}/c", 120, UPSERTED), Applied)
        assert contents(copy)["c"] == changed(before, UPSERTED)
    engine.close()


def test_a_process_is_killed_at_an_exchange(tmp_path: Path) -> None:
    """Between the two commits the table has the partition's rows already, and so has the other."""
    pair = Pair(tmp_path / "tables")
    copies = killed_at_each_step(str(pair.folder), tmp_path / "copies", "exchange")
    before = pair.rows
    pair.expect(lambda row: bool(row["id"] >= 10))
    half = [before[0], pair.rows[1]]
    seen = []
    for copy in copies:
        pair.move(copy)
        seen.append([pair.partitioned.read(), pair.table.read()])
        assert seen[-1] in (before, half, pair.rows)
        for _ in range(2):
            exchanged(copy)
            pair.check()
    assert (seen[0], half in seen, seen[-1]) == (before, True, pair.rows)
    pair.close()


def test_a_process_is_killed_while_it_gathers_files(tmp_path: Path) -> None:
    """The rows stay at every step, another gathers the rest, and rows go on."""
    folder = two_tables(tmp_path / "tables")
    renamed(folder, {"a": "c"})
    before = contents(folder)
    copies = killed_at_each_step(folder, tmp_path / "copies", "gather")
    assert len(copies) > LEAST_STEPS
    assert not files_elsewhere(f"{copies[-1]}/c")
    for copy in copies:
        assert contents(copy) == before
        engine = MergeOnWriteEngine({}, keeps_up=False)
        gather(engine.table(f"{copy}/c"))
        assert isinstance(put(engine, f"{copy}/c", 100, UPSERTED), Applied)
        engine.close()
        assert not files_elsewhere(f"{copy}/c")
        nothing_is_missing(f"{copy}/c")
        assert contents(copy)["c"] == changed(before["c"], UPSERTED)


def files_elsewhere(uri: str) -> list[str]:
    state = read_log(LocalStorage(uri))
    assert state is not None
    named = [path for file in state.files.values() for path in files_of(file)]
    return [path for path in named if not is_in_table(path)]


def killed_at_each_step(table: str, folder: Path, deed: str) -> list[str]:
    """The copies that were left, in the order of steps."""
    stride = "3" if deed == "upkeep" else "1"  # many files go, each with a checksum if there is one
    module = "tests.sinks.merge_on_write.killed"
    command = [sys.executable, "-m", module, deed, table, str(folder), stride]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    return sorted(str(path) for path in folder.iterdir() if "~" not in path.name)


def nothing_is_missing(uri: str) -> None:
    storage = LocalStorage(uri)
    state = read_log(storage)
    assert state is not None
    named = {path for file in state.files.values() for path in files_of(file)}
    assert not [path for path in named if storage.size(path) is None]


def goes_on(uri: str, before: Rows) -> None:
    """Another process does the write again, and one more."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    assert isinstance(engine.apply(write(uri, 100, UPSERTED)), Applied | Skipped)
    last: Changes = {1: None, 12: "last", 200: "last"}
    assert isinstance(engine.apply(write(uri, 101, last)), Applied)
    engine.close()
    assert rows_of(uri) == changed(before, UPSERTED, last)
