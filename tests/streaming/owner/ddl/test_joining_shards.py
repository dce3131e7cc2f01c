"""Upstream tables that join one target at one commit-ts: the target tells steps apart by that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conf.settings import FilterSettings
from coordination.model import TableName
from streaming.changefeed.routes import Routes
from streaming.owner.ddl.steps import ROWS
from tests.streaming.owner.ddl import test_shards
from tests.streaming.owner.ddl.test_shards import (
    ADD,
    SHARDS,
    TARGET,
    A,
    B,
    C,
    Lake,
    event,
    held,
    order,
)

CREATE = "CREATE TABLE `{}` (id INT PRIMARY KEY, v INT)"


@pytest.mark.parametrize(
    "given",
    [
        [(B, "-- b", ROWS), (C, "-- c", ROWS)],
        [(B, CREATE, "CREATE"), (C, CREATE, "CREATE")],
        [(B, CREATE, "CREATE"), (C, "-- c", ROWS)],
        [(B, "-- b", ROWS), (C, "CREATE TABLE `{}` LIKE s1.o1", "CREATE"), (A, "-- a", ROWS)],
    ],
)
def test_tables_join_together_at_one_commit_ts(given: list[tuple[TableName, str, str]]) -> None:
    lake = Lake.of(A)
    news = [event(10, *each) for each in given]
    assert not lake.on(news).held
    assert set(lake.shards[TARGET]) == {A, B, C}
    assert len(lake.ran) == 1  # the target tells DDLs apart by their commit-ts
    assert "s1.o2, s2.o1" in held(lake.on([*news, event(20, A, ADD)]))[0][1]


def test_so_do_those_with_the_one_that_makes_the_target() -> None:
    found = Lake().plan([event(10, each, CREATE, "CREATE") for each in (A, B, C)])
    assert [each.event.name for each in found.creations] == [TARGET]
    assert found.runs is not None
    assert set(found.runs.shards[TARGET]) == {A, B, C}


@pytest.mark.parametrize("others", [(B, C), (C,), ()])
def test_they_join_also_after_an_owner_that_died_when_it_had_made_the_target(
    others: tuple[TableName, ...],
) -> None:
    """Each joins then, and not at its first ALTER TABLE, which would run once more."""
    creates = [event(10, each, CREATE, "CREATE") for each in (A, *others)]
    lake = Lake()
    lake.make(lake.plan(creates))
    lake.on(creates)
    assert set(lake.shards[TARGET]) == {A, *others}
    assert len(lake.ran) == bool(others)
    alters = [event(20 + 10 * at, each, ADD) for at, each in enumerate((A, *others))]
    assert not lake.on([*creates, *alters]).held
    assert len(lake.past) == 2


def test_one_of_another_shape_holds_what_such_an_owner_has_made() -> None:
    creates = [event(10, A, CREATE, "CREATE")]
    other = event(10, B, CREATE.replace("v INT", "w INT"), "CREATE")
    creates.append(replace(other, place=other.place + 1))
    lake = Lake()
    ((ts, why, _),) = held(lake.on(creates))
    assert (ts, "s1.o2 goes into shop.o with other tables, and is another" in why) == (10, True)
    assert not lake.on(creates, orders=[order(10, "skip")]).held
    assert set(lake.shards[TARGET]) == {A, B}


def test_nothing_joins_a_table_without_a_key() -> None:
    """It has no target. Its CREATE TABLE may be planned again."""
    lake = Lake.of(A)
    lake.schemas[TARGET], lake.shards = None, {}
    assert not lake.on([event(10, each, CREATE, "CREATE") for each in (A, B)]).held
    assert lake.ran == []


def test_each_of_those_is_checked() -> None:
    news = [event(10, B, "-- b", ROWS), event(10, C, "-- c", ROWS)]
    news += [event(10, TableName("s3", "o1"), CREATE.replace("v INT", "w INT"), "CREATE")]
    lake = Lake.of(A)
    ((_, why, is_waiting),) = held(lake.on(news, unlike={C: "c is another"}))
    assert "c is another" in why
    assert "s3.o1 goes into shop.o with other tables, and is another: it has w" in why
    assert not is_waiting
    assert set(lake.shards[TARGET]) == {A}
    assert not lake.on(news, orders=[order(10, "skip")], unlike={C: "c is another"}).held
    assert len(lake.shards[TARGET]) == 4


def test_those_whose_rows_no_column_tells_apart_do_not_join_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    telling = replace(SHARDS, extract_table=None)  # the schema alone
    monkeypatch.setattr(test_shards, "ROUTES", Routes((telling,), FilterSettings()))
    other = TableName("s2", "o2")
    for pair in ((C, other), (other, C)):
        lake = Lake.of(A)
        ((_, why, _),) = held(lake.on([event(10, each, "-- rows", ROWS) for each in pair]))
        assert "s2.o1" in why
        assert "no column tells their rows apart" in why
        assert set(lake.shards[TARGET]) == {A}
