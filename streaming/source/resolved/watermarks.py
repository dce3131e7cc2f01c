"""The watermark of each part, and the least of them, W (rule 2).

Pure. W = min over the parts; one without a watermark counts as 0. A part that the sink may
not use needs none of its own (`past`). A watermark holds from the position at which it was seen, so
after a restart (which reads again from the low-water position) a recorded one counts only when
reading has passed that position::

    recorded ──(position passed)──► live ──(greater ts read)──► live

Lower ones come where the sink went back (then to all parts), and from another changefeed's sink.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark

_NONE: Final = RecordedWatermark(ts=0, position=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """The watermarks at one point of reading. Immutable; ``advance`` returns the next ones."""

    parts: frozenset[str]
    recorded: Mapping[str, RecordedWatermark] = field(default_factory=dict)
    live: Mapping[str, RecordedWatermark] = field(default_factory=dict)
    # By part: what it counted as, each time that a lower one came behind that; until it has risen.
    lower: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def global_ts(self) -> int:
        """W: all rows and DDLs at or below W - 1 have been read."""
        return min((self._ts(part) for part in self.parts), default=0)

    @property
    def holding_back(self) -> list[str]:
        """The parts whose watermark is W; all others wait for them."""
        return sorted(p for p in self.parts if self._ts(p) == self.global_ts)

    def all_at(self, ts: int) -> bool:
        """Whether every part's watermark is exactly ``ts``."""
        return all(self._ts(part) == ts for part in self.parts)

    def advance(
        self,
        seen: Mapping[str, RecordedWatermark],
        positions: Mapping[str, int],
    ) -> Watermarks:
        """The watermarks after a read. ``seen``: by part the greatest watermark in the read,
        with the position of its last watermark; ``positions``: the next position of each part.

        A watermark lower than the one before changes nothing but ``lower``.
        """
        live, lower = dict(self.live), dict(self.lower)
        passed = {
            part: mark
            for part, mark in self.recorded.items()
            if positions.get(part, 0) > mark.position
        }
        for part, mark in passed.items():
            if part in self.parts and mark.ts > self._ts(part):
                live[part] = mark
        for part in seen.keys() & self.parts:
            mark, known = seen[part], live.get(part, _NONE)
            if mark.ts > known.ts:
                live[part] = mark
            if mark.ts >= known.ts:
                lower.pop(part, None)
            elif mark.position > known.position:
                lower[part] = lower.get(part, frozenset()) | {known.ts}
        waiting = {p: mark for p, mark in self.recorded.items() if p not in passed}
        return replace(self, live=live, recorded=waiting, lower=lower)

    def past(self, strays: Collection[str], read_to: Mapping[str, int]) -> Watermarks:
        """The same, where these of the ``strays`` were read to the end that they had *after* the
        other parts' watermarks had been sent; ``read_to``: that end.

        A watermark W is sent when every row at or below W is in the source, in whatever part. So
        what such a stray gets later is above the least watermark of the others, as if it had that
        one itself."""
        used = [self._ts(each) for each in self.parts if each not in strays]
        if (ts := min(used, default=0)) == 0:
            return self
        behind = {p: at for p, at in read_to.items() if self._ts(p) < ts}
        given = {p: RecordedWatermark(ts=ts, position=at - 1) for p, at in behind.items()}
        return replace(self, live={**self.live, **given})

    def of_others(self, strays: Collection[str]) -> frozenset[str]:
        """Those of the ``strays`` that another changefeed's sink writes to.

        A sink sends a watermark to all parts before it sends the next. So what comes behind a
        given one (`past`) is not lower, unless the sink went back. Then all parts go back, and none
        is given a greater one until all were there again. Those that bring lower ones behind two
        are another's."""
        return frozenset(part for part in strays if len(self.lower.get(part, ())) > 1)

    def gone_back(self, strays: Collection[str]) -> Watermarks:
        """The same; where the sink itself went back, lower ones say nothing about the strays."""
        if self.lower.keys() <= set(strays):
            return self
        return replace(self, lower={})

    def with_parts(self, parts: frozenset[str], above_ts: Ts) -> Watermarks:  # noqa: ARG002
        """The same with other parts, after some were added; a new one has no watermark."""
        return replace(self, parts=parts)

    def to_record(self) -> dict[str, RecordedWatermark]:
        """The values to store: for each part the greatest watermark, with the position where it was
        seen."""
        record = dict(self.recorded)
        for part, mark in self.live.items():
            if part not in record or mark.ts >= record[part].ts:
                record[part] = mark
        return record

    def _ts(self, part: str) -> int:
        mark = self.live.get(part)
        return mark.ts if mark else 0
