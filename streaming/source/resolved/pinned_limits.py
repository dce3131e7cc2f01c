"""The limit of parts whose reader gives the commit-ts: each is one ordered stream, and what was
read completely is resolved. W is the least over the parts. Pure.

A part that is idle moves its limit by a pin at its end, with the time of a look that found nothing
more. All that comes later is numbered above it. Such a pin counts when it is *stored*, and so does
one behind a change whose own time is not believed: a restart that did not know it would number
otherwise what has been written by then.

    a needed pin ──► numbering goes on above it ──stored (`with_stored`)──► W
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.source.positions import Positions
from streaming.source.resolved.commit_clock import (
    STAYS,
    Pin,
    behind,
    from_token,
    pin_at,
    to_token,
    with_pins,
)
from streaming.source.resolved.limits import Marks, Stored

AT_LEAST_ONCE_MEANS: Final = (
    "at-least-once: the messages have neither a commit-ts nor watermarks. Tables with a key come "
    "to what the database has; a message that comes twice is twice in a change log and in a "
    "history; a snapshot may show half a transaction, and rows of several partitions may be out of "
    "order with each other and with DDLs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLimits:
    """``pins`` rise; ``read_to``: everything before has been read, whole transactions or not.
    ``unstored``: needed pins, by position; ``resolved_ts``: W - 1 of this part; ``above_ts``: it
    was added while others were read, and what comes is numbered above."""

    pins: tuple[Pin, ...] = ()
    read_to: int = 0
    unstored: tuple[Pin, ...] = ()
    resolved_ts: int = 0
    above_ts: int = 0
    most_needed: int | None = None  # see `with_pins`

    @property
    def global_ts(self) -> int:
        return self.resolved_ts + 1 if self.resolved_ts else 0

    @property
    def numbering(self) -> tuple[Pin, ...]:
        """The pins above which changes are numbered."""
        return self._with(self.pins, self.unstored) if self.unstored else self.pins

    def read(self, found: tuple[Pin, ...], read_to: int) -> PartLimits:
        pins, unstored = self.pins, self.unstored
        if not pins:  # a first reading: numbering begins here
            pins = (Pin(read_to, 0),)
            if self.above_ts:
                unstored = (Pin(read_to, 0, self.above_ts, is_needed=STAYS),)
        known = {pin.position: pin for pin in found if pin.stays and pin.above_ts}  # from before
        passed = known.keys() - {pin.position for pin in unstored}
        more = [pin for pin in found if not pin.is_needed or pin.position in passed]
        new = (pin for pin in found if pin.is_needed and pin.position not in known)
        return replace(
            self,
            pins=self._with(pins, more),
            read_to=read_to,
            unstored=(*(known.get(pin.position, pin) for pin in unstored), *new),
        )._resolved()

    def idle_at(self, ts: Ts) -> PartLimits:
        """There is nothing in the part behind what was read, at the time ``ts``."""
        last = pin_at(self.numbering, self.read_to)
        if last is None or last.position != self.read_to or ts <= last.floor_ts:
            return self
        pin = last._replace(above_ts=ts, is_needed=last.is_needed or True)
        before = (each for each in self.unstored if each.position < pin.position)
        return replace(self, unstored=(*before, pin))

    def with_stored(self, stored: RecordedWatermark | None, low_water: int = 0) -> PartLimits:
        """The same with stored pins: those of ours count that were made before them."""
        told = from_token(stored.token) if stored is not None else ()
        if not told or (not self.unstored and set(told) <= set(self.pins)):
            return self
        last, ours = told[-1], self.unstored
        count = sum((pin.position, pin.floor_ts) <= (last.position, last.floor_ts) for pin in ours)
        pins = self._with(self.pins, [*told, *ours[:count]], since=low_water)
        return replace(self, pins=pins, unstored=ours[count:])._resolved()

    def from_position(self, low_water: int) -> PartLimits:
        """Without the pins that no reading from there on needs."""
        return replace(self, pins=behind(self.pins, low_water))

    def record(self) -> RecordedWatermark | None:
        """The watermark that counts, and all pins in the token."""
        pin = pin_at(self.pins, self.read_to)
        if pin is None:
            return None
        token = to_token(self.numbering)
        return RecordedWatermark(ts=self.global_ts, position=pin.position, token=token)

    def _with(self, pins: Sequence[Pin], more: Sequence[Pin], since: int = 0) -> tuple[Pin, ...]:
        return with_pins(pins, more, most_needed=self.most_needed, since=since)

    def _resolved(self) -> PartLimits:
        """What lies before the first pin that is not stored is resolved."""
        end = min(self.read_to, self.unstored[0].position - 1) if self.unstored else self.read_to
        pin = pin_at(self.pins, end)
        reached_ts = pin.floor_ts if pin is not None else 0
        return replace(self, resolved_ts=max(self.resolved_ts, reached_ts))


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedLimits:
    """See `limits.Limits`."""

    by_part: Mapping[str, PartLimits] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        parts: frozenset[str],
        recorded: Marks,
        *,
        above_ts: int = 0,
        most_needed: int | None = None,
    ) -> PinnedLimits:
        """Before anything is read. ``above_ts``: what parts get that were not recorded beside
        others is numbered above it. Raises TidelakeError if a recorded token cannot be read."""
        above_ts = above_ts if recorded else 0
        return cls(
            by_part={
                part: PartLimits(pins=from_token(recorded[part].token), most_needed=most_needed)
                if part in recorded
                else PartLimits(above_ts=above_ts, most_needed=most_needed)
                for part in sorted(parts)
            }
        )

    @property
    def global_ts(self) -> int:
        return min((each.global_ts for each in self.by_part.values()), default=0)

    @property
    def has_unstored(self) -> bool:
        return any(each.unstored for each in self.by_part.values())

    @property
    def holding_back(self) -> list[str]:
        least = self.global_ts
        return [part for part, each in self.by_part.items() if each.global_ts == least]

    def all_at(self, ts: int) -> bool:
        return all(each.global_ts == ts for each in self.by_part.values())

    def numbering(self, part: str) -> tuple[Pin, ...]:
        return self.by_part[part].numbering

    def advance(self, seen: Marks, positions: Mapping[str, int]) -> PinnedLimits:
        return PinnedLimits(
            by_part={
                part: each.read(
                    from_token(seen[part].token) if part in seen else (),
                    positions.get(part, each.read_to),
                )
                for part, each in self.by_part.items()
            }
        )

    def idle_at(self, times: Mapping[str, Ts]) -> PinnedLimits:
        """There is nothing in these parts behind what was read, at these times."""
        idle = {part: self.by_part[part].idle_at(ts) for part, ts in times.items()}
        return PinnedLimits(by_part={**self.by_part, **idle})

    def with_stored(self, stored: Stored) -> PinnedLimits:
        return PinnedLimits(
            by_part={
                part: each.with_stored(stored.marks.get(part))
                for part, each in self.by_part.items()
            }
        )

    def settled(self, stored: Stored) -> PinnedLimits:
        """The same with the stored pins, and without those that no reading needs any more. If this
        is not the owner's reading, its numbers are those of the stored pins alone."""
        if not stored.is_ours:
            return PinnedLimits(
                by_part={
                    part: _of_others(each, stored.marks.get(part))
                    for part, each in self.by_part.items()
                }
            )
        low_water = stored.low_water
        return PinnedLimits(
            by_part={
                part: each.with_stored(stored.marks.get(part), at).from_position(at)
                for part, each in self.by_part.items()
                for at in (low_water.get(part, 0),)
            }
        )

    def with_parts(self, parts: frozenset[str], above_ts: Ts) -> PinnedLimits:
        return PinnedLimits(
            by_part={
                part: self.by_part.get(part) or PartLimits(above_ts=above_ts)
                for part in sorted(parts)
            }
        )

    def to_record(self) -> dict[str, RecordedWatermark]:
        found = {part: each.record() for part, each in self.by_part.items()}
        return {part: mark for part, mark in found.items() if mark is not None}


def begun_again(
    marks: Marks, same: Container[str], beginnings: Positions
) -> dict[str, RecordedWatermark]:
    """The watermarks of a changefeed that is read from these beginnings again, after a rewind: with
    the pins that stay, changes get the numbers that they had. ``same``: the parts that are what
    they were."""
    marks = {part: mark for part, mark in marks.items() if part in same}
    found = {}
    for part, at in beginnings.items() if marks else ():
        told = from_token(marks[part].token) if part in marks else ()
        pins = with_pins([Pin(at, 0)], [pin for pin in told if pin.stays and pin.position >= at])
        found[part] = RecordedWatermark(ts=0, position=at, token=to_token(pins))
    return found


def limited(ends: Positions, stored: Stored) -> Positions:
    """Others than the owner read no further than its stored pins."""
    if stored.is_ours:
        return ends
    read = {part: mark.position for part, mark in stored.marks.items()}
    return {part: min(at, read.get(part, 0)) for part, at in ends.items()}


def _of_others(limits: PartLimits, stored: RecordedWatermark | None) -> PartLimits:
    known = replace(limits, unstored=()).with_stored(stored)
    told = from_token(stored.token) if stored is not None else ()
    return known.from_position(told[0].position) if told else known
