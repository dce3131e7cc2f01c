"""Tombstones that say nothing which is not known otherwise, and so need not be kept.

A table of 30 busy files that is committed to twice a second leaves five million tombstones a day,
each of them in every checkpoint. All but a few are of this kind: the data file is still live, under
a newer vector, and the older vector was in force for seconds only. What such a tombstone protects
is the vector's ``.bin``, until the retention is over. But so does the age of that file, nearly as
long: whoever cleans up (we and Spark's VACUUM) leaves files alone that are younger than the
retention. A live file's tombstone without vector, or with an inline one, protects nothing at all.

For that, two things are remembered that the log does not repeat: since when each vector is in
force, and which ``.bin`` files were left when (they are deleted without being looked for). After a
start both are unknown: such tombstones are kept, such files found by listing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field

from sinks.merge_on_write.actions import DataFile, Tombstone
from sinks.merge_on_write.deletion_vector import file_of

WITHIN_MS = 60_000  # for how long a vector may have been in force, to be forgotten
MOST_FILES = 200_000  # remembered; of older ones a listing of the folder remains


@dataclass(slots=True)
class Forgotten:
    """One owner, as the state that it belongs to."""

    since_ms: dict[str, tuple[str, int]] = field(default_factory=dict)  # path: (vector, commit)
    left: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MOST_FILES))

    def may_forget(self, tombstone: Tombstone, now_ms: int, within_ms: int) -> bool:
        """Whether nothing is lost with the tombstone of a file that is live in another form."""
        vector = tombstone.deletion_vector
        if vector is None or vector.storage_type == "i":
            return True
        vector_id, since_ms = self.since_ms.get(tombstone.path, ("", 0))
        if vector.storage_type != "u" or vector_id != vector.unique_id:
            return False
        if now_ms - since_ms > within_ms:
            return False
        path = file_of(vector)
        if path is not None and (not self.left or self.left[-1] != (now_ms, path)):
            self.left.append((now_ms, path))
        return True

    def note(self, removes: Iterable[Tombstone], added: Iterable[DataFile], now_ms: int) -> None:
        """What a commit has changed; after its tombstones were asked for."""
        for each in removes:
            self.since_ms.pop(each.path, None)
        for file in added:
            if file.vector_id is not None:
                self.since_ms[file.path] = (file.vector_id, now_ms)

    def left_before(self, cutoff_ms: int) -> Iterator[str]:
        """The files that were left longer ago; they are forgotten for good. A file may come more
        than once, the last time within ``WITHIN_MS`` or so of the first."""
        while self.left and self.left[0][0] < cutoff_ms:
            yield self.left.popleft()[1]

    def copy(self) -> Forgotten:
        twin = copy(self)
        twin.since_ms = dict(self.since_ms)
        twin.left = deque(self.left, maxlen=MOST_FILES)
        return twin
