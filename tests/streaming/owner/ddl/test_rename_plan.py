"""What a batch does about RENAME TABLE: which tables wait, and what becomes of their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import permutations

import pytest

from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings
from coordination.model import TableName, Ts
from sinks.control.blocked_ddls import BlockedDdl
from sinks.ddl.classify import RENAMES_UNREAD
from sinks.ddl.effects import RENAMES
from streaming.changefeed.routes import Routes
from streaming.changefeed.schema_file import Definitions
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.ddl.known_tables import KnownTables
from streaming.owner.ddl.plan import DdlPlan, in_order, plan
from streaming.owner.ddl.refusal import refusal
from streaming.owner.ddl.steps import DdlEvent


def name_of(text: str) -> TableName:
    schema, _, table = text.rpartition(".")
    return TableName(schema or "shop", table)


def rename(old: str, new: str, ts: int = 20, offset: int = 0) -> DdlEvent:
    """As TiCDC sends it: the message has the new name."""
    spelled = [f"`{name.schema}`.`{name.table}`" for name in map(name_of, (old, new))]
    return DdlEvent(
        commit_ts=Ts(ts),
        place=offset,
        name=name_of(new),
        ddl_type="RENAME",
        query="RENAME TABLE {} TO {}".format(*spelled),
    )


def swap(ts: int = 20) -> list[DdlEvent]:
    parts = [("a", "tmp"), ("b", "a"), ("tmp", "b")]
    return [rename(old, new, ts, at) for at, (old, new) in enumerate(parts)]


def create(table: str, ts: int) -> DdlEvent:
    query = f"CREATE TABLE `{table}` (`id` INT PRIMARY KEY)"
    return DdlEvent(commit_ts=Ts(ts), place=0, name=name_of(table), ddl_type="CREATE", query=query)


def planned(
    ddls: Iterable[DdlEvent],
    *,
    known: Iterable[str] = (),
    seen: Mapping[str, int] | None = None,
    reached: Mapping[str, int] | None = None,
    unmade: Mapping[str, int] | None = None,
    orders: Iterable[BlockedDdl] = (),
    rules: tuple[str, ...] = (),
    ignored: EventFilter | None = None,
) -> DdlPlan:
    filters = () if ignored is None else (ignored,)
    return plan(
        in_order(ddls),
        KnownTables(
            schemas={name_of(name): None for name in known},
            last_ddls={name_of(name): Ts(ts) for name, ts in (seen or {}).items()},
            shaped={},
            defined=Definitions(),
            unmade={name_of(name): Ts(ts) for name, ts in (unmade or {}).items()},
            forms=WriteModes(),
            reached={name_of(name): Ts(ts) for name, ts in (reached or {}).items()},
        ),
        checkpoint=Ts(0),
        start_ts=Ts(0),
        limit=Ts(100),
        routes=Routes((), FilterSettings(rules=rules, event_filters=filters)),
        orders={order.place: order for order in orders},
        failed={},
    )


def moves(found: DdlPlan) -> dict[str, str]:
    assert found.runs is not None, found
    return {str(old): str(new) for old, new in found.runs.moves}


def test_a_table_goes_right_above_the_rows_below_it() -> None:
    found = planned([create("a", 10), rename("a", "other.c"), create("a", 30)])
    assert (len(found.creations), found.limit, found.next_limit) == (1, 19, 29)
    assert moves(found) == {"shop.a": "other.c"}
    assert found.runs is not None
    assert found.runs.names == (name_of("a"),)


def test_two_tables_swap_their_names_through_a_third() -> None:
    """Each part is a message of its own, and all of them are one step."""
    found = planned(swap(), known=["a", "b", "c"])
    assert moves(found) == {"shop.a": "shop.b", "shop.b": "shop.a"}
    assert found.next_limit == 100
    one = rename("a", "tmp")
    query = "RENAME TABLE `shop`.`a` TO `shop`.`tmp`, `shop`.`b` TO `shop`.`a`, shop.tmp TO shop.b"
    alone = DdlEvent(
        commit_ts=one.commit_ts, place=0, name=one.name, ddl_type="RENAME", query=query
    )
    assert moves(planned([alone], known=["a", "b"])) == moves(found)


@pytest.mark.parametrize("topics", [*permutations("xyz")])
def test_parts_from_topics_of_their_own_have_no_order(topics: tuple[str, ...]) -> None:
    """Of each topic the places begin anew."""
    parts = [replace(part, part=topic) for part, topic in zip(swap(), topics, strict=True)]
    assert moves(planned(parts, known=["a", "b"])) == {"shop.a": "shop.b", "shop.b": "shop.a"}
    took = [rename("a", "old"), rename("b", "a"), rename("c", "b")]
    parts = [replace(part, part=topic) for part, topic in zip(took, topics, strict=True)]
    found = moves(planned(parts, known=["a", "b", "c"]))
    assert found == {"shop.a": "shop.old", "shop.b": "shop.a", "shop.c": "shop.b"}
    carried_out = planned(
        parts, known=["old", "a", "b"], seen={"old": 20, "a": 20, "b": 20, "c": 20}
    )
    assert carried_out.runs is None


def test_a_name_is_taken_that_was_left() -> None:
    both = [rename("b", "c"), rename("a", "b", offset=1)]
    assert moves(planned(both, known=["a", "b"])) == {"shop.b": "shop.c", "shop.a": "shop.b"}
    through = [rename("a", "b"), rename("b", "c", offset=1)]
    assert moves(planned(through, known=["a"])) == {"shop.a": "shop.c"}


def test_renames_of_other_moments_are_others() -> None:
    found = planned([rename("a", "c"), rename("b", "a", 30)], known=["a", "b"])
    assert (moves(found), found.next_limit) == ({"shop.a": "shop.c"}, 29)
    later = planned([rename("a", "c"), rename("b", "a", 30)], known=["b", "c"], seen={"a": 20})
    assert (moves(later), later.limit) == ({"shop.b": "shop.a"}, 29)


def test_one_that_was_carried_out_passes() -> None:
    assert planned([rename("a", "c")], known=["c"], seen={"a": 20, "c": 20}).blocked is None
    assert planned(swap(), known=["a", "b"], seen={"a": 20, "b": 20}).blocked is None
    assert planned([rename("a", "c")], known=["a", "c"], seen={"a": 30, "c": 20}).blocked is None


def test_one_that_was_carried_out_in_part_is_taken_up_as_a_whole() -> None:
    found = planned(swap(), known=["a", "b"], seen={"a": 19, "b": 20})
    assert moves(found) == {"shop.a": "shop.b", "shop.b": "shop.a"}


def test_a_table_that_was_loaded_behind_the_rename_has_the_rows_of_the_old_name() -> None:
    found = planned([rename("a", "c")], known=["a", "c"], reached={"a": 10, "c": 30})
    assert found.runs is not None
    assert (found.runs.ends, found.runs.moves) == ((name_of("a"),), ())
    swapped = planned(swap(), known=["a", "b"], reached={"a": 10, "b": 30})
    assert moves(swapped) == {"shop.a": "shop.b", "shop.b": "shop.a"}


def test_a_table_of_which_nothing_was_read_is_made_from_its_rows() -> None:
    assert planned([rename("a", "c")]).blocked is None


def test_a_table_that_rows_tell_of_is_made_before() -> None:
    found = planned([rename("a", "c")], unmade={"a": 19})
    assert (found.limit, found.runs, found.blocked) == (19, None, rename("a", "c"))
    assert planned([rename("a", "c")], unmade={"c": 21}).blocked is None
    assert moves(planned([rename("a", "c")], known=["a"], unmade={"c": 11}))  # of another table


@pytest.mark.parametrize("old", ["A", "Shop.a", "SHOP.A"])
def test_names_are_compared_in_any_case(old: str) -> None:
    assert moves(planned([rename(old, "c")], known=["a"])) == {"shop.a": "shop.c"}


def test_one_that_leaves_the_filter_is_gone() -> None:
    found = planned([rename("a", "c")], known=["a"], rules=("shop.a",))
    assert found.runs is not None
    assert (found.runs.ends, found.runs.moves) == ((name_of("a"),), ())
    over = planned([rename("a", "c")], seen={"a": 20}, rules=("shop.a",))
    assert over.blocked is None


def test_one_that_comes_into_the_filter_is_a_wall() -> None:
    found = planned([rename("a", "c")], rules=("shop.c",))
    assert (found.runs, found.why, found.limit) == (None, RENAMES_UNREAD, 19)
    assert "its rows were not read" in str(refusal(rename("a", "c"), found.why))
    assert planned([rename("a", "d")], rules=("shop.c",)).blocked is None


def test_an_old_name_without_its_database_is_a_wall() -> None:
    one = rename("a", "c")
    query = "RENAME TABLE a TO shop.c"
    told = DdlEvent(commit_ts=one.commit_ts, place=0, name=one.name, ddl_type="RENAME", query=query)
    found = planned([told], known=["a"])
    assert (found.runs, found.why) == (None, RENAMES)


def test_what_an_operator_says_counts_for_all_its_parts() -> None:
    """The error names the first one."""
    wall = planned(swap(), known=["a"], rules=("*.*", "!shop.b"))
    assert wall.blocked is not None
    skipped = BlockedDdl(
        changefeed_id="shop",
        schema_name="shop",
        table_name=wall.blocked.name.table,
        commit_ts=20,
        query="",
        reason="",
        action="skip",
    )
    assert planned(swap(), known=["a"], rules=("*.*", "!shop.b"), orders=[skipped]).blocked is None


def test_a_filter_passes_over_it() -> None:
    rule = EventFilter(matcher=("shop.c",), ignore_event=("rename table",))
    assert planned([rename("a", "c")], known=["a"], ignored=rule).blocked is None


def test_ddls_of_all_partitions_count_once_in_the_order_of_one():
    """Places of several partitions cannot be compared."""
    first, second = (
        DdlEvent(commit_ts=Ts(1), place=0, name=TableName("s", "a"), ddl_type="RENAME", query=query)
        for query in ("RENAME TABLE a TO b", "RENAME TABLE c TO a")
    )
    sent = [
        replace(each, part=part, place=place)
        for each, part, place in (
            (first, "t/0", 100),
            (second, "t/0", 101),
            (second, "t/1", 7),
            (first, "t/2", 9),
        )
    ]
    for each in permutations(sent):
        assert [found.query for found in in_order(each)] == [first.query, second.query]
