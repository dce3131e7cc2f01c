"""A source in memory, with its reader: for tests of what stands above sources."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from coordination.model import TableName, Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block, Kind, Messages
from streaming.protocols.decoders import decoder_of
from streaming.source.contract import (
    RAW,
    Identities,
    Kept,
    Places,
    ReadOrder,
    RecordedPlace,
    SourceChanged,
    SourceClock,
    SourceLost,
    SourceShape,
)
from streaming.source.positions import Positions, counted
from streaming.source.resolved.limits import Limits, Stored
from streaming.source.resolved.watermarks import Watermarks

_numbers = itertools.count(1)


class MemorySource:
    """Each part is a list of messages. ``fill`` may be called again: it makes the source anew."""

    server = "the memory"
    has_end = False
    is_numbered = False

    def __init__(self, logs: Mapping[str, Iterable[bytes]]) -> None:
        self.fill(logs)

    def fill(self, logs: Mapping[str, Iterable[bytes]]) -> None:
        self.logs = {part: list(log) for part, log in logs.items()}
        self.identity = f"memory-{next(_numbers)}"

    def close(self) -> None: ...

    def keep_to(self, identities: Identities) -> None: ...

    def shape(self) -> SourceShape:
        return SourceShape(dict.fromkeys(sorted(self.logs), self.identity))

    def goes_on(
        self,
        place: RecordedPlace,
        shape: SourceShape,
        reached_ts: int,  # noqa: ARG002
    ) -> RecordedPlace:
        self.check_identities(place.identities, shape)
        return place

    def check_unchanged(self, start: SourceShape) -> None:
        self.check_identities(start.identities, self.shape())
        if self.logs.keys() - start.parts:
            raise SourceChanged("there are new parts")

    def check_identities(self, recorded: Identities, shape: SourceShape) -> None:
        for part, identity in recorded.items():
            if shape.identities.get(part, identity) != identity:
                raise SourceLost(f"{part} is another one")

    def check(self, positions: Positions, checkpoint_ts: int | None = None) -> None:  # noqa: ARG002
        for part, at in positions.items():
            if at > len(self.logs[part]):
                raise SourceLost(f"{part} ends before {at}")

    def begin_at(self, shape: SourceShape, low_water: Positions) -> dict[str, int]:
        return {part: low_water.get(part, 0) for part in shape.parts}

    def refuse_a_hole(
        self, first: Positions, *, checkpoint_ts: int, reached_ts: int | None
    ) -> None: ...

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(parts, 0)

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        return {part: len(self.logs[part]) for part in parts}

    def limits(self, shape: SourceShape, recorded: Mapping[str, RecordedWatermark]) -> Watermarks:
        return Watermarks(parts=shape.parts, recorded=recorded)

    def settled(
        self,
        shape: SourceShape,  # noqa: ARG002
        limits: Limits,
        position: Positions,  # noqa: ARG002
        stored: Stored,  # noqa: ARG002
    ) -> Limits:
        return limits

    def reach(self, ends: Positions, stored: Stored) -> Positions:  # noqa: ARG002
        return ends

    def distance(self, begin: Positions, end: Positions) -> int:
        return counted(begin, end)

    def clock(self) -> SourceClock:
        return SourceClock()

    def kept(self, positions: Positions) -> Kept | None: ...

    def raw(self, places: Places, identities: Identities) -> Iterator[pa.Table]:
        self.check_identities(identities, self.shape())
        for part, wanted in sorted(places.items()):
            rows = [{"part": part, "position": at, "value": self.logs[part][at]} for at in wanted]
            yield pa.Table.from_pylist(rows, RAW)

    def place(self, part: str, position: int) -> str:
        return f"{part} position {position}"

    def unlogged(self) -> tuple[TableName, ...]:
        return ()

    def held_back(self, parts: Iterable[str]) -> str | None: ...

    def tell_of(self, shape: SourceShape, begin: Positions) -> None: ...

    def end_ts(self) -> Ts | None: ...

    def reader(self, spark: Any, *, start_ts: int, name: str) -> MemoryReader:  # noqa: ARG002
        return MemoryReader(self, start_ts)


class MemoryReader:
    def __init__(self, source: MemorySource, start_ts: int = 0) -> None:
        self._source = source
        self._decode = decoder_of("canal-json", start_ts=start_ts)

    def read(self, order: ReadOrder) -> list[Block]:
        left = min(order.messages, order.first_messages or order.messages)
        found: list[Block] = []
        for part, at in sorted(order.begin.items()):
            count = min(left, order.ends[part] - at)
            if count > 0:
                some = self._source.logs[part][at : at + count]
                positions = pa.array(range(at, at + count), pa.int64())
                chunk = Messages(part=part, positions=positions, values=pa.array(some, pa.binary()))
                found += self._decode(chunk, order.wanted)
                found.append(
                    Block(kind=Kind.DONE, part=part, rows=count, first=at, last=at + count)
                )
                left -= count
        return found

    def cancel(self) -> None: ...

    def close(self) -> None: ...
