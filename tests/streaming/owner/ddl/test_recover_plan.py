"""What a batch does about RECOVER TABLE and FLASHBACK TABLE."""

from __future__ import annotations

import pytest

from conf.rows.event_filter import EventFilter
from coordination.model import Ts
from streaming.owner.ddl.plan import DdlPlan
from streaming.owner.ddl.steps import RECOVERS_UNKNOWN, DdlEvent
from tests.streaming.owner.ddl.test_rename_plan import create, name_of, planned


def recover(table: str, query: str = "", ts: int = 20) -> DdlEvent:
    """As TiCDC sends it: the message has the name under which the table comes back."""
    return DdlEvent(
        commit_ts=Ts(ts),
        place=0,
        name=name_of(table),
        ddl_type="QUERY",
        query=query or f"RECOVER TABLE `{table}`",
    )


def recovers(found: DdlPlan) -> tuple[str, str]:
    assert found.runs is not None, found
    assert found.runs.recovers is not None
    old, new = found.runs.recovers
    return str(old), str(new)


def test_all_tables_wait_for_one_that_comes_back() -> None:
    found = planned([recover("a"), create("b", 30)], known=["c"], seen={"a": 10})
    assert recovers(found) == ("shop.a", "shop.a")
    assert found.runs is not None
    assert (found.limit, found.creations) == (19, ())
    assert (found.runs.names, found.runs.alone, found.runs.turns) == ((), (), (name_of("a"),))


@pytest.mark.parametrize("old", ["A", "`a`", "`SHOP`.a", "shop.A"])
def test_it_may_come_under_another_name(old: str) -> None:
    """Names are compared in any case."""
    found = planned([recover("c", f"FLASHBACK TABLE {old} TO c")], seen={"a": 10})
    assert recovers(found) == ("shop.a", "shop.c")
    again = planned([recover("c", f"FLASHBACK TABLE {old} TO c")], known=["a"], seen={"a": 15})
    assert recovers(again) == ("shop.a", "shop.c")


def test_one_of_which_nothing_is_known_is_looked_for_by_its_name() -> None:
    assert recovers(planned([recover("a")])) == ("shop.a", "shop.a")


def test_one_that_was_carried_out_passes() -> None:
    assert planned([recover("a")], known=["a"], seen={"a": 20}).blocked is None


def test_what_the_filter_leaves_out_does_not_come() -> None:
    out = recover("c", "FLASHBACK TABLE a TO c")
    assert planned([out], seen={"a": 10}, rules=("shop.a",)).blocked is None


@pytest.mark.parametrize("event", ["drop table", "truncate table"])
def test_what_a_filter_passes_over_makes_it_unknown(event: str) -> None:
    rule = EventFilter(matcher=("shop.a",), ignore_event=(event,))
    found = planned([recover("a")], seen={"a": 10}, ignored=rule)
    assert (found.runs, found.why, found.limit) == (None, RECOVERS_UNKNOWN, 19)
    rule = EventFilter(matcher=("shop.a",), ignore_event=("recover table",))
    assert planned([recover("a")], seen={"a": 10}, ignored=rule).blocked is None


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("RECOVER TABLE BY JOB 53", "it does not say which DROP TABLE"),
        ("FLASHBACK DATABASE shop", "load these tables anew"),
        ("FLASHBACK SCHEMA shop TO other", "load these tables anew"),
        ("FLASHBACK CLUSTER TO TIMESTAMP '2026-01-01 00:00:00'", "load the tables anew"),
        ("FLASHBACK CLUSTER TO TSO 445494839813079041", "load the tables anew"),
        ("FLASHBACK TABLE a TO TIMESTAMP '2026-01-01 00:00:00'", "TiCDC does not send"),
    ],
)
def test_what_does_not_tell_the_rows_is_a_wall(query: str, why: str) -> None:
    found = planned([recover("a", query)], seen={"a": 10})
    assert found.runs is None
    assert why in found.why
