"""ALTER TABLEs that give a table another key, as the plan of a batch has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conf.settings import EventFilter, FilterSettings, TableRule
from sinks.ddl.classify import KEY
from sinks.ddl.effects import CreateTable
from sinks.schema import TableSchema
from streaming.ddl_plan import DdlPlan
from streaming.ddl_steps import DdlEvent
from streaming.filter import TableForms
from tests.streaming.test_ddl_plan import ddl, order, planned

KEYS = ddl(
    10,
    "CREATE TABLE `t` (`a` INT, `b` INT NOT NULL, `u` VARCHAR(9) NOT NULL, PRIMARY KEY (`a`), "
    "UNIQUE KEY `by_u` (`u`), KEY `by_b` (`b`))",
)


@pytest.mark.parametrize(
    ("specification", "key"),
    [
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (`a`, `b`)", ("a", "b")),
        ("RENAME COLUMN `a` TO `no`", ("no",)),
        ("CHANGE `a` `no` BIGINT", ("no",)),
        ("MODIFY `a` BIGINT", ("a",)),
        ("DROP PRIMARY KEY", ("u",)),
        ("DROP PRIMARY KEY, RENAME COLUMN `u` TO `code`", ("code",)),
        ("RENAME COLUMN `a` TO `b`, RENAME COLUMN `b` TO `a`", ("b",)),
    ],
)
def test_a_table_gets_another_key_in_its_place(specification: str, key: tuple[str, ...]) -> None:
    found = planned([KEYS, ddl(20, f"ALTER TABLE `t` {specification}", kind="ALTER")])
    assert found.runs is not None, found.why
    assert found.runs.change is not None
    assert found.runs.change.after.key == key


def why(found: DdlPlan) -> list[str]:
    return [held.why for held in found.held]


def test_a_unique_index_becomes_the_key_where_all_of_them_are_known() -> None:
    add = ddl(20, "ALTER TABLE `t` ADD UNIQUE `by_b` (`b`)", kind="ALTER")
    drop = ddl(30, "DROP INDEX `by_u` ON `t`", kind="DINDEX")
    plain = ddl(40, "DROP INDEX `by_x` ON `t`", kind="DINDEX")
    take = ddl(50, "ALTER TABLE `t` DROP PRIMARY KEY", kind="ALTER")

    def schema_after(*events: DdlEvent) -> TableSchema:
        (creation,) = planned([KEYS]).creations
        assert isinstance(creation.table, CreateTable)
        schema = creation.table.schema
        for event in events:
            runs = planned([event], known=["t"], schema=schema).runs
            assert runs is not None
            assert runs.change is not None
            schema = runs.change.after
        return schema

    assert schema_after(add, drop, take).key == ("b",)
    assert planned([plain], known=["t"], schema=schema_after()).blocked is None
    of_before = replace(schema_after(), follows_indexes=False)
    unsure = planned([take], known=["t"], schema=of_before)
    assert (unsure.runs, why(unsure)) == (None, [KEY])
    assert planned([add], known=["t"], schema=of_before).blocked is None
    events = EventFilter(matcher=("shop.t",), ignore_event=("drop index",))
    filters = FilterSettings(event_filters=(events,))
    filtered = planned([take], known=["t"], schema=schema_after(), filter_settings=filters)
    assert (filtered.runs, why(filtered)) == (None, [KEY])
    skipped = planned([take], known=["t"], schema=schema_after(), orders=[order(30, "skip")])
    assert (skipped.runs, why(skipped)) == (None, [KEY])
    other = planned(
        [take], known=["t"], schema=schema_after(), orders=[order(30, "skip", table="u")]
    )
    assert other.runs is not None


@pytest.mark.parametrize(
    ("made_with", "clause", "key"),
    [
        ("`id` INT PRIMARY KEY", "DROP PRIMARY KEY", ()),
        ("`id` INT NOT NULL, UNIQUE `u` (`id`)", "DROP INDEX `u`", ()),
        ("`id` INT", "ADD PRIMARY KEY (`id`)", ("id",)),
        ("`id` INT NOT NULL", "ADD UNIQUE `u` (`id`)", ("id",)),
        ("`id` INT", "ADD COLUMN `n` INT DEFAULT 1, ADD PRIMARY KEY (`n`)", ("n",)),
        ("`id` INT", "ADD COLUMN `n` INT", ()),
    ],
)
def test_a_change_log_gets_and_loses_its_key(
    made_with: str, clause: str, key: tuple[str, ...]
) -> None:
    forms = TableForms([TableRule(matcher=("shop.t",), write_mode="append")])
    events = [
        ddl(10, f"CREATE TABLE `t` ({made_with})"),
        ddl(20, f"ALTER TABLE `t` {clause}", kind="ALTER"),
    ]
    found = planned(events, forms=forms)
    assert found.runs is not None, found.why
    assert found.runs.change is not None
    assert found.runs.change.after.key == key
    assert planned(events).runs is None


def test_what_else_is_done_to_a_table_without_a_key_passes() -> None:
    keyless = ddl(10, "CREATE TABLE `t` (`id` INT)")
    for query in ("TRUNCATE TABLE `t`", "ALTER TABLE `t` ADD COLUMN `c` INT"):
        assert planned([keyless, ddl(20, query)]).blocked is None
