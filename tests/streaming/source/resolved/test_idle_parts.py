"""An idle part that others wait for moves each second; one that nobody waits for, each five."""

from __future__ import annotations

from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.source.resolved.idle_parts import BEHIND_MS, STEP_MS, IdleParts
from streaming.source.resolved.pinned_limits import PartLimits, PinnedLimits

BEGAN_MS = 1_800_000_000_000.0


def limits(**resolved_ms: float) -> PinnedLimits:
    parts = {
        part: PartLimits(read_to=10, resolved_ts=int(ms) << TSO_LOGICAL_BITS)
        for part, ms in resolved_ms.items()
    }
    return PinnedLimits(by_part=parts)


def steps_in_20_s(of: PinnedLimits, part: str) -> int:
    idle, position = IdleParts(), {each: 10 for each in of.by_part}
    found = 0
    for at_ms in range(0, 20_000, 250):
        idle.looked(position, BEGAN_MS + at_ms)
        steps: dict[str, Ts] = idle.steps(position, of)
        found += part in steps
    return found


def test_who_is_behind_moves_more_often() -> None:
    of = limits(behind=BEGAN_MS - 50_000, ahead=BEGAN_MS)
    assert steps_in_20_s(of, "behind") == 20_000 // BEHIND_MS
    assert steps_in_20_s(of, "ahead") == 20_000 // STEP_MS
