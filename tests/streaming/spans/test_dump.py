"""A dump in a folder of the user's, and its load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings, TaskMode
from coordination.errors import ConfigError, TidelakeError
from streaming.spans.copies.first_copy import FirstCopy, TableProgress
from streaming.spans.copies.settled_copy import SettledCopy, forget_copy
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.streaming.spans.test_first_copy import NAME, changefeed_of, tables_of

pytestmark = pytest.mark.mariadb


@pytest.fixture
def changefeed(mariadb: DatabaseServer, tmp_path: Path) -> Iterator[Changefeed]:
    with tables_of(mariadb):
        yield changefeed_of(mariadb, tmp_path)


def mode_of(changefeed: Changefeed, mode: TaskMode, folder: Path, **given: Any) -> Changefeed:
    assert isinstance(changefeed.source, BinlogSettings)
    source = replace(changefeed.source, task_mode=mode, dump_dir=str(folder))
    return replace(changefeed, source=source, **given)


def test_a_dump_stays_in_its_folder_and_is_loaded_from_there(
    mariadb: DatabaseServer, changefeed: Changefeed, tmp_path: Path
) -> None:
    folder = tmp_path / "dump"
    dump = mode_of(changefeed, "dump", folder)
    load = mode_of(changefeed, "load&sync", folder)
    with closing(FirstCopy(load, folder)) as copy, pytest.raises(TidelakeError, match="end with"):
        copy.load()
    with closing(FirstCopy(dump, folder)) as copy:
        copy.dump()
    (folder / "README").write_text("a user's")
    mariadb.execute(f"INSERT INTO {NAME}.orders VALUES (5000, 'later', NULL)")
    others = replace(load, filter=replace(load.filter, rules=("first_copy.*",)))
    with (
        closing(FirstCopy(others, folder)) as copy,
        pytest.raises(ConfigError, match="Give the sa"),
    ):
        copy.load()
    assert not (tmp_path / "lake" / NAME).exists()
    loaded: list[TableProgress] = []
    with closing(FirstCopy(load, folder, loading=loaded.append)) as copy:
        copy.load()
        assert copy.is_done
    assert len(read_rows(tmp_path / "lake" / NAME / "orders")) == 1_000
    whole = {(each.table.table, each.rows, each.of_rows) for each in loaded if each.is_done}
    assert whole == {("orders", 1_000, 1_000), ("events", 3, 3)}
    assert (folder / "settled.json").exists()
    settled = SettledCopy.load(folder)
    assert settled is not None
    replace(settled, server="another's").save(folder)
    with (
        closing(FirstCopy(load, folder)) as copy,
        pytest.raises(TidelakeError, match="in the place of the server"),
    ):
        copy.load()


def test_a_dump_with_other_rules_is_not_taken_for_this_one(
    changefeed: Changefeed, tmp_path: Path
) -> None:
    folder = tmp_path / "dump"
    dump = mode_of(changefeed, "dump", folder)
    wider = replace(dump, filter=replace(dump.filter, rules=(f"{NAME}.*",)))
    for each, tables in ((dump, 2), (wider, 3)):
        with closing(FirstCopy(each, folder)) as copy:
            copy.dump()
        settled = SettledCopy.load(folder)
        assert settled is not None
        assert len(settled.tables) == tables


def test_a_folder_of_somebody_else_is_neither_used_nor_emptied(
    changefeed: Changefeed, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    dump = mode_of(changefeed, "dump", tmp_path / "home")
    with (
        closing(FirstCopy(dump, tmp_path / "home")) as copy,
        pytest.raises(ConfigError, match="has files, and none of a copy"),
    ):
        copy.dump()
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["letter"]


def test_what_a_copy_has_left_is_forgotten_and_nothing_else(
    changefeed: Changefeed, tmp_path: Path
) -> None:
    folder = tmp_path / "dump"
    with closing(FirstCopy(mode_of(changefeed, "dump", folder), folder)) as copy:
        copy.dump()
    for name in ("mine", "README"):
        (folder / name).mkdir()
        (folder / name / "letter").write_text("dear")
    forget_copy(folder)
    assert sorted(each.name for each in folder.iterdir()) == ["README", "lock", "mine"]
