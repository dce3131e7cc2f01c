"""What a batch does about EXCHANGE PARTITION: which tables wait, and what is not known enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from conf.settings import FilterSettings
from coordination.model import TableName, Ts
from sinks.ddl.classify import outcome
from sinks.ddl.effects import CreateTable
from sinks.ddl.statements import read_ddl
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Routes
from streaming.changefeed.schema_file import Definitions
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.ddl.known_tables import KnownTables
from streaming.owner.ddl.plan import DdlPlan, in_order, plan
from streaming.owner.ddl.steps import (
    EXCHANGES_UNREAD,
    PARTITIONS_OF_LATER,
    PARTITIONS_UNKNOWN,
    DdlEvent,
)

QUERY = "ALTER TABLE `shop`.`p` EXCHANGE PARTITION `p0` WITH TABLE `{}` WITHOUT VALIDATION"
CUT = " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))"
P, T = TableName("shop", "p"), TableName("shop", "t")


def schema(clause: str = "") -> TableSchema:
    statement = read_ddl(f"CREATE TABLE `t` (id INT PRIMARY KEY){clause}", "CREATE", "shop", "t")
    made = outcome(statement, None)
    assert isinstance(made, CreateTable)
    return made.schema


def planned(
    known: Mapping[TableName, TableSchema | None] | None = None,
    *,
    table: str = "shop`.`t",
    seen: Mapping[TableName, int] | None = None,
    shaped: Mapping[TableName, int] | None = None,
    unmade: Mapping[TableName, int] | None = None,
    rules: Iterable[str] = (),
) -> DdlPlan:
    event = DdlEvent(commit_ts=Ts(20), place=0, name=P, ddl_type="QUERY", query=QUERY.format(table))
    return plan(
        in_order([event]),
        KnownTables(
            schemas={P: schema(CUT), T: schema()} if known is None else known,
            last_ddls={name: Ts(ts) for name, ts in (seen or {}).items()},
            shaped={name: Ts(ts) for name, ts in (shaped or {}).items()},
            defined=Definitions(),
            unmade={name: Ts(ts) for name, ts in (unmade or {}).items()},
            forms=WriteModes(),
        ),
        checkpoint=Ts(0),
        start_ts=Ts(0),
        limit=Ts(100),
        routes=Routes((), FilterSettings(rules=tuple(rules))),
        orders={},
        failed={},
    )


@pytest.mark.parametrize("table", ["shop`.`t", "t", "SHOP`.`T"])
def test_both_tables_wait_and_are_done_together(table: str) -> None:
    found = planned(table=table)
    assert found.runs is not None, found.why
    runs = found.runs
    assert (runs.name, runs.partitions, runs.exchanges_with) == (P, ("p0",), T)
    assert (runs.names, runs.alone, runs.turns) == ((P, T), (), (P,))
    assert (found.limit, found.next_limit) == (19, 100)


def test_one_that_was_carried_out_passes_and_one_that_was_half_done_does_not() -> None:
    assert planned(seen={P: 20, T: 20}).blocked is None
    assert planned(seen={P: 9, T: 20}).runs is not None


@pytest.mark.parametrize("missing", [P, T])
def test_a_table_that_was_not_read_is_a_wall(missing: TableName) -> None:
    known = {P: schema(CUT), T: schema()}
    for there in ({n: s for n, s in known.items() if n != missing}, {**known, missing: None}):
        found = planned(there)
        assert (found.runs, found.why, found.limit) == (None, EXCHANGES_UNREAD, 19)


@pytest.mark.parametrize("left_out", [P, T])
def test_so_is_one_that_the_filter_leaves_out(left_out: TableName) -> None:
    known = {P: schema(CUT), T: schema()}
    del known[left_out]
    found = planned(known, rules=("*.*", f"!{left_out}"))
    assert (found.runs, found.why) == (None, EXCHANGES_UNREAD)
    assert planned({}, rules=("other.*",)).blocked is None


def test_tables_without_a_target_have_nothing_to_exchange() -> None:
    assert planned({}).blocked is None
    assert planned({P: None, T: None}).blocked is None


def test_a_table_that_rows_tell_of_is_made_before() -> None:
    assert planned({P: schema(CUT)}, unmade={T: 11}).unmade == T


def test_unknown_partitions_and_those_of_later_are_a_wall() -> None:
    assert planned({P: schema(), T: schema()}).why == PARTITIONS_UNKNOWN
    assert planned(shaped={T: 30}).why == PARTITIONS_OF_LATER
