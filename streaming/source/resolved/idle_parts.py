"""Which parts of a source are idle, and up to which time that is certain (`pinned_limits.py`).

What comes later is numbered above that time. So it lies before the look by as much as changes have
been late: else their own times would not count, and changes of different parts would be out of
order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.source.positions import Positions
from streaming.source.resolved.pinned_limits import PartLimits, PinnedLimits

BEHIND_MS: Final = 1_000  # between two steps of an idle part that others wait for
STEP_MS: Final = 5_000  # of any other one
LATE_MS: Final = 60_000  # at most by so much
MANY: Final = 64  # pins that are needed, before steps become longer
LONGER: Final = 6  # doublings of a step


@dataclass(slots=True)
class IdleParts:
    """For one reading; one thread."""

    _ends: Positions = field(default_factory=dict)
    _at_ms: float = 0.0  # the time just before the ends were asked for
    _since: dict[str, tuple[int, float]] = field(default_factory=dict)  # position, and when it came
    _stepped_ms: dict[str, float] = field(default_factory=dict)
    _late_ms: float = 0.0

    def looked(self, ends: Positions, at_ms: float) -> None:
        """The source ended there, at a time after ``at_ms`` (since 1970)."""
        self._ends, self._at_ms = ends, at_ms

    def steps(self, position: Positions, limits: PinnedLimits) -> dict[str, Ts]:
        """The parts that are idle at ``position``, everything before which has been read."""
        now_ms, found = self._at_ms, dict[str, Ts]()
        ahead_ts = max((each.global_ts for each in limits.by_part.values()), default=0)
        for part, at in position.items():
            known = limits.by_part[part]
            before = self._since.get(part)
            if before is None or before[0] != at:
                self._since[part] = at, 0.0 if before is None else now_ms
                self._stepped_ms.pop(part, None)
                if before is not None:
                    self._late_ms = max(0.0, now_ms - (known.global_ts >> TSO_LOGICAL_BITS))
            wait_ms = _wait_ms(known, ahead_ts)
            last_ms = max(self._since[part][1], self._stepped_ms.get(part, 0.0))
            if self._ends.get(part) == at and now_ms >= last_ms + wait_ms:
                self._stepped_ms[part] = now_ms
                idle_ms = now_ms - min(LATE_MS, BEHIND_MS + 2 * self._late_ms)
                found[part] = Ts(int(idle_ms) << TSO_LOGICAL_BITS)
        return found


def _wait_ms(limits: PartLimits, ahead_ts: int) -> float:
    """Each place at which the part has been idle costs a pin, until nothing reads from before it
    any more. Where a table waits for an operator that may be long."""
    wait_ms = BEHIND_MS if limits.global_ts < ahead_ts else STEP_MS
    many = sum(pin.is_needed for pin in limits.pins) // MANY
    return float(wait_ms << min(many, LONGER))
