"""The captures of a cluster as a job master sees them: which may be given workers, which are
dead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordination.jobmaster.records import UnitState
from coordination.model import CaptureID, JobID


@dataclass(slots=True, kw_only=True)
class Captures:
    """The captures of the cluster. Mutable: `place` counts what it has given away."""

    able: frozenset[CaptureID]  # registered, and not draining: they may be given workers
    draining: frozenset[CaptureID] = frozenset()
    counted: frozenset[CaptureID]  # registered, or gone for less than their grace
    knows_the_dead: bool = True  # the grace is over for those that died before this master began
    loads: dict[CaptureID, int] = field(default_factory=dict)  # workers of all jobs

    def is_lost(self, capture_id: CaptureID) -> bool:
        """Whether what ran there surely runs no more."""
        return capture_id not in self.counted and self.knows_the_dead

    def place(self, preferred: CaptureID | None) -> CaptureID | None:
        """A capture for one more worker: the preferred one, or the one with the fewest."""
        if not self.able:
            return None
        fewest = min(self.able, key=lambda each: (self.loads.get(each, 0), each))
        chosen = preferred if preferred is not None and preferred in self.able else fewest
        self.loads[chosen] = self.loads.get(chosen, 0) + 1
        return chosen


def loads(unit_states: Mapping[JobID, UnitState]) -> dict[CaptureID, int]:
    """How many workers each capture has, of all jobs."""
    found: dict[CaptureID, int] = {}
    for state in unit_states.values():
        for status in state.current.values():
            if not state.has_finished(status):
                found[status.capture] = found.get(status.capture, 0) + 1
    return found
