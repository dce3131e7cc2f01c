"""ALTER TABLEs that give a table another key, as the plan of a batch has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings, TableRule
from sinks.ddl.classify import KEY
from sinks.ddl.effects import CreateTable
from sinks.types.table_schema import TableSchema
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.ddl.plan import DdlPlan
from streaming.owner.ddl.steps import TOLD_APART_ANEW, DdlEvent
from tests.streaming.owner.ddl.test_plan import ddl, order, planned

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
    forms = WriteModes([TableRule(matcher=("shop.t",), write_mode="append")])
    events = [
        ddl(10, f"CREATE TABLE `t` ({made_with})"),
        ddl(20, f"ALTER TABLE `t` {clause}", kind="ALTER"),
    ]
    found = planned(events, forms=forms)
    assert found.runs is not None, found.why
    assert found.runs.change is not None
    assert found.runs.change.after.key == key
    assert planned(events).runs is None


BY_ALL = WriteModes([TableRule(matcher=("shop.t",), key="all-columns")])


@pytest.mark.parametrize(
    ("made_with", "clause", "key", "is_row"),
    [
        ("`id` INT PRIMARY KEY, `v` INT", "ADD COLUMN `n` INT", ("id",), False),
        ("`id` INT PRIMARY KEY, `v` INT", "DROP COLUMN `v`", ("id",), False),
        ("`id` INT, `v` INT", "ADD UNIQUE `u` (`id`)", ("id", "v"), True),
        ("`id` INT, `v` INT", "ADD COLUMN `n` INT FIRST", ("n", "id", "v"), True),
        ("`id` INT, `v` INT", "ADD COLUMN `n` INT AS (`id` + 1)", ("id", "v"), True),
        ("`id` INT, `v` INT", "RENAME COLUMN `v` TO `w`", ("id", "w"), True),
        ("`id` INT, `v` INT", "MODIFY `v` BIGINT", ("id", "v"), True),
    ],
)
def test_a_table_by_all_columns_goes_on_where_its_rows_stay_apart(
    made_with: str, clause: str, key: tuple[str, ...], *, is_row: bool
) -> None:
    events = [
        ddl(10, f"CREATE TABLE `t` ({made_with})"),
        ddl(20, f"ALTER TABLE `t` {clause}", kind="ALTER"),
    ]
    found = planned(events, forms=BY_ALL)
    assert found.runs is not None, found.why
    assert found.runs.change is not None
    after = found.runs.change.after
    assert (after.key, after.key_is_row) == (key, is_row)


@pytest.mark.parametrize(
    ("made_with", "clause"),
    [
        ("`id` INT PRIMARY KEY, `v` INT", "DROP PRIMARY KEY"),
        ("`id` INT NOT NULL, `v` INT, UNIQUE `u` (`id`)", "DROP INDEX `u`"),
        ("`id` INT PRIMARY KEY, `v` INT", "DROP PRIMARY KEY, DROP COLUMN `id`"),
        ("`id` INT, `v` INT", "ADD PRIMARY KEY (`id`)"),
        ("`id` INT NOT NULL, `v` INT", "ADD UNIQUE `u` (`id`)"),
        ("`id` INT, `v` INT", "DROP COLUMN `v`"),
        ("`id` INT, `v` INT", "DROP COLUMN `v`, ADD COLUMN `n` INT"),
        ("`id` INT, `v` INT", "MODIFY `v` VARCHAR(9)"),
        ("`id` INT, `v` DECIMAL(6,2)", "MODIFY `v` INT"),
        ("`id` INT, `v` INT", "ADD COLUMN `n` INT DEFAULT 1, ADD PRIMARY KEY (`n`)"),
    ],
)
def test_a_table_by_all_columns_is_held_where_its_rows_may_become_one(
    made_with: str, clause: str
) -> None:
    events = [
        ddl(10, f"CREATE TABLE `t` ({made_with})"),
        ddl(20, f"ALTER TABLE `t` {clause}", kind="ALTER"),
    ]
    found = planned(events, forms=BY_ALL)
    assert (found.runs, why(found)) == (None, [TOLD_APART_ANEW])


COUNTED = WriteModes([TableRule(matcher=("shop.t",), key="rows")])


@pytest.mark.parametrize(
    ("made_with", "clause", "runs"),
    [
        ("`id` INT, `v` INT", "DROP COLUMN `v`", True),
        ("`id` INT, `v` INT", "MODIFY `v` VARCHAR(9)", True),
        ("`id` INT, `v` DECIMAL(6,2)", "MODIFY `v` INT", True),
        ("`id` INT, `v` INT", "ADD PRIMARY KEY (`id`)", False),
        ("`id` INT NOT NULL, `v` INT", "ADD UNIQUE `u` (`id`)", False),
        ("`id` INT PRIMARY KEY, `v` INT", "DROP PRIMARY KEY", False),
    ],
)
def test_where_rows_are_counted_they_may_become_equal(
    made_with: str, clause: str, *, runs: bool
) -> None:
    events = [
        ddl(10, f"CREATE TABLE `t` ({made_with})"),
        ddl(20, f"ALTER TABLE `t` {clause}", kind="ALTER"),
    ]
    found = planned(events, forms=COUNTED)
    assert (found.runs is not None) == runs
    assert why(found) == ([] if runs else [TOLD_APART_ANEW])


def test_what_a_like_takes_of_a_key_is_by_its_own_rule() -> None:
    """That the source has none, and not by what its rows are told apart."""
    made = ddl(10, "CREATE TABLE `t` (`id` INT)")
    for table, loses in (("t2", None), ("t", True)):
        like = ddl(20, f"CREATE TABLE `{table}` LIKE `t`", table)
        add = ddl(30, f"ALTER TABLE `{table}` ADD COLUMN `c` INT", table, kind="ALTER")
        found = planned([made, like, add], forms=BY_ALL)
        assert (found.runs is not None) == bool(loses)


def test_who_loses_the_last_key_is_told_the_choices() -> None:
    made = ddl(10, "CREATE TABLE `t` (`id` INT PRIMARY KEY)")
    lose = ddl(20, "ALTER TABLE `t` DROP PRIMARY KEY", kind="ALTER")
    for forms in (None, BY_ALL):
        assert why(planned([made, lose], forms=forms)) == [TOLD_APART_ANEW]


def test_what_else_is_done_to_a_table_without_a_key_passes() -> None:
    keyless = ddl(10, "CREATE TABLE `t` (`id` INT)")
    for query in ("TRUNCATE TABLE `t`", "ALTER TABLE `t` ADD COLUMN `c` INT"):
        assert planned([keyless, ddl(20, query)]).blocked is None
