"""Routes over a topic of canal-json: shards with random histories, whoever dies at whichever step,
are one table, and each published snapshot has them as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from deltalake import DeltaTable

from conf.route_rules import Extract, RouteRule
from coordination.failpoint import Failpoint
from streaming.operations.letter_replay import replay_letters
from streaming.operations.letters import Chosen
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import MakeLives, marks
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Change, Column, Ddl, Table, encode_change, encode_ddl
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

ROUTE = RouteRule(
    matcher=("s*.o*",),
    target_schema="shop",
    target_table="o",
    extract_table=Extract(regexp="o(.*)", target_column="t"),
    extract_schema=Extract(regexp="s(.*)", target_column="s"),
)
STEPS = (
    *(Failpoint.AFTER_DDL, Failpoint.BEFORE_DDL, Failpoint.AFTER_APPLY_ONE),
    *(Failpoint.AFTER_PROGRESS, Failpoint.AFTER_CREATE_TABLE, Failpoint.AFTER_LEDGER),
)
ADDED = {"w": 5, "x": 6}  # in this order, with their defaults
Rows = dict[int, dict[str, Any]]


@dataclass
class Shard:
    schema: str
    name: str
    columns: tuple[str, ...] = ("id", "v")
    rows: Rows = field(default_factory=dict)
    ts: int = 0

    @property
    def table(self) -> Table:
        columns = tuple(Column(each, "int") for each in self.columns)
        return Table(
            schema=self.schema, name=self.name, columns=columns, primary_key=("id",),
            handle_key=("id",),
        )  # fmt: skip

    def ddl(self, query: str, kind: str) -> bytes:
        text = query.format(f"`{self.schema}`.`{self.name}`")
        return encode_ddl(Ddl(self.schema, self.name, kind, text), self.ts, 0)

    def change(self, dice: random.Random) -> bytes:
        id_ = dice.randrange(6)
        row = {each: dice.randrange(100) for each in self.columns} | {"id": id_}
        old = self.rows.get(id_)
        if old is not None and dice.random() < 0.3:
            del self.rows[id_]
            return encode_change(Change(table=self.table, op="DELETE", row=old), self.ts, 0)
        self.rows[id_] = row
        op: Any = "INSERT" if old is None else "UPDATE"
        return encode_change(Change(table=self.table, op=op, row=row, old=old), self.ts, 0)

    def shown(self) -> list[dict[str, Any]]:
        told = {"t": self.name.removeprefix("o"), "s": self.schema.removeprefix("s")}
        return [{**row, **told} for row in self.rows.values()]


def history(seed: int) -> Iterator[tuple[int, bytes, list[dict[str, Any]], set[str]]]:
    """(commit-ts, message, all rows of the union then, their columns by shards together)."""
    dice = random.Random(seed)
    shards = [Shard("s1", "o1"), Shard("s1", "o2"), Shard("s2", "o1")]
    left = {id(each): list(ADDED) for each in shards}
    for number, shard in enumerate(shards):
        shard.ts = 1000 + 10 * number
        message = shard.ddl("CREATE TABLE {} (`id` INT PRIMARY KEY, `v` INT)", "CREATE")
        yield shard.ts, message, [], {"id", "v"}
    for number in range(120):
        shard = dice.choice(shards)
        shard.ts = 2000 + 10 * number
        todo = left[id(shard)]
        if todo and dice.random() < 0.08:
            name = todo.pop(0)
            message = shard.ddl(
                f"ALTER TABLE {{}} ADD COLUMN `{name}` INT DEFAULT {ADDED[name]}", "ALTER"
            )
            shard.columns += (name,)
            shard.rows = {k: {**row, name: ADDED[name]} for k, row in shard.rows.items()}
        elif dice.random() < 0.02:
            message, shard.rows = shard.ddl("TRUNCATE TABLE {}", "TRUNCATE"), {}
        else:
            message = shard.change(dice)
        rows = [row for each in shards for row in each.shown()]
        yield shard.ts, message, rows, set.union(*(set(each.columns) for each in shards))
    for number, shard in enumerate(shards):
        for at, name in enumerate(left[id(shard)]):
            shard.ts = 5000 + 100 * number + 10 * at
            query = f"ALTER TABLE {{}} ADD COLUMN `{name}` INT DEFAULT {ADDED[name]}"
            message = shard.ddl(query, "ALTER")
            shard.columns += (name,)
            shard.rows = {k: {**row, name: ADDED[name]} for k, row in shard.rows.items()}
            rows = [row for each in shards for row in each.shown()]
            yield shard.ts, message, rows, {"id", "v", *ADDED}


def filled(rows: list[dict[str, Any]], columns: set[str]) -> list[str]:
    """As text; a row of a shard that has not had a DDL yet shows the default."""
    found = [{**{n: ADDED[n] for n in columns if n in ADDED}, **row} for row in rows]
    return sorted(str(sorted(row.items())) for row in found)


def check(lives: Lives, seed: int) -> None:
    """All cells of the table now, and of each published snapshot."""
    moments = list(history(seed))
    for cut in lives.ledger():
        ts, version = cut["primary_ts"], cut["tables"].get("shop.o")
        if version is None:
            continue
        below = [each for each in moments if each[0] <= ts]
        table = DeltaTable(f"{lives.uri}/shop/o", version=version)
        columns = {each.name for each in table.schema().fields}
        assert columns - {"t", "s"} == below[-1][3], (seed, ts)
        found = filled(read_rows(f"{lives.uri}/shop/o", version), set())
        assert found == filled(below[-1][2], columns), (seed, ts)
    assert filled(read_rows(f"{lives.uri}/shop/o"), set()) == filled(moments[-1][2], set(ADDED))
    assert lives.dead_letters() == []


def lived(new_lives: MakeLives, seed: int) -> None:
    lives, dice = routed(new_lives), random.Random(seed)
    moments = list(history(seed))
    last_ts = moments[-1][0]
    messages: list[Message] = []
    for at, (ts, message, _, _) in enumerate(moments):
        messages.append((dice.randrange(3), None, message))
        if at % 7 == 6:
            messages += marks(ts + 1)
    lives.produce([*messages, *marks(last_ts + 2)])
    for step in dice.sample(STEPS, 4):
        lives.live(f"{step}=raise:{dice.randint(1, 3)}", target_ts=last_ts, max_messages=40)
    lives.finish(target_ts=last_ts, max_messages=dice.choice((25, 1000)))
    check(lives, seed)
    lives.assert_history()


def test_random_shards_are_one_table_whoever_dies(new_lives: MakeLives) -> None:
    lived(new_lives, 11)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 108))
def test_many_random_shards_are_one_table(new_lives: MakeLives, seed: int) -> None:
    lived(new_lives, seed)


def routed(new_lives: MakeLives) -> Lives:
    lives = new_lives()
    sink = replace(lives.settings.changefeed.sink, routes=(ROUTE,))
    changefeed = replace(lives.settings.changefeed, sink=sink)
    lives.settings = replace(lives.settings, changefeed=changefeed)
    return lives


@pytest.mark.parametrize("step", [Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL])
def test_shards_that_are_made_at_one_ts_join_whoever_dies(
    new_lives: MakeLives, step: Failpoint
) -> None:
    """TiDB restores many tables by one DDL. Two of them stay empty up to their ALTER TABLE."""
    lives = routed(new_lives)
    shards = [Shard("s1", "o1", ts=1000), Shard("s1", "o2", ts=1000), Shard("s2", "o1", ts=1000)]
    create = "CREATE TABLE {} (`id` INT PRIMARY KEY, `v` INT)"
    messages: list[Message] = [(0, None, each.ddl(create, "CREATE")) for each in shards]
    lives.produce([*messages, *marks(1500)])
    error = lives.live(f"{step}=raise:1", target_ts=1400)
    assert "failpoint" in str(error)
    messages = []
    for number, shard in enumerate(shards):
        shard.ts = 2000 + 100 * number
        messages.append(
            (0, None, shard.ddl("ALTER TABLE {} ADD COLUMN `w` INT DEFAULT 5", "ALTER"))
        )
        shard.ts += 1
        row = {"id": 1, "v": number, "w": 7}
        shard.columns += ("w",)
        change = Change(table=shard.table, op="INSERT", row=row)
        messages.append((0, None, encode_change(change, shard.ts, 0)))
        shard.rows = {1: row}
    lives.produce([*messages, *marks(3000)])
    lives.finish(target_ts=2900)
    wanted = filled([row for each in shards for row in each.shown()], set())
    assert filled(read_rows(f"{lives.uri}/shop/o"), set()) == wanted
    assert lives.dead_letters() == []


def test_a_letter_of_a_shard_that_was_behind_is_not_replayed(new_lives: MakeLives) -> None:
    """Its row lacks a column that the target had by then: the column's default would be lost."""
    lives, big = routed(new_lives), 77_777_777_777
    early, late = Shard("s1", "o1"), Shard("s1", "o2")
    messages: list[Message] = []

    def send(shard: Shard, ts: int, query: str = "", kind: str = "ALTER", **row: int) -> None:
        shard.ts = ts
        change = Change(table=shard.table, op="INSERT", row=row)
        message = shard.ddl(query, kind) if query else encode_change(change, ts, 0)
        messages.append((0, None, message))

    for shard, ts in ((early, 1000), (late, 1010)):
        send(shard, ts, "CREATE TABLE {} (`id` INT PRIMARY KEY, `v` INT)", "CREATE")
    send(late, 1500, id=1, v=big)
    for shard, ts in ((early, 2000), (late, 2010)):
        send(shard, ts, "ALTER TABLE {} MODIFY COLUMN `v` BIGINT")
    for shard, ts in ((early, 3000), (late, 3020)):
        send(shard, ts, "ALTER TABLE {} ADD COLUMN `w` INT DEFAULT 5")
        if shard is early:
            send(late, 3010, id=2, v=big**2)
    late.columns += ("w",)
    send(late, 4000, id=3, v=big, w=7)
    lives.produce([*messages, *marks(5000)])
    sink = lives.settings.changefeed.sink
    lives.finish(target_ts=4900)
    letters = {each["commit_ts"]: each for each in replay_letters(sink, Chosen())}
    assert letters[1500]["state"] == "replayed"
    assert letters[3010]["state"] == "open"
    assert "had a DDL of the target later than others" in letters[3010]["refusal"]
    found = {row["id"]: (row["v"], row["w"]) for row in read_rows(f"{lives.uri}/shop/o")}
    assert found == {1: (big, 5), 3: (big, 7)}
