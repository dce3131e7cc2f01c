"""Columns that the target lacks, and what becomes of them: several lives of one changefeed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings
from tests.acceptance.small_tables import A, MakeLives, made, marks, row, values
from tests.own_lines import own_lines
from tests.shop.canal_json import Change, Column, Ddl, encode_change, encode_ddl

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

KIND = Column("kind", "enum('new','old')")
MORE = Column("more", "varchar(20)")
PAST = FilterSettings(
    event_filters=(EventFilter(matcher=("shop.a",), ignore_event=("add column",)),)
)


def wide(ts: int, id: int, **more: str) -> bytes:
    """A row of A after columns were added to it."""
    added = [column for column in (KIND, MORE) if column.name in more]
    table = replace(A, columns=(*A.columns, *added))
    return encode_change(
        Change(table=table, op="INSERT", row={"id": id, "n": 0, "v": "x", **more}), ts, 0
    )


def test_a_column_is_a_dead_letter_and_one_that_was_added_by_hand_holds_the_table(
    new_lives: MakeLives, spark: SparkSession
) -> None:
    """Where an event filter passes over the DDL that adds it."""
    lives = new_lives()
    alter = "ALTER TABLE `shop`.`a` ADD COLUMN `kind` ENUM('new','old')"
    ddl = encode_ddl(Ddl("shop", "a", "ALTER", alter), 30, 0)
    early = wide(40, 2, kind="new")
    lives.produce([*made(10, A), (1, None, row(20, 1, "x")), (0, None, ddl), (1, None, early)])
    lives.produce(marks(50))
    lives.finish(target_ts=45, filter=PAST)
    assert values(lives, "a") == {1: "x"}
    (letter,) = lives.dead_letters()
    assert (letter["error_class"], letter["value"]) == ("unknown-column", early)
    assert "the target table lacks column kind: a filter" in letter["message"]

    uri = lives.warehouse / "shop" / "a"
    kind = r"`kind` STRING COMMENT 'enum(\'new\',\'old\')'"
    spark.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMNS ({kind})")
    lives.produce([(1, None, wide(60, 3, kind="old")), *marks(80)])
    error = lives.live(target_ts=70, filter=PAST)
    assert "and the stream gives it (id bigint, n int, v string)" in str(error)
    assert values(lives, "a") == {1: "x"}
    spark.sql(f"ALTER TABLE delta.`{uri}` DROP COLUMN kind")
    lives.finish(target_ts=70, filter=PAST)
    assert values(lives, "a") == {1: "x"}
    assert len(lives.dead_letters()) == 2


def test_dropped_values_are_counted_and_warned_of(
    new_lives_on_spark: MakeLives, caplog: pytest.LogCaptureFixture
) -> None:
    lives = new_lives_on_spark()
    lives.produce([*made(10, A), *((1, None, wide(20, n, more="y")) for n in (1, 2)), *marks(50)])
    lives.finish(target_ts=40, on_unknown_column="drop")
    lives.produce([(1, None, wide(60, 3, more="y", kind="new")), (1, None, row(61, 4, "z"))])
    lives.produce(marks(80))
    lives.finish(target_ts=70, on_unknown_column="drop", engine="spark")

    assert values(lives, "a") == {1: "x", 2: "x", 3: "x", 4: "z"}
    assert not lives.dead_letters()
    progress = lives.progress()["shop.a"]
    assert (progress.state, progress.dropped_columns) == ("warning", {"more": 3, "kind": 1})
    said = [m for m in own_lines(caplog) if "the target table lacks a column" in m]
    assert [m.rpartition("column=")[2] for m in said] == ["more", "kind"]
