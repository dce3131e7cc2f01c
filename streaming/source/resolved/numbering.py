"""The commit-ts of messages whose protocol has none, one chunk after the other. Pure.

    chunk ──own times──► numbers, above the last pin ──► decode(chunk with its numbers, wanted)
       from the last pin before the read on               from where the read begins on

The messages of a part are numbered from a pin on, in order. What lies between the pin and the
read's begin is numbered alone. A task that reads a later slice of a part begins some messages
before it, with their own times. Its numbers count if it has found the number before its slice that
the task before has (`alike`): they follow from that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.protocols.clocks import LATEST_MS
from streaming.protocols.contract import Block, Decoder, Kind, Messages, Wanted, reads_keys
from streaming.source.positions import Positions
from streaming.source.resolved.commit_clock import (
    STAYS,
    Numbers,
    Pin,
    from_token,
    needed_pins,
    numbered,
    passed_late,
    pin_at,
    to_token,
)

if TYPE_CHECKING:  # an executor loads the decoder that it is sent, and no other
    from streaming.protocols.decoders import DdlMask, OwnTimes

_HALF_MS: Final = 1 << (TSO_LOGICAL_BITS - 1)
_QUARTER_MS: Final = _HALF_MS >> 1
PinsByPart = Mapping[str, Sequence[Pin]]


@dataclass(frozen=True, slots=True)
class NumberedDecoder:
    """What is sent to an executor: ``pins`` and where the read begins, by part. ``reads``: from
    where a slice is read, by its part and begin, if not from there. ``are_ddls``: tells DDLs; None:
    they come in partition 0."""

    decode: Decoder
    own_ms: OwnTimes
    pins: PinsByPart
    begin: Positions
    reads: Mapping[tuple[str, int], int] = field(default_factory=dict)
    are_ddls: DdlMask | None = None

    def started(self, begin: Positions | None = None) -> Numbering:
        """For one reading of each part, from `lead` on. ``begin``: where its slices begin."""
        return Numbering(self, self.begin if begin is None else begin)


def lead(pins: PinsByPart, begin: Positions) -> dict[str, int]:
    """From where each part is read, so that its numbers are known at its begin."""
    found = {}
    for part, at in begin.items():
        pin = pin_at(pins[part], at)
        found[part] = at if pin is None else pin.position
    return found


@dataclass(slots=True)
class Numbering:
    """A `Decoder` whose chunks come by rising position in each part."""

    sent: NumberedDecoder
    begin: Positions
    before: dict[str, int] = field(default_factory=dict)  # the last commit-ts before it
    after: dict[str, int] = field(default_factory=dict)  # the last commit-ts
    found: dict[str, list[Pin]] = field(default_factory=dict)  # needed ones

    @property
    def reads_keys(self) -> bool:
        return reads_keys(self.sent.decode)

    @property
    def reads_times(self) -> bool:
        return True

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:
        stamped = self.number(messages)
        first = int(np.searchsorted(_positions(messages), self.begin[messages.part]))
        if first == len(messages):
            return iter(())
        return self.sent.decode(stamped.part_of(first, len(messages) - first), wanted)

    def mark(self, part: str, begin: int, position: int) -> Block:
        """The pins of a part that was read up to there, as a watermark; ``min_ts`` is that of where
        its slice begins."""
        first = pin_at(self.sent.pins[part], self.begin[part]) or Pin(begin, 0)
        before = pin_at(self.sent.pins[part], position) or Pin(begin, 0)
        after = max(self.after.get(part, 0), before.ts)
        # Where no message has come since an idle time, the next one is above that still.
        here = Pin(position, after, before.above_ts if before.above_ts > after else 0)
        return Block(
            kind=Kind.WATERMARK,
            part=part,
            rows=1,
            min_ts=max(self.before.get(part, 0), first.floor_ts) + 1,
            max_ts=here.floor_ts + 1,
            first=begin,
            last=position,
            token=to_token([*self.found.get(part, ()), here]),
        )

    def number(self, messages: Messages) -> Messages:
        """The same messages with their commit-ts."""
        part, positions = messages.part, _positions(messages)
        own_ms = self.sent.own_ms(messages.values)
        if messages.times_ms is not None:
            own_ms = pc.coalesce(own_ms, messages.times_ms)
        own = np.minimum(pc.fill_null(own_ms, 0).to_numpy(), LATEST_MS - 1)
        pins, after = self.sent.pins[part], self.after.get(part, 0)
        early = self._early(messages)
        latest = Ts(messages.latest_ts)
        made = numbered(positions, own, after=after, pins=pins, latest=latest, early=early)
        if len(positions):
            self.after[part] = int(made.commit_ts[-1])
        if first := int(np.searchsorted(positions, self.begin[part])):
            self.before[part] = int(made.commit_ts[first - 1])
        told = self.found.setdefault(part, [])
        needed = needed_pins(positions + 1, made, own, open_end=1 << 62, early=early)
        told += (pin._replace(is_needed=STAYS) for pin in needed if pin.position > self.begin[part])
        told += passed_late(pins, positions, made, own, early=early, first=first)
        return replace(messages, commit_ts=pa.array(made.commit_ts, pa.int64()))

    def _early(self, messages: Messages) -> Numbers | int:
        """By how much numbers may be below their own times, so that DDLs are below the rows that
        others have of the same time (Canal's is a whole second): CREATE TABLE and TRUNCATE TABLE
        often have their first rows right behind them. Rows of partition 0 may be early, as a DDL
        there may be behind them; but less than DDLs that are known, as other topics have rows in
        their partition 0, and many DDLs may have one time."""
        is_first = messages.part.rpartition("/")[2] == "0"
        if self.sent.are_ddls is None:
            return _HALF_MS if is_first else 0
        rows = _QUARTER_MS if is_first else 0
        return np.where(self.sent.are_ddls(messages.values), _HALF_MS, rows)


def alike(marks: Sequence[Block | None]) -> int:
    """How many slices of a part count: each was numbered as the one right before it says. Their
    marks in order, made by `Numbering.mark`; None: there is none."""
    count = min(1, len(marks))
    for before, mark in pairwise(marks):
        if before is None or mark is None or before.max_ts != mark.min_ts:
            break
        count += 1
    return count


def joined_marks(marks: Sequence[Block]) -> Block:
    """The mark of all slices of a part that were read, as of one."""
    pins = [pin for each in marks for pin in from_token(each.token)]
    first = marks[0]
    return replace(marks[-1], min_ts=first.min_ts, first=first.first, token=to_token(pins))


def _positions(messages: Messages) -> Numbers:
    found: Numbers = messages.positions.to_numpy()
    return found
