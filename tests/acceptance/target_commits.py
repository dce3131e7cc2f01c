"""Who wrote what into the tables, from the ``userMetadata`` of each of their commits.

Held to I1 and I2 of the cluster: a fence has one capture, fences do not fall, and what two commits
bring a table from and to never overlaps. A commit with an older fence behind a newer one can only
come from a write that was under way when its capture was frozen; it is counted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCommit:
    """A commit of rows; ``at`` is the wall time of its file."""

    table: str
    version: int
    at: float
    capture: str
    fence: int
    checkpoint: int
    limit: int


class TargetCommits:
    """`read` looks only at what is new."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._next: dict[str, int] = defaultdict(int)
        self._found: dict[str, list[TargetCommit]] = defaultdict(list)

    def read(self) -> dict[str, list[TargetCommit]]:
        """By ``schema.table``, in the order of their versions."""
        for log in self._warehouse.glob("[!_]*/*/_delta_log"):
            self._read_on(f"{log.parts[-3]}.{log.parts[-2]}", log)
        return self._found

    def since(self, at: float, capture: str) -> set[str]:
        """The tables that this capture has committed to after this moment."""
        return {
            name
            for name, commits in self.read().items()
            if any(each.at > at and each.capture == capture for each in commits)
        }

    def first_by_others(self, at: float, name: str, capture: str) -> float | None:
        """When, after this moment, somebody else first committed to the table."""
        commits = self.read()[name]
        return next((each.at for each in commits if each.at > at and each.capture != capture), None)

    def longest_gap_s(self, name: str, begin: float, end: float) -> float:
        """Between two commits of the table that are not both outside of this time."""
        times = [each.at for each in self.read()[name]]
        pairs = pairwise(times)
        gaps = [after - before for before, after in pairs if after > begin and before < end]
        return max(gaps, default=0.0)

    def assert_one_writer(self, frozen: Collection[str] = ()) -> int:
        """How many late commits there were, all of ``frozen`` captures."""
        return sum(_late_ones(commits, frozen) for commits in self.read().values())

    def assert_nobody_idles(self) -> int:
        """In the middle third of the time every capture that lives through it commits; how many do.

        One that commits before and after it was alive in it."""
        times: dict[str, list[float]] = defaultdict(list)
        for commits in self.read().values():
            for each in commits:
                times[each.capture].append(each.at)
        first, last = min(map(min, times.values())), max(map(max, times.values()))
        begin, end = first + (last - first) / 3, last - (last - first) / 3
        lived = {c: at for c, at in times.items() if min(at) < begin and max(at) > end}
        idle = [c for c, at in lived.items() if not any(begin <= each <= end for each in at)]
        assert idle == [], {
            c: [round(each - first, 1) for each in sorted(at)] for c, at in times.items()
        }
        return len(lived)

    def _read_on(self, name: str, log: Path) -> None:
        while True:
            path = log / f"{self._next[name]:020d}.json"
            try:
                text, at = path.read_text(), path.stat().st_mtime
            except FileNotFoundError:
                return
            self._next[name] += 1
            if (commit := _commit(name, int(path.stem), at, text)) is not None:
                self._found[name].append(commit)


def _commit(name: str, version: int, at: float, text: str) -> TargetCommit | None:
    """None for one that brought no rows."""
    for line in text.splitlines():
        info = json.loads(line).get("commitInfo", {})
        signed = json.loads(info.get("userMetadata") or "{}")
        if "fence" in signed:
            return TargetCommit(
                table=name,
                version=version,
                at=at,
                capture=signed["capture"],
                fence=signed["fence"],
                checkpoint=signed["checkpoint"],
                limit=signed["limit"],
            )
    return None


def _late_ones(commits: list[TargetCommit], frozen: Collection[str]) -> int:
    writers: dict[int, str] = {}
    late = highest = reached = 0
    for each in commits:
        assert writers.setdefault(each.fence, each.capture) == each.capture, each
        assert reached <= each.checkpoint < each.limit, f"{each}: the table was at {reached}"
        if each.fence < highest:
            assert each.capture in frozen, f"{each} is behind fence {highest}"
            late += 1
        highest, reached = max(highest, each.fence), each.limit
    return late
