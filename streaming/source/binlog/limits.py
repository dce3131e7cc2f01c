"""The limit of a binlog is the position: it is one ordered stream, and what was read completely is
resolved. Pure.

An idle log moves the limit by a pin at its end, with the time of a look that found nothing more.
All that comes later is numbered above it. The limit itself moves when the pin is *stored*: a
restart that did not know it would number what comes next at or below it.

    idle ──propose──► numbering goes on above it ──stored (`with_stored`)──► W
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.source.binlog.commit_clock import Pin, from_token, pin_at, to_token, with_pins
from streaming.source.limits import Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogLimits:
    """``pins`` rise; ``read_to``: everything before has been read, whole transactions or not.
    ``proposed``: a pin of an idle log that is not stored yet."""

    part: str
    pins: tuple[Pin, ...]
    read_to: int = 0
    proposed: Pin | None = None

    @classmethod
    def of(cls, part: str, recorded: RecordedWatermark | None) -> BinlogLimits:
        """Before anything is read. Raises ValueError if the recorded token cannot be read."""
        return cls(part=part, pins=from_token(recorded.token) if recorded else ())

    @property
    def global_ts(self) -> int:
        pin = self._pin
        return pin.ts + 1 if pin is not None and pin.ts else 0

    @property
    def holding_back(self) -> list[str]:
        return [self.part]

    @property
    def numbering(self) -> tuple[Pin, ...]:
        """The pins above which transactions are numbered."""
        return self.pins if self.proposed is None else with_pins(self.pins, [self.proposed])

    def all_at(self, ts: int) -> bool:
        return self.global_ts == ts

    def advance(self, seen: Marks, positions: Mapping[str, int]) -> BinlogLimits:
        read_to = positions.get(self.part, self.read_to)
        pins = self.pins or (Pin(read_to, 0),)  # a first reading: numbering begins here
        if self.part not in seen:
            return replace(self, pins=pins, read_to=read_to)
        # The pin of this read's end lies behind the proposed one.
        held = [self.proposed] if self.proposed is not None else []
        more = [*held, *from_token(seen[self.part].token)]
        return replace(self, pins=with_pins(pins, more), read_to=read_to, proposed=None)

    def idle_at(self, ts: Ts) -> BinlogLimits:
        """There is nothing in the log behind what was read, at the time ``ts``."""
        pin, last = Pin(self.read_to, ts, is_needed=True), self._pin
        is_whole = last is not None and last.position == self.read_to
        is_later = last is not None and ts > max(last.ts, self.proposed.ts if self.proposed else 0)
        return replace(self, proposed=pin) if is_whole and is_later else self

    def with_stored(self, stored: RecordedWatermark | None) -> BinlogLimits:
        """The same with the stored pins, of which a proposed one counts then."""
        if stored is None:
            return self
        told = from_token(stored.token)
        proposed = None if self.proposed in told else self.proposed
        if proposed is self.proposed and set(told) <= set(self.pins):
            return self
        return replace(self, pins=with_pins(self.pins, told), proposed=proposed)

    def with_parts(self, parts: frozenset[str]) -> BinlogLimits:
        assert parts == {self.part}, "a binlog has one part"
        return self

    def to_record(self) -> dict[str, RecordedWatermark]:
        """The watermark that counts, and all pins in the token."""
        pin = self._pin
        if pin is None:
            return {}
        token = to_token(self.numbering)
        ts = pin.ts + 1 if pin.ts else 0
        return {self.part: RecordedWatermark(ts=ts, position=pin.position, token=token)}

    @property
    def _pin(self) -> Pin | None:
        return pin_at(self.pins, self.read_to)
