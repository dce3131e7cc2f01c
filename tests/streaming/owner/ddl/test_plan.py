"""What a batch does about its DDLs: which tables are made, how far rows go, what stops it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import permutations

import pytest

from conf.rows.event_filter import EventFilter
from conf.settings import Changefeed, DeltaSink, FilterSettings
from conf.sources.kafka_uri import KafkaSettings
from coordination.model import TableName, Ts
from sinks.control.blocked_ddls import BlockedDdl, DdlAction
from sinks.ddl.classify import KEY
from sinks.ddl.effects import CreateTable, CreateTableLike
from sinks.ddl.text.plain_text import TYPED
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Routes
from streaming.changefeed.schema_file import read_definitions
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.ddl.known_tables import KnownTables
from streaming.owner.ddl.plan import DdlPlan, in_order, plan
from streaming.owner.ddl.refusal import refusal, way_past
from streaming.owner.ddl.steps import TOLD_APART_ANEW, DdlEvent


def ddl(ts: int, query: str, table: str = "t", offset: int = 0, kind: str = "CREATE") -> DdlEvent:
    name = TableName("shop", table)
    return DdlEvent(commit_ts=Ts(ts), place=offset, name=name, ddl_type=kind, query=query)


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
    orders: Iterable[BlockedDdl] = (),
    failed: Mapping[tuple[str, int], str] | None = None,
    defined: str = "",
    unmade: Mapping[str, int] | None = None,
    forms: WriteModes | None = None,
    comes_again: bool = False,
) -> DdlPlan:
    return plan(
        list(ddls),
        KnownTables(
            schemas={TableName("shop", name): schema for name in known},
            last_ddls={TableName("shop", name): Ts(ts) for name, ts in (seen or {}).items()},
            shaped={TableName("shop", name): Ts(ts) for name, ts in (shaped or {}).items()},
            defined=read_definitions(defined, lambda _: True),
            unmade={TableName("shop", name): Ts(ts) for name, ts in (unmade or {}).items()},
            forms=forms or WriteModes(),
            comes_again=comes_again,
        ),
        checkpoint=Ts(checkpoint),
        start_ts=Ts(start),
        limit=Ts(limit),
        routes=Routes((), filter_settings or FilterSettings()),
        orders={order.place: order for order in orders},
        failed={(TableName("shop", n), Ts(ts)): why for (n, ts), why in (failed or {}).items()},
    )


def made(found: DdlPlan) -> list[str]:
    return [creation.event.name.table for creation in found.creations]


def test_due_tables_are_made_in_order_and_the_rest_passes() -> None:
    like = ddl(30, "CREATE TABLE `v` LIKE `T`", "v")
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


def wall(ts: int, table: str = "t") -> DdlEvent:
    query = f"ALTER TABLE `{table}` SECONDARY_UNLOAD"
    return ddl(ts, query, table, kind="QUERY")


def test_a_wall_ends_the_rows_right_below_it() -> None:
    found = planned([create(10), wall(20), create(30, "u")])
    assert made(found) == ["t"]
    assert (found.limit, found.blocked, found.runs) == (19, wall(20), None)
    message = str(refusal(wall(20), found.why))
    assert "ALTER TABLE `t` SECONDARY_UNLOAD" in message
    assert "20" in message
    assert "shop.t" in message


def test_a_refusal_has_the_commands_that_go_on() -> None:
    source = KafkaSettings(
        brokers=("h:1",), topic="t", topics=("t",), protocol="canal-json", partition_num=1
    )
    changefeed = Changefeed(id="shop", source=source, sink=DeltaSink(warehouse="/my lake"))
    found = planned([create(10), wall(20)])
    assert found.blocked is not None
    way = way_past(found.blocked, changefeed)
    at = "-c shop --table shop.t --commit-ts 20 --sink-uri delta:///my%20lake"
    assert f"`tidelake ddl skip {at}`" in way
    assert f"`tidelake ddl apply {at} --sql 'ALTER TABLE …'`" in way
    assert str(refusal(found.blocked, found.why, way)).endswith(way)
    drop = ddl(20, "DROP DATABASE `shop`", "", kind="QUERY")
    assert "--table shop --commit-ts" in way_past(drop, changefeed)
    odd = replace(changefeed, sink=DeltaSink(warehouse="s3://b/lake"))
    assert "--table 'shop.a b' " in way_past(wall(20, "a b"), odd)
    assert "--sink-uri delta+s3://b/lake`" in way_past(wall(20), odd)


def order(ts: int, action: DdlAction, sql: str | None = None, table: str = "t") -> BlockedDdl:
    return BlockedDdl(
        changefeed_id="shop",
        schema_name="shop",
        table_name=table,
        commit_ts=ts,
        query="as it was sent",
        reason="",
        action=action,
        sql=sql,
    )


def test_what_an_operator_skips_takes_its_place_in_the_table_and_changes_nothing() -> None:
    events = [create(10), wall(20), create(30, "u"), wall(40)]
    found = planned(events, orders=[order(20, "skip")])
    assert (found.limit, found.blocked, found.next_limit) == (19, wall(20), 29)
    assert found.runs is not None
    assert found.runs.is_skipped
    assert (found.runs.change, found.runs.empties) == (None, False)
    later = planned(events, orders=[order(20, "skip")], seen={"t": 20})
    assert made(later) == ["u"]
    assert later.blocked == wall(40)  # the word is about that one DDL


def test_what_an_operator_skips_passes_where_there_is_no_target() -> None:
    unread = ddl(20, "CREATE TABLE `t` AS SELECT 1", kind="CREATE")
    assert planned([unread]).blocked == unread
    assert planned([unread], orders=[order(20, "skip")]) == DdlPlan(limit=Ts(100))
    drop = ddl(20, "DROP DATABASE `shop`", "", kind="QUERY")
    assert planned([drop], orders=[order(20, "skip", table="")]) == DdlPlan(limit=Ts(100))
    keyless = planned([wall(20)], known=["t"], orders=[order(20, "skip")])
    assert keyless == DdlPlan(limit=Ts(100))


def test_what_an_operator_applies_runs_in_its_place() -> None:
    sql = "ALTER TABLE `t` ADD COLUMN `c` INT"
    found = planned([create(10), wall(20)], orders=[order(20, "apply", sql)])
    assert found.limit == 19
    assert found.runs is not None
    assert found.runs.change is not None
    assert [column.name for column in found.runs.change.after.columns] == ["id", "c"]
    assert (found.runs.event.query, found.runs.event.commit_ts) == (TYPED + sql, 20)
    unread = ddl(20, "CREATE TABLE `t` AS SELECT 1", kind="CREATE")
    anew = order(20, "apply", "CREATE TABLE `t` (`id` INT PRIMARY KEY)")
    assert made(planned([unread], orders=[anew])) == ["t"]
    again = planned([create(10), wall(20)], orders=[order(20, "apply")])
    assert (again.runs, again.blocked) == (None, wall(20))  # no better than before


def test_what_an_operator_applies_is_read_by_mysqls_rules() -> None:
    sql = r"ALTER TABLE `t` ADD COLUMN `c` ENUM('/','\\') DEFAULT '\\'"
    found = planned([create(10), wall(20)], orders=[order(20, "apply", sql)])
    assert found.runs is not None
    assert found.runs.change is not None
    assert found.runs.change.after.column("c").type.elements == ("/", "\\")
    assert found.runs.change.fills == {"c": "2"}


def test_what_an_operator_applies_may_be_refused_too() -> None:
    sql = "ALTER TABLE `t` DROP COLUMN `c`"
    found = planned([create(10), wall(20)], orders=[order(20, "apply", sql)])
    (held,) = found.held
    assert (found.runs, held.event.query) == (None, TYPED + sql)
    assert "no column c" in held.why


def test_a_wall_above_the_limit_or_below_the_checkpoint_is_none() -> None:
    assert planned([wall(20)], limit=19).blocked is None
    assert planned([wall(20)], checkpoint=21).blocked is None
    assert planned([wall(20)], limit=20).blocked is not None
    assert planned([wall(20)], checkpoint=19).blocked is not None


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
    assert "c" in found.held[0].why  # it is there already: the schema is the altered one


def test_a_table_without_a_key_that_gets_one_is_a_wall() -> None:
    """Its rows are dead letters: they would stay so, without a word."""
    for query in (
        "ALTER TABLE `t` ADD PRIMARY KEY (`id`)",
        "ALTER TABLE `t` ADD COLUMN `c` INT UNIQUE",
    ):
        found = planned([ddl(20, query, kind="ALTER")], known=["t"])
        assert (found.runs, [each.why for each in found.held]) == (None, [TOLD_APART_ANEW]), query


def test_an_alter_that_has_run_or_has_no_target_passes() -> None:
    assert planned([create(10), alter(20)], seen={"t": 20}).blocked is None
    assert planned([create(10), alter(20)], seen={"t": 9}).blocked == alter(20)
    assert planned([alter(20)]).blocked is None
    assert planned([alter(20)], known=["t"]).blocked is None  # a table without a key


def test_after_a_rewind_an_alter_is_noted_and_changes_no_shape() -> None:
    found = planned([create(10), alter(20)], shaped={"t": 20})
    assert found.runs is not None
    assert (found.runs.change, found.runs.empties) == (None, False)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("ALTER TABLE `t` DROP PRIMARY KEY", TOLD_APART_ANEW),
        ("ALTER TABLE `t` ADD COLUMN `c` INT, DROP PRIMARY KEY, ADD PRIMARY KEY (`c`)", KEY),
    ],
)
def test_an_alter_that_takes_the_key_or_gives_it_unsent_values_is_a_wall(
    query: str, why: str
) -> None:
    found = planned([create(10), ddl(20, query, kind="ALTER")])
    assert (found.runs, [each.why for each in found.held]) == (None, [why])


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


def drop(ts: int, table: str = "t") -> DdlEvent:
    return ddl(ts, f"DROP TABLE `shop`.`{table}`", table, kind="ERASE")


DROP_SCHEMA = ddl(20, "DROP DATABASE `shop`", "", kind="QUERY")


def ended(found: DdlPlan) -> list[str]:
    assert found.runs is not None
    return [name.table for name in found.runs.ends]


def test_a_drop_ends_its_table_right_above_the_rows_below_it() -> None:
    found = planned([create(10), drop(20), create(30)])
    assert (made(found), found.limit, found.next_limit) == (["t"], 19, 29)
    assert ended(found) == ["t"]
    assert ended(planned([drop(20)], known=["t"])) == ["t"]  # one without a key


def test_a_dropped_table_is_made_again_and_what_was_of_it_is_old() -> None:
    """Its first CREATE TABLE, its ALTERs and the DROP itself come again."""
    ddls = [create(10), alter(15), drop(20), create(30)]
    found = planned(ddls, seen={"t": 20})
    assert (found.blocked, [made_.event.commit_ts for made_ in found.creations]) == (None, [30])
    first = found.creations[0].table
    assert isinstance(first, CreateTable)
    again = planned(ddls, known=["t"], schema=first.schema, seen={"t": 30})
    assert (again.blocked, made(again)) == (None, [])
    assert ended(planned([*ddls, drop(40)], known=["t"], seen={"t": 30})) == ["t"]


def test_what_is_said_of_a_table_that_is_not_there_passes() -> None:
    absent = [drop(20), ddl(30, "DROP TABLE IF EXISTS `u`", "u"), alter(40)]
    absent.append(ddl(50, "TRUNCATE TABLE `t`", kind="TRUNCATE"))
    assert planned(absent) == DdlPlan(limit=Ts(100))
    assert planned(absent, seen={"t": 20}) == DdlPlan(limit=Ts(100))


def test_a_ddl_of_a_table_that_rows_tell_of_waits_until_they_have_made_it() -> None:
    for event in (drop(20), alter(20), DROP_SCHEMA):
        found = planned([event], unmade={"t": 19})
        assert (found.limit, found.runs, found.unmade) == (19, None, TableName("shop", "t"))
        assert planned([event], unmade={"t": 20}).blocked is None, "they are of a later table"
        assert planned([create(10), event], unmade={"t": 19}).runs is not None


def test_a_schema_is_dropped_table_by_table_each_once() -> None:
    found = planned([create(10, "u"), DROP_SCHEMA, create(30)], known=["t", "keyless"])
    assert ended(found) == ["keyless", "t", "u"]
    assert found.limit == 19
    assert ended(planned([DROP_SCHEMA], known=["t", "u"], seen={"u": 30})) == ["t"]
    assert planned([DROP_SCHEMA], seen={"t": 20}).blocked is None


def test_several_tables_in_one_statement_are_dropped() -> None:
    both = ddl(20, "DROP TABLE `shop`.`t`, `u`, `other`.`t`", "t", kind="ERASE")
    assert ended(planned([both], known=["t", "u", "v"])) == ["t", "u"]
    assert ended(planned([both], known=["T", "u"])) == ["T", "u"], "TiDB takes them for one"


def test_a_drop_is_passed_over_where_a_filter_says_so() -> None:
    for event, name in ((DROP_SCHEMA, "drop database"), (drop(20), "drop table")):
        rule = FilterSettings(
            event_filters=(EventFilter(matcher=("shop.*",), ignore_event=(name,)),)
        )
        assert planned([event], known=["t"], filter_settings=rule).blocked is None


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
    assert [each.event for each in made_here.held] == [drop]
    assert planned([table, other]).blocked is None
    first = planned([table]).creations[0].table
    assert isinstance(first, CreateTable)
    assert planned([drop], known=["t"], schema=first.schema).held == made_here.held
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
    both = [create(10), replace(create(10, "u"), place=1)]
    assert made(planned(in_order((*both, *both)))) == ["t", "u"]
