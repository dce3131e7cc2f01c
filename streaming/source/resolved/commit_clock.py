"""The commit-ts of changes that come without one: of the binlog's transactions, and of messages
whose protocol has none (one clock: all of the program speaks TSO). Pure.

    commit_ts = max(that of the transaction before + 1, its own time in ms << 18)

Its own time is the server's (or a message's), and any session may set it (``SET timestamp``), years
ahead too. A time that is later than the reader's clock and a bound is not believed: the transaction
then gets the commit-ts before it + 1. So a commit-ts is a function of the bytes and of where
numbering began, but for these; so *pins* are stored, from which it goes on to the same numbers:

    Pin(position, ts, above_ts): all before ``position`` is at or below ``ts``; all from there on is
                                 above ``above_ts`` too, where an idle log was passed
                                 (`pinned_limits.py`)

A binlog's pin also has the GTIDs of what lies before it. With them another server's log is read
on, which has the same transactions at other positions (`binlog/failover/`), and the same own times
(`binlog/walk/own_times.py`).
"""

from __future__ import annotations

import json
import operator
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.source.resolved.gtid_sets import GtidSet, Trail, parse_gtids

Numbers = npt.NDArray[np.int64]
MOST_PINS: Final = 32
STAYS: Final = 2  # `Pin.is_needed` of those without which a rewind would number otherwise
MOST_STAYING: Final = 64
_SHOWN: Final = 100  # characters of a token in an error


class Pin(NamedTuple):
    position: int
    ts: int
    above_ts: int = 0
    is_needed: int = False  # numbering cannot do without: bytes do not tell it. Or `STAYS`
    made_s: int = 0  # when its file was begun, by the server's clock; 0: not known
    trail: Trail | None = None  # what lies before; None: not known

    @property
    def gtids(self) -> GtidSet | None:
        return None if self.trail is None else self.trail.gtids

    @property
    def stays(self) -> bool:
        return self.is_needed >= STAYS

    @property
    def floor_ts(self) -> int:
        """The next transaction is above it."""
        return max(self.ts, self.above_ts)


@dataclass(frozen=True, slots=True)
class Numbered:
    """``commit_ts`` by transaction, and which of them have a time that is not believed."""

    commit_ts: Numbers
    unbelieved: Numbers  # their places in ``commit_ts``


def numbered(
    begins: Numbers,
    own_ms: Numbers,
    *,
    after: int,
    pins: Sequence[Pin],
    latest: Ts,
    early: Numbers | int = 0,
) -> Numbered:
    """Number the transactions that begin at these positions, in order.

    ``own_ms``: their own times, in ms since 1970. ``after``: the commit-ts before the first.
    ``pins``: the known ones. ``latest``: no own time above it is believed. ``early``: by how
    much all, or each, may be below their own times.
    """
    own = _own_ts(own_ms, early)
    found: list[Numbers] = []
    at = 0
    for pin in pins:
        stop = int(np.searchsorted(begins, pin.position))
        if stop > at:
            found.append(_stretch(own[at:stop], after, min(latest, pin.ts)))
            after, at = int(found[-1][-1]), stop
        if at == len(begins):
            break
        after = max(after, pin.floor_ts)
    found.append(_stretch(own[at:], after, latest))
    return Numbered(np.concatenate(found), at + np.flatnonzero(own[at:] > latest))


def needed_pins(
    ends: Numbers, made: Numbered, own_ms: Numbers, open_end: int, early: Numbers | int = 0
) -> tuple[Pin, ...]:
    """The pins without which a later reading would believe some of these times. ``ends``: where
    each transaction ends; from ``open_end`` on it has not ended yet. One pin stands for all before
    it whose own times are above its ts."""
    ended = made.unbelieved[ends[made.unbelieved] < open_end]
    if not len(ended):
        return ()
    last = int(ended[-1])
    is_below = _own_ts(own_ms, early)[ended] <= made.commit_ts[last]
    chosen = dict.fromkeys([*ended[is_below].tolist(), last])
    return tuple(Pin(int(ends[i]), int(made.commit_ts[i]), is_needed=True) for i in chosen)


def passed_late(
    pins: Sequence[Pin],
    begins: Numbers,
    made: Numbered,
    own_ms: Numbers,
    *,
    early: Numbers | int = 0,
    first: int = 0,
) -> list[Pin]:
    """The pins of idle times above which a late change was numbered, from the ``first`` on: it
    would have a lower number without them. They stay, so that a rewind gives the same numbers."""
    found, own = [], _own_ts(own_ms, early)
    for pin in pins:
        at = int(np.searchsorted(begins, pin.position))
        if pin.above_ts <= pin.ts or not first <= at < len(begins):
            continue
        if made.commit_ts[at] != pin.above_ts + 1:
            continue
        if own[at] <= pin.above_ts or at in made.unbelieved:
            found.append(pin._replace(is_needed=STAYS))
    return found


def _own_ts(own_ms: Numbers, early: Numbers | int) -> Numbers:
    return (np.maximum(own_ms, 0) << TSO_LOGICAL_BITS) - early


def _stretch(own: Numbers, after: int, latest: int) -> Numbers:
    own = np.where(own > latest, 0, own)
    steps = np.arange(len(own), dtype=np.int64)
    return np.maximum.accumulate(np.maximum(own - steps, after + 1)) + steps


def pin_at(pins: Sequence[Pin], position: int) -> Pin | None:
    """The last pin at or before the position."""
    at = bisect_right(pins, position, key=lambda pin: pin.position)
    return pins[at - 1] if at else None


def behind(pins: Sequence[Pin], position: int) -> tuple[Pin, ...]:
    """The pins that a reading needs that begins at the position or later, and those that stay."""
    first = max(0, bisect_right(pins, position, key=lambda pin: pin.position) - 1)
    return *[pin for pin in pins[:first] if pin.stays][-MOST_STAYING:], *pins[first:]


def with_pins(
    pins: Sequence[Pin], more: Sequence[Pin], *, most_needed: int | None = None, since: int = 0
) -> tuple[Pin, ...]:
    """Both, by position; of one position what both say. No reading begins before ``since``. There
    are no more than `MOST_PINS`, and ``most_needed`` that are needed: they lie closer the nearer
    they are to the last one, so that a reading that begins between two of them has little to pass
    over. The first one stays: reading began there, or begins there."""
    by_position: dict[int, Pin] = {}
    for pin in (*pins, *more):
        known = by_position.get(pin.position, pin)
        by_position[pin.position] = Pin(
            pin.position,
            min(known.ts, pin.ts),
            max(known.above_ts, pin.above_ts),
            max(known.is_needed, pin.is_needed),
            max(known.made_s, pin.made_s),
            known.trail or pin.trail,
        )
    kept = [*behind([pin for _, pin in sorted(by_position.items())], since)]
    stay = [*takewhile(lambda pin: pin.stays, kept)]
    kept = kept[len(stay) :]
    needed = [pin for pin in kept[1:] if pin.is_needed]
    if most_needed is not None:
        for pin in needed[:-most_needed]:  # so old that no reading begins before them
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
    return *stay, *kept


def to_token(pins: Sequence[Pin]) -> str:
    """Each pin says the GTIDs that the one before it does not."""
    known, rows = GtidSet(), []
    for *numbers, trail in pins:
        told = trail and [str(trail.gtids.since(known)), trail.count, trail.order]
        rows.append([*map(int, numbers), told])
        known = trail.gtids if trail else known
    return json.dumps(rows, separators=(",", ":"))


def from_token(token: str) -> tuple[Pin, ...]:
    """Raises TidelakeError for another text than `to_token` makes."""
    known, pins = GtidSet(), list[Pin]()
    try:
        for *numbers, told in json.loads(token or "[]"):
            at, ts, above_ts, needed, made_s = map(operator.index, numbers)
            trail = None
            if told is not None:
                text, count, order = told
                known = known.plus(parse_gtids(text))
                trail = Trail(known, count, order)
            pins.append(Pin(at, ts, above_ts, needed, made_s, trail))
    except (ValueError, TypeError) as error:
        raise TidelakeError(
            f"the stored place in the binlog cannot be read: {token[:_SHOWN]!r}. Another version "
            "of Tidelake has stored it: go on with that one, or copy the tables anew into another "
            "warehouse"
        ) from error
    return tuple(pins)
