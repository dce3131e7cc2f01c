"""Events that a condition ignores are as if they had not come."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from conf.rows.event_filter import EventFilter
from conf.rows.row_filter import RowFilter
from conf.settings import FilterSettings
from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.target.write_mode import COMMIT_TS, EVENT, WriteMode
from sinks.types.column_choice import ColumnChoice
from streaming.apply import rows_to_apply
from streaming.apply.change_log import change_log_rows
from streaming.apply.table_task import TableTask
from streaming.changefeed.filter import TableFilter
from streaming.protocols.contract import Order
from tests.streaming.apply.blocks import A, Row, blocks_of
from tests.streaming.apply.resolved import (
    PLAIN,
    RULES,
    by_key,
    errors,
    numbered,
    resolved,
    row,
    schema,
)


def taken(**expressions: str) -> dict[TableName, RowFilter]:
    given = {f"ignore_{name}": text for name, text in expressions.items()}
    rule: Any = EventFilter(matcher=("shop.a",), **given)
    return {A: TableFilter(FilterSettings(event_filters=(rule,))).row_filter(A)}


def put(op: str, ts: int, id: int, v: str | None, was: str | None = None, **more: Any) -> Row:
    old = {"id": str(id), "v": was} if op == "UPDATE" else None
    return row(op, ts, {"id": str(id), "v": v}, old, **more)


def test_an_ignored_event_leaves_the_row_as_it_was() -> None:
    """Also if it is the last of its key, and whatever comes of it later."""
    rows = [
        put("INSERT", 10, 1, "a"),
        put("UPDATE", 20, 1, "secret", "a"),
        put("INSERT", 10, 2, "secret"),
        put("UPDATE", 30, 2, "b", "secret"),
        put("INSERT", 10, 3, "secret"),
        put("INSERT", 10, 4, "x"),
        put("DELETE", 20, 4, "x"),
        put("INSERT", 10, 5, "kept"),
        put("DELETE", 20, 5, "kept"),
    ]
    filters = taken(
        insert_value_expr="v = 'secret'",
        update_new_value_expr="v = 'secret'",
        delete_value_expr="v LIKE 'k%'",
    )
    found = by_key(resolved(numbered(rows), filters=filters))
    assert found == {1: "a", 2: "b", 4: None, 5: "kept"}


def test_an_update_is_asked_about_both_rows() -> None:
    rows = [
        put("UPDATE", 10, 1, "new", "old"),
        put("UPDATE", 10, 2, "new", "x"),
        put("UPDATE", 10, 3, "x", "old"),
        put("UPDATE", 10, 4, "x", "x"),
        put("UPDATE", 10, 5, None, None),
    ]
    either = taken(update_old_value_expr="v='old'", update_new_value_expr="v='new'")
    assert by_key(resolved(numbered(rows), filters=either)) == {4: "x", 5: None}
    both = taken(update_old_value_expr="v='old'", update_new_value_expr="v='new'", update_if="both")
    assert set(by_key(resolved(numbered(rows), filters=both))) == {2, 3, 4, 5}
    one = taken(update_old_value_expr="v <=> NULL", update_if="both")
    assert set(by_key(resolved(numbered(rows), filters=one))) == {1, 2, 3, 4}


def test_of_an_ignored_update_of_the_key_neither_half_is_written() -> None:
    def moved(ts: int, old: int, new: int, v: str) -> Row:
        return row("UPDATE", ts, {"id": str(new), "v": v}, {"id": str(old), "v": v})

    rows = [moved(10, n, n + 100, "go" if n % 3 else "stay") for n in range(12)]
    found = by_key(
        resolved(numbered(rows), filters=taken(update_new_value_expr="v = 'stay' OR id = 104"))
    )
    left = [n for n in range(12) if n % 3 and n != 4]
    assert found == dict.fromkeys(left) | {n + 100: "go" for n in left}


def test_pieces_that_are_read_again_leave_out_the_same_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_to_apply, "HELD_BYTES", 0)
    rows = [put("INSERT", 10 + n, n % 50, f"v{n}") for n in range(300)]
    filters = taken(insert_value_expr="v LIKE 'v1%' OR id % 7 = 3")
    found = by_key(resolved(numbered(rows), filters=filters, checkpoint=20, limit=290))
    wanted = {}
    for n in range(11, 281):
        if not f"v{n}".startswith("v1") and n % 50 % 7 != 3:
            wanted[n % 50] = f"v{n}"
    assert found == wanted


def test_a_row_that_does_not_tell_is_an_error_and_nothing_of_it_is_written() -> None:
    rows = [
        row("DELETE", 10, {"id": "1"}),
        row("UPDATE", 10, {"id": "2", "v": "x"}),
        row("INSERT", 10, {"id": "3", "v": "x"}, error=("undecodable", "told by the decoder")),
        put("DELETE", 10, 4, "x"),
    ]
    filters = taken(
        delete_value_expr="v = 'x'",
        update_old_value_expr="v = 'x'",
        insert_value_expr="v = 'x'",
    )
    found = resolved(numbered(rows), filters=filters)
    assert by_key(found) == {}
    told = errors(found)
    assert told[0] == (
        "no-whole-row", "the message lacks column v, about which ignore-delete-value-expr asks"
    )  # fmt: skip
    assert "without its old row" in told[1][1]
    assert told[2] == ("undecodable", "told by the decoder")
    assert set(told) == {0, 1, 2}


def test_a_value_that_cannot_be_read_is_an_error_where_it_is_asked_about() -> None:
    rows = [
        put("DELETE", 10, 1, "x"),
        row("DELETE", 10, {"id": "2", "v": "y"}),
        row("DELETE", 10, {"id": "zwei", "v": "y"}),
    ]
    found = resolved(numbered(rows), filters=taken(delete_value_expr="id = 1"))
    assert by_key(found) == {2: None}
    assert set(errors(found)) == {2}


@pytest.mark.parametrize("mask", ["sha256", "null", "left-out"])
def test_an_error_quotes_no_value_that_the_target_hides(mask: str) -> None:
    """The condition is on the value in clear all the same."""
    choice = ColumnChoice(
        lambda name: mask != "left-out" or name not in ("born", "card"),
        lambda name: "" if name not in ("born", "card") else "null" if mask == "null" else "sha256",
        is_all=False,
    )
    of = choice.chosen(schema(id="bigint", born="date", card="bigint"))
    rules = replace(RULES, zero_date="fail", mask_salt=b"s")
    bad = {"id": "1", "born": "1975-02-31", "card": "4111-1111"}
    rows = numbered([row("INSERT", 10, bad), row("INSERT", 10, {**bad, "id": "2"})])
    for condition in ("born < '1900-01-01'", "card = 5"):
        found = resolved(rows, of, rules=rules, filters=taken(insert_value_expr=condition))
        told = errors(found)
        assert len(told) == 2
        assert not any("1975" in why or "4111" in why for _, why in told.values())
    good = [row("INSERT", 10, {**bad, "born": "1975-02-03", "card": "5"})]
    filters = taken(insert_value_expr="card = 5 AND born < '2000-01-01'")
    assert resolved(numbered(good), of, rules=rules, filters=filters).rows.num_rows == 0


def test_a_condition_on_a_column_that_the_table_lacks_stops_the_changefeed() -> None:
    rows = [put("INSERT", 10, 1, "x")]
    with pytest.raises(ConfigError) as refused:
        resolved(numbered(rows), filters=taken(insert_value_expr="v = 'x' AND Nix > 1"))
    told = str(refused.value)
    assert "table shop.a: ignore-insert-value-expr (v = 'x' AND Nix > 1)" in told
    assert "the table has no column Nix" in told
    with pytest.raises(ConfigError, match=r"shop.a: ignore-insert-value-expr \(v = 1\): at char"):
        resolved(numbered(rows), filters=taken(insert_value_expr="v = 1"))
    assert resolved(numbered(rows), filters=taken(delete_value_expr="nix > 1")).rows.num_rows == 1


def test_each_upstream_table_has_conditions_of_its_own() -> None:
    other = TableName("s2", "o")
    rows = numbered([put("INSERT", 10 + n, n, "x") for n in range(6)])
    (block,) = blocks_of(rows)
    blocks = [block, replace(block, origin=other)]
    filters = {
        A: taken(insert_value_expr="id < 3")[A],
        other: taken(insert_value_expr="id >= 4")[A],
    }
    found = by_key(resolved(blocks, filters=filters))
    assert set(found) == {0, 1, 2, 3, 4, 5}
    filters = {other: taken(insert_value_expr="TRUE")[A], A: taken(insert_value_expr="id < 3")[A]}
    assert set(by_key(resolved(blocks, filters=filters))) == {3, 4, 5}


def half(op: str, id: int, v: str, ts: int = 20, part: int = 0) -> Row:
    return put(op, ts, id, v, part=f"shop/{part}")


DRAFT = {"insert_value_expr": "v = 'draft'"}


def test_no_half_of_an_update_that_ticdc_has_split_is_ignored_alone() -> None:
    """An UPDATE of another unique key than the primary one: TiCDC up to 8.5 has asked it as an
    UPDATE, before it was split. Its halves may be in any parts and reads."""
    rows = [put("INSERT", 10, 1, "x"), half("DELETE", 1, "x"), half("INSERT", 1, "draft", part=1)]
    found = [by_key(resolved(numbered(rows), filters=taken(**DRAFT)))]
    found += [by_key(resolved(numbered(rows[1:]), filters=taken(**DRAFT)))]
    found += [by_key(resolved(numbered(rows), filters=taken(event=("delete",))))]
    found += [by_key(resolved(numbered(rows), filters=taken(event=("insert", "delete"))))]
    assert found == [{1: "draft"}] * 4


def test_an_update_that_was_split_is_ignored_where_its_halves_are_too() -> None:
    rows = [
        half("DELETE", 1, "x"),
        half("INSERT", 1, "draft", part=1),
        half("DELETE", 2, "draft"),
        half("INSERT", 2, "y", part=1),
        half("DELETE", 3, "draft"),
        half("INSERT", 3, "draft", part=1),
    ]
    on_new = taken(**DRAFT, update_new_value_expr="v = 'draft'")
    assert by_key(resolved(numbered(rows), filters=on_new)) == {2: "y"}
    both = taken(
        **DRAFT,
        update_new_value_expr="v = 'draft'",
        update_old_value_expr="v = 'draft'",
        update_if="both",
    )
    assert by_key(resolved(numbered(rows), filters=both)) == {1: "draft", 2: "y"}
    of_updates = taken(update_new_value_expr="v = 'draft'", event=("update",))
    assert by_key(resolved(numbered(rows), filters=of_updates)) == {1: "draft", 2: "y", 3: "draft"}
    nothing = taken(event=("insert", "update", "delete"))
    assert by_key(resolved(numbered(rows), filters=nothing)) == {}


def test_a_delete_and_an_insert_of_two_rows_stand_alone() -> None:
    """Where TiKV has rows by the primary key, an UPDATE of it is a DELETE and an INSERT for TiCDC
    too."""
    rows = [half("DELETE", 1, "x"), half("INSERT", 2, "draft"), half("INSERT", 3, "x", ts=21)]
    assert by_key(resolved(numbered(rows), filters=taken(**DRAFT))) == {1: None, 3: "x"}
    found = by_key(resolved(numbered(rows), filters=taken(event=("delete",))))
    assert found == {2: "draft", 3: "x"}


@pytest.mark.parametrize("told", [{"is_nonclustered": True}, {"key_index": "uk"}])
def test_what_may_be_half_of_an_update_of_the_key_is_not_ignored(told: dict[str, Any]) -> None:
    of = replace(PLAIN, **told)
    rows = [
        *(half("DELETE", 1, "x"), half("INSERT", 2, "draft", part=1)),
        *(half("DELETE", 3, "x", ts=30), half("INSERT", 4, "draft", ts=40)),
    ]
    found = by_key(resolved(numbered(rows), of, filters=taken(event=("delete",), **DRAFT)))
    assert found == {1: None, 2: "draft"}


BY_TEXT = schema(("k",), k="varchar(20)", v="varchar(20)")


def moved(*keys: str, **expressions: Any) -> dict[Any, Any]:
    """What is left of a DELETE of the first key and INSERTs of the others, of one commit-ts."""
    old, *new = keys
    rows = [row("DELETE", 20, {"k": old, "v": "x"}, part="shop/0")]
    rows += [row("INSERT", 20, {"k": each, "v": "draft"}, part="shop/1") for each in new]
    found = by_key(resolved(numbered(rows), BY_TEXT, filters=taken(**expressions)), "k")
    return {key: value for (key,), value in found.items()}


@pytest.mark.parametrize(
    ("old", "new"), [("a", "A"), ("a", "a "), ("é", "e"), ("ß", "ss"), ("Я", "я"), ("o", "ø")]
)
def test_a_text_key_that_a_collation_does_not_tell_apart_may_be_of_one_row(
    old: str, new: str
) -> None:
    """Such an UPDATE is one for TiKV: TiCDC up to 8.5 has asked it as an UPDATE."""
    assert moved(old, new, **DRAFT) == {old: None, new: "draft"}
    assert moved(old, new, event=("delete",)) == {old: None, new: "draft"}
    two = schema(("n", "k"), n="int", k="varchar(20)", v="varchar(20)")
    rows = [
        row("DELETE", 20, {"n": "1", "k": old, "v": "x"}),
        row("INSERT", 20, {"n": "1", "k": new, "v": "draft"}, part="shop/1"),
    ]
    kept = by_key(resolved(numbered(rows), two, filters=taken(**DRAFT)), "k")
    assert kept == {(old,): None, (new,): "draft"}


def test_text_keys_that_every_collation_tells_apart_stand_alone() -> None:
    assert moved("a", "b", "c", **DRAFT) == {"a": None}
    assert moved("a", "b", event=("delete",)) == {"b": "draft"}
    assert moved("a", "A", "b", **DRAFT) == {"a": None, "A": "draft"}
    assert moved("a", "a", "A", **DRAFT) == {"a": "draft"}  # halves of one key are not of another


def test_what_a_masked_text_key_was_is_not_known() -> None:
    choice = ColumnChoice(
        lambda _: True, lambda name: "sha256" if name == "k" else "", is_all=False
    )
    rules = replace(RULES, mask_salt=b"s")
    rows = [
        row("DELETE", 20, {"k": "a", "v": "x"}),
        row("INSERT", 20, {"k": "A", "v": "draft"}, part="shop/1"),
    ]
    found = resolved(numbered(rows), choice.chosen(BY_TEXT), rules=rules, filters=taken(**DRAFT))
    assert sorted(str(each) for each in by_key(found, "k").values()) == ["None", "draft"]


def test_a_binlog_has_its_updates_whole() -> None:
    rows = [
        replace(half("DELETE", 1, "x"), order=Order.PLACE),
        replace(half("INSERT", 1, "draft"), order=Order.PLACE),
    ]
    assert by_key(resolved(numbered(rows), filters=taken(**DRAFT))) == {1: None}


def test_what_ticdc_has_filtered_is_ignored_by_no_filter_again() -> None:
    """At random: what a TiCDC up to 8.5, and what a later one sends, passes the same filters."""
    chance = random.Random(5)
    for seed in range(60):
        is_late, nonclustered = chance.random() < 0.5, chance.random() < 0.5
        kinds = ["insert_value_expr", "delete_value_expr"]
        kinds += ["update_old_value_expr", "update_new_value_expr"]
        chosen = chance.sample(kinds, chance.randint(1, 4))
        values = {kind: chance.choice("abc") for kind in chosen}
        events = chance.sample(["insert", "update", "delete"], chance.choice((0, 0, 1, 2)))
        sent = _sent_by_ticdc(chance, values, events, is_late=is_late, nonclustered=nonclustered)
        filters = taken(**{k: f"v = '{v}'" for k, v in values.items()}, event=tuple(events))
        of = replace(PLAIN, is_nonclustered=nonclustered)
        told = (seed, is_late, nonclustered, values, events)
        if not sent:
            continue
        log = TableTask(name=A, schema=of, checkpoint=Ts(0), form=WriteMode(mode="append"))
        rows = blocks_of(numbered(sent))
        every = change_log_rows(log, rows, Ts(1000), RULES).rows
        kept = change_log_rows(replace(log, filters=filters), rows, Ts(1000), RULES).rows
        assert kept.equals(every), told


def _sent_by_ticdc(
    chance: random.Random,
    values: dict[str, str],
    events: list[str],
    *,
    is_late: bool,
    nonclustered: bool,
) -> list[Row]:
    """``is_late``: UPDATEs are split before the filter's values are asked."""

    def passes(op: str, old: str, new: str) -> bool:
        said = {"INSERT": {"insert_value_expr": new}, "DELETE": {"delete_value_expr": old}}
        of_update = {"update_old_value_expr": old, "update_new_value_expr": new}
        asked = said.get(op, of_update)
        return op.lower() not in events and not any(
            kind in values and values[kind] == value for kind, value in asked.items()
        )

    def halves(ts: int, key: int, to: int, old: str, new: str) -> list[Row]:
        if "update" in events or not (is_late or passes("UPDATE", old, new)):
            return []
        sides = (("DELETE", key, old), ("INSERT", to, new))
        return [
            half(side, at, v, ts, part)
            for part, (side, at, v) in enumerate(sides)
            if not is_late or passes(side, v, v)
        ]

    sent: list[Row] = []
    for ts in range(10, 400, 10):
        keys = iter(chance.sample(range(1000), 20))
        for _ in range(chance.randint(1, 4)):
            op, key = chance.choice(("INSERT", "DELETE", "UPDATE", "split")), next(keys)
            old, new = chance.choice("abc"), chance.choice("abc")
            if op == "split":
                to = next(keys) if nonclustered and chance.random() < 0.5 else key
                sent += halves(ts, key, to, old, new)
            elif op == "UPDATE" and passes(op, old, new):
                sent.append(put(op, ts, key, new, old))
            elif op != "UPDATE" and passes(op, old, old):
                sent.append(half(op, key, old, ts, chance.randint(0, 1)))
    return sent


def test_a_change_log_has_no_ignored_event() -> None:
    rows = [
        put("INSERT", 10, 1, "a"),
        put("UPDATE", 20, 1, "b", "a"),
        put("UPDATE", 30, 1, "c", "b"),
        put("DELETE", 40, 1, "c"),
    ]
    task = TableTask(
        name=A,
        schema=PLAIN,
        checkpoint=Ts(0),
        form=WriteMode(mode="append"),
        filters=taken(update_old_value_expr="v = 'a'", delete_value_expr="v <> 'c'"),
    )
    found = change_log_rows(task, blocks_of(numbered(rows)), Ts(100), RULES).rows
    assert list(zip(found[COMMIT_TS].to_pylist(), found[EVENT].to_pylist(), strict=True)) == [
        (10, "insert"), (30, "update_preimage"), (30, "update_postimage"), (40, "delete"),
    ]  # fmt: skip
