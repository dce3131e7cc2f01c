"""What a batch does about its DDLs: which tables are made, how far rows go, what stops it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import permutations

import pytest

from conf.settings import EventFilter, FilterSettings
from coordination.model import TableName, Ts
from sinks.ddl.classify import KEY, classify
from sinks.ddl.effects import CreateTable, CreateTableLike, Unsupported
from sinks.schema import TableSchema
from streaming.ddl_plan import DdlPlan, in_order, plan, refusal
from streaming.ddl_steps import DdlEvent
from streaming.filter import TableFilter


def ddl(ts: int, query: str, table: str = "t", offset: int = 0, kind: str = "CREATE") -> DdlEvent:
    name = TableName("shop", table)
    return DdlEvent(commit_ts=Ts(ts), offset=offset, name=name, ddl_type=kind, query=query)


def create(ts: int, table: str = "t") -> DdlEvent:
    return ddl(ts, f"CREATE TABLE `{table}` (`id` INT PRIMARY KEY)", table)


def alter(ts: int, table: str = "t") -> DdlEvent:
    return ddl(ts, f"ALTER TABLE `{table}` ADD COLUMN `c` INT", table, kind="ALTER")


SCHEMA = ddl(5, "CREATE DATABASE `shop`", "", kind="QUERY")
INDEX = ddl(40, "CREATE INDEX `i` ON `t` (`id`)", kind="CINDEX")


def planned(
    ddls: Iterable[DdlEvent],
    *,
    checkpoint: int = 0,
    start: int = 0,
    limit: int = 100,
    known: Iterable[str] = (),
    schema: TableSchema | None = None,
    filter_settings: FilterSettings | None = None,
    seen: Mapping[str, int] | None = None,
    shaped: Mapping[str, int] | None = None,
) -> DdlPlan:
    return plan(
        list(ddls),
        checkpoint=Ts(checkpoint),
        start_ts=Ts(start),
        limit=Ts(limit),
        table_filter=TableFilter(filter_settings or FilterSettings()),
        known={TableName("shop", name): schema for name in known},
        seen={TableName("shop", name): Ts(ts) for name, ts in (seen or {}).items()},
        shaped={TableName("shop", name): Ts(ts) for name, ts in (shaped or {}).items()},
    )


def made(found: DdlPlan) -> list[str]:
    return [creation.event.name.table for creation in found.creations]


def test_due_tables_are_made_in_order_and_the_rest_passes() -> None:
    like = ddl(30, "CREATE TABLE `v` LIKE `t`", "v")
    found = planned([SCHEMA, create(10), create(20, "u"), like, INDEX])
    assert made(found) == ["t", "u", "v"]
    assert (found.limit, found.blocked) == (100, None)
    assert isinstance(found.creations[0].table, CreateTable)
    assert isinstance(found.creations[2].table, CreateTableLike)


def test_what_lies_above_the_limit_or_below_the_start_is_not_due() -> None:
    ddls = [create(10), create(20, "u"), create(30, "v"), alter(31)]
    assert made(planned(ddls, checkpoint=15, limit=30)) == ["u", "v"]
    assert made(planned(ddls, start=20, limit=30)) == ["v"]
    assert made(planned(ddls, limit=9)) == []


def test_a_ddl_at_the_checkpoint_is_judged_by_its_table() -> None:
    assert made(planned([create(10)], checkpoint=10)) == ["t"]
    assert made(planned([create(10)], checkpoint=10, known=["t"])) == []


def rename(ts: int, table: str = "t") -> DdlEvent:
    return ddl(ts, f"RENAME TABLE `{table}` TO `new`", table, kind="RENAME")


def test_a_wall_ends_the_rows_right_below_it() -> None:
    found = planned([create(10), rename(20), create(30, "u")])
    assert made(found) == ["t"]
    assert (found.limit, found.blocked, found.runs) == (19, rename(20), None)
    message = str(refusal(rename(20), found.why, "/lake"))
    assert "RENAME TABLE `t` TO `new`" in message
    assert "20" in message
    assert "shop.t" in message


@pytest.mark.parametrize(
    ("query", "way"),
    [
        (
            "ALTER TABLE `t` ADD COLUMN `a``b` ENUM('x','it''s') NOT NULL AFTER `c`, "
            "ADD (`d` DECIMAL(10,2), `e` BLOB)",
            "ALTER TABLE delta.`/lake/shop/t` ADD COLUMNS (`a``b` STRING COMMENT "
            r"'enum(\'x\',\'it\'\'s\')', `d` DECIMAL(10,2) COMMENT 'decimal(10,2)', "
            "`e` BINARY COMMENT 'blob'). Then pass over it",
        ),
        (
            "ALTER TABLE `t` DROP COLUMN `c`",
            "ALTER TABLE delta.`/lake/shop/t` …. Then pass over it",
        ),
        ("ALTER TABLE `t` ADD PRIMARY KEY (`c`)", "The key of a target cannot be changed"),
        ("RENAME TABLE `t` TO `u`", "rows under the new name make a new table"),
        ("DROP TABLE `t`", "the target stays as it is"),
        ("TRUNCATE TABLE `t`", "what it does to the rows of the target do by hand"),
    ],
)
def test_the_way_past_a_wall_is_that_of_its_kind(query: str, way: str) -> None:
    """Of columns and rows where the table or its rows do not allow it."""
    event = ddl(20, query, kind="ALTER")
    (effect,) = classify(query, "ALTER", "shop", "t").effects
    assert isinstance(effect, Unsupported)
    assert way in str(refusal(event, effect.reason, "/lake"))


def test_a_wall_above_the_limit_or_below_the_checkpoint_is_none() -> None:
    assert planned([rename(20)], limit=19).blocked is None
    assert planned([rename(20)], checkpoint=21).blocked is None
    assert planned([rename(20)], limit=20).blocked is not None
    assert planned([rename(20)], checkpoint=19).blocked is not None


def test_an_alter_runs_right_above_the_rows_below_it() -> None:
    found = planned([create(10), alter(20), create(30, "u")])
    assert made(found) == ["t"]
    assert (found.limit, found.blocked, found.next_limit) == (19, alter(20), 29)
    assert found.runs is not None
    assert found.runs.change is not None
    assert [column.name for column in found.runs.change.after.columns] == ["id", "c"]
    truncate = planned([create(10), ddl(20, "TRUNCATE TABLE `t`", kind="TRUNCATE")])
    assert truncate.runs is not None
    assert (truncate.runs.change, truncate.runs.empties, truncate.next_limit) == (None, True, 100)


def test_a_create_that_comes_again_says_nothing_of_what_was_altered_since() -> None:
    (creation,) = planned([create(10)]).creations
    assert isinstance(creation.table, CreateTable)
    first = planned([create(10), alter(20)]).runs
    assert first is not None
    assert first.change is not None
    altered = first.change.after
    found = planned([create(10), alter(30)], known=["t"], schema=altered, seen={"t": 20})
    assert made(found) == []
    assert "c" in found.why  # it is there already: the schema is the altered one


def test_a_table_without_a_key_that_gets_one_is_a_wall() -> None:
    """Its rows are dead letters: they would stay so, without a word."""
    for query in (
        "ALTER TABLE `t` ADD PRIMARY KEY (`id`)",
        "ALTER TABLE `t` ADD COLUMN `c` INT UNIQUE",
    ):
        found = planned([ddl(20, query, kind="ALTER")], known=["t"])
        assert (found.runs, found.why) == (None, KEY), query


def test_an_alter_that_has_run_or_has_no_target_passes() -> None:
    assert planned([create(10), alter(20)], seen={"t": 20}).blocked is None
    assert planned([create(10), alter(20)], seen={"t": 19}).blocked == alter(20)
    assert planned([alter(20)]).blocked is None
    assert planned([alter(20)], known=["t"]).blocked is None  # a table without a key


def test_after_a_rewind_an_alter_is_noted_and_changes_no_shape() -> None:
    found = planned([create(10), alter(20)], shaped={"t": 20})
    assert found.runs is not None
    assert (found.runs.change, found.runs.empties) == (None, False)


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `t` DROP PRIMARY KEY",
        "ALTER TABLE `t` RENAME COLUMN `id` TO `no`",
        "ALTER TABLE `t` ADD COLUMN `c` INT, DROP PRIMARY KEY, ADD PRIMARY KEY (`c`)",
    ],
)
def test_an_alter_of_the_key_is_a_wall(query: str) -> None:
    found = planned([create(10), ddl(20, query, kind="ALTER")])
    assert (found.runs, found.why) == (None, KEY)


def test_a_filter_takes_a_wall_away() -> None:
    by_event = EventFilter(matcher=("shop.t",), ignore_event=("add column",))
    by_text = EventFilter(matcher=("*.*",), ignore_sql=("^ALTER TABLE `t`",))
    of_another = EventFilter(matcher=("shop.u",), ignore_event=("all ddl",))
    for rule in (by_event, by_text):
        found = planned(
            [create(10), alter(20)], filter_settings=FilterSettings(event_filters=(rule,))
        )
        assert (found.blocked, found.limit) == (None, 100)
    kept = planned(
        [create(10), alter(20)], filter_settings=FilterSettings(event_filters=(of_another,))
    )
    assert kept.blocked == alter(20)
    without = FilterSettings(rules=("*.*", "!shop.t"))
    assert planned([create(10), alter(20)], filter_settings=without) == DdlPlan(limit=Ts(100))


def test_dropping_a_schema_is_a_wall_unless_it_is_ignored() -> None:
    drop = ddl(20, "DROP DATABASE `shop`", "", kind="QUERY")
    assert planned([drop]).blocked == drop
    rule = EventFilter(matcher=("shop.*",), ignore_event=("drop database",))
    assert planned([drop], filter_settings=FilterSettings(event_filters=(rule,))).blocked is None


def test_dropping_the_index_that_is_the_key_is_a_wall() -> None:
    """Without it two rows may be equal in what we take for the key."""
    table = ddl(
        10,
        "CREATE TABLE `t` (`code` INT NOT NULL, `n` INT, UNIQUE KEY `by_code` (`code`), "
        "KEY `by_n` (`n`))",
    )
    drop = ddl(20, "ALTER TABLE `t` DROP INDEX `by_code`", kind="ALTER")
    other = ddl(20, "ALTER TABLE `t` DROP INDEX `by_n`", kind="ALTER")
    made_here = planned([table, drop])
    assert (made_here.blocked, made_here.limit) == (drop, 19)
    assert planned([table, other]).blocked is None
    first = planned([table]).creations[0].table
    assert isinstance(first, CreateTable)
    assert planned([drop], known=["t"], schema=first.schema).blocked == drop
    assert planned([other], known=["t"], schema=first.schema).blocked is None


def test_the_order_of_arrival_and_replays_change_nothing() -> None:
    events = [create(10), create(20, "u"), INDEX, alter(50)]
    wanted = planned(events)
    for order in permutations(events):
        ddls = in_order((*order, *order[:2]))
        assert [event.commit_ts for event in ddls] == [10, 20, 40, 50]
        assert planned(ddls) == wanted


def test_two_ddls_of_one_commit_ts_both_count() -> None:
    """One RENAME or CREATE of several tables has one commit-ts; so may two tables' DDLs."""
    both = [create(10), replace(create(10, "u"), offset=1)]
    assert made(planned(in_order((*both, *both)))) == ["t", "u"]
