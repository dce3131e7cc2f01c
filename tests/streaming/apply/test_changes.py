"""Last change per key, whatever the order of arrival and the blocks that it came in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, permutations

import pytest

from sinks.target.write_mode import ROW_DELETED, ROW_OP, ROW_TS, WriteMode
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from streaming.apply import rows_to_apply
from streaming.apply.row_block import RowBlock
from tests.streaming.apply.blocks import Row, Text, block_of
from tests.streaming.apply.resolved import PLAIN, by_key, errors, numbered, resolved, row, schema


def arrivals(orders: Iterable[Sequence[tuple[str, int, str]]]) -> Iterable[Row]:
    """Each order of arrival on a key of its own, all in one topic."""
    offset = count()
    for key, order in enumerate(orders):
        for op, ts, value in order:
            data = {"id": str(key), "v": value}
            old = data if op == "UPDATE" else None
            yield row(op, ts, data, old, part=f"shop/{key % 3}", position=next(offset))


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ([("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("DELETE", 30, "b"), ("INSERT", 40, "c")], "c"),
        (
            [("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("UPDATE", 30, "c"), ("DELETE", 40, "c")],
            None,
        ),
        ([("INSERT", 10, "a"), ("DELETE", 20, "a"), ("INSERT", 20, "b")], "b"),
        (
            [("UPDATE", 10, "a"), ("DELETE", 20, "a"), ("INSERT", 20, "b"), ("DELETE", 30, "b")],
            None,
        ),
    ],
)
def test_every_order_of_arrival_leads_to_the_last_change(
    steps: list[tuple[str, int, str]], last: str | None
) -> None:
    """With and without a replay of the first that arrived."""
    orders = list(permutations(steps))
    rows = arrivals([*orders, *((*order, order[0]) for order in orders)])
    assert by_key(resolved(rows)) == dict.fromkeys(range(2 * len(orders)), last)


def test_a_row_says_which_change_it_is_of_where_that_is_wanted() -> None:
    """The new row of an UPDATE that changes the key is inserted, whoever splits the UPDATE."""
    rows = [
        row("INSERT", 10, {"id": "1", "v": "a"}),
        row("UPDATE", 20, {"id": "1", "v": "b"}),
        row("INSERT", 30, {"id": "2", "v": "a"}),
        row("UPDATE", 40, {"id": "4", "v": "a"}, {"id": "3", "v": "a"}),
        row("DELETE", 50, {"id": "5", "v": "a"}),
    ]
    form = WriteMode(extra_columns=(ROW_TS, ROW_OP))
    found = resolved(numbered(rows), form=form).rows.to_pylist()
    assert {row["id"]: (row[ROW_TS], row[ROW_OP]) for row in found if row["_op "] == "U"} == {
        1: (20, "update"), 2: (30, "insert"), 4: (40, "insert"),
    }  # fmt: skip


def test_a_deleted_row_is_written_as_such_where_it_stays() -> None:
    """With the values that the message has of it; a bad one is an error, and the row as it was."""
    rows = [
        row("DELETE", 10, {"id": "1", "v": "a"}),
        row("DELETE", 20, {"id": "2", "v": "a"}),
        row("INSERT", 30, {"id": "2", "v": "b"}),
        row("UPDATE", 40, {"id": "4", "v": "new"}, {"id": "3", "v": "old"}),
        row("DELETE", 50, {"id": "5"}),
        row("DELETE", 60, {"id": "6", "v": "a", "more": "m"}),
    ]
    found = resolved(numbered(rows), form=WriteMode(soft_delete=True))
    told = {each["id"]: (each["v"], each[ROW_DELETED]) for each in found.rows.to_pylist()}
    assert told == {
        1: ("a", True), 2: ("b", False), 3: ("old", True), 4: ("new", False), 5: (None, True),
    }  # fmt: skip
    assert set(found.rows["_op "].to_pylist()) == {"U"}
    assert {offset: told for offset, (told, _) in errors(found).items()} == {5: "unknown-column"}


def test_rows_outside_of_checkpoint_and_limit_do_not_count() -> None:
    steps = [("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("UPDATE", 30, "c"), ("DELETE", 40, "c")]
    rows = list(arrivals([steps]))
    assert by_key(resolved(rows, limit=30)) == {0: "c"}
    assert by_key(resolved(rows, limit=29)) == {0: "b"}
    assert by_key(resolved(rows, checkpoint=30, limit=39)) == {}
    assert by_key(resolved(rows, checkpoint=30, limit=40)) == {0: None}
    assert by_key(resolved([])) == {}


def test_keys_that_swap_within_one_commit_ts() -> None:
    """As TiKV has it without a clustered key: both deleted, both inserted; in any order."""
    steps = [
        row("DELETE", 10, {"id": "1", "v": "one"}),
        row("DELETE", 10, {"id": "2", "v": "two"}),
        row("INSERT", 10, {"id": "1", "v": "two"}),
        row("INSERT", 10, {"id": "2", "v": "one"}),
    ]
    for order in (steps, steps[::-1]):
        assert by_key(resolved(numbered(order))) == {1: "two", 2: "one"}


def test_the_later_row_of_one_message_is_the_last() -> None:
    rows = [row("INSERT", 10, {"id": "1", "v": str(n)}, position=7, index=n) for n in range(3)]
    for order in permutations(rows):
        assert by_key(resolved([RowBlock.of(block_of([each])) for each in order])) == {1: "2"}


def test_of_equal_places_in_two_partitions_one_is_chosen_whatever_comes_first() -> None:
    rows = [
        row("INSERT", 10, {"id": "1", "v": f"p{n}"}, part=f"shop/{n}", position=7) for n in range(3)
    ]
    for order in permutations(rows):
        assert by_key(resolved(order)) == {1: "p2"}


@pytest.mark.parametrize("is_full", [True, False], ids=["full old", "content-compatible old"])
def test_an_update_that_changed_the_key_moves_the_row(is_full: bool) -> None:
    """Composite key: an old row with its changed columns alone keeps the rest of the key."""
    of = schema(("id", "n"), id="bigint", n="bigint", v="varchar(20)")
    old: Text = {"id": "1", "n": "7", "v": "a"} if is_full else {"id": "1"}
    same: Text = {"id": "5", "n": "7", "v": "x"} if is_full else {"v": "x"}
    rows = [
        row("UPDATE", 10, {"id": "2", "n": "7", "v": "b"}, old),
        row("UPDATE", 10, {"id": "5", "n": "7", "v": "y"}, same),
    ]
    found = by_key(resolved(numbered(rows), of), "id", "n")
    assert found == {(2, 7): "b", (1, 7): None, (5, 7): "y"}


def test_a_move_counts_though_a_later_change_replaces_the_moved_row() -> None:
    rows = [
        row("UPDATE", 10, {"id": "2", "v": "b"}, {"id": "1", "v": "a"}),
        row("UPDATE", 20, {"id": "2", "v": "c"}),
    ]
    assert by_key(resolved(numbered(rows))) == {1: None, 2: "c"}


def test_two_spellings_are_one_key() -> None:
    """-0.0 and 0.0, a DATETIME and a DECIMAL with more and with fewer digits."""
    of = schema(("f", "t", "d"), f="double", t="datetime(6)", d="decimal(10,2)", v="varchar(20)")
    one: Text = {"f": "0", "t": "2020-01-02 03:04:05", "d": "1.5"}
    other: Text = {"f": "-0", "t": "2020-01-02 03:04:05.000000", "d": "1.50"}
    rows = [
        row("UPDATE", 30, {**other, "v": "c"}, {**one, "v": "b"}, position=2),
        row("UPDATE", 20, {**one, "v": "b"}, {**other, "v": "a"}, position=1),
        row("INSERT", 10, {**other, "v": "a"}, position=0),
    ]
    (only,) = resolved(rows, of).rows.to_pylist()
    assert (only["_op "], only["v"]) == ("U", "c")
    assert [str(only[key]) for key in of.key] == ["0.0", "2020-01-02 03:04:05", "1.50"]


def test_updates_that_pass_a_key_on_within_one_commit_ts() -> None:
    """1 -> 2 and 2 -> 3 unsplit: the delete of 2 does not take away the row that moved there."""
    rows = [
        row("UPDATE", 10, {"id": "2", "v": "a"}, {"id": "1", "v": "a"}),
        row("UPDATE", 10, {"id": "3", "v": "b"}, {"id": "2", "v": "b"}),
    ]
    for order in (rows, rows[::-1]):
        assert by_key(resolved(numbered(order))) == {1: None, 2: "a", 3: "b"}


def test_ignored_events_do_not_come() -> None:
    rows = list(arrivals([[("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("DELETE", 30, "b")]]))
    assert by_key(resolved(rows, ignored_events=frozenset(("delete",)))) == {0: "b"}
    assert by_key(resolved(rows, ignored_events=frozenset(("delete", "update")))) == {0: "a"}
    everything = frozenset(("delete", "update", "insert"))
    assert by_key(resolved(rows, ignored_events=everything)) == {}


def test_a_key_of_all_columns() -> None:
    of = schema(("id", "v"), id="bigint", v="varchar(9)")
    rows = [
        row("INSERT", 10, {"id": "1", "v": "a"}),
        row("DELETE", 20, {"id": "1", "v": "a"}),
        row("INSERT", 20, {"id": "1", "v": "b"}),
    ]
    found = resolved(numbered(rows), of)
    ops = {(each["id"], each["v"]): each["_op "] for each in found.rows.to_pylist()}
    assert ops == {(1, "a"): "D", (1, "b"): "U"}


def test_virtual_columns_are_not_delivered() -> None:
    of = schema(id="bigint", v="varchar(9)", twice="int")
    columns = (*of.columns[:2], replace(of.columns[2], generated="virtual"))
    rows = [row("INSERT", 10, {"id": "1", "v": "a"})]
    found = resolved(rows, replace(of, columns=columns))
    assert found.rows.to_pylist() == [{"id": 1, "v": "a", "_op ": "U"}]


def test_more_than_memory_holds_is_read_again_and_comes_out_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("DELETE", 30, "b"), ("INSERT", 40, "c")]
    rows = list(arrivals(permutations(steps)))
    rows += [replace(each, data={"v": "z", "id": "99"}, old=None) for each in rows[-3:]]
    blocks = [RowBlock.of(block_of([each])) for each in rows]
    whole = by_key(resolved(blocks, limit=30))
    monkeypatch.setattr(rows_to_apply, "HELD_BYTES", 3000)
    monkeypatch.setattr(rows_to_apply, "PIECE_BYTES", 2000)
    assert by_key(resolved(blocks, limit=30)) == whole


def test_a_virtual_column_that_a_row_has_is_left_out() -> None:
    """A binlog has them, TiCDC sends none."""
    virtual = Column(name="g", type=MySQLType.parse("int"), generated="virtual")
    of = replace(PLAIN, columns=(*PLAIN.columns, virtual))
    rows = [row("INSERT", 10, {"id": "1", "v": "a", "g": "2"})]
    found = resolved(numbered(rows), of)
    assert (found.errors.num_rows, by_key(found)) == (0, {1: "a"})
    assert found.dropped == {}
    by_row = resolved(numbered(rows), of.by_all_columns(), form=WriteMode(all_columns=True))
    assert (by_row.errors.num_rows, by_key(by_row)) == (0, {1: "a"})
