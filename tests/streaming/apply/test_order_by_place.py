"""Transactions that change a key many times, as a binlog has them: their order is the place, in
every form of a table, from whatever blocks and however often a place is read."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sinks.target.write_mode import VALID_FROM_TS, VALID_TO_TS
from streaming.apply.carry import Carry
from streaming.apply.last_change import order_of_pieces
from streaming.apply.rows_to_apply import pieces_to_apply
from streaming.apply.table_task import TableTask
from streaming.protocols.contract import Order
from tests.streaming.apply.blocks import A, Row, block_of, blocks_of
from tests.streaming.apply.resolved import PLAIN, by_key, resolved, row
from tests.streaming.apply.test_change_log import KEYLESS, logged, told
from tests.streaming.apply.test_last_change import HISTORY

KINDS = {"id": pa.int64(), "v": pa.string()}
Table = dict[int, str]


def changed(op: str, ts: int, data: Table, old: Table | None = None, **more: Any) -> Row:
    """``data`` and ``old``: a row each."""
    ((id, v),) = data.items()
    before = None if old is None else {"id": next(iter(old)), "v": next(iter(old.values()))}
    return row(op, ts, {"id": id, "v": v}, before, order=Order.PLACE, kinds=KINDS, **more)


def placed(rows: Sequence[Row], first: int = 0) -> list[Row]:
    return [replace(each, position=first + 10 * at) for at, each in enumerate(rows)]


class Server:
    """A table, and the binlog of what random transactions do to it."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._ids = range(self._dice.choice((2, 4, 9)))
        self._position = 4
        self.states: dict[int, Table] = {0: {}}  # by commit-ts
        self.rows: list[Row] = []
        self.events: list[tuple[Any, ...]] = []  # as a change log has them

    def commit(self, ts: int) -> None:
        table = dict(self.states[ts - 1])
        for _ in range(self._dice.choice((0, 1, 3, 8))):
            self._position += self._dice.randrange(1, 90)
            made = self._statement(ts, table)
            self.rows += [
                replace(each, position=self._position, index=at) for at, each in enumerate(made)
            ]
        self.states[ts] = table

    def _statement(self, ts: int, table: Table) -> list[Row]:
        """The rows of one event, all of one kind."""
        kind = self._dice.choice(("insert", "update", "move", "delete"))
        return [
            each
            for _ in range(self._dice.choice((1, 1, 2, 4)))
            for each in self._change(kind, ts, table)
        ]

    def _change(self, kind: str, ts: int, table: Table) -> Iterator[Row]:
        free = [id for id in self._ids if id not in table]
        v = self._dice.choice("ab")
        if kind == "insert" and free:
            id = self._dice.choice(free)
            table[id] = v
            self.events.append((ts, "insert", id, v))
            yield changed("INSERT", ts, {id: v})
        elif kind == "delete" and table:
            id = self._dice.choice(list(table))
            was = table.pop(id)
            self.events.append((ts, "delete", id, was))
            yield changed("DELETE", ts, {id: was})
        elif kind in ("update", "move") and table and (kind == "update" or free):
            id = self._dice.choice(list(table))
            was, now = table.pop(id), id if kind == "update" else self._dice.choice(free)
            table[now] = v
            self.events += [(ts, "update_preimage", id, was), (ts, "update_postimage", now, v)]
            yield changed("UPDATE", ts, {now: v}, {id: was})

    def sent(self) -> list[Row]:
        """In any order, some of them twice."""
        again = self._dice.sample(self.rows, len(self.rows) // 3)
        return self._dice.sample([*self.rows, *again], len(self.rows) + len(again))

    def cuts(self, last: int) -> list[int]:
        return sorted({0, last, *(self._dice.randrange(last + 1) for _ in range(3))})


MAX_TS = 8


def shown(event: dict[str, Any]) -> tuple[Any, ...]:
    """By what a reader orders events (docs/write-modes.md)."""
    return event["_commit_ts"], event["_commit_order"], event["_op"] == "update_postimage"


def served(seed: int) -> Server:
    server = Server(seed)
    for ts in range(1, MAX_TS + 1):
        server.commit(ts)
    return server


@pytest.mark.seeds(20)
def test_a_table_is_what_the_server_has(seed: int) -> None:
    server = served(seed)
    sent = server.sent()
    for low, high in itertools.pairwise(server.cuts(MAX_TS)):
        table = dict(server.states[low])
        for key, v in by_key(resolved(sent, checkpoint=low, limit=high)).items():
            table.pop(key, None)
            table |= {} if v is None else {key: v}
        assert table == server.states[high]


@pytest.mark.seeds(2)
def test_through_a_carry_that_spills_and_joins(seed: int, tmp_path: Path) -> None:
    server = served(seed)
    carry = Carry(tmp_path, memory_bytes=5_000)
    for _ in range(8):
        for each in server.sent():
            carry.add(block_of([each]))
    found = resolved(carry.due(A, 0, MAX_TS), limit=MAX_TS)
    assert {k: v for k, v in by_key(found).items() if v is not None} == server.states[MAX_TS]
    carry.close()


@pytest.mark.seeds(20)
def test_a_history_has_what_each_transaction_left(seed: int) -> None:
    server = served(seed)
    sent = server.sent()
    for low, high in itertools.pairwise(server.cuts(MAX_TS)):
        found = resolved(sent, checkpoint=low, limit=high, form=HISTORY).rows.to_pylist()
        for ts in range(low + 1, high + 1):
            current = {
                each["id"]: each["v"]
                for each in found
                if each["_op "] == "U"
                and each[VALID_FROM_TS] <= ts < (each[VALID_TO_TS] or MAX_TS + 1)
            }
            begun = {each["id"] for each in found if each[VALID_FROM_TS] <= ts}
            untouched = {id: v for id, v in server.states[low].items() if id not in begun}
            assert current | untouched == server.states[ts]


@pytest.mark.parametrize("of", [PLAIN, KEYLESS], ids=["key", "keyless"])
@pytest.mark.seeds(20)
def test_a_change_log_has_every_event_in_order(of: Any, seed: int) -> None:
    server = served(seed)
    sent = server.sent()
    found: list[tuple[Any, ...]] = []
    for low, high in itertools.pairwise(server.cuts(MAX_TS)):
        part = logged(sent, of, checkpoint=low, limit=high)
        found += told(part)
        by_number = sorted(part.rows.to_pylist(), key=shown)
        assert by_number == part.rows.to_pylist()
        assert len({shown(each) for each in by_number}) == len(by_number)
        assert {each["_commit_order"] for each in by_number} <= set(range(len(by_number)))
    assert found == server.events


def test_of_one_key_in_one_transaction_the_last_place_counts() -> None:
    steps = [
        changed("INSERT", 5, {1: "a"}),
        changed("DELETE", 5, {1: "a"}),
        changed("INSERT", 5, {1: "b"}),
        changed("UPDATE", 5, {2: "b"}, {1: "b"}),
        changed("UPDATE", 5, {3: "c"}, {2: "b"}),
    ]
    wanted = [{1: "a"}, {1: None}, {1: "b"}, {1: None, 2: "b"}, {1: None, 2: None, 3: "c"}]
    for count, expected in enumerate(wanted, 1):
        for order in itertools.permutations(placed(steps)[:count]):
            assert by_key(resolved(order)) == expected


def test_rows_of_one_event_are_in_the_order_of_their_index() -> None:
    rows = [
        replace(each, position=7, index=at)
        for at, each in enumerate(
            [changed("UPDATE", 5, {1: "x"}, {0: "x"}), changed("UPDATE", 5, {2: "x"}, {1: "x"})]
        )
    ]
    for order in (rows, rows[::-1]):
        assert by_key(resolved(order)) == {0: None, 1: None, 2: "x"}
    assert [each[0:4] for each in told(logged(rows[::-1]))] == [
        (5, "update_preimage", 0, "x"), (5, "update_postimage", 1, "x"),
        (5, "update_preimage", 1, "x"), (5, "update_postimage", 2, "x"),
    ]  # fmt: skip


def test_equal_places_of_two_parts_are_two_events() -> None:
    """Two servers may have been set up alike."""
    one = changed("INSERT", 5, {1: "a"}, position=4)
    other = replace(one, part="shop/1", data={"id": 2, "v": "a"})
    assert told(logged([one, other, one], KEYLESS)) == [
        (5, "insert", 1, "a"),
        (5, "insert", 2, "a"),
    ]


def test_a_bad_row_leaves_its_key_where_the_place_before_it_left_it() -> None:
    bad = changed("UPDATE", 5, {1: "c"}, error=("bad-cell", "no text"))
    rows = placed([changed("INSERT", 5, {1: "a"}), changed("UPDATE", 5, {1: "b"}), bad])
    for order in itertools.permutations(rows):
        found = resolved(order)
        assert by_key(found) == {1: "b"}
        assert found.errors["position"].to_pylist() == [20]
        assert found.last is not None
        assert found.last.position.tolist() == [10]


def test_one_table_has_one_order() -> None:
    rows = [changed("INSERT", 5, {1: "a"}), row("INSERT", 5, {"id": "1", "v": "a"})]
    task = TableTask(name=A, schema=PLAIN, checkpoint=0)  # type: ignore[arg-type]
    pieces = list(pieces_to_apply(task, blocks_of(rows), 9))  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        order_of_pieces(pieces)
