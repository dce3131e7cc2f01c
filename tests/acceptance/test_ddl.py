"""Tables that change shape while rows come: every cell after every DDL, whoever dies in between."""

from __future__ import annotations

from functools import partial

import pytest
from deltalake import DeltaTable

from coordination.failpoint import Failpoint
from streaming.owner.rewrite_on_spark import SparkRewriter
from tests.acceptance.one_process import Lives
from tests.acceptance.reshaped import NAME, Reshaped
from tests.acceptance.small_tables import (
    CREATE_KEYLESS,
    KEYLESS,
    A,
    B,
    MakeLives,
    made,
    marks,
    row,
    small_table,
    values,
)
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Change, Ddl, encode_change, encode_ddl


def ddls_run(lives: Lives) -> int:
    """Commits of the table that a DDL has made, but for the one that created it."""
    log = lives.warehouse / "shop" / NAME / "_delta_log"
    commits = [path.read_text().splitlines() for path in sorted(log.glob("*.json"))[1:]]
    return sum(any('"metaData"' in line for line in lines) for lines in commits)


def check(lives: Lives, history: Reshaped, ts: int) -> None:
    """The table now, every published cut of it, and no row that was put aside."""
    assert history.differences(lives.warehouse, ts) is None, history.ddls
    for cut in lives.ledger():
        version = cut["tables"].get(f"shop.{NAME}")
        assert (version is not None) == history.is_there(cut["primary_ts"])
        if version is not None:
            differences = history.differences(lives.warehouse, cut["primary_ts"], version)
            assert differences is None, history.ddls
    check_schemas(lives, history, ts)
    for dropped_ts in history.drops():
        kept = f"{NAME}~dropped-{dropped_ts}"
        before = history.at(dropped_ts - 1)
        if dropped_ts <= ts and (before.rows or (lives.warehouse / "shop" / kept).exists()):
            assert history.differences(lives.warehouse, before.ts, name=kept) is None
    assert not lives.dead_letters()
    lives.assert_history()


def check_schemas(lives: Lives, history: Reshaped, ts: int) -> None:
    """A row for the CREATE TABLE and for each DDL so far, with its columns, as the version that it
    names has them."""
    found = read_rows(f"{lives.uri}/_tidelake/schemas")
    shapes = [each for each in found if each["table_name"] == NAME]
    ran = [moment.ts for moment in history.moments if moment.is_ddl and moment.ts <= ts]
    assert sorted(shape["commit_ts"] for shape in shapes) == ran
    for shape in shapes:
        names = ["id", *(each.name for each in history.at(shape["commit_ts"]).columns)]
        assert [each["name"] for each in shape["columns"]] == names, shape
        at = DeltaTable(f"{lives.uri}/shop/{NAME}", version=shape["delta_version"])
        assert [each.name for each in at.schema().fields] == names, shape


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_table_is_right_after_every_ddl(new_lives: MakeLives, seed: int) -> None:
    lives, history = new_lives(max_messages=40), Reshaped(seed)
    lives.produce(history.messages)
    lives.finish(target_ts=history.ts_at(0.5))
    check(lives, history, history.ts_at(0.5))
    lives.finish(target_ts=history.last_ts)
    check(lives, history, history.last_ts)
    lives.finish(target_ts=history.last_ts, overwrite_checkpoint_ts=history.ts_at(0.3))
    check(lives, history, history.last_ts)


def test_a_ddl_runs_once_whoever_dies_over_it(new_lives: MakeLives) -> None:
    lives, history = new_lives(max_messages=20), Reshaped(7, steps=80, ddl_every=4)
    lives.produce(history.messages)
    points = [Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL, Failpoint.AFTER_APPLY_ONE]
    points += [Failpoint.AFTER_PROGRESS, Failpoint.AFTER_LEDGER, Failpoint.AFTER_DDL]
    for number, point in enumerate(points, 1):
        target_ts = history.ts_at(number / (len(points) + 1))
        nth = 1 if point is Failpoint.AFTER_LEDGER else 2  # a fast life may have one cut alone
        error = lives.live(f"{point}=raise:{nth}", target_ts=target_ts)
        assert f"failpoint {point}" in str(error), (point, error)
    lives.finish(target_ts=history.last_ts, max_messages=10_000)
    check(lives, history, history.last_ts)
    assert ddls_run(lives) == len(history.ddls), "a DDL ran twice, or not at all"


@pytest.mark.more  # in make test: tests/streaming/owner/test_rewrite_on_spark.py
@pytest.mark.spark
def test_executors_write_rows_anew_whoever_dies_over_it(
    new_lives_on_spark: MakeLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_spark = partial(SparkRewriter, large_bytes=0)
    monkeypatch.setattr("streaming.owner.ddl_run.SparkRewriter", by_spark)
    monkeypatch.setattr("sinks.merge_on_write.alter.rewrite.SLICE_ROWS", 2)
    lives, history = new_lives_on_spark(max_messages=40), Reshaped(7, steps=80, ddl_every=4)
    lives.produce(history.messages)
    for nth in (2, 3):
        error = lives.live(f"{Failpoint.AMID_REWRITE}=raise:{nth}", target_ts=history.last_ts)
        assert f"failpoint {Failpoint.AMID_REWRITE}" in str(error), error
    lives.finish(target_ts=history.last_ts)
    check(lives, history, history.last_ts)
    assert ddls_run(lives) == len(history.ddls), "a DDL ran twice, or not at all"


def test_other_tables_go_on_beside_a_ddl(new_lives: MakeLives) -> None:
    lives, history = new_lives(), Reshaped(3, steps=24, ddl_every=6)
    last_ts = history.last_ts
    lives.produce(made(900, A))
    lives.produce(history.messages)
    lives.produce([(1, None, row(last_ts - 1, 1, "one")), *marks(last_ts + 20)])
    lives.finish(target_ts=last_ts)
    check(lives, history, last_ts)
    assert values(lives, "a") == {1: "one"}


def test_captures_that_share_a_changefeed_take_the_new_shape_up(new_lives: MakeLives) -> None:
    """The owner runs the DDL; who writes the table finds it in its log."""
    lives, history = new_lives(), Reshaped(5, steps=60, ddl_every=6)
    half, last_ts = len(history.messages) // 2, history.last_ts
    lives.produce(made(900, A))
    lives.produce(history.messages[:half])
    captures = [lives.begin(target_ts=last_ts) for _ in range(2)]
    for capture in captures:
        capture.wait_until(lambda: "shop.a" in lives.progress())
    lives.produce(history.messages[half:])
    lives.produce([(1, None, row(last_ts - 1, 1, "one")), *marks(last_ts + 20)])
    assert [capture.join() for capture in captures] == [None, None]
    lives.look()
    check(lives, history, last_ts)
    assert values(lives, "a") == {1: "one"}
    assert ddls_run(lives) == len(history.ddls)


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.soak)])
def test_a_dropped_table_is_made_again_in_another_shape(new_lives: MakeLives, seed: int) -> None:
    history = Reshaped(seed, steps=72, ddl_every=6, is_dropped=True)
    lives = new_lives(max_messages=40)
    assert len(history.drops()) >= 3
    lives.produce(history.messages)
    for part in (0.3, 0.6, 1.0):
        lives.finish(target_ts=history.ts_at(part))
        check(lives, history, history.ts_at(part))
    assert ddls_run(lives) == len(history.ddls)
    lives.produce([*history.messages, *marks(history.last_ts + 90)])  # all of it comes again
    lives.finish(target_ts=history.last_ts + 80)
    check(lives, history, history.last_ts)
    assert ddls_run(lives) == len(history.ddls)


def test_a_drop_runs_once_whoever_dies_over_it(new_lives: MakeLives) -> None:
    lives, history = (
        new_lives(max_messages=20),
        Reshaped(13, steps=40, ddl_every=3, is_dropped=True),
    )
    assert len(history.drops()) >= 4
    lives.produce(history.messages)
    points = [Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL, Failpoint.AFTER_CREATE_TABLE]
    points += [Failpoint.AFTER_PROGRESS, Failpoint.AFTER_DDL, Failpoint.AFTER_CHANGEFEED]
    for number, point in enumerate(points, 1):
        target_ts = history.ts_at(number / (len(points) + 1))
        error = lives.live(f"{point}=raise:2", target_ts=target_ts)
        assert error is None or f"failpoint {point}" in str(error), (point, error)
    lives.finish(target_ts=history.last_ts, max_messages=10_000)
    check(lives, history, history.last_ts)
    assert ddls_run(lives) == len(history.ddls), "a DDL ran twice, or not at all"


def test_captures_that_share_a_changefeed_end_a_span(new_lives: MakeLives) -> None:
    lives, history = new_lives(), Reshaped(14, steps=40, ddl_every=4, is_dropped=True)
    assert len(history.drops()) >= 2
    half, last_ts = len(history.messages) // 2, history.last_ts
    lives.produce(made(900, A))
    lives.produce(history.messages[:half])
    captures = [lives.begin(target_ts=last_ts) for _ in range(2)]
    for capture in captures:
        capture.wait_until(lambda: "shop.a" in lives.progress())
    lives.produce(history.messages[half:])
    lives.produce([(1, None, row(last_ts - 1, 1, "one")), *marks(last_ts + 20)])
    assert [capture.join() for capture in captures] == [None, None]
    lives.look()
    check(lives, history, last_ts)
    assert values(lives, "a") == {1: "one"}
    assert ddls_run(lives) == len(history.ddls)


def test_a_database_is_dropped_and_its_tables_come_back(new_lives: MakeLives) -> None:
    lives, other = new_lives(), small_table("other")
    drop = encode_ddl(Ddl("shop", "", "QUERY", "DROP DATABASE `shop`"), 300, 0)
    rows = [(1, None, row(200, 1, "one")), (2, None, row(210, 2, "two", table=B))]
    lives.produce([*made(100, A, B), *rows, *marks(211), (0, None, drop), *marks(400)])
    assert lives.live(f"{Failpoint.AFTER_DDL}=raise:1", target_ts=350) is not None
    lives.finish(target_ts=350)
    states = {name: (each.state, each.checkpoint_ts) for name, each in lives.progress().items()}
    assert states == {"shop.a": ("dropped", 300), "shop.b": ("dropped", 300)}
    assert (values(lives, "a"), values(lives, "a~dropped-300")) == ({}, {1: "one"})
    assert values(lives, "b~dropped-300") == {2: "two"}
    again = [*made(500, B, other), (1, None, row(600, 3, "three", table=B))]
    lives.produce([*rows, *again, *marks(701)])
    lives.finish(target_ts=700, on_drop="drop")
    assert (values(lives, "a"), values(lives, "b"), values(lives, "other")) == (
        {},
        {3: "three"},
        {},
    )
    newest = lives.ledger()[-1]
    assert (newest["primary_ts"], set(newest["tables"])) == (700, {"shop.b", "shop.other"})
    second = encode_ddl(Ddl("shop", "b", "ERASE", "DROP TABLE `shop`.`b`"), 800, 0)
    lives.produce([(0, None, second), *marks(901)])
    lives.finish(target_ts=900, on_drop="drop")
    assert (values(lives, "b"), "b~dropped-800" in lives.versions()) == ({}, False)
    assert not lives.dead_letters()


def test_a_table_without_a_key_is_dropped_and_made_again_with_one(new_lives: MakeLives) -> None:
    lives, keyed = new_lives(), small_table("log")
    drop = encode_ddl(Ddl("shop", "log", "ERASE", "DROP TABLE `shop`.`log`"), 300, 0)
    keyless = encode_change(Change(table=KEYLESS, op="INSERT", row={"x": 1}, old=None), 200, 0)
    lives.produce([(0, None, encode_ddl(CREATE_KEYLESS, 100, 0)), (1, None, keyless), *marks(250)])
    lives.produce([(0, None, drop), *marks(390)])
    lives.finish(target_ts=350)
    again = [*made(400, keyed), (2, None, row(500, 1, "one", table=keyed))]
    lives.produce([(1, None, keyless), *again, *marks(601)])
    lives.finish(target_ts=600)
    assert values(lives, "log") == {1: "one"}
    assert len(lives.dead_letters()) == 1
