"""The commit-ts of the binlog's transactions (one clock: all of the program speaks TSO). Pure.

    commit_ts = max(that of the transaction before + 1, its own time in ms << 18)

Its own time is the server's, and any session may set it (``SET timestamp``), years ahead too. A
time that is later than the reader's clock and a bound is not believed: the transaction then gets
the commit-ts before it + 1. So a commit-ts is a function of the bytes and of where the numbering
began, but for these; so *pins* are stored, from which numbering goes on to the same numbers:

    Pin(position, ts): all before ``position`` is at or below ``ts``, the next one is above

Numbering from a pin takes up each later pin that it passes. Nothing that lies before a pin gets
more than the pin's ts.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from coordination.model import TSO_LOGICAL_BITS, Ts

Numbers = npt.NDArray[np.int64]
MOST_PINS: Final = 32


class Pin(NamedTuple):
    position: int
    ts: int
    is_needed: bool = False  # numbering cannot do without: bytes do not tell it


@dataclass(frozen=True, slots=True)
class Numbered:
    """``commit_ts`` by transaction, and the pins beside those whose time is not believed."""

    commit_ts: Numbers
    pins: tuple[Pin, ...]


def numbered(
    begins: Numbers, ends: Numbers, own_ms: Numbers, *, after: int, pins: Sequence[Pin], latest: Ts
) -> Numbered:
    """Number the transactions that lie between these positions, in order.

    ``own_ms``: their own times, in ms since 1970. ``after``: the commit-ts before the first.
    ``pins``: the known ones. ``latest``: no own time above it is believed.
    """
    own = np.maximum(own_ms, 0) << TSO_LOGICAL_BITS
    found: list[Numbers] = []
    at = 0
    for pin in pins:
        stop = int(np.searchsorted(begins, pin.position))
        if stop > at:
            found.append(_stretch(own[at:stop], after, min(latest, pin.ts)))
            after, at = int(found[-1][-1]), stop
        if stop or (len(begins) and pin.position == begins[0]):
            after = max(after, pin.ts)
    last = own[at:]
    found.append(_stretch(last, after, latest))
    made: list[Pin] = []
    for each in np.flatnonzero(last > latest).tolist():
        before = int(found[-1][each - 1]) if each else after
        made.append(Pin(int(begins[at + each]), before, is_needed=True))
        made.append(Pin(int(ends[at + each]), int(found[-1][each]), is_needed=True))
    return Numbered(np.concatenate(found), tuple(made))


def _stretch(own: Numbers, after: int, latest: int) -> Numbers:
    own = np.where(own > latest, 0, own)
    steps = np.arange(len(own), dtype=np.int64)
    return np.maximum.accumulate(np.maximum(own - steps, after + 1)) + steps


def pin_at(pins: Sequence[Pin], position: int) -> Pin | None:
    """The last pin at or before the position."""
    at = bisect_right(pins, position, key=lambda pin: pin.position)
    return pins[at - 1] if at else None


def with_pins(pins: Sequence[Pin], more: Sequence[Pin]) -> tuple[Pin, ...]:
    """Both, by position; of one position the pin with the later ts. There are no more than
    `MOST_PINS`, and twice as many needed ones: they lie closer the nearer they are to the last
    one, so that a reading that begins between two of them has little to pass over."""
    by_position: dict[int, Pin] = {}
    for pin in (*pins, *more):
        known = by_position.get(pin.position, pin)
        ts, is_needed = max(known.ts, pin.ts), known.is_needed or pin.is_needed
        by_position[pin.position] = Pin(pin.position, ts, is_needed)
    kept = sorted(by_position.values())
    needed = [pin for pin in kept if pin.is_needed]
    for pin in needed[: -2 * MOST_PINS]:  # so old that no reading begins before them
        kept.remove(pin)
    while sum(not pin.is_needed for pin in kept) > MOST_PINS:
        last = kept[-1].position
        gaps = [
            (after.position - before.position) / (last - before.position)
            for before, after in pairwise(kept)
        ]
        wide = [
            (gaps[i - 1] + gaps[i], i) for i in range(1, len(kept) - 1) if not kept[i].is_needed
        ]
        if not wide:
            break
        del kept[min(wide)[1]]
    return tuple(kept)


def to_token(pins: Sequence[Pin]) -> str:
    return json.dumps([[*pin[:2], int(pin.is_needed)] for pin in pins], separators=(",", ":"))


def from_token(token: str) -> tuple[Pin, ...]:
    """Raises ValueError for another text than `to_token` makes."""
    return tuple(Pin(at, ts, bool(needed)) for at, ts, needed in json.loads(token or "[]"))
