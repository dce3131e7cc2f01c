"""Decides which files of a table to fold into one. Pure: no I/O.

Every commit adds a small file, and deletes empty the large ones. Files of one size class are folded
when there are ``FAN_OUT`` of them, so that a row is written again only once for each class that it
climbs. A file of which a large part is deleted is written anew too. So is one "in debt": its
vectors have cost as many bytes as the file has. Each commit that hits a file writes its whole
vector again, two bytes for each deleted row, and a new file begins without a vector. This rule
costs at most twice the optimum, however the commits come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FAN_OUT = 6  # with ten, tables have a quarter more files, and a few bytes less are written
MAX_DEAD = 1 / 3  # of a file's rows: so a full scan reads at most half as much again as needed
MIN_DEBT_BYTES = 4 * 1024 * 1024  # vectors of fewer bytes do not count as a debt
MIN_DEAD_BYTES = 4 * 1024 * 1024  # less is not worth a commit, and goes when the class is folded
SMALLEST_CLASS_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldCandidate:
    path: str
    size: int  # bytes
    rows: int  # physical rows, deleted ones included
    live: int
    vector_bytes: int = 0  # of all the vectors that this process has written for it

    @property
    def live_bytes(self) -> int:
        """About how large the file would be if it were written anew, in bytes."""
        return self.size * self.live // self.rows if self.rows else 0

    @property
    def is_largely_dead(self) -> bool:
        dead_bytes = self.size - self.live_bytes
        return dead_bytes >= MIN_DEAD_BYTES and self.rows - self.live > MAX_DEAD * self.rows

    @property
    def is_in_debt(self) -> bool:
        return self.live < self.rows and self.vector_bytes >= max(self.size, MIN_DEBT_BYTES)


def choose(files: Iterable[FoldCandidate], *, target_bytes: int, most_bytes: int) -> Sequence[str]:
    """The paths of the files to fold next, of the smallest class that needs it; empty where none
    does.

    ``target_bytes``: a file of this size is not folded any more, unless it is largely dead or in
    debt. ``most_bytes`` limits what one fold reads, so that a commit never waits long for it.
    """
    by_class: dict[int, list[FoldCandidate]] = {}
    dead: list[FoldCandidate] = []
    for file in files:
        if file.is_largely_dead or file.is_in_debt:
            dead.append(file)
        elif file.live_bytes < target_bytes:
            by_class.setdefault(_class_of(file.live_bytes), []).append(file)
    for number in sorted(by_class):
        members = by_class[number]
        if len(members) >= FAN_OUT:
            return _within(members, most_bytes)
    return _within(sorted(dead, key=lambda file: file.live / file.rows), most_bytes, at_least=1)


def _class_of(size: int) -> int:
    """The size class: 0 up to `SMALLEST_CLASS_BYTES`, then one more for each factor of FAN_OUT."""
    return max(0, math.ceil(math.log(max(size, 1) / SMALLEST_CLASS_BYTES, FAN_OUT)))


def _within(files: list[FoldCandidate], most_bytes: int, at_least: int = 2) -> Sequence[str]:
    """The first files, up to ``most_bytes``: at least ``at_least`` of them, or none."""
    found: list[str] = []
    total = 0
    for file in files:
        if len(found) >= at_least and total + file.size > most_bytes:
            break
        found.append(file.path)
        total += file.size
    return found if len(found) >= at_least else ()
