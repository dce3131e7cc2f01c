"""Files outside of a table's folder come into it: afterwards the folder alone is the table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.rename import rename
from sinks.merge_on_write.log.pause import set_paused
from sinks.merge_on_write.table_handle import MAX_RACES
from sinks.merge_on_write.upkeep import fold as folds
from sinks.merge_on_write.upkeep import fold_choice, upkeep
from sinks.merge_on_write.upkeep import gather as gathering
from sinks.merge_on_write.upkeep.gather import gather
from sinks.merge_on_write.upkeep.outside_files import outside_files
from sinks.storage.local_storage import LocalStorage
from tests.looks import looks
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.orders import UPSERTED, Changes, changed
from tests.sinks.merge_on_write.recoveries import drop, recovered
from tests.sinks.merge_on_write.renames import contents, order, put, renamed, two_tables
from tests.sinks.merge_on_write.test_full_disk import FullDisk


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Table ``c``, which was ``a``, beside ``b``."""
    found = two_tables(tmp_path / "lake" / "shop")
    renamed(found, {"a": "c"})
    return found


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[MergeOnWriteEngine]:
    monkeypatch.setattr(upkeep, "GATHER_EVERY_S", 0.01)
    engine = MergeOnWriteEngine({})
    yield engine
    engine.close()


def outside(folder: str) -> set[str]:
    return {each.table.partition("/")[2] for each in outside_files(str(Path(folder).parent), {})}


def is_whole_elsewhere(folder: str, table: str) -> bool:
    """Whether a copy of its folder alone reads the same, where nothing else is."""
    copied = shutil.copytree(f"{folder}/{table}", f"{folder}.elsewhere/{table}")
    moved = Path(folder).rename(f"{folder}.hidden")
    alone = contents(str(Path(copied).parent))
    moved.rename(folder)
    return alone == {table: contents(folder)[table]}


def test_a_copy_of_the_folder_alone_reads_the_same_rows(
    folder: str, engine: MergeOnWriteEngine
) -> None:
    before, version = contents(folder), len(list(Path(f"{folder}/c/_delta_log").glob("*.json"))) - 1
    as_it_came = read_rows(f"{folder}/c", version)
    assert outside(folder) == {"c"}
    gather(engine.table(f"{folder}/c"))
    assert outside(folder) == set()
    assert contents(folder) == before
    assert read_rows(f"{folder}/c", version) == as_it_came
    assert is_whole_elsewhere(folder, "c")


def test_it_is_no_change_to_those_who_read_changes(folder: str, engine: MergeOnWriteEngine) -> None:
    gather(engine.table(f"{folder}/c"))
    newest = max(Path(f"{folder}/c/_delta_log").glob("*.json")).read_text()
    assert '"dataChange":false' in newest.replace(" ", "")
    assert '"dataChange":true' not in newest.replace(" ", "")


def test_rows_that_are_kept_and_rows_that_came_back(tmp_path: Path) -> None:
    folder = two_tables(tmp_path / "lake" / "shop")
    before = contents(folder)["a"]
    engine = MergeOnWriteEngine({}, keeps_up=False)
    drop(engine, folder)
    (kept,) = outside(folder)
    gather(engine.table(f"{folder}/{kept}"))
    assert outside(folder) == set()
    recovered(engine, folder, "c")
    assert outside(folder) == {"c"}
    gather(engine.table(f"{folder}/c"))
    engine.close()
    assert outside(folder) == set()
    assert contents(folder)["c"] == contents(folder)[kept] == before
    assert is_whole_elsewhere(folder, "c")


def test_the_upkeep_gathers_a_few_files_at_a_time(
    folder: str, keeping: MergeOnWriteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all rows of a file are deleted by then, and beside a table that swaps names."""
    monkeypatch.setattr(fold_choice, "FULL_ROWS", 6)
    before = contents(folder)["c"]
    gone: Changes = {key: None for key in (30, 31, 32, 33, 34)}
    put(keeping, f"{folder}/c", 200, {**UPSERTED, **gone})
    for _ in looks(30):
        if not outside(folder):
            break
    assert outside(folder) == set()
    assert contents(folder)["c"] == changed(before, UPSERTED, gone)
    rename(keeping, order(folder, {"b": "a"}, commit_ts=300))
    rename(keeping, order(folder, {"c": "b"}, commit_ts=310))
    put(keeping, f"{folder}/b", 320, {500: "more"})
    for _ in looks(30):
        if outside(folder) == {"a"}:  # nobody writes it
            break
    assert outside(folder) == {"a"}
    assert is_whole_elsewhere(folder, "b")


def test_no_file_is_gathered_while_rows_wait(folder: str, keeping: MergeOnWriteEngine) -> None:
    keeping.upkeep.rows_wait(True)
    put(keeping, f"{folder}/c", 200, UPSERTED)
    assert keeping.upkeep.settle(30)
    assert outside(folder) == {"c"}
    keeping.upkeep.rows_wait(False)
    for _ in looks(30):
        if not outside(folder):
            break
    assert outside(folder) == set()


def test_rows_that_are_written_meanwhile_count(
    folder: str, engine: MergeOnWriteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)["c"]
    genuine, limits = folds.write_sorted, iter(range(100, 200))

    def slow(*arguments: object) -> object:
        if (limit := next(limits)) == 100:
            put(engine, f"{folder}/c", limit, UPSERTED)
        return genuine(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(folds, "write_sorted", slow)
    gather(engine.table(f"{folder}/c"))
    assert outside(folder) == set()
    assert contents(folder)["c"] == changed(before, UPSERTED)


def test_a_full_disk_leaves_the_table_as_it_was(folder: str, engine: MergeOnWriteEngine) -> None:
    before, table = contents(folder), engine.table(f"{folder}/c")
    for good in range(3):
        table.storage = FullDisk(f"{folder}/c", good, 1, late=False)
        try:
            gather(table)
        except (OSError, TryAgain):
            assert outside(folder) == {"c"}
        assert contents(folder) == before
    table.storage = LocalStorage(f"{folder}/c")
    gather(table)
    assert (outside(folder), contents(folder)) == (set(), before)


def test_others_who_are_always_first_end_it(
    folder: str, engine: MergeOnWriteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "fold", lambda *_, **__: None)
    with pytest.raises(TryAgain, match=f"other commits came first .* {MAX_RACES} times"):
        gather(engine.table(f"{folder}/c"))


def test_a_paused_table_stays_as_it_is(folder: str, engine: MergeOnWriteEngine) -> None:
    set_paused(f"{folder}/c", {}, paused=True)
    with pytest.raises(TidelakeError, match="is paused: `tidelake table resume` first"):
        gather(engine.table(f"{folder}/c"))
    assert outside(folder) == {"c"}
