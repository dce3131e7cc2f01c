"""Tombstones that can be forgotten, since nothing depends on them.

A table of 30 busy files with two commits a second gets five million tombstones a day, and each of
them is in every checkpoint. Nearly all are of one kind: the data file is still live, under a newer
vector, and the older vector was in force for seconds only. Such a tombstone only protects the older
vector's ``.bin`` file from being deleted within retention. But the age of that file protects it
nearly as long: our clean-up and Spark's VACUUM leave files alone that are younger than the
retention. The tombstone of a live file without a vector, or with an inline one, protects nothing.

To forget them, two facts are remembered that the log does not repeat: since when each vector has
been in force, and which ``.bin`` files were left when (so that they can be deleted without a
listing). After a start both are unknown: then tombstones are kept, and files found by a listing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field

from sinks.merge_on_write.log.actions import DataFile, Tombstone
from sinks.merge_on_write.log.deletion_vector import file_of

WITHIN_MS = 60_000  # a tombstone is forgotten if its vector was in force no longer than this
MOST_FILES = 200_000  # that are remembered; older ones are found by a listing of the folder


@dataclass(slots=True)
class ExpendableTombstones:
    """Not thread-safe: it is part of a ``LogState``. ``left``: (time of the commit, ``.bin``)."""

    since_ms: dict[str, tuple[str, int]] = field(default_factory=dict)  # path: (vector, commit)
    left: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MOST_FILES))

    def may_forget(self, tombstone: Tombstone, now_ms: int, within_ms: int) -> bool:
        """Whether the tombstone can be forgotten; its data file must be live, with another vector.
        If so, the vector's file is remembered as left."""
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
        """Note a commit's changes. Call it after `may_forget` was asked for its tombstones."""
        for each in removes:
            self.since_ms.pop(each.path, None)
        for file in added:
            if file.vector_id is not None:
                self.since_ms[file.path] = (file.vector_id, now_ms)

    def left_before(self, cutoff_ms: int) -> Iterator[str]:
        """The files that were left before this time; they are not remembered any more. A file may
        come more than once, the last time about ``WITHIN_MS`` after the first."""
        while self.left and self.left[0][0] < cutoff_ms:
            yield self.left.popleft()[1]

    def copy(self) -> ExpendableTombstones:
        twin = copy(self)
        twin.since_ms = dict(self.since_ms)
        twin.left = deque(self.left, maxlen=MOST_FILES)
        return twin
