"""A part that is read in slices side by side: the slices that count have the numbers that a reading
of the whole gives, and so do its pins."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from streaming.protocols.contract import Block, Messages
from streaming.source.resolved.commit_clock import Pin, from_token, with_pins
from streaming.source.resolved.numbering import NumberedDecoder, alike, joined_marks
from tests.streaming.source.resolved.test_numbered_parts import Taken, are_ddls, own_ms

PART = "t/0"
MS = 1_795_000_000_000


def messages(rows: dict[int, int], begin: int, end: int, latest_ms: int) -> Messages:
    at = [offset for offset in sorted(rows) if begin <= offset < end]
    return Messages(
        part=PART,
        positions=pa.array(at, pa.int64()),
        # Some are DDLs (`are_ddls`).
        values=pa.array([b"%d%s" % (rows[each], b" " * (each % 7 == 3)) for each in at]),
        latest_ts=latest_ms << 18,
    )


def read(
    sent: NumberedDecoder,
    rows: dict[int, int],
    of: tuple[int, int, int],
    dice: random.Random,
    latest_ms: int = MS + 1_000_000,
) -> tuple[dict[int, int], Block]:
    """One task: ``of`` says from where on, from where on it gives what it reads, and the end."""
    at, begin, end = of
    assert isinstance(sent.decode, Taken)
    sent.decode.commit_ts.clear()
    numbers = sent.started({PART: begin})
    cuts = sorted({at, end, *(dice.randint(at, end) for _ in range(dice.randint(0, 3)))})
    for first, last in pairwise(cuts):
        numbers(messages(rows, first, last, latest_ms), {})
    found = {position: ts for (_, position), ts in sent.decode.commit_ts.items()}
    return found, numbers.mark(PART, begin, end)


def log_of(dice: random.Random) -> tuple[dict[int, int], int]:
    kind = dice.choice(["busy", "slow", "late", "wrong", "one second", "none"])
    rows, at, now = {}, 0, float(MS)
    for _ in range(dice.randint(1, 150)):
        now += {"busy": 0.3, "slow": 40.0, "one second": 0.01}.get(kind, 5.0)
        own = now
        if dice.random() < 0.2:
            own += {"late": -dice.randint(0, 400), "wrong": dice.choice((0, 10**8))}.get(kind, 0)
        rows[at] = 0 if kind == "none" else int(own // 1_000 * 1_000 if kind == "busy" else own)
        at += dice.choice((1, 1, 1, 3))
    return rows, at


def pins_of(dice: random.Random, rows: dict[int, int], end: int) -> tuple[Pin, ...]:
    """Those that an earlier reading has left: of its ends, and of idle times behind some."""
    pins = [Pin(0, 0)]
    for at in sorted({dice.randint(1, end) for _ in range(dice.choice((0, 0, 1, 4)))}):
        sent = NumberedDecoder(Taken(), own_ms, {PART: tuple(pins)}, {PART: 0})
        _, mark = read(sent, rows, (0, 0, at), dice)
        assert mark.max_ts is not None
        above = dice.choice((0, mark.max_ts + (dice.randint(1, 500) << 18)))
        pins = [*from_token(mark.token)[:-1], *pins]
        here = Pin(at, mark.max_ts - 1, above, is_needed=above > 0)
        by_position = {pin.position: pin for pin in (*pins, here)}
        pins = [by_position[each] for each in sorted(by_position)]
    return tuple(pins)


def staying(token: str) -> list[Pin]:
    """Those of idle times above which a late change was numbered."""
    return [pin for pin in from_token(token) if pin.stays and pin.above_ts]


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_slices_have_the_numbers_of_the_whole(first: int) -> None:
    joined = 0
    for seed in range(first, first + 100):
        dice = random.Random(seed)
        rows, end = log_of(dice)
        pins = {PART: pins_of(dice, rows, end)}
        begin = dice.choice((0, dice.randint(0, end - 1)))
        lead = max(pin.position for pin in pins[PART] if pin.position <= begin)
        told = dice.choice((None, are_ddls))
        sent = NumberedDecoder(Taken(), own_ms, pins, {PART: begin}, are_ddls=told)
        whole, mark = read(sent, rows, (lead, begin, end), dice)
        cuts = sorted({begin, end, *(dice.randint(begin, end) for _ in range(3))})
        before, slices = dice.choice((1, 5, 30)), []
        for at, until in pairwise(cuts):
            since = lead if at == begin else max(0, at - before)
            slices.append(read(sent, rows, (since, at, until), dice))
        count = alike([each for _, each in slices])
        assert count >= 1
        joined += count - 1
        for found, _ in slices[:count]:
            assert found == {at: whole[at] for at in found}, f"seed {seed}"
        assert sum(len(found) for found, _ in slices[:count]) == sum(
            begin <= at < cuts[count] for at in whole
        )
        if count == len(slices):
            made = joined_marks([each for _, each in slices])
            assert (made.min_ts, made.max_ts) == (mark.min_ts, mark.max_ts), f"seed {seed}"
            assert staying(made.token) == staying(mark.token), f"seed {seed}"
            known = with_pins(pins[PART], from_token(made.token))
            later = NumberedDecoder(Taken(), own_ms, {PART: known}, {PART: begin}, are_ddls=told)
            again, _ = read(later, rows, (lead, begin, end), dice, latest_ms=MS + 10**9)
            assert again == whole, f"seed {seed}: numbered otherwise when wrong times are believed"
            assert from_token(made.token)[-1] == from_token(mark.token)[-1], f"seed {seed}"
    assert joined > 50, "hardly any slice counts"
