"""Tables that change shape while rows come: every cell after every DDL, whoever dies in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordination.failpoint import Failpoint
from tests.acceptance.one_process import Lives
from tests.acceptance.reshaped import NAME, Reshaped
from tests.acceptance.small_tables import A, MakeLives, made, marks, new_topics, row, values
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def new_lives(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeLives]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with new_topics(spark, broker, tmp_path) as make:
        yield make


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
        if version is not None:
            differences = history.differences(lives.warehouse, cut["primary_ts"], version)
            assert differences is None, history.ddls
    assert not lives.dead_letters()
    lives.assert_history()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_table_is_right_after_every_ddl(new_lives: MakeLives, seed: int) -> None:
    lives, history = new_lives(max_messages=40), Reshaped(seed)
    lives.produce(history.messages)
    lives.finish(target_ts=history.ts_at(0.5))
    check(lives, history, history.ts_at(0.5))
    lives.finish(target_ts=history.last_ts)
    check(lives, history, history.last_ts)


def test_a_ddl_runs_once_whoever_dies_over_it(new_lives: MakeLives) -> None:
    lives, history = new_lives(max_messages=20), Reshaped(7, steps=80, ddl_every=4)
    lives.produce(history.messages)
    points = [Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL, Failpoint.AFTER_APPLY_ONE]
    points += [Failpoint.AFTER_PROGRESS, Failpoint.AFTER_LEDGER, Failpoint.AFTER_DDL]
    for number, point in enumerate(points, 1):
        target_ts = history.ts_at(number / (len(points) + 1))
        error = lives.live(f"{point}=raise:2", target_ts=target_ts)
        assert f"failpoint {point}" in str(error), (point, error)
    lives.finish(target_ts=history.last_ts, max_messages=10_000)
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
