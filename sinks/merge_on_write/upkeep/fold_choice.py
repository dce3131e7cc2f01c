"""Decides which files of a table to fold into one. Pure: no I/O.

Every commit adds a small file, and deletes empty the large ones. Files of one size class are folded
when there are ``FAN_OUT`` of them. So a row is written again only once for each class that it
climbs. A file that is half full stays as it is. A file with a large deleted part is written anew
too. So is a file "in debt": its vectors have cost as many bytes as the file has. Each commit that
hits a file writes its whole vector again, two bytes for each deleted row, and a new file begins
without a vector. This rule costs at most twice the optimum, however the commits come.

While rows wait to be written, folds that only make reading cheaper are put off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sinks.merge_on_write.files.sorted_files import MAX_FILE_ROWS, MAX_GATHERED_BYTES

# A full file, by what it has most of. Were rows counted as less than `write_sorted` cuts a file at,
# six files would be folded into six.
FULL_BYTES = 64 * 1024 * 1024
FULL_ROWS = MAX_FILE_ROWS
FULL_MEMORY_BYTES = MAX_GATHERED_BYTES
FAN_OUT = 6  # with ten, tables have a quarter more files, and a few bytes less are written
# While rows wait: to look for keys in one more file costs a commit half a millisecond, to fold it
# as much as the commit itself. A large table's own files are not to be folded amid a backlog.
PRESSED_FAN_OUT = 200
MAX_DEAD = 1 / 3  # of a file's rows: so a full scan reads at most half as much again as needed
MIN_DEBT_BYTES = 4 * 1024 * 1024  # vectors of fewer bytes do not count as a debt
MIN_DEAD_BYTES = 4 * 1024 * 1024  # less is not worth a commit, and goes when the class is folded
_SMALLEST_CLASS = 1 / 1024  # of a full file


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldCandidate:
    path: str
    size: int  # bytes
    rows: int  # physical rows, deleted ones included
    live: int
    vector_bytes: int = 0  # of all the vectors that this process has written for it
    memory_bytes: int = 0  # that its rows take in Arrow; 0: not known

    @property
    def live_bytes(self) -> int:
        """About how large the file would be if it were written anew, in bytes."""
        return self.size * self.live // self.rows if self.rows else 0

    @property
    def fullness(self) -> float:
        """How much of a full file it would be then."""
        memory_bytes = self.memory_bytes * self.live / self.rows if self.rows else 0
        return max(
            self.live_bytes / FULL_BYTES,
            self.live / FULL_ROWS,
            memory_bytes / FULL_MEMORY_BYTES,
        )

    @property
    def is_largely_dead(self) -> bool:
        dead_bytes = self.size - self.live_bytes
        return dead_bytes >= MIN_DEAD_BYTES and self.rows - self.live > MAX_DEAD * self.rows

    @property
    def is_in_debt(self) -> bool:
        return self.live < self.rows and self.vector_bytes >= max(self.size, MIN_DEBT_BYTES)


def choose(files: Iterable[FoldCandidate], *, rows_wait: bool = False) -> Sequence[str]:
    """The paths of the files to fold next, of the smallest class that needs it; empty if no class
    does. Together they make one full file at the most, so a commit never waits long for a fold, and
    memory is bounded. A file that is written anew by itself may be larger.

    ``rows_wait``: whether rows wait to be written.
    """
    by_class: dict[int, list[FoldCandidate]] = {}
    anew: list[FoldCandidate] = []
    for file in files:
        if file.is_in_debt or (file.is_largely_dead and not rows_wait):
            anew.append(file)
        elif (fullness := file.fullness) < 1 / 2:
            by_class.setdefault(_class_of(fullness), []).append(file)
    for number in sorted(by_class):
        members = by_class[number]
        if len(members) >= (PRESSED_FAN_OUT if rows_wait else FAN_OUT):
            return one_file_of(members, at_least=2)
    return one_file_of(sorted(anew, key=lambda file: file.live / file.rows), at_least=1)


def _class_of(fullness: float) -> int:
    """The size class: 0 up to `_SMALLEST_CLASS`, then one more for each factor of FAN_OUT."""
    if fullness <= _SMALLEST_CLASS:
        return 0
    return math.ceil(math.log(fullness / _SMALLEST_CLASS, FAN_OUT))


def one_file_of(files: Iterable[FoldCandidate], *, at_least: int) -> Sequence[str]:
    """The first files, as many as go into one, but ``at_least`` so many."""
    found: list[str] = []
    total = 0.0
    for file in files:
        total += file.fullness
        if len(found) >= at_least and total > 1:
            break
        found.append(file.path)
    return found
