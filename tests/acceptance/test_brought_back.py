"""Others bring an older state of a target back: it waits for the rewind that heals it (rule 5)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from conf.settings import TableRule
from sinks.control.progress import ProgressRow
from tests.acceptance.one_process import Life, Lives
from tests.acceptance.reported import at, ddl, mark, row
from tests.acceptance.small_tables import MakeLives
from tests.shop.feed import Message

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TYPES = {"id": "bigint", "v": "varchar(20)"}
T = ("shop.t",)
FORMS = {
    "upsert": (),
    "soft-delete": (TableRule(matcher=T, soft_delete=True),),
    "append": (TableRule(matcher=T, write_mode="append"),),
    "history": (TableRule(matcher=T, write_mode="history"),),
    "all-columns": (TableRule(matcher=T, key="all-columns"),),
}
LAST = at(11) - 1


class Table:
    """The messages of one that has a key, or none; and another table beside it."""

    def __init__(self, *, is_keyed: bool = True) -> None:
        self._key = ("id",) if is_keyed else None
        key = " PRIMARY KEY" if is_keyed else ""
        columns = f"(`id` BIGINT{key}, `v` VARCHAR(20))"
        self.first = [
            *(ddl(at(0) + n, t, f"CREATE TABLE `shop`.`{t}` {columns}", kind="CREATE")
              for n, t in enumerate("tu")),
            *(self.event(n, "INSERT", n, "first") for n in (1, 2, 3)),
            self.event(1, "INSERT", 1, "first", table="u"),
            *mark(at(4)),
        ]  # fmt: skip
        self.second = [
            self.event(5, "INSERT", 4, "second"),
            self.event(6, "UPDATE", 1, "second", old="first"),
            self.event(7, "DELETE", 2, "first"),
            self.event(7, "INSERT", 2, "second", table="u"),
            *mark(at(9)),
        ]
        self.third = [
            self.event(10, "INSERT", 6, "third"),
            self.event(10, "INSERT", 3, "third", table="u"),
            *mark(at(11)),
        ]
        self.all = [*self.first, *self.second, *self.third]

    def event(
        self, n: int, kind: str, id: int, v: str, *, old: str | None = None, table: str = "t"
    ) -> Message:
        data = {"id": f"{id}", "v": v}
        before = old and {**data, "v": old}
        return row(at(n), table, data, TYPES, kind=kind, old=before or None, key=self._key)


class Target:
    """Of ``shop.t``, in the hands of an operator."""

    def __init__(self, spark: SparkSession, lives: Lives) -> None:
        self.spark = spark
        self.uri = f"{lives.uri}/shop/t"
        self._backup = Path(f"{lives.uri}-backup")

    @property
    def version(self) -> int:
        return DeltaTable(self.uri).version()

    def sql(self, text: str) -> None:
        self.spark.sql(text.format(t=f"delta.`{self.uri}`")).collect()

    def keep(self) -> None:
        shutil.copytree(self.uri, self._backup)

    def put_back(self) -> None:
        """What has come since is gone."""
        shutil.rmtree(self.uri)
        shutil.copytree(self._backup, self.uri)


Way = Callable[[Target, int], None]


def put_back_and_altered(target: Target, _version: int) -> None:
    """So often that the log is as long as it was."""
    was = target.version
    target.put_back()
    while target.version < was:
        target.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('n' = '{target.version}')")


def deleted_and_put_back(target: Target, version: int) -> None:
    """The bug report's: a DELETE by mistake, and its remedy."""
    target.sql("DELETE FROM {t} WHERE id < 4")
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")


WAYS: dict[str, Way] = {
    "RESTORE by Spark": deleted_and_put_back,
    "RESTORE by delta-rs": lambda target, version: DeltaTable(target.uri).restore(version) and None,
    "INSERT OVERWRITE": lambda target, version: target.sql(
        f"INSERT OVERWRITE {{t}} SELECT * FROM {{t}} VERSION AS OF {version}"
    ),
    "backup": lambda target, _: target.put_back(),
    "backup, altered": put_back_and_altered,
}
HARMLESS = {
    "OPTIMIZE": "OPTIMIZE {t}",
    "VACUUM": "VACUUM {t} RETAIN 0 HOURS",
    "constraint": "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id < 1000)",
    "property": "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "purge": "REORG TABLE {t} APPLY (PURGE)",
}


def with_rules(lives: Lives, form: str) -> dict[str, Any]:
    return {"sink": replace(lives.settings.changefeed.sink, tables=FORMS[form])}


def table(lives: Lives, name: str = "shop.t") -> ProgressRow | None:
    return lives.progress().get(name)


def await_there(life: Life, lives: Lives, ts: int, name: str = "shop.t") -> None:
    life.wait_until(lambda: (found := table(lives, name)) and found.checkpoint_ts >= ts)


def await_blocked(life: Life, lives: Lives) -> str:
    """Why it waits, once the other table is at the end."""
    await_there(life, lives, LAST, "shop.u")
    found = life.wait_until(
        lambda: (row := table(lives)) and row.state == "blocked" and row.error and row
    )
    assert found.checkpoint_ts == at(9) - 1
    assert found.error.startswith("table shop.t: ")
    row = life.wait_until(lambda: (row := lives.changefeed()) and row.state == "warning" and row)
    assert row.error == found.error
    assert max(each["primary_ts"] for each in lives.ledger()) <= at(9) - 1
    return str(found.error)


def rewind_of(text: str) -> int:
    (ts,) = re.findall(r"--overwrite-checkpoint-ts (\d+)", text)
    return int(ts)


def undisturbed(new_lives: MakeLives, wanted: Table, form: str) -> list[dict[str, Any]]:
    lives = new_lives(1, partitions=None)
    lives.uri = f"{lives.uri}-undisturbed"
    lives.produce(wanted.all)
    sink = replace(lives.settings.changefeed.sink, warehouse=lives.uri, tables=FORMS[form])
    lives.finish(target_ts=LAST, sink=sink)
    return lives.rows("t")


def check(
    new_lives: MakeLives, spark: SparkSession, way: Way, form: str, *, is_running: bool
) -> None:
    wanted = Table(is_keyed=form != "all-columns")
    lives = new_lives(1, partitions=None)
    target, rules = Target(spark, lives), with_rules(lives, form)
    life = lives.begin(**rules)
    lives.produce(wanted.first)
    await_there(life, lives, at(4) - 1)
    version = target.version
    target.keep()
    lives.produce(wanted.second)
    await_there(life, lives, at(9) - 1)
    if not is_running:
        assert life.stop() is None
    way(target, version)
    lives.produce(wanted.third)
    if not is_running:
        life = lives.begin(**rules)
    told = await_blocked(life, lives)
    assert life.stop() is None
    again = lives.begin(**rules)
    assert await_blocked(again, lives) == told
    assert again.stop() is None
    lives.finish(overwrite_checkpoint_ts=rewind_of(told), target_ts=LAST, **rules)
    assert lives.rows("t") == undisturbed(new_lives, wanted, form)
    found = table(lives)
    assert found is not None
    assert (found.state, found.error) == ("replicating", None)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_table_waits_for_the_rewind(
    new_lives: MakeLives, spark: SparkSession, form: str
) -> None:
    check(new_lives, spark, WAYS["RESTORE by Spark"], form, is_running=True)


@pytest.mark.acceptance
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_found(
    new_lives: MakeLives, spark: SparkSession, way: str, is_running: bool
) -> None:
    check(new_lives, spark, WAYS[way], "upsert", is_running=is_running)


@pytest.mark.parametrize(
    ("form", "is_running"), [("upsert", True), ("append", True), ("append", False)]
)
def test_what_takes_nothing_back_holds_nothing(
    new_lives: MakeLives, spark: SparkSession, form: str, is_running: bool
) -> None:
    """Nor do rows that an operator deletes come back. (A constraint is for the Spark engine, which
    writes no change log.)"""
    wanted, lives = Table(), new_lives(1, partitions=None)
    target, rules = Target(spark, lives), with_rules(lives, form)
    life = lives.begin(**rules)
    lives.produce([*wanted.first, *wanted.second])
    await_there(life, lives, at(9) - 1)
    if not is_running:
        assert life.stop() is None
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for name, statement in HARMLESS.items():
        if name != "constraint" or form == "upsert":
            target.sql(statement)
    target.sql("DELETE FROM {t} WHERE id = 4")
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {target.version - 1}")
    target.sql("DELETE FROM {t} WHERE id = 4")
    lives.produce(wanted.third)
    if not is_running:
        life = lives.begin(**rules)
    await_there(life, lives, LAST)
    assert life.stop() is None
    deleted = {2} if form == "upsert" else set()
    assert {each["id"] for each in lives.rows("t")} == {1, 2, 3, 6} - deleted


def test_who_takes_it_back_or_takes_it_as_it_is_need_not_rewind(
    new_lives: MakeLives, spark: SparkSession
) -> None:
    wanted, lives = Table(), new_lives(1, partitions=None)
    target = Target(spark, lives)
    life = lives.begin()
    lives.produce(wanted.first)
    await_there(life, lives, at(4) - 1)
    version = target.version
    lives.produce(wanted.second)
    await_there(life, lives, at(9) - 1)
    was = target.version
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    lives.produce(wanted.third)
    await_blocked(life, lives)
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {was}")
    await_there(life, lives, LAST)
    assert lives.rows("t") == [
        {"id": 1, "v": "second"}, {"id": 3, "v": "first"},
        {"id": 4, "v": "second"}, {"id": 6, "v": "third"},
    ]  # fmt: skip
    target.sql("INSERT OVERWRITE {t} VALUES (9, 'mine')")
    lives.produce([wanted.event(12, "INSERT", 7, "last"), *mark(at(13))])
    found = life.wait_until(lambda: (row := table(lives)) and row.state == "blocked" and row.error)
    (accepted,) = re.findall(r"set its property ('[\w.]+' = '\d+')", found)
    target.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({accepted})")
    await_there(life, lives, at(13) - 1)
    assert life.stop() is None
    assert lives.rows("t") == [{"id": 7, "v": "last"}, {"id": 9, "v": "mine"}]


@pytest.mark.acceptance
def test_in_a_cluster_others_go_on_and_who_takes_the_table_finds_it_so(
    new_lives: MakeLives, spark: SparkSession
) -> None:
    """Whichever of two captures owns the changefeed, and whichever writes the table."""
    wanted, lives = Table(), new_lives(1, partitions=None)
    target = Target(spark, lives)
    first = lives.begin()
    lives.produce(wanted.first)
    await_there(first, lives, at(4) - 1)
    version = target.version
    second = lives.begin()

    def writers() -> set[str]:
        return {row.capture_id for row in lives.progress().values()}

    first.wait_until(lambda: len(writers()) == 2)
    lives.produce(wanted.second)
    await_there(first, lives, at(9) - 1)
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    lives.produce(wanted.third)
    told = await_blocked(first, lives)
    assert rewind_of(told) == at(4) - 1
    assert first.stop() is None
    second.wait_until(lambda: writers() == {second.capture_id})
    assert await_blocked(second, lives) == told
    assert second.stop() is None
    lives.finish(overwrite_checkpoint_ts=at(4) - 1, target_ts=LAST)
    assert lives.rows("t") == undisturbed(new_lives, wanted, "upsert")


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_a_target_that_was_replaced_waits_until_that_is_undone(
    new_lives: MakeLives, spark: SparkSession, is_running: bool
) -> None:
    wanted, lives = Table(), new_lives(1, partitions=None)
    target = Target(spark, lives)
    life = lives.begin()
    lives.produce(wanted.first)
    await_there(life, lives, at(4) - 1)
    version = target.version
    lives.produce(wanted.second)
    await_there(life, lives, at(9) - 1)
    if not is_running:
        assert life.stop() is None
    target.sql(
        f"CREATE OR REPLACE TABLE {{t}} USING delta AS SELECT * FROM {{t}} VERSION AS OF {version}"
    )
    lives.produce(wanted.third)
    if not is_running:
        life = lives.begin()
    told = await_blocked(life, lives)
    (undo,) = re.findall(r"RESTORE TABLE … (TO VERSION AS OF \d+)", told)
    target.sql(f"RESTORE TABLE {{t}} {undo}")
    await_there(life, lives, LAST)
    assert life.stop() is None
    assert sorted(each["id"] for each in lives.rows("t")) == [1, 3, 4, 6]


def test_a_target_ts_is_not_waited_for(new_lives: MakeLives, spark: SparkSession) -> None:
    """A run to a target-ts ends with the reason, when the other tables are there."""
    wanted, lives = Table(), new_lives(1, partitions=None)
    target = Target(spark, lives)
    lives.produce(wanted.first)
    lives.finish(target_ts=at(4) - 1)
    version = target.version
    lives.produce(wanted.second)
    lives.finish(target_ts=at(9) - 1)
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    lives.produce(wanted.third)
    error = lives.live(target_ts=LAST)
    assert f"--overwrite-checkpoint-ts {at(4) - 1}" in str(error)
    assert len(lives.rows("u")) == 3
    lives.finish(target_ts=LAST, overwrite_checkpoint_ts=at(4) - 1)
    assert len(lives.rows("t")) == 4
