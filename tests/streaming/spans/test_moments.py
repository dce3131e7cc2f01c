"""Positions of a first copy and their commit-ts: the same after a restart, and rising."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.spans.moments import Moment, Moments, rising


def moment(position: int, ms: int) -> Moment:
    return Moment(position, Ts(ms << TSO_LOGICAL_BITS))


def never() -> Moment:
    raise AssertionError("it is known")


def test_a_moment_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "moments.json"
    made = Moments(file).at("begin", lambda: moment(5, 100))
    assert Moments(file).at("begin", never) == made
    assert Moments(file).of({"name": ["a", "b"]}, lambda: moment(9, 101)) == moment(9, 101)
    assert Moments(file).of({"name": ["a", "b"]}, never) == moment(9, 101)


def test_one_that_is_put_again_is_another(tmp_path: Path) -> None:
    moments = Moments(tmp_path / "moments.json")
    moments.at("end", lambda: moment(5, 100))
    moments.put("end", moment(7, 110))
    assert Moments(tmp_path / "moments.json").at("end", never) == moment(7, 110)


def test_settled_moments_are_the_same_again(tmp_path: Path) -> None:
    some = [moment(10, 200), moment(30, 150), moment(20, 180)]
    first = Moments(tmp_path / "moments.json").settle(some)
    again = Moments(tmp_path / "moments.json").settle([*some, moment(40, 300)])
    assert {at: again[at] for at in first} == first


@pytest.mark.seeds(100)
def test_the_ts_rises_with_room_for_what_lies_between(seed: int) -> None:
    dice = random.Random(seed)
    some = [moment(dice.randrange(50) * 1_000, 1_000 + dice.randrange(20)) for _ in range(20)]
    found = rising(some)
    assert [each.position for each in found] == sorted({each.position for each in some})
    for each in some:
        assert next(f.ts for f in found if f.position == each.position) >= each.ts
    for before, after in pairwise(found):
        assert after.ts - before.ts >= after.position - before.position
