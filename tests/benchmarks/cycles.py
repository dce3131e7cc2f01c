"""The parts of Tidelake's cycles, from the line that each tells at log level DEBUG.

    … DEBUG streaming.…: cycle name=… messages=… ends_ms=… job_ms=… apply_ms=…

Whatever ``<part>_ms`` the line has is a part; the order is that of the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from tests.benchmarks.printing import new_table, number

_LINE = re.compile(r"^(?P<at>\S+) DEBUG \S+: (?P<event>[a-z ]+?) (?P<facts>[a-z_]+=.*)$")
_FACT = re.compile(r"(?P<name>[a-z][a-z_]*)=(?P<value>\S+)")
_MS = "_ms"
_WATERMARKS = 4  # messages: each partition's


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePart:
    """Milliseconds of one part over the cycles that had changes."""

    part: str
    cycles: int
    p50_ms: float
    p95_ms: float
    max_ms: float


def facts_of(log: Path, event: str) -> list[dict[str, str]]:
    """``name=value`` of each line that tells this, in order; ``at`` is its time."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if (match := _LINE.match(line)) and match["event"] == event:
            facts = {fact["name"]: fact["value"] for fact in _FACT.finditer(match["facts"])}
            found.append({"at": match["at"], **facts})
    return found


def cycle_parts(log: Path) -> list[CyclePart]:
    """Of the cycles that read more than a handful of watermarks."""
    cycles = [facts for facts in facts_of(log, "cycle") if int(facts["messages"]) > _WATERMARKS]
    names = dict.fromkeys(name for facts in cycles for name in facts if name.endswith(_MS))
    parts = []
    for name in names:
        values = np.array([float(facts[name]) for facts in cycles if name in facts])
        parts.append(
            CyclePart(
                part=name.removesuffix(_MS),
                cycles=len(values),
                p50_ms=float(np.percentile(values, 50)),
                p95_ms=float(np.percentile(values, 95)),
                max_ms=float(values.max()),
            )
        )
    return parts


def cycle_table(title: str, parts: list[CyclePart]) -> Table:
    table = new_table(title, "part", "cycles", "p50 ms", "p95 ms", "longest ms")
    for each in parts:
        cells = (each.p50_ms, each.p95_ms, each.max_ms)
        table.add_row(each.part, str(each.cycles), *(number(value) for value in cells))
    return table
