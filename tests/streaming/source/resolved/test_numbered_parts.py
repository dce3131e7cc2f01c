"""Messages without a commit-ts: whatever is read, killed and read again, each change is applied
once and in its part's order.

A model of a changefeed on the real limits, numbers and idle parts: parts that get messages now and
then, some with old or wrong times; reads that end anywhere; two tables, one of which may be held;
and kills at every place between a commit and the store of the changefeed's row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.owner.progress_rows import at_pins, later, risen
from streaming.protocols.clocks import beyond_ts, latest_ts
from streaming.protocols.contract import Block, Kind, Messages, Wanted
from streaming.source.resolved.commit_clock import Pin, numbered
from streaming.source.resolved.idle_parts import IdleParts
from streaming.source.resolved.limits import Marks, Stored
from streaming.source.resolved.numbering import NumberedDecoder, lead
from streaming.source.resolved.pinned_limits import PinnedLimits, begun_again
from streaming.stream.read import marks_of

TABLES = ("a", "b")
Change = tuple[str, int]  # part and offset


@dataclass
class Log:
    """A part: by offset a table and an own time; offsets may be missing."""

    rows: dict[int, tuple[str, int]] = field(default_factory=dict)
    end: int = 0
    begin: int = 0  # what lay before is deleted


@dataclass
class Row:
    """The changefeed's row, and each table's progress row."""

    low_water: dict[str, int]
    marks: Marks = field(default_factory=dict)
    progress: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    table_low_water: dict[str, dict[str, int]] = field(default_factory=dict)


def own_ms(values: pa.Array) -> pa.Int64Array:
    return pa.array([int(each.as_py()) or None for each in values], pa.int64())


@dataclass
class Taken:
    """In the place of a decoder."""

    commit_ts: dict[Change, int] = field(default_factory=dict)

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:  # noqa: ARG002
        assert messages.commit_ts is not None
        for at, ts in zip(
            messages.positions.to_pylist(), messages.commit_ts.to_pylist(), strict=True
        ):
            self.commit_ts[messages.part, at] = ts
        return iter(())


class Life:
    """One process: it reads from the row's low water on."""

    def __init__(self, world: World) -> None:
        self.world = world
        row = world.row
        parts = frozenset(world.logs)
        self.position = {part: row.low_water.get(part, 0) for part in sorted(parts)}
        above_ts = beyond_ts(world.clock_ms())
        limits = PinnedLimits.of(parts, row.marks, above_ts=above_ts)
        self.limits = limits.advance({}, self.position)
        self.idle = IdleParts()
        self.taken: Marks = self.limits.to_record()  # the owner's: a report may be newer
        self.carry: dict[str, dict[Change, int]] = {table: {} for table in TABLES}
        self.progress = dict(row.progress)
        self.applied = dict(world.identity)  # what the table's own log says

    def read(self, dice: random.Random, *, is_last: bool = False) -> None:
        ends = {part: log.end for part, log in self.world.logs.items()}
        self.idle.looked(ends, self.world.clock_ms())
        if dice.random() < 0.3 and not is_last:  # something comes behind the look
            self.world.append(dice)
        begin = {p: at for p, at in self.position.items() if at < ends[p] and dice.random() < 0.8}
        until = {
            p: ends[p] if is_last else dice.randint(at + 1, ends[p]) for p, at in begin.items()
        }
        pins = {part: self.limits.numbering(part) for part in begin}
        taken = Taken()
        numbers = NumberedDecoder(taken, own_ms, pins, begin).started()
        blocks: list[Block] = []
        for part, at in lead(pins, begin).items():
            assert at >= self.world.logs[part].begin, "it needs what was deleted"
            rows = {o: r for o, r in self.world.logs[part].rows.items() if at <= o < until[part]}
            offsets = sorted(rows)
            for some in np.array_split(np.array(offsets, np.int64), dice.randint(1, 3)):
                if len(some):
                    values = [b"%d" % rows[o][1] for o in some.tolist()]
                    numbers(
                        Messages(
                            part=part,
                            positions=pa.array(some),
                            values=pa.array(values, pa.binary()),
                            latest_ts=latest_ts(self.world.clock_ms()),
                        ),
                        {},
                    )
            blocks.append(numbers.mark(part, begin[part], until[part]))
            blocks.append(Block(kind=Kind.DONE, part=part, first=begin[part], last=until[part]))
        before_ts = self.limits.global_ts
        for change, ts in taken.commit_ts.items():
            part, at = change
            assert ts >= before_ts or ts <= max(self.applied.values()), "below what was resolved"
            self.carry[self.world.logs[part].rows[at][0]][change] = ts
        self.position = {**self.position, **until}
        self.limits = self.limits.advance(marks_of(tuple(blocks)), self.position)
        self.settle()
        assert self.limits.global_ts >= before_ts, "the watermark fell"

    def take(self) -> None:
        self.taken = self.limits.to_record()

    def settle(self) -> None:
        row = self.world.row
        known = self.limits.settled(Stored(row.marks, is_ours=True, low_water=row.low_water))
        self.limits = known.idle_at(self.idle.steps(self.position, known))

    def apply(self, *, held: bool) -> None:
        """Commits; the progress row and the changefeed's come later."""
        limit = self.limits.global_ts - 1
        for table in TABLES:
            if (held and table == "b") or limit <= self.applied[table]:
                continue
            due = {
                c: ts for c, ts in self.carry[table].items() if self.applied[table] < ts <= limit
            }
            self.world.commit(table, due)
            self.world.identity[table] = self.applied[table] = limit
            self.carry[table] = {c: ts for c, ts in self.carry[table].items() if ts > limit}

    def store_progress(self) -> None:
        row = self.world.row
        for table in TABLES:
            row.progress[table] = self.applied[table]
            waits = [c for c, ts in self.carry[table].items() if ts > self.applied[table]]
            low = dict(self.position)
            for part, at in waits:
                low[part] = min(low[part], at)
            row.table_low_water[table] = low

    def store_row(self) -> None:
        row = self.world.row
        before = row.low_water
        if row.table_low_water:
            row.low_water = later(before, [self.position, *row.table_low_water.values()])
        row.marks = risen(row.marks, self.taken)
        row.low_water = at_pins(row.low_water, row.marks, before)


class World:
    def __init__(self, dice: random.Random) -> None:
        self.now_ms = 1_795_000_000_000.0
        self.skew_ms = 0.0  # of the reader's clock
        self.logs = {f"t/{n}": Log() for n in range(dice.randint(1, 3))}
        self.row = Row(low_water=dict.fromkeys(self.logs, 0))
        self.identity = dict.fromkeys(TABLES, 0)
        self.applied: Counter[Change] = Counter()
        self.numbers: dict[Change, int] = {}
        self.order: dict[str, list[Change]] = {table: [] for table in TABLES}
        self.times = dice.choice(["right", "late", "old", "wrong", "none"])

    def clock_ms(self) -> float:
        return self.now_ms + self.skew_ms

    def append(self, dice: random.Random) -> None:
        log = self.logs[dice.choice(sorted(self.logs))]
        for _ in range(dice.randint(1, 4)):
            at_ms = int(self.now_ms - dice.choice((0, 5, 1_500, 20_000)))
            match self.times if dice.random() < 0.5 else "right":
                case "late":
                    at_ms -= dice.randint(0, 90_000)
                case "old":
                    at_ms -= 86_400_000
                case "wrong":
                    at_ms += dice.choice((30_000, 400_000, 10**9, 10**14))
                case "none":
                    at_ms = 0
            log.end += dice.choice((0, 0, 0, 2))  # a transaction's marker, or compacted
            log.rows[log.end] = dice.choice(TABLES), max(0, at_ms)
            log.end += 1

    def delete(self) -> None:
        """Everything that the changefeed's row does not need."""
        for part, at in self.row.low_water.items():
            self.logs[part].begin = max(self.logs[part].begin, at)

    def commit(self, table: str, due: Mapping[Change, int]) -> None:
        self.applied.update(due.keys())
        self.numbers.update(due)
        self.order[table] += sorted(due, key=lambda change: (due[change], change))


def played(seed: int, steps: int) -> World:
    dice = random.Random(seed)
    world = World(dice)
    life = Life(world)
    held = False
    for _ in range(steps):
        world.now_ms += dice.choice((1, 50, 400, 2_000, 9_000))
        world.skew_ms = dice.choice((0.0, 0.0, -300.0, 300.0))
        if dice.random() < 0.4:
            world.append(dice)
        if dice.random() < 0.03:
            held = not held
        if dice.random() < 0.04 and len(world.logs) < 5:
            world.logs[f"t/{len(world.logs)}"] = Log()
            life.limits = life.limits.with_parts(frozenset(world.logs), beyond_ts(world.clock_ms()))
            life.position = {**dict.fromkeys(world.logs, 0), **life.position}
            life.limits = life.limits.advance({}, life.position)
        if dice.random() < 0.2:
            world.delete()
        life.read(dice)
        for step in (
            partial(life.apply, held=held),
            life.store_progress,
            life.store_row,
            life.take,
        ):
            if dice.random() < 0.06:
                life = Life(world)  # a kill: what was not stored is forgotten
                break
            if dice.random() < 0.8:
                step()
    for _ in range(40):
        world.now_ms += 30_000
        life.read(dice, is_last=True)
        life.apply(held=False)
        life.store_progress()
        life.take()
        life.store_row()
    return world


def rewound(world: World) -> dict[Change, int]:
    """The numbers of a reading from the beginning on."""
    world.row = Row(
        low_water=dict.fromkeys(world.logs, 0),
        marks=begun_again(world.row.marks, world.logs, dict.fromkeys(world.logs, 0)),
    )
    for log in world.logs.values():
        log.begin = 0
    world.identity = dict.fromkeys(TABLES, 0)
    world.skew_ms = 0.0
    life, dice = Life(world), random.Random(1)
    while any(life.position[part] < log.end for part, log in world.logs.items()):
        life.read(dice, is_last=True)
    return {change: ts for table in TABLES for change, ts in life.carry[table].items()}


def check(seed: int, steps: int) -> None:
    world = played(seed, steps)
    sent = {(part, at) for part, log in world.logs.items() for at in log.rows}
    assert world.applied == Counter(sent), f"seed {seed}: lost or doubled"
    assert rewound(world) == world.numbers, f"seed {seed}: a rewind numbers otherwise"
    for order in world.order.values():
        for part in world.logs:
            mine = [at for name, at in order if name == part]
            assert mine == sorted(mine), f"seed {seed}: out of order"


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_each_change_is_applied_once_whatever_happens(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed, steps=60)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 1_000, 100))
def test_each_change_is_applied_once_in_many_lives(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed, steps=150)


def test_a_reading_from_between_two_pins_numbers_from_the_one_before() -> None:
    taken, pins = Taken(), {"t/0": (Pin(0, 0), Pin(3, 900 << TSO_LOGICAL_BITS))}
    messages = Messages(
        part="t/0",
        positions=pa.array(range(3, 9), pa.int64()),
        values=pa.array([b"800"] * 6, pa.binary()),
    )
    assert lead(pins, {"t/0": 5}) == {"t/0": 3}
    sent = NumberedDecoder(taken, own_ms, pins, {"t/0": 5})
    numbers = sent.started()
    list(numbers(messages, {}))
    first = 900 << TSO_LOGICAL_BITS
    assert taken.commit_ts == {("t/0", at): first + at - 2 for at in range(5, 9)}
    assert numbers.mark("t/0", 5, 9).max_ts == first + 7


def test_numbers_do_not_depend_on_where_chunks_end() -> None:
    own = np.array([5, 3, 9, 0, 2, 9, 9, 1], np.int64)
    told: Any = {"after": 0, "pins": [Pin(0, 0)], "latest": Ts(1 << 60), "early": 1 << 17}
    whole = numbered(np.arange(8), own, **told).commit_ts
    for cut in range(9):
        taken = Taken()
        numbers = NumberedDecoder(taken, own_ms, {"t/0": (Pin(0, 0),)}, {"t/0": 0}).started()
        for some in (range(cut), range(cut, 8)):
            values = pa.array([b"%d" % own[at] for at in some], pa.binary())
            chunk = Messages(part="t/0", positions=pa.array(some, pa.int64()), values=values)
            numbers(chunk, {})
        assert [taken.commit_ts["t/0", at] for at in range(8)] == whole.tolist()


def test_a_ddl_is_below_the_rows_that_other_partitions_have_of_its_second() -> None:
    """DDLs are in partition 0, behind other messages of the second."""
    taken, parts = Taken(), ("t/0", "t/1")
    pins = {part: (Pin(0, 0),) for part in parts}
    begin = dict.fromkeys(parts, 0)
    numbers = NumberedDecoder(taken, own_ms, pins, begin).started()
    for part in parts:
        values = pa.array([b"5"] * 3, pa.binary())
        numbers(Messages(part=part, positions=pa.array(range(3), pa.int64()), values=values), {})
    assert taken.commit_ts["t/0", 2] < taken.commit_ts["t/1", 0]
    assert taken.commit_ts["t/1", 0] == 5 << TSO_LOGICAL_BITS


def are_ddls(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([value.endswith(b" ") for value in values.to_pylist()], np.bool_)


@pytest.mark.parametrize("parts", [("inv/0", "inv.t/0"), ("inv/0", "t/0"), ("inv/1", "t/0", "t/1")])
def test_ddls_that_are_known_are_below_all_rows_of_their_time(parts: tuple[str, ...]) -> None:
    """Debezium's: rows are in partition 0 of other topics, and many DDLs may have one time. What
    topics there are, and their names, says nothing."""
    ddls, *others = parts
    pins, begin = {part: (Pin(0, 0),) for part in parts}, dict.fromkeys(parts, 0)
    taken = Taken()
    numbers = NumberedDecoder(taken, own_ms, pins, begin, are_ddls=are_ddls).started()
    for part in parts:
        sent = [b"4", b"5 ", b"5 ", b"5 "] if part == ddls else [b"4", b"4", b"5", b"5"]
        values = pa.array(sent, pa.binary())
        numbers(Messages(part=part, positions=pa.array(range(4), pa.int64()), values=values), {})
    for part in others:
        assert taken.commit_ts[part, 1] < taken.commit_ts[ddls, 1]
        assert taken.commit_ts[ddls, 3] < taken.commit_ts[part, 2]


def test_a_ddl_behind_rows_of_its_time_is_below_those_of_other_partitions() -> None:
    taken, parts = Taken(), ("t/0", "t/1")
    pins, begin = {part: (Pin(0, 0),) for part in parts}, dict.fromkeys(parts, 0)
    numbers = NumberedDecoder(taken, own_ms, pins, begin, are_ddls=are_ddls).started()
    for part, sent in zip(parts, ([b"5", b"5 ", b"5"], [b"5"] * 3), strict=True):
        values = pa.array(sent, pa.binary())
        numbers(Messages(part=part, positions=pa.array(range(3), pa.int64()), values=values), {})
    assert taken.commit_ts["t/0", 0] < taken.commit_ts["t/0", 1] < taken.commit_ts["t/1", 0]
