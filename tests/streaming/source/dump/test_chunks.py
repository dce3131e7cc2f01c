"""Chunks in a simulation: tables of 100 million rows, as runs of keys, of which each row is read
once, whatever the spread of the keys, whoever is killed when."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest

from coordination.model import TableName
from sinks.types.mysql_type import MySQLType
from streaming.source.dump.chunks import (
    FEWEST_ROWS,
    MOST_ROWS,
    ChunkPlan,
    Measure,
    Measured,
    Outcome,
    Read,
    Step,
    WasRead,
    chunk_rows,
    integer_plan,
    measured_plan,
    no_rows,
    whole_table,
)
from streaming.source.dump.key_ranges import ALL_ROWS, KeyRange
from streaming.source.dump.source_table import SourceColumn, SourceTable

ROWS = 100_000_000


@dataclass(frozen=True)
class Run:
    """``count`` keys from ``first`` on, ``step`` apart."""

    first: int
    count: int
    step: int = 1

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.step


class Keys:
    """The keys of a table: runs, one behind the other."""

    def __init__(self, *runs: Run) -> None:
        assert all(a.last < b.first for a, b in pairwise(runs))
        self.runs = list(runs)
        self._before = [0, *accumulate(run.count for run in runs)]

    def __len__(self) -> int:
        return self._before[-1]

    def rank(self, key: int) -> int:
        """How many keys are at or below it."""
        place = bisect_right(self.runs, key, key=lambda run: run.first) - 1
        if place < 0:
            return 0
        run = self.runs[place]
        return self._before[place] + min(run.count, (key - run.first) // run.step + 1)

    def key(self, rank: int) -> int:
        """The key with so many before it."""
        place = bisect_right(self._before, rank) - 1
        run = self.runs[place]
        return run.first + (rank - self._before[place]) * run.step

    def ranks(self, of: KeyRange) -> tuple[int, int]:
        low = 0 if of.after is None else self.rank(int(of.after[0]))
        high = len(self) if of.upto is None else self.rank(int(of.upto[0]))
        return low, high


class Server:
    """Answers steps, and knows which rows were read."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.read: list[tuple[int, int]] = []  # ranks
        self.empty = 0

    def answer(self, step: Step) -> Outcome:
        low, high = self.keys.ranks(step.range)
        if isinstance(step, Measure):
            bound = low + step.rows
            return Measured(step.range, (str(self.keys.key(bound - 1)),) if bound <= high else None)
        end = high if step.limit is None else min(high, low + step.limit)
        if end == low:
            self.empty += 1
        else:
            self.read.append((low, end))
        if step.limit is not None and end - low == step.limit:
            return WasRead(step.range, (self.keys.key(low), self.keys.key(end - 1)))
        return WasRead(step.range)


def copied(
    plan: ChunkPlan, server: Server, *, connections: int = 4, chance: random.Random | None = None
) -> tuple[int, int]:
    """Run the plan to its end, with kills by ``chance``: (steps, the most that ran at once)."""
    begun, noted = plan, list[Outcome]()
    running: list[Step] = []
    steps = most = 0
    while not plan.is_done:
        while len(running) < connections:
            step, plan = plan.next_step(2 * connections)
            if step is None:
                break
            running.append(step)
        assert running, "a plan that is not done has a step"
        most = max(most, sum(isinstance(each, Read) for each in running))
        if chance is not None and chance.random() < 0.02:  # killed: what runs is forgotten
            running.clear()
            plan = begun
            for each in noted:
                plan = plan.after(each)
            continue
        if chance is None:  # a measure takes a fifth of a read's time
            running.sort(key=lambda each: not isinstance(each, Measure))
        step = running.pop(chance.randrange(len(running)) if chance else 0)
        if chance is not None and chance.random() < 0.05:
            plan = plan.again(step)
            continue
        outcome = server.answer(step)
        noted.append(outcome)
        plan = plan.after(outcome)
        steps += 1
    return steps, most


def assert_each_once(server: Server) -> None:
    at = 0
    for low, end in sorted(server.read):
        assert low == at, "a row is read twice, or never"
        at = end
    assert at == len(server.keys)


TABLES = {
    "dense": Keys(Run(1, ROWS)),
    "gaps": Keys(Run(1, ROWS, 10)),
    "negative": Keys(Run(-(1 << 63), 1000), Run(0, ROWS)),
    "two clusters": Keys(Run(1, 1000), Run(10**18, ROWS - 1000)),
    "three clusters": Keys(Run(1, 10**7), Run(10**12, 10**7), Run(2 * 10**12, 8 * 10**7, 3)),
    "unsigned": Keys(Run(1, 10), Run((1 << 64) - ROWS, ROWS)),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_hundred_million_integer_keys(name: str):
    keys = TABLES[name]
    server = Server(keys)
    plan = integer_plan(keys.key(0), keys.key(len(keys) - 1), len(keys), 200_000)
    steps, most = copied(plan, server)
    assert_each_once(server)
    assert steps <= 2.5 * ROWS / 200_000 + 200
    assert max(end - low for low, end in server.read) <= 400_000
    assert most == 4


@pytest.mark.parametrize("estimate", [0, 1, 10**6, 10**10])
def test_an_estimate_that_is_far_off(estimate: int):
    keys = TABLES["gaps"]
    server = Server(keys)
    steps, most = copied(integer_plan(1, keys.key(ROWS - 1), estimate, 200_000), server)
    assert_each_once(server)
    assert most == 4
    assert steps <= 2.5 * ROWS / 200_000 + 1_000


def test_a_hundred_million_keys_that_the_server_orders():
    keys = TABLES["three clusters"]
    server = Server(keys)
    plan = measured_plan((str(keys.key(ROWS - 1)),), 200_000)
    steps, most = copied(plan, server, connections=8)
    assert_each_once(server)
    assert steps == 2 * ROWS / 200_000 + 2
    assert {end - low for low, end in server.read} == {200_000}
    assert server.empty <= 1
    assert most >= 7


@pytest.mark.seeds(100)
def test_random_tables_with_kills_and_failures(seed: int):
    chance = random.Random(seed)
    runs, at = [], chance.randint(-(1 << 62), 1 << 20)
    for _ in range(chance.randint(1, 6)):
        run = Run(at, chance.randint(1, 10 ** chance.randint(1, 5)), chance.choice([1, 1, 7, 1000]))
        runs.append(run)
        at = run.last + 1 + chance.randrange(10 ** chance.randint(1, 15))
    keys = Keys(*runs)
    server = Server(keys)
    rows = max(1, len(keys) // chance.choice([1, 10, 100]))
    last = keys.key(len(keys) - 1)
    if chance.random() < 0.5:
        estimate = int(len(keys) * chance.choice([0, 0.1, 0.8, 1, 1.5, 30])) % (100 * len(keys))
        plan = integer_plan(keys.key(0), last, estimate, rows)
    else:
        plan = measured_plan((str(last),), rows)
    copied(plan, server, connections=chance.randint(1, 6), chance=chance)
    assert_each_once(server)


def test_what_grows_behind_the_last_key_is_not_chased():
    plan = integer_plan(1, 1000, 1000, 100)
    grown = Server(Keys(Run(1, 10**9)))
    copied(plan, grown)
    assert max(end for _, end in grown.read) == 1000
    measured = Server(Keys(Run(1, 10**9)))
    copied(measured_plan(("1000",), 100), measured)
    assert max(end for _, end in measured.read) == 1000


def test_a_table_of_one_chunk_and_one_of_none():
    step, plan = whole_table().next_step(8)
    assert step == Read(ALL_ROWS, None)
    assert not plan.is_done
    assert plan.after(WasRead(ALL_ROWS)).is_done
    assert no_rows().is_done
    assert integer_plan(5, 5, 0, 100).todo == (KeyRange(None, ("5",)),)


def table(rows: int, size: int) -> SourceTable:
    column = SourceColumn(name="id", type=MySQLType.parse("int"), nullable=False)
    return SourceTable(
        name=TableName("s", "t"),
        columns=(column,),
        key=("id",),
        index="PRIMARY",
        rows=rows,
        bytes=size,
    )


def test_the_size_of_a_chunk_is_about_the_same_in_bytes():
    assert chunk_rows(table(10**6, 10**9)) == 67_108
    assert chunk_rows(table(10**6, 10**6)) == MOST_ROWS
    assert chunk_rows(table(10, 10**9)) == FEWEST_ROWS
    assert chunk_rows(table(0, 0)) == MOST_ROWS
