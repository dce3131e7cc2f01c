"""Others bring an older state of a target back: it waits for the rewind that heals it (rule 5)."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from conf.settings import TableRule
from sinks.control.progress import ProgressRow
from tests.acceptance.one_process import Life, Lives
from tests.acceptance.reported import at, ddl, mark, row
from tests.acceptance.small_tables import MakeLives
from tests.own_lines import own_text
from tests.shop.feed import Message

pytestmark = pytest.mark.spark

TYPES = {"id": "bigint", "v": "varchar(20)"}
FORMS: dict[str, dict[str, Any]] = {
    "upsert": {},
    "soft-delete": {"soft_delete": True},
    "append": {"write_mode": "append"},
    "history": {"write_mode": "history"},
    "all-columns": {"key": "all-columns"},
}
LAST = at(11) - 1
BESIDE = "u"  # a table that nobody touches


class Messages:
    """Of these tables, each in its form, and of one beside them."""

    def __init__(self, forms: Mapping[str, str] = MappingProxyType({"t": "upsert"})) -> None:
        self.forms = forms
        self.first = [
            *(self._made(at(0) + n, table) for n, table in enumerate((*forms, BESIDE))),
            *(self.event(t, n, "INSERT", n, "first") for n in (1, 2, 3) for t in forms),
            self.event(BESIDE, 1, "INSERT", 1, "first"),
            *mark(at(4)),
        ]
        self.second = [
            *(self.event(t, 5, "INSERT", 4, "second") for t in forms),
            *(self.event(t, 6, "UPDATE", 1, "second", old="first") for t in forms),
            *(self.event(t, 7, "DELETE", 2, "first") for t in forms),
            self.event(BESIDE, 7, "INSERT", 2, "second"),
            *mark(at(9)),
        ]
        self.third = [
            *(self.event(t, 10, "INSERT", 6, "third") for t in forms),
            self.event(BESIDE, 10, "INSERT", 3, "third"),
            *mark(at(11)),
        ]
        self.all = [*self.first, *self.second, *self.third]

    @property
    def rules(self) -> tuple[TableRule, ...]:
        """``[[sink.tables]]``."""
        forms = {table: FORMS[form] for table, form in self.forms.items()}
        return tuple(TableRule(matcher=(f"shop.{t}",), **form) for t, form in forms.items() if form)

    def _is_keyed(self, table: str) -> bool:
        return self.forms.get(table) != "all-columns"

    def _made(self, ts: int, table: str) -> Message:
        key = " PRIMARY KEY" if self._is_keyed(table) else ""
        columns = f"(`id` BIGINT{key}, `v` VARCHAR(20))"
        return ddl(ts, table, f"CREATE TABLE `shop`.`{table}` {columns}", kind="CREATE")

    def event(
        self, table: str, n: int, kind: str, id: int, v: str, *, old: str | None = None
    ) -> Message:
        data = {"id": f"{id}", "v": v}
        before = old and {**data, "v": old}
        key = ("id",) if self._is_keyed(table) else None
        return row(at(n), table, data, TYPES, kind=kind, old=before or None, key=key)


class Target:
    """Of one table, in the hands of an operator."""

    def __init__(self, spark: SparkSession, lives: Lives, table: str = "t") -> None:
        self.spark = spark
        self.uri = f"{lives.uri}/shop/{table}"
        self._backup = Path(f"{lives.uri}-backup-of-{table}")

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
# Every form is brought back in one way, and one form in every way; a table of each.
FIRST_WAY = "RESTORE by Spark"
CASES = {
    **{form.replace("-", "_"): (form, FIRST_WAY) for form in FORMS},
    **{f"way{n}": ("upsert", way) for n, way in enumerate(WAYS) if way != FIRST_WAY},
}
HARMLESS = {
    "OPTIMIZE": "OPTIMIZE {t}",
    "VACUUM": "VACUUM {t} RETAIN 0 HOURS",
    "constraint": "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id < 1000)",
    "property": "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "purge": "REORG TABLE {t} APPLY (PURGE)",
}


def with_rules(lives: Lives, wanted: Messages) -> dict[str, Any]:
    return {"sink": replace(lives.settings.changefeed.sink, tables=wanted.rules)}


def progress(lives: Lives, table: str = "t") -> ProgressRow | None:
    return lives.progress().get(f"shop.{table}")


def await_there(life: Life, lives: Lives, ts: int, *tables: str) -> None:
    """All these, or all that there are."""

    def are_there() -> bool:
        found = lives.progress()
        rows = [found.get(f"shop.{each}") for each in tables] if tables else [*found.values()]
        return bool(rows) and all(each and each.checkpoint_ts >= ts for each in rows)

    life.wait_until(are_there)


def await_blocked(life: Life, lives: Lives, *tables: str) -> dict[str, str]:
    """Why each of them waits, once the table beside them is at the end."""
    await_there(life, lives, LAST, BESIDE)
    told: dict[str, str] = {}
    for each in tables or ("t",):
        found = life.wait_until(
            lambda each=each: (
                (row := progress(lives, each)) and row.state == "blocked" and row.error and row
            )
        )
        assert found.checkpoint_ts == at(9) - 1
        assert found.error.startswith(f"table shop.{each}: ")
        told[each] = found.error
    row = life.wait_until(lambda: (row := lives.changefeed()) and row.state == "warning" and row)
    assert row.error in told.values()
    assert max(each["primary_ts"] for each in lives.ledger()) <= at(9) - 1
    return told


def rewind_of(text: str) -> int:
    (ts,) = re.findall(r"--overwrite-checkpoint-ts (\d+)", text)
    return int(ts)


def undisturbed(new_lives: MakeLives, wanted: Messages) -> Lives:
    lives = new_lives(1, partitions=None)
    lives.uri = f"{lives.uri}-undisturbed"
    lives.produce(wanted.all)
    sink = replace(lives.settings.changefeed.sink, warehouse=lives.uri, tables=wanted.rules)
    lives.finish(target_ts=LAST, sink=sink)
    return lives


# Both ways where each form is brought back; of the others the shorter way, and the soak has both.
IN_TIME_WHEN_STOPPED = pytest.mark.parametrize(
    "is_running", [pytest.param(True, marks=pytest.mark.soak), False], ids=["running", "stopped"]
)


@pytest.mark.more  # upserts alone, and their rewind: test_in_a_cluster…
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_each_form_brought_back_in_each_way_waits_for_the_rewind(
    new_lives: MakeLives, spark: SparkSession, *, is_running: bool
) -> None:
    wanted = Messages({table: form for table, (form, _) in CASES.items()})
    lives = new_lives(1, partitions=None)
    targets = {table: Target(spark, lives, table) for table in CASES}
    rules = with_rules(lives, wanted)
    life = lives.begin(**rules)
    lives.produce(wanted.first)
    await_there(life, lives, at(4) - 1, *CASES, BESIDE)
    versions = {table: target.version for table, target in targets.items()}
    for target in targets.values():
        target.keep()
    lives.produce(wanted.second)
    await_there(life, lives, at(9) - 1)
    if not is_running:
        assert life.stop() is None
    for table, (_, way) in CASES.items():
        WAYS[way](targets[table], versions[table])
    lives.produce(wanted.third)
    if not is_running:
        life = lives.begin(**rules)
    told = await_blocked(life, lives, *CASES)
    assert life.stop() is None
    again = lives.begin(**rules)
    assert await_blocked(again, lives, *CASES) == told
    assert again.stop() is None
    rewinds = {way: rewind_of(told[table]) for table, (_, way) in CASES.items()}
    assert rewinds.pop("INSERT OVERWRITE") < at(4) - 1, "nobody can know what it has"
    assert {*rewinds.values()} == {at(4) - 1}
    lives.finish(overwrite_checkpoint_ts=at(4) - 1, target_ts=LAST, **rules)
    right = undisturbed(new_lives, wanted)
    for table in CASES:
        assert lives.rows(table) == right.rows(table), table
        found = progress(lives, table)
        assert found is not None
        assert (found.state, found.error) == ("replicating", None), table


@IN_TIME_WHEN_STOPPED
@pytest.mark.more
def test_what_takes_nothing_back_holds_nothing(
    new_lives_on_spark: MakeLives, spark: SparkSession, *, is_running: bool
) -> None:
    """Nor do rows that an operator deletes come back. (A constraint is for the Spark engine, which
    writes no change log.)"""
    wanted, lives = (
        Messages({"t": "upsert", "log": "append"}),
        new_lives_on_spark(1, partitions=None),
    )
    rules = with_rules(lives, wanted)
    life = lives.begin(**rules)
    lives.produce([*wanted.first, *wanted.second])
    await_there(life, lives, at(9) - 1, *wanted.forms)
    if not is_running:
        assert life.stop() is None
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for table, form in wanted.forms.items():
        target = Target(spark, lives, table)
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
    assert {each["id"] for each in lives.rows("t")} == {1, 3, 6}
    assert {each["id"] for each in lives.rows("log")} == {1, 2, 3, 6}


@IN_TIME_WHEN_STOPPED
@pytest.mark.more
def test_who_takes_it_back_or_takes_it_as_it_is_need_not_rewind(
    new_lives: MakeLives, spark: SparkSession, *, is_running: bool
) -> None:
    """And a table that was replaced waits until that is undone."""
    wanted, lives = (
        Messages({"t": "upsert", "replaced": "upsert"}),
        new_lives(1, partitions=None),
    )
    target, replaced = Target(spark, lives), Target(spark, lives, "replaced")
    life = lives.begin()
    lives.produce(wanted.first)
    await_there(life, lives, at(4) - 1, *wanted.forms)
    version, then = target.version, replaced.version
    lives.produce(wanted.second)
    await_there(life, lives, at(9) - 1)
    if not is_running:
        assert life.stop() is None
    was = target.version
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    replaced.sql(
        f"CREATE OR REPLACE TABLE {{t}} USING delta AS SELECT * FROM {{t}} VERSION AS OF {then}"
    )
    lives.produce(wanted.third)
    if not is_running:
        life = lives.begin()
    told = await_blocked(life, lives, *wanted.forms)
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {was}")
    (undo,) = re.findall(r"RESTORE TABLE … (TO VERSION AS OF \d+)", told["replaced"])
    replaced.sql(f"RESTORE TABLE {{t}} {undo}")
    await_there(life, lives, LAST)
    for table in wanted.forms:
        assert lives.rows(table) == [
            {"id": 1, "v": "second"}, {"id": 3, "v": "first"},
            {"id": 4, "v": "second"}, {"id": 6, "v": "third"},
        ], table  # fmt: skip
    target.sql("INSERT OVERWRITE {t} VALUES (9, 'mine')")
    lives.produce([wanted.event("t", 12, "INSERT", 7, "last"), *mark(at(13))])
    found = life.wait_until(
        lambda: (row := progress(lives)) and row.state == "blocked" and row.error
    )
    (accepted,) = re.findall(r"set its property ('[\w.]+' = '\d+')", found)
    target.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({accepted})")
    await_there(life, lives, at(13) - 1)
    assert life.stop() is None
    assert lives.rows("t") == [{"id": 7, "v": "last"}, {"id": 9, "v": "mine"}]


@pytest.mark.acceptance
def test_in_a_cluster_others_go_on_and_who_takes_the_table_finds_it_so(
    new_lives: MakeLives, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever of two captures owns the changefeed, and whichever writes the table."""
    wanted, lives = Messages(), new_lives(1, partitions=None)
    target = Target(spark, lives)
    with caplog.at_level(logging.INFO, logger="coordination"):
        first = lives.begin()
        first.wait_until(lives.changefeed)
        second = lives.begin()
        # A table that is made now is another's at once, one of before after a minute.
        second.wait_until(lambda: own_text(caplog).count("replica opened") == 2)
    lives.produce(wanted.first)
    await_there(first, lives, at(4) - 1, "t")
    version = target.version

    def writers() -> set[str]:
        return {row.capture_id for row in lives.progress().values()}

    first.wait_until(lambda: len(writers()) == 2)
    lives.produce(wanted.second)
    await_there(first, lives, at(9) - 1)
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    lives.produce(wanted.third)
    told = await_blocked(first, lives)
    assert rewind_of(told["t"]) == at(4) - 1
    assert first.stop() is None
    second.wait_until(lambda: writers() == {second.capture_id})
    assert await_blocked(second, lives) == told
    assert second.stop() is None
    lives.finish(overwrite_checkpoint_ts=at(4) - 1, target_ts=LAST)
    assert lives.rows("t") == undisturbed(new_lives, wanted).rows("t")
