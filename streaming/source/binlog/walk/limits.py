"""The limit of a binlog is the position: it is one ordered stream, and what was read completely is
resolved. Pure.

An idle log moves the limit by a pin at its end, with the time of a look that found nothing more.
All that comes later is numbered above it. Such a pin counts when it is *stored*, and so does one
behind a transaction whose own time is not believed: a restart that did not know it would number
otherwise what has been written by then.

    a needed pin ──► numbering goes on above it ──stored (`with_stored`)──► W
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.source.resolved.commit_clock import Pin, from_token, pin_at, to_token, with_pins
from streaming.source.resolved.limits import Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogLimits:
    """``pins`` rise; ``read_to``: everything before has been read, whole transactions or not.
    ``unstored``: needed pins, by position; ``resolved_ts``: W - 1."""

    part: str
    pins: tuple[Pin, ...]
    read_to: int = 0
    unstored: tuple[Pin, ...] = ()
    resolved_ts: int = 0

    @classmethod
    def of(cls, part: str, recorded: RecordedWatermark | None) -> BinlogLimits:
        """Before anything is read. Raises TidelakeError if the recorded token cannot be read."""
        return cls(part=part, pins=from_token(recorded.token) if recorded else ())

    @property
    def global_ts(self) -> int:
        return self.resolved_ts + 1 if self.resolved_ts else 0

    @property
    def holding_back(self) -> list[str]:
        return [self.part]

    @property
    def numbering(self) -> tuple[Pin, ...]:
        """The pins above which transactions are numbered."""
        return with_pins(self.pins, self.unstored) if self.unstored else self.pins

    def all_at(self, ts: int) -> bool:
        return self.global_ts == ts

    def advance(self, seen: Marks, positions: Mapping[str, int]) -> BinlogLimits:
        read_to = positions.get(self.part, self.read_to)
        pins = self.pins or (Pin(read_to, 0),)  # a first reading: numbering begins here
        found = from_token(seen[self.part].token) if self.part in seen else ()
        return replace(
            self,
            pins=with_pins(pins, [pin for pin in found if not pin.is_needed]),
            read_to=read_to,
            unstored=(*self.unstored, *(pin for pin in found if pin.is_needed)),
        )._resolved()

    def idle_at(self, ts: Ts) -> BinlogLimits:
        """There is nothing in the log behind what was read, at the time ``ts``."""
        last = pin_at(self.numbering, self.read_to)
        if last is None or last.position != self.read_to or ts <= last.floor_ts:
            return self
        pin = last._replace(above_ts=ts, is_needed=True)
        before = (each for each in self.unstored if each.position < pin.position)
        return replace(self, unstored=(*before, pin))

    def with_stored(self, stored: RecordedWatermark | None) -> BinlogLimits:
        """The same with stored pins: those of ours count that were made before them."""
        told = from_token(stored.token) if stored is not None else ()
        if not told or (not self.unstored and set(told) <= set(self.pins)):
            return self
        last, ours = told[-1], self.unstored
        count = sum((pin.position, pin.floor_ts) <= (last.position, last.floor_ts) for pin in ours)
        pins = with_pins(self.pins, [*told, *ours[:count]])
        return replace(self, pins=pins, unstored=ours[count:])._resolved()

    def with_parts(self, parts: frozenset[str]) -> BinlogLimits:
        assert parts == {self.part}, "a binlog has one part"
        return self

    def to_record(self) -> dict[str, RecordedWatermark]:
        """The watermark that counts, and all pins in the token."""
        pin = pin_at(self.pins, self.read_to)
        if pin is None:
            return {}
        token = to_token(self.numbering)
        return {self.part: RecordedWatermark(ts=self.global_ts, position=pin.position, token=token)}

    def _resolved(self) -> BinlogLimits:
        """What lies before the first pin that is not stored is resolved."""
        end = min(self.read_to, self.unstored[0].position - 1) if self.unstored else self.read_to
        pin = pin_at(self.pins, end)
        reached_ts = pin.floor_ts if pin is not None else 0
        return replace(self, resolved_ts=max(self.resolved_ts, reached_ts))
