"""Rows that cannot be applied: each is told, and its key keeps its last good change (rule 8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tests.streaming.apply.resolved import RULES, by_key, errors, numbered, resolved, row, schema


def test_an_update_that_cannot_be_applied_leaves_the_row_under_its_old_key() -> None:
    """Its dead letter stands for both halves."""
    of = schema(id="bigint", v="int")
    cut = ("handle-key-only", "only the key")
    rows = [
        row("INSERT", 10, {"id": "1", "v": "7"}),
        row("UPDATE", 20, {"id": "2", "v": "seven"}, {"id": "1", "v": "7"}),
        row("UPDATE", 25, {"id": "2", "v": "eight"}, {"id": "1"}),
        row("INSERT", 30, {"id": "3", "v": "8"}),
        row("UPDATE", 40, {"id": None, "v": "9"}, {"id": "3", "v": "8"}),
        row("UPDATE", 50, {"id": "6"}, {"id": "5"}, error=cut),
    ]
    found = resolved(numbered(rows), of)
    assert by_key(found) == {1: 7, 3: 8}
    assert sorted(errors(found)) == [1, 2, 4, 5]
    assert errors(found)[5] == cut


def test_a_bad_move_is_bad_though_a_later_good_change_replaces_its_row() -> None:
    of = schema(id="bigint", v="int")
    rows = [
        row("INSERT", 10, {"id": "1", "v": "7"}),
        row("UPDATE", 20, {"id": "2", "v": "seven"}, {"id": "1", "v": "7"}),
        row("UPDATE", 30, {"id": "2", "v": "8"}),
    ]
    found = resolved(numbered(rows), of)
    assert by_key(found) == {1: 7, 2: 8}
    assert sorted(errors(found)) == [1]


def test_an_old_key_that_cannot_be_read_is_an_error_beside_the_good_new_row() -> None:
    rows = [row("UPDATE", 10, {"id": "2", "v": "b"}, {"id": "one", "v": "a"}, position=3)]
    found = resolved(rows)
    assert by_key(found) == {2: "b"}
    assert errors(found) == {3: ("cast", "column id: cannot read 'one' as bigint")}


def test_a_key_keeps_its_last_good_change_and_the_bad_one_is_told() -> None:
    of = schema(id="bigint", v="int")
    rows = [
        row("INSERT", 10, {"id": "1", "v": "7"}, part="shop/0", position=5),
        row("UPDATE", 20, {"id": "1", "v": "seven"}, part="shop/1", position=6),
        row("INSERT", 30, {"id": "2", "v": "many"}, part="shop/2", position=7),
        row("INSERT", 40, {"id": None, "v": "1"}, part="shop/2", position=8),
        row("DELETE", 50, {"id": "3", "v": "not a number"}, part="shop/2", position=9),
    ]
    found = resolved(rows, of)
    assert by_key(found) == {1: 7, 3: None}
    told = errors(found)
    assert sorted(told) == [6, 7, 8]
    assert told[6] == ("cast", "column v: cannot read 'seven' as int")
    assert told[8] == ("cast", "column id: a key column has no value")
    (six,) = [each for each in found.errors.to_pylist() if each["position"] == 6]
    where = ("part", "index", "commit_ts")
    assert [six[name] for name in where] == ["shop/1", 0, 20]


def test_the_first_bad_cell_of_a_row_is_told_the_keys_before_all_others() -> None:
    of = schema(("b", "c"), a="int", b="int", c="int", d="int", v="text")
    bad = {"a": "A", "b": "B", "c": "C", "d": "D", "v": ""}
    rows = [
        row("INSERT", 10, bad),
        row("INSERT", 10, {**bad, "b": "1"}),
        row("INSERT", 10, {**bad, "b": "1", "c": "2"}),
        row("INSERT", 10, {**bad, "b": "1", "c": "2", "a": None}),
        row("DELETE", 10, {**bad, "b": "1"}),
        row("INSERT", 10, {**bad, "b": None}, error=("claim-check", "elsewhere")),
    ]
    assert errors(resolved(numbered(rows), of)) == {
        0: ("cast", "column b: cannot read 'B' as int"),
        1: ("cast", "column c: cannot read 'C' as int"),
        2: ("cast", "column a: cannot read 'A' as int"),
        3: ("cast", "column d: cannot read 'D' as int"),
        4: ("cast", "column c: cannot read 'C' as int"),
        5: ("claim-check", "elsewhere"),
    }


def test_a_long_value_is_cut_in_its_message() -> None:
    rows = [row("INSERT", 10, {"id": "ä" * 100, "v": ""})]
    sentence = f"column id: cannot read '{'ä' * 80}' as bigint"
    assert errors(resolved(rows)) == {0: ("cast", sentence)}


NO_DAY = "column id: '{}' is no date that Delta has, and "
IN_KEY = (
    NO_DAY + "a key can have none such but 0000-00-00, which is NULL in it: two rows could not be "
    "told apart (zero-date, docs/types.md)"
)


def test_a_zero_date_in_a_key_is_null_and_no_other_date_is() -> None:
    of = schema(("id",), id="date", v="date")
    rows = [
        row("INSERT", 10, {"id": "0000-00-00", "v": "0000-00-00"}),
        row("INSERT", 10, {"id": "2020-01-01", "v": "2021-02-31"}),
        row("INSERT", 10, {"id": "2021-02-31", "v": "2020-01-01"}),
        row("INSERT", 10, {"id": "0000-06-15", "v": "2020-01-01"}),
        row("INSERT", 10, {"id": None, "v": "2020-01-01"}),
        row("DELETE", 10, {"id": "2021-02-00", "v": None}),
    ]
    found = resolved(numbered(rows), of)
    assert by_key(found) == {None: None, date(2020, 1, 1): None}
    assert found.rows["_op "].to_pylist() == ["U", "U"]
    assert found.nulled == {"id": 1, "v": 2}
    assert errors(found) == {
        2: ("cast", IN_KEY.format("2021-02-31")),
        3: ("cast", IN_KEY.format("0000-06-15")),
        4: ("cast", "column id: a key column has no value"),
        5: ("cast", IN_KEY.format("2021-02-00")),
    }
    found = resolved(numbered(rows), of, rules=replace(RULES, zero_date="fail"))
    assert sorted(errors(found)) == [0, 1, 2, 3, 4, 5]
    assert errors(found)[0] == ("cast", NO_DAY.format("0000-00-00") + "zero-date = 'fail'")
    assert (found.rows.num_rows, found.nulled) == (0, {})


@pytest.mark.parametrize("zero_date", ["null", "fail"])
@pytest.mark.parametrize("kind", ["date", "datetime", "timestamp(6)"])
def test_an_update_to_a_key_that_no_table_can_have_takes_its_old_row_away(
    kind: str, zero_date: Any
) -> None:
    of, behind = schema(("id", "n"), id=kind, n="int", v="int"), kind != "date"
    good, bad = (f"{day} 01:02:03" if behind else day for day in ("2020-01-01", "2021-02-31"))
    at = {"n": "1", "v": "2"}
    rows = [
        row("INSERT", 10, {"id": good, **at}),
        row("UPDATE", 20, {"id": bad, **at}, {"id": good, **at}),
        row("UPDATE", 20, {"id": bad, "n": "2", "v": "2"}, {"id": good, "n": "2", "v": "2"}),
        row("UPDATE", 20, {"id": bad, "n": "x", "v": "2"}, {"id": good, "n": "3", "v": "2"}),
        row("UPDATE", 20, {"id": good, "n": "4", "v": "2"}, {"id": bad, "n": "4", "v": "2"}),
    ]
    found = resolved(numbered(rows), of, rules=replace(RULES, zero_date=zero_date))
    seen = sorted((each["n"], each["_op "]) for each in found.rows.to_pylist())
    assert seen == [(1, "D"), (2, "D"), (4, "U")]
    assert {offset: told[0] for offset, told in errors(found).items()} == dict.fromkeys(
        (1, 2, 3, 4), "cast"
    )


def test_rows_that_were_cut_to_their_key_are_errors() -> None:
    rows = [
        row("INSERT", 10, {"id": "1", "v": "a"}),
        row("UPDATE", 20, {"id": "1"}, error=("handle-key-only", "only the key")),
        row("UPDATE", 30, {"id": "1"}, error=("claim-check", "elsewhere")),
        row("DELETE", 30, {"id": "2"}),
        row("DELETE", 30, {"id": "3"}),
    ]
    found = resolved(numbered(rows))
    assert by_key(found) == {1: "a", 2: None, 3: None}  # all that a DELETE needs is its key
    told = {1: ("handle-key-only", "only the key"), 2: ("claim-check", "elsewhere")}
    assert errors(found) == told
    assert errors(resolved(numbered(rows), limit=20)) == {1: told[1]}  # when they are due


def test_columns_come_in_any_order_and_unknown_ones_never_pass_in_silence() -> None:
    rows = numbered(
        [
            row("INSERT", 10, {"v": "a", "id": "1"}),
            row("INSERT", 10, {"id": "2", "note": "x", "v": "b", "more": None}),
            row("UPDATE", 20, {"id": "3", "v": "c", "note": "y"}, {"id": "1", "v": "a"}),
            row("DELETE", 20, {"id": "4", "v": "d", "note": "z"}),
        ]
    )
    found = resolved(rows)
    assert by_key(found) == {1: "a", 4: None}  # a DELETE needs its key alone
    assert {each[0] for each in errors(found).values()} == {"unknown-column"}
    assert errors(found)[1][1] == (
        "the target table lacks column note, more: a filter or an operator has passed over the DDL "
        "that adds it. Let that DDL run and rewind to below it, or set on-unknown-column = 'drop'"
    )
    assert sorted(errors(found)) == [1, 2]
    assert found.dropped == {}

    dropped = resolved(rows, rules=replace(RULES, unknown_column="drop"))
    assert by_key(dropped) == {1: None, 2: "b", 3: "c", 4: None}
    assert dropped.dropped == {"note": 2, "more": 1}
    assert errors(dropped) == {}


def test_a_bad_cell_comes_before_an_unknown_column() -> None:
    of = schema(id="bigint", v="int")
    rows = [
        row("INSERT", 10, {"id": "1", "v": "one", "note": "x"}),
        row("INSERT", 10, {"id": "2", "v": "2", "note": "x"}),
    ]
    found = errors(resolved(numbered(rows), of))
    assert [each[0] for each in found.values()] == ["cast", "unknown-column"]


def test_a_column_that_the_rows_lack_is_null() -> None:
    of = schema(id="bigint", v="varchar(9)", since="int")
    rows = [
        row("INSERT", 10, {"id": "1", "v": "a"}),
        row("INSERT", 10, {"id": "2", "v": "b", "since": "5"}),
    ]
    found = {each["id"]: each["since"] for each in resolved(numbered(rows), of).rows.to_pylist()}
    assert found == {1: None, 2: 5}


def test_a_key_column_that_the_rows_lack_has_no_value() -> None:
    rows = [row("INSERT", 10, {"v": "a"}), row("INSERT", 10, {"id": "1", "v": "a"})]
    found = resolved(numbered(rows))
    assert by_key(found) == {1: "a"}
    assert errors(found) == {0: ("cast", "column id: a key column has no value")}
