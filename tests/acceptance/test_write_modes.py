"""A history, and soft deletes with extra columns, through a crash, a replay, a TRUNCATE and a
rewind, as Spark reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conf.load import load_settings
from conf.settings import TableRule
from coordination.failpoint import Failpoint
from tests.acceptance import reported
from tests.acceptance.small_tables import A, B, MakeLives, made, marks, row
from tests.shop.canal_json import Ddl, encode_ddl
from tests.shop.feed import Message

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

RULES = (
    TableRule(matcher=("shop.a",), write_mode="history"),
    TableRule(
        matcher=("shop.b",),
        soft_delete=True,
        extra_columns=("_tidelake_commit_ts", "_tidelake_op"),
    ),
)


def truncate(name: str, ts: int) -> Message:
    ddl = Ddl("shop", name, "TRUNCATE", f"TRUNCATE TABLE `shop`.`{name}`")
    return 0, None, encode_ddl(ddl, ts, 0)


def test_every_mode_through_crash_replay_truncate_and_rewind(
    new_lives_on_spark: MakeLives, spark: SparkSession
) -> None:
    lives = new_lives_on_spark()
    changefeed = lives.settings.changefeed
    sink = replace(changefeed.sink, tables=RULES)
    lives.settings = replace(lives.settings, changefeed=replace(changefeed, sink=sink))
    lives.produce(made(10, A, B))
    for table in (A, B):
        first = [
            (1, None, row(20, 1, "a", table=table)),
            (1, None, row(30, 1, "b", table=table, op="UPDATE")),
            (2, None, row(30, 2, "x", table=table)),
            (1, None, row(40, 1, "b", table=table, op="DELETE")),
        ]
        lives.produce([*first, *first[::-1]])
    lives.produce([truncate("a", 60), truncate("b", 61)])
    for table in (A, B):
        lives.produce([(1, None, row(70, 1, "c", table=table))])
    lives.produce(marks(100))

    for target_ts in (35, 45):
        error = lives.live(f"{Failpoint.AFTER_APPLY_ONE}=raise:1", target_ts=target_ts)
        assert f"failpoint {Failpoint.AFTER_APPLY_ONE}" in str(error)
    lives.finish(target_ts=90)

    def agree() -> None:
        found = spark.read.format("delta").load(f"{lives.uri}/shop/a").collect()
        versions = [(r["id"], r["v"], r["_valid_from_ts"], r["_valid_to_ts"]) for r in found]
        assert sorted(versions, key=repr) == [
            (1, "a", 20, 30), (1, "b", 30, 40), (1, "c", 70, None), (2, "x", 30, 60),
        ]  # fmt: skip
        assert [r["id"] for r in found if r["_is_current"]] == [1]
        found = spark.read.format("delta").load(f"{lives.uri}/shop/b").collect()
        extra = ("_tidelake_commit_ts", "_tidelake_op", "_tidelake_deleted")
        assert {r["id"]: (r["v"], *(r[name] for name in extra)) for r in found} == {
            1: ("c", 70, "insert", False),
            2: ("x", 61, "delete", True),
        }
        assert not lives.dead_letters()

    agree()
    lives.finish(target_ts=95, overwrite_checkpoint_ts=25)
    agree()


def test_the_local_changefeed_file_with_modes_runs(new_lives_on_spark: MakeLives) -> None:
    file = Path(__file__).resolve().parents[2] / "conf" / "local-modes.toml"
    wanted = load_settings(config=file, environment={}, arguments={}).changefeed
    lives = new_lives_on_spark(1, partitions=None)
    sink = replace(lives.settings.changefeed.sink, tables=wanted.sink.tables)
    types = {"id": "bigint", "v": "varchar"}
    key: dict[str, Sequence[str] | None] = {
        "audit_log": None, "prices": ("id",), "customers": ("id",), "orders": ("id",), "bag": None,
    }  # fmt: skip
    messages = []
    for name, of in key.items():
        columns = f"`id` BIGINT{' PRIMARY KEY' if of else ''},`v` VARCHAR(9)"
        query = f"CREATE TABLE `{name}` ({columns})"
        one = {"id": "1", "v": "a"}
        messages += [
            reported.ddl(reported.at(0), name, query, kind="CREATE"),
            reported.row(reported.at(1), name, one, types, key=of),
            reported.row(reported.at(2), name, one, types, key=of, kind="DELETE"),
            reported.row(reported.at(3), name, {"id": "2", "v": "b"}, types, key=of),
        ]
    changes = {"sink": sink, "filter": wanted.filter}
    reported.play(lives, [*messages, *reported.mark(reported.at(5))], **changes)
    found = {name: sorted(each["id"] for each in lives.rows(name)) for name in key}
    assert found == {
        "audit_log": [1, 1, 2], "prices": [1, 2], "customers": [1, 2], "orders": [2], "bag": [2],
    }  # fmt: skip
    assert not lives.dead_letters()
