"""A RENAME TABLE that cannot be carried out is refused before anything has changed, or waits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordination.errors import Fenced, TidelakeError
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.rename import rename
from sinks.merge_on_write.log.pause import set_paused
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.target.engine_port import TableHeld
from tests.sinks.merge_on_write.ddls import set_property
from tests.sinks.merge_on_write.orders import made
from tests.sinks.merge_on_write.renames import contents, order, two_tables, versions

SWAP = {"a": "b", "b": "a"}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return two_tables(tmp_path / "shop")


def test_a_table_that_nobody_dropped(engine: MergeOnWriteEngine, folder: str) -> None:
    refused(engine, folder, TidelakeError, "no DROP TABLE of shop.b was carried out")


def test_a_foreign_table(engine: MergeOnWriteEngine, folder: str) -> None:
    shutil.rmtree(f"{folder}/b")
    made(f"{folder}/b")
    refused(engine, folder, TidelakeError, "was not made by Tidelake: move it away")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("tidelake.changefeed", "other", "belongs to changefeed 'other'"),
        ("tidelake.incarnation", "2", "incarnation 2 of changefeed"),
    ],
)
def test_a_table_of_another(
    engine: MergeOnWriteEngine, folder: str, name: str, value: str, why: str
) -> None:
    set_property(f"{folder}/b", name, value)
    refused(engine, folder, TidelakeError, why)


def test_a_table_that_this_engine_does_not_write(engine: MergeOnWriteEngine, folder: str) -> None:
    set_property(f"{folder}/b", "delta.appendOnly", "true")
    refused(engine, folder, NotForThisEngine, "delta.appendOnly", SWAP)


def refused(
    engine: MergeOnWriteEngine,
    folder: str,
    kind: type[Exception],
    why: str,
    names: dict[str, str] | None = None,
) -> None:
    before = versions(folder)
    with pytest.raises(kind, match=why):
        rename(engine, order(folder, names or {"a": "b"}))
    assert versions(folder) == before


def test_a_table_that_is_paused_waits(engine: MergeOnWriteEngine, folder: str) -> None:
    before = contents(folder)
    set_paused(f"{folder}/b", {}, paused=True)
    with pytest.raises(TableHeld):
        rename(engine, order(folder, SWAP))
    set_paused(f"{folder}/b", {}, paused=False)
    rename(engine, order(folder, SWAP))
    assert contents(folder) == {"a": before["b"], "b": before["a"]}


def test_one_who_is_no_longer_trusted_changes_nothing(
    engine: MergeOnWriteEngine, folder: str
) -> None:
    def fence() -> None:
        raise Fenced("lost")

    before = versions(folder)
    with pytest.raises(Fenced):
        rename(engine, order(folder, SWAP, before_commit=fence))
    assert versions(folder) == before
