"""Which changes pass a dead letter, and which one is its own, where the order is the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from coordination.model import Ts
from sinks.target.write_mode import UPSERT, WriteMode
from streaming.apply.change_log import change_log_rows
from streaming.apply.changes import changes
from streaming.apply.letters.letter_rows import Places, letter_entries
from streaming.apply.letters.open_letters import Letter, LetterKeys, Met
from streaming.apply.table_task import TableTask
from tests.streaming.apply.blocks import A, Row, blocks_of
from tests.streaming.apply.resolved import PLAIN, RULES
from tests.streaming.apply.test_change_log import LOG
from tests.streaming.apply.test_order_by_place import changed

PART = "shop/0"


def at(position: int, each: Row, index: int = 0) -> Row:
    return replace(each, position=position, index=index)


def keys_of(letters: Sequence[Row], form: WriteMode) -> LetterKeys:
    """Letters are rows whose positions are their numbers, as `letter_rows` makes them."""
    task = TableTask(name=A, schema=PLAIN, checkpoint=Ts(0), form=form)
    numbered = [replace(each, position=n, index=0, part="") for n, each in enumerate(letters)]
    blocks = blocks_of(numbered)
    position = np.array([each.position for each in letters], np.int64)
    index = np.array([each.index for each in letters], np.int32)
    places = Places(part=[PART] * len(letters), position=position, index=index)
    keys = LetterKeys(is_log=form.is_log)
    keys.add(
        [
            Letter(
                part=PART,
                identity="i",
                position=e.position,
                index=e.index,
                created_at=None,
                commit_ts=e.ts,
            )
            for e in letters
        ],
        letter_entries(task, blocks, RULES, places),
    )
    return keys


def met(letters: Sequence[Row], come: Sequence[Row], form: WriteMode = UPSERT) -> Met:
    task = TableTask(name=A, schema=PLAIN, checkpoint=Ts(0), form=form, tells_last=True)
    made = (change_log_rows if form.is_log else changes)(task, blocks_of(come), Ts(99), RULES)
    assert made.last is not None
    return keys_of(letters, form).meet(made.last)


LETTER = at(20, changed("UPDATE", 5, {1: "x"}))


@pytest.mark.parametrize(
    ("change", "is_passed"),
    [
        (at(30, changed("UPDATE", 5, {1: "y"})), True),
        (at(30, changed("DELETE", 5, {1: "y"})), True),  # net changes have it before an UPDATE
        (at(20, changed("UPDATE", 5, {1: "y"}), index=1), True),
        (at(1, changed("UPDATE", 6, {1: "y"})), True),
        (at(10, changed("UPDATE", 5, {1: "y"})), False),
        (at(30, changed("UPDATE", 5, {2: "y"})), False),
        (at(90, changed("UPDATE", 4, {1: "y"})), False),
    ],
)
def test_a_letter_is_passed_by_what_comes_behind_it(change: Row, is_passed: bool) -> None:
    found = met([LETTER], [change])
    assert found == Met(passed={0: change.ts} if is_passed else {})


def test_a_letter_comes_again_at_its_own_place() -> None:
    assert met([LETTER], [LETTER]).brought == {0}
    two = [at(10, changed("INSERT", 5, {1: "w"})), LETTER]
    found = met(two, [LETTER])
    assert (found.brought, found.passed) == ({1}, {0: 5})


def test_both_halves_of_an_update_may_be_passed_within_its_transaction() -> None:
    letter = at(20, changed("UPDATE", 5, {2: "x"}, {1: "x"}))
    found = met([letter], [at(30, changed("INSERT", 5, {1: "y"}))])
    assert {number: half for number, (_, half) in found.halves.items()} == {0: "old"}
    both = [at(30, changed("UPDATE", 5, {1: "y"}, {2: "x"}))]
    assert met([letter], both).passed == {0: 5}
    assert met([letter], [at(10, changed("INSERT", 5, {1: "y"}))]) == Met()


def test_in_a_change_log_only_the_same_place_is_the_letter() -> None:
    other = at(30, changed("UPDATE", 5, {1: "x"}))
    assert met([LETTER], [other], LOG) == Met()
    assert met([LETTER], [other, LETTER], LOG).brought == {0}
    elsewhere = replace(LETTER, part="shop/1")
    assert met([LETTER], [elsewhere], LOG) == Met()


def test_changes_of_letters_are_at_the_places_of_their_letters() -> None:
    """A replay counts letters, and notes which of them it brings."""
    letters = [at(7, changed("INSERT", 5, {1: "w"})), LETTER]
    task = TableTask(name=A, schema=PLAIN, checkpoint=Ts(0), tells_last=True)
    blocks = blocks_of(replace(each, position=n, part="") for n, each in enumerate(letters))
    last = changes(task, blocks, Ts(99), RULES).last
    assert last is not None
    found = keys_of(letters, UPSERT).meet(last.at(np.array([7, 20]), np.array([0, 0], np.int32)))
    assert (found.brought, found.passed) == ({1}, {0: 5})
