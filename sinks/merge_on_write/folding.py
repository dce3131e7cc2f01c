"""Which files to write anew as one: a decision without I/O.

Every commit adds a small file, and vectors make large ones emptier. Files of one size class are
folded when there are ``FAN_OUT`` of them, so that a row is written again only once for each class
that it climbs; a file that is largely dead is written anew by itself or with its class. So is one
whose vectors have cost as many bytes as the file has: each commit that hits it writes its whole
vector again, two bytes for each row that is dead, and a new file begins with none. That costs twice
the least that can be had, however the commits come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FAN_OUT = 6  # with ten a reader finds a quarter more files, for a few bytes less
MAX_DEAD = 1 / 3  # of a file's rows: a full scan reads at most half as much again
MIN_DEBT_BYTES = 4 * 1024 * 1024  # of vectors, as for the dead rows of a file
MIN_DEAD_BYTES = 4 * 1024 * 1024  # less is not worth a commit: it goes when its class is folded
SMALLEST_CLASS_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldCandidate:
    path: str
    size: int  # bytes
    rows: int  # physical ones
    live: int
    vector_bytes: int = 0  # written for it by this process, all its vectors together

    @property
    def live_bytes(self) -> int:
        """About what the file would be, written anew."""
        return self.size * self.live // self.rows if self.rows else 0

    @property
    def is_largely_dead(self) -> bool:
        dead_bytes = self.size - self.live_bytes
        return dead_bytes >= MIN_DEAD_BYTES and self.rows - self.live > MAX_DEAD * self.rows

    @property
    def is_in_debt(self) -> bool:
        return self.live < self.rows and self.vector_bytes >= max(self.size, MIN_DEBT_BYTES)


def choose(files: Iterable[FoldCandidate], *, target_bytes: int, most_bytes: int) -> Sequence[str]:
    """The paths of the next fold, the least class first; empty where all is well.

    ``target_bytes``: a file of this size is folded no more, unless it is largely dead or in debt.
    ``most_bytes`` bounds what one fold reads, so that a commit never waits long for it.
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
    """0 for all that is tiny, then one more for each factor of FAN_OUT."""
    return max(0, math.ceil(math.log(max(size, 1) / SMALLEST_CLASS_BYTES, FAN_OUT)))


def _within(files: list[FoldCandidate], most_bytes: int, at_least: int = 2) -> Sequence[str]:
    """As many as fit; at least so many, else none."""
    found: list[str] = []
    total = 0
    for file in files:
        if len(found) >= at_least and total + file.size > most_bytes:
            break
        found.append(file.path)
        total += file.size
    return found if len(found) >= at_least else ()
