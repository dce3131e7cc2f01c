"""How far a source is resolved at one point of reading: W (rule 2), by the source's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.source.positions import Positions

Marks = Mapping[str, RecordedWatermark]  # by part


@dataclass(frozen=True, slots=True)
class Stored:
    """The watermarks in the changefeed's row. ``is_ours``: whether this reading is the owner's,
    whose limits are stored there. ``low_water``: the row's; no reading begins before it."""

    marks: Marks
    is_ours: bool
    low_water: Positions = field(default_factory=dict)


class Limits(Protocol):
    """Immutable; ``advance`` returns the next ones. `watermarks.Watermarks` are those of a source
    whose messages carry watermarks."""

    @property
    def global_ts(self) -> int:
        """W: all rows and DDLs at or below W - 1 have been read."""

    @property
    def holding_back(self) -> list[str]:
        """The parts whose watermark is W; all others wait for them."""

    def all_at(self, ts: int) -> bool:
        """Whether every part's watermark is exactly ``ts``."""

    def advance(self, seen: Marks, positions: Mapping[str, int]) -> Self:
        """The limits after a read. ``seen``: by part the greatest watermark in the read, with the
        position of its last watermark; ``positions``: the next position of each part."""

    def with_parts(self, parts: frozenset[str], above_ts: Ts) -> Self:
        """The same with other parts, after some were added; a new one has no watermark.
        ``above_ts``: no other part is resolved beyond. Where readers give the commit-ts, a new part
        gets higher ones."""

    def to_record(self) -> dict[str, RecordedWatermark]:
        """The values to store, by part. `Source.limits` gets them after a restart."""


@dataclass(frozen=True, slots=True)
class _NothingRead:
    global_ts: int = 0

    @property
    def holding_back(self) -> list[str]:
        return []

    def all_at(self, ts: int) -> bool:  # noqa: ARG002
        return True

    def advance(
        self,
        seen: Marks,  # noqa: ARG002
        positions: Mapping[str, int],  # noqa: ARG002
    ) -> Self:
        return self

    def with_parts(self, parts: frozenset[str], above_ts: Ts) -> Self:  # noqa: ARG002
        return self

    def to_record(self) -> dict[str, RecordedWatermark]:
        return {}


NOTHING_READ: Final[Limits] = _NothingRead()  # of a stream that does not run
