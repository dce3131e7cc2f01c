"""DDLs of tables that go into one target: who waits for whom, and by which shape whose rows are
cast."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from conf.route_rules import Extract, RouteRule
from conf.settings import FilterSettings
from coordination.model import TableName, Ts
from sinks.control.blocked_ddls import BlockedDdl, DdlAction
from sinks.ddl.effects import AlterTable, CreateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Routes, Shards
from streaming.changefeed.schema_file import Definitions
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.ddl.known_tables import KnownTables, definition
from streaming.owner.ddl.plan import DdlPlan, in_order, plan
from streaming.owner.ddl.steps import ROWS, DdlEvent, DdlStep
from tests.seeds import chosen_seeds

TARGET = TableName("shop", "o")
SHARDS = RouteRule(
    matcher=("s*.o*",),
    target_schema="shop",
    target_table="o",
    extract_table=Extract(regexp="o(.*)", target_column="t"),
    extract_schema=Extract(regexp="s(.*)", target_column="s"),
)
ROUTES = Routes((SHARDS,), FilterSettings())
A, B, C = TableName("s1", "o1"), TableName("s1", "o2"), TableName("s2", "o1")
ADD, DROP = "ALTER TABLE `{}` ADD COLUMN `w` INT DEFAULT 5", "ALTER TABLE `{}` DROP COLUMN `v`"


def event(ts: int, name: TableName, query: str, kind: str = "QUERY") -> DdlEvent:
    return DdlEvent(
        commit_ts=Ts(ts),
        place=ts,
        name=ROUTES.of(name).target,
        origin=name,
        ddl_type=kind,
        query=query.format(name.table),
    )


def shape(columns: str = "id INT PRIMARY KEY, v INT") -> TableSchema:
    (made,) = read_ddl(f"CREATE TABLE o1 ({columns})", "CREATE", "s1", "o1").effects
    assert isinstance(made, CreateTable)
    return made.schema


@dataclass(kw_only=True)
class Lake:
    """A target, as its commits leave it."""

    schemas: dict[TableName, TableSchema | None] = field(default_factory=dict)
    shards: dict[TableName, Shards] = field(default_factory=dict)
    last: dict[TableName, Ts] = field(default_factory=dict)
    shaped: dict[TableName, Ts] = field(default_factory=dict)
    past: list[tuple[Ts, TableSchema]] = field(default_factory=list)  # from which ts on
    ran: list[DdlStep] = field(default_factory=list)

    @classmethod
    def of(cls, *shards: TableName, columns: str = "id INT PRIMARY KEY, v INT") -> Lake:
        schema = ROUTES.extended(A, shape(columns))
        return cls(
            schemas={TARGET: schema},
            shards={TARGET: Shards().joined(*shards)},
            past=[(Ts(0), schema)],
        )

    def plan(
        self,
        ddls: Iterable[DdlEvent],
        limit: int = 1_000,
        orders: Sequence[BlockedDdl] = (),
        unlike: Mapping[TableName, str] | None = None,
        unmade: Mapping[TableName, Ts] | None = None,
    ) -> DdlPlan:
        return plan(
            in_order(ddls),
            KnownTables(
                schemas=self.schemas,
                last_ddls=self.last,
                shaped=self.shaped,
                defined=Definitions(),
                unmade=unmade or {},
                forms=WriteModes(),
                shards=self.shards,
                unlike=unlike or {},
            ),
            checkpoint=Ts(0),
            start_ts=Ts(0),
            limit=Ts(limit),
            routes=ROUTES,
            orders={order.place: order for order in orders},
            failed={},
        )

    def make(self, found: DdlPlan) -> None:
        for each in found.creations:
            ts = each.event.commit_ts
            schema = definition(each, self.schemas, Definitions())
            self.schemas[TARGET], self.last[TARGET] = schema, ts
            self.shards[TARGET] = Shards().joined(each.event.upstream)
            self.past.append((ts, schema))

    def run(self, step: DdlStep) -> None:
        ts = step.event.commit_ts
        self.ran.append(step)
        for name in step.names:
            self.last[name] = ts
        self.shards |= step.shards
        if step.change is not None:
            self.schemas[TARGET] = step.change.after
            self.shaped[TARGET] = ts
            self.past.append((ts, step.change.after))

    def on(self, ddls: Sequence[DdlEvent], limit: int = 1_000, **given: object) -> DdlPlan:
        """Everything that can run; then the plan."""
        while True:
            found = self.plan(ddls, limit, **given)  # type: ignore[arg-type]
            if found.creations:
                self.make(found)
            elif found.runs is not None:
                self.run(found.runs)
            else:
                return found

    def cast_by(self, shard: TableName) -> TableSchema:
        """The shape by which rows of this shard are cast now."""
        behind = self.shards[TARGET].behind[shard]
        if not behind:
            return self.past[-1][1]
        first_ts = behind[0][0]
        return next(schema for ts, schema in reversed(self.past) if ts < first_ts)


def held(found: DdlPlan) -> list[tuple[int, str, bool]]:
    return [(each.event.commit_ts, each.why, each.is_waiting) for each in found.held]


def test_a_ddl_waits_for_all_shards_and_runs_at_the_first_ones_place() -> None:
    lake = Lake.of(A, B, C)
    ddls = [event(10, A, ADD), event(20, C, ADD)]
    found = lake.on(ddls)
    assert held(found) == [(10, "it waits for the same DDL of s1.o2", True)]
    assert found.stops_for is not None
    assert found.limit == 1_000  # for other tables
    ddls.append(event(30, B, ADD))
    step = lake.plan(ddls).runs
    assert step is not None
    assert (step.event.commit_ts, step.change is not None) == (10, True)
    lake.run(step)
    assert lake.shards[TARGET].behind[A] == ()
    assert [ts for ts, _ in lake.shards[TARGET].behind[B]] == [10]
    assert lake.on(ddls).held == ()
    assert [each.change is None for each in lake.ran] == [False, True, True]
    assert not any(lake.shards[TARGET].behind.values())


def test_others_below_the_limit_alone_count() -> None:
    ddls = [event(10, A, ADD), event(20, B, ADD)]
    assert held(Lake.of(A, B).on(ddls, limit=19))
    assert not Lake.of(A, B).on(ddls, limit=20).held


def test_another_ddl_in_its_place_is_told() -> None:
    found = Lake.of(A, B).on([event(10, A, ADD), event(20, B, DROP)])
    assert held(found) == [
        (10, "s1.o2 has another DDL in its place: ALTER TABLE `o2` DROP COLUMN `v`", False)
    ]


def test_what_changes_nothing_in_a_target_waits_for_nobody() -> None:
    index = "ALTER TABLE `{}` ADD INDEX `i` (`v`)"
    lake = Lake.of(A, B)
    assert not lake.on([event(10, A, index), event(20, A, ADD), event(30, B, ADD)]).held
    assert len(lake.ran) == 2


UNIQUE = "id INT PRIMARY KEY, v INT, UNIQUE KEY u (v)"


@pytest.mark.parametrize("change", ["DROP INDEX u", "RENAME INDEX u TO x", "ADD UNIQUE KEY x (v)"])
@pytest.mark.parametrize("limits", [range(10, 70, 10), [60]])
@pytest.mark.parametrize("shards", [[A, B, A, B, B, A], [A, A, A, B, B, B]])
def test_a_shard_catches_up_with_a_change_of_indexes(
    change: str, limits: Iterable[int], shards: list[TableName]
) -> None:
    queries = {each: iter([f"ALTER TABLE `{{}}` {change}", ADD, DROP]) for each in (A, B)}
    ddls = [event(10 * at, each, next(queries[each])) for at, each in enumerate(shards, 1)]
    lake = Lake.of(A, B, columns=UNIQUE)
    for limit in limits:
        found = lake.on([each for each in ddls if each.commit_ts <= limit], limit)
        assert all(each.is_waiting for each in found.held), held(found)
    assert found.held == ()
    assert not any(lake.shards[TARGET].behind.values())
    assert len(lake.past) == 4


def test_a_change_of_indexes_out_of_turn_holds_the_target() -> None:
    index = "ALTER TABLE `{}` DROP INDEX u"
    lake = Lake.of(A, B)
    lake.shards[TARGET] = Shards({A: (), B: ((Ts(5), ADD.format("o1")), (Ts(6), index))})
    lake.schemas[TARGET] = ROUTES.extended(A, shape("id INT PRIMARY KEY, v INT, w INT"))
    ((_, why, is_waiting),) = held(lake.on([event(10, B, index), event(20, B, ADD)]))
    assert "the other tables of the target have had another DDL" in why
    assert not is_waiting


def order(ts: int, action: DdlAction, sql: str | None = None) -> BlockedDdl:
    return BlockedDdl(
        changefeed_id="a",
        schema_name=TARGET.schema,
        table_name=TARGET.table,
        commit_ts=ts,
        query="",
        reason="",
        action=action,
        sql=sql,
    )


def test_an_operator_lets_it_go_on() -> None:
    ddls = [event(10, A, ADD), event(20, B, ADD), event(30, C, ADD)]
    typed = "ALTER TABLE o ADD COLUMN `w` INT DEFAULT 5"
    lake = Lake.of(A, B, C)
    assert not lake.on(ddls[:1], orders=[order(10, "apply", typed)]).held
    assert lake.cast_by(A).column("w")
    assert "w" not in [each.name for each in lake.cast_by(B).columns]
    assert not lake.on(ddls, orders=[order(10, "apply", typed)]).held
    assert not any(lake.shards[TARGET].behind.values())
    as_it_is = Lake.of(A, B, C)
    assert not as_it_is.on(ddls[:1], orders=[order(10, "apply")]).held
    assert as_it_is.past[-1][0] == 10
    skipped = Lake.of(A, B)
    assert not skipped.on(ddls[:1], orders=[order(10, "skip")]).held
    assert [each.is_skipped for each in skipped.ran] == [True]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("id INT PRIMARY KEY, v INT", ""),
        ("v INT, id INT, PRIMARY KEY (id)", ""),
        ("id INT PRIMARY KEY, v BIGINT", "its v is bigint, and not int"),
        ("id INT PRIMARY KEY, w INT", "it has w; it lacks v"),
        ("id INT, v INT, PRIMARY KEY (id, v)", "its key is (id, v, t, s), and not (id, t, s)"),
        ("id INT PRIMARY KEY, v INT, t INT", "has a column t itself"),
    ],
)
def test_a_table_of_the_same_shape_joins(columns: str, says: str) -> None:
    lake, made = Lake.of(A), event(10, B, f"CREATE TABLE `{{}}` ({columns})", "CREATE")
    if "itself" in says:
        with pytest.raises(Exception, match=says):
            lake.plan([made])
        return
    found = lake.on([made])
    assert [says in why for _, why, _ in held(found)] == ([True] if says else [])
    assert (B in lake.shards[TARGET]) == (not says)


def test_tables_without_a_key_join_a_set_of_rows() -> None:
    lake, keyless = Lake.of(A), "id INT, v INT"
    lake.schemas[TARGET] = ROUTES.extended(A, shape(keyless)).by_all_columns()
    assert not lake.on([event(10, B, f"CREATE TABLE `{{}}` ({keyless})", "CREATE")]).held
    keyed = event(20, C, "CREATE TABLE `{}` (id INT PRIMARY KEY, v INT)", "CREATE")
    assert "its key is (id, t, s)" in lake.on([keyed]).held[0].why


def test_so_does_one_that_its_rows_tell_and_one_that_copies_another() -> None:
    lake = Lake.of(A)
    like = event(20, C, "CREATE TABLE `{}` LIKE s1.o1", "CREATE")
    assert not lake.on([event(10, B, "-- rows", ROWS), like, event(30, A, "-- rows", ROWS)]).held
    assert set(lake.shards[TARGET]) == {A, B, C}
    assert len(lake.ran) == 2  # A is there already
    other = Lake.of(A)
    found = other.on([event(10, B, "-- rows", ROWS)], unlike={B: "it is another"})
    assert held(found) == [(10, "it is another", False)]


def test_the_rows_of_a_dropped_shard_stay_and_nobody_waits_for_it() -> None:
    lake = Lake.of(A, B, C)
    gone = event(20, B, "DROP TABLE `{}`", "DROP")
    assert not lake.on([event(10, A, ADD), gone, event(30, C, ADD)]).held
    assert set(lake.shards[TARGET]) == {A, C}
    assert [step.ends for step in lake.ran] == [()] * 3
    database = replace(event(40, C, "DROP DATABASE `s2`"), name=TableName("s2", ""))
    database = replace(database, origin=TableName("s2", ""))
    assert not lake.on([database]).held
    assert set(lake.shards[TARGET]) == {A}


def test_a_truncate_takes_the_rows_of_its_shard() -> None:
    lake = Lake.of(A, B)
    assert not lake.on([event(10, B, "TRUNCATE TABLE `{}`", "TRUNCATE")]).held
    (step,) = lake.ran
    assert dict(step.of_shard) == {"t": "2", "s": "1"}
    assert not step.empties


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `{}` DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
        "ALTER TABLE `{}` FROBNICATE",
        "ALTER TABLE `{}` TRUNCATE PARTITION p0",
    ],
)
def test_what_cannot_be_done_for_one_of_several_holds_the_target(query: str) -> None:
    lake = Lake.of(A)
    found = lake.on([event(10, A, query)])
    assert len(found.held) == 1
    assert not found.held[0].is_waiting
    assert lake.ran == []


def test_a_rename_of_a_shard_stops_the_changefeed() -> None:
    found = Lake.of(A, B).on([event(10, A, "RENAME TABLE s1.o1 TO s1.o9", "RENAME")])
    assert "renames, exchanges or recovers" in (found.why or found.held[0].why)


def live(seed: int) -> None:
    """Shards have the same DDLs, each at its own times; some are dropped on the way."""
    dice = random.Random(seed)
    names = [TableName(f"s{at % 2}", f"o{at}") for at in range(dice.randint(1, 4))]
    own = [shape()]
    queries: list[str] = []
    for number in range(dice.randint(0, 4)):
        columns = [each.name for each in own[-1].columns if each.name != "id"]
        tries = [f"ADD COLUMN `c{number}` INT DEFAULT {number}"]
        tries += [f"DROP COLUMN `{name}`" for name in columns]
        tries += [f"CHANGE COLUMN `{name}` `r{number}` BIGINT" for name in columns]
        queries.append(f"ALTER TABLE `{{}}` {dice.choice(tries)}")
        (effect,) = read_ddl(queries[-1].format("a"), "ALTER", "d", "a").effects
        assert isinstance(effect, AlterTable)
        own.append(evolved(own[-1], effect.changes).after)
    moments = iter(dice.sample(range(10, 900), len(names) * (len(queries) + 1)))
    ddls, times = [], dict[TableName, list[int]]()
    for name in names:
        times[name] = sorted(next(moments) for _ in queries)
        ddls += [event(ts, name, q) for ts, q in zip(times[name], queries, strict=True)]
        if len(names) > 1 and name != names[0] and dice.random() < 0.2:
            gone = next(moments)
            ddls = [each for each in ddls if each.upstream != name or each.commit_ts < gone]
            ddls.append(event(gone, name, "DROP TABLE `{}`", "DROP"))
    lake = Lake.of(*names)
    for limit in [*sorted(dice.sample(range(10, 900), 6)), 1_000]:
        read = [each for each in ddls if each.commit_ts <= limit]
        while (found := lake.plan(read, limit)).runs is not None:
            lake.run(found.runs)
            now = found.runs.event.commit_ts
            for name in lake.shards[TARGET]:
                had = sum(ts <= now for ts in times[name])
                columns = [str(each) for each in ROUTES.extended(name, own[had]).columns]
                cast = sorted(map(str, lake.cast_by(name).columns))
                assert cast == sorted(columns), (seed, name, now)
        assert all(each.is_waiting for each in found.held), seed
    assert found.held == (), seed
    assert not any(lake.shards[TARGET].behind.values()), seed
    assert len(lake.past) == len(queries) + 1, seed


def test_each_shard_is_cast_by_its_own_shape_at_any_time() -> None:
    for seed in chosen_seeds(150):
        live(seed)


def test_a_create_waits_until_rows_of_older_shards_have_made_the_target() -> None:
    """They would lie below the target's beginning, and nobody would apply them."""
    create = event(100, A, "CREATE TABLE `{}` (id INT PRIMARY KEY, v INT)", "CREATE")
    planned = Lake().plan([create], unmade={TARGET: Ts(50)})
    assert (planned.unmade, planned.limit, planned.creations) == (TARGET, 99, ())
    for first in (100, 101):  # no whole row lies below it
        planned = Lake().plan([create], unmade={TARGET: Ts(first)})
        assert [each.event for each in planned.creations] == [create]
