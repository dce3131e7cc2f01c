"""Keys that differ are asked again: against a database whose rows change, and a table behind it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from streaming.operations.diff.settling import (
    VERDICTS,
    Asked,
    Judged,
    Row,
    Sight,
    Suspicion,
    judged,
    sight,
    still,
)

KEY, A, B, C = (1, 1), (10, 10), (20, 20), (30, 30)


def of(before: Row, lake: Row, after: Row, suspect: tuple[Row, Row] | None = None) -> Judged:
    present = {name: {} if row is None else {KEY: row} for name, row in (("l", lake), ("a", after))}
    return judged({KEY: Asked(before, suspect)}, present["l"], [present["a"]])


def test_every_pair_has_a_verdict() -> None:
    assert VERDICTS.keys() == {(one, other) for one in Suspicion for other in Sight}


@pytest.mark.parametrize(
    ("before", "lake", "after", "seen"),
    [
        (A, A, A, Sight.SAME),
        (A, A, B, Sight.SAME),
        (A, B, B, Sight.SAME),
        (None, None, A, Sight.SAME),
        (A, B, A, Sight.STILL),
        (None, A, None, Sight.STILL),
        (A, None, A, Sight.STILL),
        (A, C, B, Sight.MOVING),
        (A, B, None, Sight.MOVING),
    ],
)
def test_sights(before: Row, lake: Row, after: Row, seen: Sight) -> None:
    assert sight(before, lake, [after]) is seen


def test_a_row_that_stands_still_twice_differs() -> None:
    first = of(A, B, A)
    assert first.again == {KEY: Asked(A, (B, A))}
    second = of(A, B, A, first.again[KEY].suspect)
    assert second.differing == {KEY: (B, A)}


def test_a_row_that_both_sides_lack_is_equal_and_no_suspect_differs() -> None:
    assert of(None, None, None).equal == {KEY}
    lacking = of(None, A, None, of(None, A, None).again[KEY].suspect)
    assert lacking.differing == {KEY: (A, None)}


def test_a_suspect_that_moved_is_asked_again_as_a_new_one() -> None:
    assert of(A, C, A, (B, A)).again == {KEY: Asked(A, (C, A))}
    assert of(A, C, B, (C, A)).again == {KEY: Asked(B)}


def test_further_looks_see_a_row_that_changes_to_and_fro() -> None:
    asked = {KEY: Asked(A, (B, A))}
    looks = [{KEY: A}, {KEY: A}, {KEY: C}]
    assert judged(asked, {KEY: B}, looks).again == {KEY: Asked(C)}
    assert judged(asked, {KEY: B}, [{KEY: A}, {KEY: B}, {KEY: A}]).equal == {KEY}
    assert judged(asked, {KEY: B}, [{KEY: A}, {}]).again == {KEY: Asked(None)}
    assert judged(asked, {KEY: B}, [{KEY: A}] * 9).differing == {KEY: (B, A)}


def test_a_table_may_be_ahead_of_what_a_database_shows() -> None:
    hidden = judged({KEY: Asked(A, (B, A))}, {KEY: B}, [{KEY: A}] * 9, is_shown=False)
    assert hidden.again == {KEY: Asked(A)}
    assert judged({KEY: Asked(A)}, {KEY: B}, [{KEY: B}], is_shown=False).equal == {KEY}


def test_only_what_stands_still_is_looked_at_further() -> None:
    other = (2, 2)
    asked = {KEY: Asked(A), other: Asked(A)}
    first = {KEY: A, other: C}
    assert still(asked, {KEY: B, other: B}, first) == [KEY]
    found = judged(asked, {KEY: B, other: B}, [first, {KEY: A}])
    assert found.again == {KEY: Asked(A, (B, A)), other: Asked(C)}


@pytest.mark.parametrize("seed", range(200))
def test_a_table_that_follows_is_never_found_to_differ(seed: int) -> None:
    """Rows change to and fro while both sides are read. The table is what the database was at some
    time since the last reading of it."""
    chance = random.Random(seed)
    history: list[Row] = [chance.choice([A, B, None])]
    asked = {KEY: Asked(history[0])}
    last = 0
    for _ in range(30):
        history += [chance.choice([A, B, C, None]) for _ in range(chance.randrange(4))]
        shown = history[chance.randrange(last, len(history))]
        history += [chance.choice([A, B, C, None]) for _ in range(chance.randrange(4))]
        last = len(history) - 1
        now = history[last]
        found = judged(
            asked, {} if shown is None else {KEY: shown}, [{} if now is None else {KEY: now}]
        )
        if found.differing:  # twice the same, to and fro: as likely as it is rare
            assert chance_of_that(history)
            return
        if found.equal:
            return
        asked = dict(found.again)


def chance_of_that(history: list[Row]) -> bool:
    changes = sum(one != other for one, other in pairwise(history))
    return changes >= 4


@pytest.mark.parametrize("seed", range(50))
def test_a_row_that_is_wrong_is_found_once_the_database_stands_still(seed: int) -> None:
    chance = random.Random(seed)
    asked = {KEY: Asked(chance.choice([A, B, None]))}
    for is_still in (False, False, False, True, True, True):
        now = A if is_still else chance.choice([A, B, None])
        found = judged(asked, {KEY: C}, [{} if now is None else {KEY: now}])
        assert not found.equal
        if found.differing:
            return
        asked = dict(found.again)
    pytest.fail("it was not found")
