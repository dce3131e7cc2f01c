"""Tables are renamed while rows come: each row is in its table, whoever dies in between."""

from __future__ import annotations

import shutil

import pytest

from conf.settings import FilterSettings
from coordination.failpoint import Failpoint
from sinks.merge_on_write.upkeep.outside_files import outside_files
from tests.acceptance.one_process import Lives
from tests.acceptance.renamed import Renames
from tests.acceptance.small_tables import (
    A,
    MakeLives,
    made,
    marks,
    row,
    small_table,
    values,
)
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Ddl, encode_ddl

A_TO_C = encode_ddl(Ddl("shop", "c", "RENAME", "RENAME TABLE `shop`.`a` TO `shop`.`c`"), 300, 0)


def check(lives: Lives, history: Renames, ts: int) -> None:
    """All tables now, and every published cut."""
    assert history.differences(lives.warehouse, ts) is None, history.ddls
    for cut in lives.ledger():
        differences = history.differences(lives.warehouse, cut["primary_ts"], cut["tables"])
        assert differences is None, history.ddls
    assert not lives.dead_letters()
    lives.assert_history()


@pytest.mark.parametrize(("seed", "steps"), [(1, 72), pytest.param(2, 120, marks=pytest.mark.soak)])
def test_each_row_is_in_its_table_after_every_rename(
    new_lives: MakeLives, seed: int, steps: int
) -> None:
    lives, history = new_lives(max_messages=40), Renames(seed, steps=steps, ddl_every=6)
    lives.produce(history.messages)
    for part in (0.3, 0.6, 1.0):
        lives.finish(target_ts=history.ts_at(part))
        check(lives, history, history.ts_at(part))
    lives.produce([*history.messages, *marks(history.last_ts + 90)])  # all of it comes again
    lives.finish(target_ts=history.last_ts + 80)
    check(lives, history, history.last_ts)


def test_a_rename_is_carried_out_once_whoever_dies_over_it(new_lives: MakeLives) -> None:
    lives, history = new_lives(max_messages=20), Renames(3, steps=48, ddl_every=4)
    lives.produce(history.messages)
    points = [Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL, Failpoint.AFTER_PROGRESS]
    points += [Failpoint.AFTER_DDL, Failpoint.AFTER_CHANGEFEED, Failpoint.AFTER_DDL]
    for number, point in enumerate(points, 1):
        target_ts = history.ts_at(number / (len(points) + 1))
        error = lives.live(f"{point}=raise:2", target_ts=target_ts)
        assert error is None or f"failpoint {point}" in str(error), (point, error)
    lives.finish(target_ts=history.last_ts, max_messages=10_000)
    check(lives, history, history.last_ts)


def test_an_owner_dies_between_two_commits_of_a_rename(new_lives: MakeLives) -> None:
    """Some tables have left their old names, and not all of them have come to their new ones."""
    lives, history = new_lives(max_messages=20), Renames(4, steps=20, ddl_every=4)
    lives.produce(history.messages)
    victim = f"{Failpoint.AMID_RENAME}=raise:3"
    while (error := lives.live(victim, target_ts=history.last_ts)) is not None:
        assert f"failpoint {Failpoint.AMID_RENAME}" in str(error)
    check(lives, history, history.last_ts)


def test_captures_that_share_a_changefeed_rename(new_lives: MakeLives) -> None:
    lives, history = new_lives(), Renames(5, steps=40, ddl_every=5)
    half, last_ts = len(history.messages) // 2, history.last_ts
    lives.produce(history.messages[:half])
    captures = [lives.begin(target_ts=last_ts) for _ in range(2)]
    for capture in captures:
        capture.wait_until(lambda: "shop.a" in lives.progress())
    lives.produce(history.messages[half:])
    assert [capture.join() for capture in captures] == [None, None]
    lives.look()
    check(lives, history, last_ts)


def test_a_table_that_is_renamed_out_of_the_filter_is_dropped(new_lives: MakeLives) -> None:
    lives = new_lives()
    taken = FilterSettings(rules=("shop.a",))
    rows = [(1, None, row(200, 1, "one")), (0, None, A_TO_C)]
    lives.produce([*made(100, A), *rows, (1, None, row(400, 2, "two", table=small_table("c")))])
    lives.produce(marks(501))
    lives.finish(target_ts=500, filter=taken)
    assert (values(lives, "a"), values(lives, "a~dropped-300")) == ({}, {1: "one"})
    assert "c" not in lives.versions()


def test_one_that_is_renamed_into_the_filter_stops_the_changefeed(new_lives: MakeLives) -> None:
    lives = new_lives()
    taken = FilterSettings(rules=("shop.c", "shop.b"))
    lives.produce([*made(100, A), (1, None, row(200, 1, "one")), (0, None, A_TO_C)])
    lives.produce([(1, None, row(400, 2, "two", table=small_table("c"))), *marks(501)])
    error = lives.live(target_ts=500, filter=taken)
    assert "it renames a table that [filter] leaves out, so its rows were not read" in str(error)
    assert "c" not in lives.versions()


def test_what_comes_again_after_a_rewind_is_not_of_the_old_name(new_lives: MakeLives) -> None:
    lives = new_lives()
    lives.produce([*made(100, A), (1, None, row(200, 1, "one")), (0, None, A_TO_C)])
    lives.produce([(1, None, row(400, 2, "two", table=small_table("c"))), *marks(501)])
    lives.finish(target_ts=500)
    lives.finish(target_ts=500, overwrite_checkpoint_ts=150)
    assert (values(lives, "a"), values(lives, "c")) == ({}, {1: "one", 2: "two"})
    assert {each.state for each in lives.progress().values()} == {"dropped", "replicating"}


def test_its_rows_of_before_come_into_its_own_folder(
    new_lives: MakeLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the life goes on. Then a copy of that folder alone has all rows."""
    monkeypatch.setattr("sinks.merge_on_write.upkeep.upkeep.GATHER_EVERY_S", 0.01)
    lives = new_lives()
    lives.produce([*made(100, A), (1, None, row(200, 1, "one")), (0, None, A_TO_C), *marks(301)])
    life = lives.begin(target_ts=500)
    lake = str(lives.warehouse)
    life.wait_until(lambda: "shop.c" in lives.progress())
    assert [each.table for each in outside_files(lake, {})] == ["shop/c"]
    lives.produce([(1, None, row(400, 2, "two", table=small_table("c")))])
    lives.produce(marks(450))
    life.wait_until(lambda: not [*outside_files(lake, {})])
    alone = shutil.copytree(f"{lake}/shop/c", f"{lake}.copied/c")
    lives.produce(marks(501))
    assert life.join() is None
    shutil.rmtree(f"{lake}/shop/a")
    found = {each["id"]: each["v"] for each in read_rows(alone)}
    assert found == values(lives, "c") == {1: "one", 2: "two"}
