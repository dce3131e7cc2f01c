"""What keeps one table from being written names it, holds it alone, and is over when mended."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from sinks.control.progress import ProgressRow
from streaming.changefeed.freshness import Freshness
from streaming.cli import terminal
from streaming.operations.check import Finding, verdict
from streaming.operations.progress_report import read_progress
from tests.acceptance.one_process import Life, Lives
from tests.acceptance.reported import at, ddl, mark, row
from tests.acceptance.small_tables import MakeLives
from tests.shop.feed import Message

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TYPES = {"id": "bigint", "v": "varchar(20)"}


def event(n: int, id: int, v: str | None, *, table: str = "t", kind: str = "INSERT") -> Message:
    return row(at(n), table, {"id": f"{id}", "v": v}, TYPES, kind=kind)


def first(*tables: str) -> list[Message]:
    """Of these, and of one beside them."""
    columns = "(`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))"
    made = (f"CREATE TABLE `shop`.`{t}` {columns}" for t in (*tables, BESIDE))
    named = zip((*tables, BESIDE), made, strict=True)
    return [
        *(ddl(at(0) + n, t, query, kind="CREATE") for n, (t, query) in enumerate(named)),
        *(event(1, id, "first", table=t) for t in tables for id in (1, 2)),
        event(1, 1, "first", table=BESIDE),
        *mark(at(2)),
    ]


def second(*tables: str) -> list[Message]:
    return [
        *(event(3, 1, "second", table=t, kind="UPDATE") for t in tables),
        *(event(3, 3, None, table=t) for t in tables),
        event(3, 2, "second", table=BESIDE),
        *mark(at(4)),
    ]


BESIDE = "u"
ROWS = [{"id": 1, "v": "second"}, {"id": 2, "v": "first"}, {"id": 3, "v": None}]
LAST = at(4) - 1


@dataclass(frozen=True, kw_only=True)
class Hand:
    """What an operator does to a target, what is told of it, and how it is mended."""

    does: str
    told: str
    mends: str


HANDS = {
    "checked": Hand(
        does="ADD CONSTRAINT c CHECK (id < 3)", told="constraint c", mends="DROP CONSTRAINT c"
    ),
    "appended": Hand(
        does="SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
        told="append",
        mends="SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
    ),
    "not_null": Hand(
        does="ADD CONSTRAINT n CHECK (v IS NOT NULL)",
        told="constraint n",
        mends="DROP CONSTRAINT n",
    ),
}


def progress(lives: Lives, name: str = "t") -> ProgressRow | None:
    return lives.progress().get(f"shop.{name}")


def await_at(life: Life, lives: Lives, ts: int, *names: str) -> None:
    def are_there() -> bool:
        found = [progress(lives, name) for name in names]
        return all(row is not None and row.checkpoint_ts >= ts for row in found)

    life.wait_until(are_there)


def await_told(life: Life, lives: Lives, *names: str) -> dict[str, str]:
    """Of each table; the one beside them has gone on."""
    await_at(life, lives, LAST, BESIDE)
    told: dict[str, str] = {}
    for name in names:
        found = life.wait_until(
            lambda name=name: (found := progress(lives, name)) and found.error and found
        )
        assert (found.state, found.checkpoint_ts) == ("warning", at(2) - 1)
        assert found.error.startswith(f"table shop.{name}: ")
        told[name] = found.error
    feed = life.wait_until(lambda: (row := lives.changefeed()) and row.error and row)
    assert feed.state == "warning"
    assert any(feed.error.startswith(f"table shop.{name}: ") for name in names)
    console = Console(width=1000, record=True)
    sink = lives.settings.changefeed.sink
    console.print(terminal.progress(read_progress(sink, None, Freshness()), 1000))
    shown = console.export_text()
    assert all(error in shown for error in told.values())
    return told


def await_over(life: Life, lives: Lives, *names: str) -> None:
    await_at(life, lives, LAST, *names)
    for name in names:
        life.wait_until(lambda name=name: (row := progress(lives, name)) and not row.error)
    life.wait_until(lambda: (row := lives.changefeed()) and row.state == "running")
    for name in names:
        found = progress(lives, name)
        assert found is not None
        assert found.state == "replicating"
    assert life.stop() is None


def test_what_an_operator_has_set_and_a_folder_that_is_gone_and_comes_back(
    new_lives_on_spark: MakeLives, spark: SparkSession
) -> None:
    lives = new_lives_on_spark(1, partitions=None)
    names = (*HANDS, "away")
    lives.produce(first(*names))
    life = lives.begin()
    await_at(life, lives, at(2) - 1, *names)

    def target(name: str) -> str:
        return f"delta.`{lives.uri}/shop/{name}`"

    for name, hand in HANDS.items():
        spark.sql(f"ALTER TABLE {target(name)} {hand.does}")
    folder = Path(f"{lives.uri}/shop/away")
    shutil.move(folder, f"{lives.uri}-away")
    lives.produce(second(*names))
    told = await_told(life, lives, *names)
    for name, hand in HANDS.items():
        assert hand.told in told[name]
        spark.sql(f"ALTER TABLE {target(name)} {hand.mends}")
    assert "is gone from" in told["away"]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(f"{lives.uri}-away", folder)
    await_over(life, lives, *names)
    for name in names:
        assert lives.rows(name) == ROWS, name


ALTERED = {
    "renamed": ("RENAME COLUMN v TO w", "id bigint, w string"),
    "dropped": ("DROP COLUMN v", "id bigint"),
}


@pytest.mark.more  # piece by piece: test_altered_by_hand, test_altered_tables
def test_columns_that_are_altered_by_hand_hold_the_table_until_they_are_back(
    new_lives_on_spark: MakeLives, spark: SparkSession
) -> None:
    """Neither does a start take the table up as it is then."""
    lives = new_lives_on_spark(1, partitions=None)
    lives.produce(first(*ALTERED))
    life = lives.begin()
    await_at(life, lives, at(2) - 1, *ALTERED)
    targets = {name: f"{lives.uri}/shop/{name}" for name in ALTERED}
    versions = {name: DeltaTable(uri).version() for name, uri in targets.items()}
    for name, (does, _) in ALTERED.items():
        spark.sql(f"ALTER TABLE delta.`{targets[name]}` {does}")
    lives.produce(second(*ALTERED))
    await_at(life, lives, LAST, BESIDE)
    for name in ALTERED:
        life.wait_until(
            lambda name=name: (found := progress(lives, name)) and found.state == "blocked"
        )
    assert life.stop() is None
    life = lives.begin()
    for name, (_, shown) in ALTERED.items():
        found = life.wait_until(
            lambda name=name: (found := progress(lives, name)) and found.error and found
        )
        wanted = f"The table has ({shown}), and the stream gives it (id bigint, v string)"
        assert wanted in found.error
    for name, uri in targets.items():
        spark.sql(f"RESTORE TABLE delta.`{uri}` TO VERSION AS OF {versions[name]}")
    await_over(life, lives, *ALTERED)
    for name in ALTERED:
        assert lives.rows(name) == ROWS, name


def test_a_probe_tells_a_table_that_is_blocked(
    new_lives_on_spark: MakeLives, spark: SparkSession
) -> None:
    lives = new_lives_on_spark(1, partitions=None)
    lives.produce(first("t"))
    life = lives.begin()
    await_at(life, lives, at(2) - 1, "t")
    spark.sql(f"INSERT OVERWRITE delta.`{lives.uri}/shop/t` VALUES (7, 'mine')")
    lives.produce(second("t"))
    life.wait_until(lambda: (found := progress(lives)) and found.state == "blocked")
    report = read_progress(lives.settings.changefeed.sink, None, Freshness())
    found = verdict(report, 10**9)
    assert found.finding is Finding.FAILED
    assert f"--overwrite-checkpoint-ts {at(0) - 1}" in found.why
    assert life.stop() is None
