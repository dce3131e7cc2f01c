"""What keeps one table from being written names it, holds it alone, and is over when mended."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
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


FIRST = [
    *(ddl(at(0) + n, t, f"CREATE TABLE `shop`.`{t}` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))",
          kind="CREATE")
      for n, t in enumerate("tu")),
    event(1, 1, "first"), event(1, 2, "first"), event(1, 1, "first", table="u"),
    *mark(at(2)),
]  # fmt: skip
SECOND = [
    event(3, 1, "second", kind="UPDATE"), event(3, 3, None), event(3, 2, "second", table="u"),
    *mark(at(4)),
]  # fmt: skip
ROWS = [{"id": 1, "v": "second"}, {"id": 2, "v": "first"}, {"id": 3, "v": None}]
LAST = at(4) - 1


@dataclass(frozen=True, kw_only=True)
class Hand:
    """What an operator does to a target, what is told of it, and how it is mended."""

    does: str
    told: str
    mends: str
    rows: list[Mapping[str, object]] = field(default_factory=lambda: list(ROWS))


HANDS = {
    "CHECK": Hand(
        does="ADD CONSTRAINT c CHECK (id < 3)", told="constraint c", mends="DROP CONSTRAINT c"
    ),
    "appendOnly": Hand(
        does="SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
        told="append",
        mends="SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
    ),
    "NOT NULL": Hand(
        does="ADD CONSTRAINT n CHECK (v IS NOT NULL)",
        told="constraint n",
        mends="DROP CONSTRAINT n",
    ),
}


def progress(lives: Lives, name: str = "t") -> ProgressRow | None:
    return lives.progress().get(f"shop.{name}")


def await_at(life: Life, lives: Lives, ts: int, name: str = "t") -> None:
    life.wait_until(lambda: (found := progress(lives, name)) and found.checkpoint_ts >= ts)


def await_told(life: Life, lives: Lives) -> str:
    """Of the table; the other one has gone on."""
    await_at(life, lives, LAST, "u")
    found = life.wait_until(lambda: (found := progress(lives)) and found.error and found)
    assert (found.state, found.checkpoint_ts) == ("warning", at(2) - 1)
    assert found.error.startswith("table shop.t: ")
    feed = life.wait_until(lambda: (row := lives.changefeed()) and row.error and row)
    assert feed.state == "warning"
    assert feed.error.startswith("table shop.t: ")
    console = Console(width=1000, record=True)
    sink = lives.settings.changefeed.sink
    console.print(terminal.progress(read_progress(sink, None, Freshness()), 1000))
    assert found.error in console.export_text()
    return str(found.error)


def await_over(life: Life, lives: Lives) -> None:
    await_at(life, lives, LAST)
    life.wait_until(lambda: (found := progress(lives)) and not found.error)
    life.wait_until(lambda: (row := lives.changefeed()) and row.state == "running")
    found = progress(lives)
    assert found is not None
    assert found.state == "replicating"
    assert life.stop() is None


@pytest.mark.parametrize("hand", HANDS.values(), ids=HANDS)
def test_what_an_operator_has_set(new_lives: MakeLives, spark: SparkSession, hand: Hand) -> None:
    lives = new_lives(1, partitions=None)
    lives.produce(FIRST)
    life = lives.begin()
    await_at(life, lives, at(2) - 1)
    target = f"delta.`{lives.uri}/shop/t`"
    spark.sql(f"ALTER TABLE {target} {hand.does}")
    lives.produce(SECOND)
    assert hand.told in await_told(life, lives)
    spark.sql(f"ALTER TABLE {target} {hand.mends}")
    await_over(life, lives)
    assert lives.rows("t") == hand.rows


@pytest.mark.parametrize(
    ("does", "shown"),
    [
        ("RENAME COLUMN v TO w", "id bigint, w string"),
        ("DROP COLUMN v", "id bigint"),
    ],
    ids=["renamed", "dropped"],
)
def test_columns_that_are_altered_by_hand_hold_the_table_until_they_are_back(
    new_lives: MakeLives, spark: SparkSession, does: str, shown: str
) -> None:
    """Neither does a start take the table up as it is then."""
    lives = new_lives(1, partitions=None)
    lives.produce(FIRST)
    life = lives.begin()
    await_at(life, lives, at(2) - 1)
    target = f"delta.`{lives.uri}/shop/t`"
    version = DeltaTable(f"{lives.uri}/shop/t").version()
    spark.sql(f"ALTER TABLE {target} {does}")
    lives.produce(SECOND)
    await_at(life, lives, LAST, "u")
    life.wait_until(lambda: (found := progress(lives)) and found.state == "blocked")
    assert life.stop() is None
    life = lives.begin()
    found = life.wait_until(lambda: (found := progress(lives)) and found.error and found)
    assert f"The table has ({shown}), and the stream gives it (id bigint, v string)" in found.error
    spark.sql(f"RESTORE TABLE {target} TO VERSION AS OF {version}")
    await_over(life, lives)
    assert lives.rows("t") == ROWS


def test_a_folder_that_is_gone_and_comes_back(new_lives: MakeLives) -> None:
    lives = new_lives(1, partitions=None)
    lives.produce(FIRST)
    life = lives.begin()
    await_at(life, lives, at(2) - 1)
    folder = Path(f"{lives.uri}/shop/t")
    shutil.move(folder, f"{lives.uri}-away")
    lives.produce(SECOND)
    assert "is gone from" in await_told(life, lives)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(f"{lives.uri}-away", folder)
    await_over(life, lives)
    assert lives.rows("t") == ROWS


def test_a_probe_tells_a_table_that_is_blocked(new_lives: MakeLives, spark: SparkSession) -> None:
    lives = new_lives(1, partitions=None)
    lives.produce(FIRST)
    life = lives.begin()
    await_at(life, lives, at(2) - 1)
    spark.sql(f"INSERT OVERWRITE delta.`{lives.uri}/shop/t` VALUES (7, 'mine')")
    lives.produce(SECOND)
    life.wait_until(lambda: (found := progress(lives)) and found.state == "blocked")
    report = read_progress(lives.settings.changefeed.sink, None, Freshness())
    found = verdict(report, 10**9)
    assert found.finding is Finding.FAILED
    assert f"--overwrite-checkpoint-ts {at(0) - 1}" in found.why
    assert life.stop() is None
