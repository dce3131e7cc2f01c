"""The files of one part, in their order: a log that grows at its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from coordination.model import SEALED_TS
from streaming.source.storage.layout import Packing, Place


@dataclass(frozen=True, slots=True)
class Known:
    """A file as it was listed."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of a file that are to be read, from ``begin`` to before ``end``. ``size``: the file's.
    ``is_last``: no file of the part comes behind it yet, so that it may still grow."""

    place: Place
    path: str
    begin: int
    end: int
    size: int
    is_last: bool


class PartLog:
    """For one thread at a time."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._places: list[Place] = []
        self._files: dict[Place, Known] = {}
        self._has_gap = False
        self._total: list[int] | None = None  # bytes before each file
        # The least commit-ts of files, with the sizes for which they are known.
        self._first_ts: dict[Place, tuple[int, int]] = {}
        self._least: list[int] | None = None  # of each file and all behind it
        # Where a row of the last file is not whole yet: the file's size then, and its beginning.
        self._tail: tuple[Place, int, int] | None = None

    @property
    def has_gap(self) -> bool:
        """Whether a file may be missing between others."""
        return self._has_gap

    def put(self, place: Place, known: Known) -> bool:
        """Whether this is news."""
        before = self._files.get(place)
        if before == known:
            return False
        if before is None:
            if not self._places or place > self._places[-1]:
                self._has_gap |= bool(self._places) and not _follows(self._places[-1], place)
                self._places.append(place)
            else:
                self._has_gap = True
                self._places.insert(bisect_left(self._places, place), place)
        self._files[place] = known
        self._total = self._least = None
        return True

    @property
    def first_place(self) -> Place:
        return self._places[0]

    @property
    def first(self) -> Known:
        return self._files[self._places[0]]

    @property
    def is_one_file(self) -> bool:
        return len(self._places) == 1

    @property
    def last(self) -> Known:
        return self._files[self._places[-1]]

    @property
    def beginning(self) -> int:
        return self._packing.position(self._places[0], 0)

    @property
    def end(self) -> int:
        """Before a row that is not whole."""
        place = self._places[-1]
        size = self._files[place].size
        if self._tail is not None and self._tail[:2] == (place, size):
            size = self._tail[2]
        return self._packing.position(place, size)

    def cut_at(self, place: Place, size: int, at: int) -> None:
        """From ``at`` on the file, while it has this size, has no whole row."""
        self._tail = place, size, at

    def path_of(self, place: Place) -> str | None:
        found = self._files.get(place)
        return None if found is None else found.path

    def size_of(self, place: Place) -> int:
        """0 where there is no such file."""
        found = self._files.get(place)
        return 0 if found is None else found.size

    def gone_before(self, now: PartLog | None) -> int:
        """Where the last file ends that is not there ``now``, which was listed later; 0: all are
        there."""
        for place in reversed(self._places):
            if now is None or place not in now._files:
                is_last = place == self._places[-1]
                return self.end if is_last else self._packing.position(place, self.size_of(place))
        return 0

    def note_ts(self, place: Place, size: int, least_ts: int) -> None:
        """The least commit-ts of a file of this size."""
        self._first_ts[place] = size, least_ts
        self._least = None

    def take_notes(self, before: PartLog) -> None:
        """What was noted in an earlier log of the same part counts here."""
        self._first_ts, self._least = dict(before._first_ts), None

    def unnoted(self, position: int) -> list[Place]:
        """The files from a position on whose least commit-ts is not known."""
        return [each for each in self._places[self._unread(position) :] if not self._ts(each)]

    def least_ts(self, position: int) -> int:
        """All rows from the position on have this commit-ts or a greater one; 0: not known."""
        if not self._first_ts:
            return 0
        if self._least is None:
            least = SEALED_TS
            self._least = [least := min(least, self._ts(each)) for each in reversed(self._places)]
            self._least.reverse()
        at = self._unread(position)
        return self._least[at] if at < len(self._least) else SEALED_TS

    def _ts(self, place: Place) -> int:
        size, ts = self._first_ts.get(place, (-1, 0))
        return ts if size == self._files[place].size else 0

    def _unread(self, position: int) -> int:
        """The number of the first file that has something behind the position."""
        place, offset = self._packing.place(position)
        at = bisect_left(self._places, place)
        is_there = at < len(self._places) and self._places[at] == place
        return at + (is_there and offset >= self._files[place].size)

    def bytes_before(self, position: int) -> int:
        """The bytes of all files before a position."""
        if self._total is None:
            self._total = [0]
            for each in self._places:
                self._total.append(self._total[-1] + self._files[each].size)
        place, offset = self._packing.place(position)
        at = bisect_left(self._places, place)
        is_there = at < len(self._places) and self._places[at] == place
        return self._total[at] + (offset if is_there else 0)

    def missing(self, position: int) -> Place | None:
        """The first file that is gone of those from the position on; None: all are there."""
        place, offset = self._packing.place(position or self.beginning)
        at = bisect_left(self._places, place)
        before = place
        if at < len(self._places) and self._places[at] == place:
            at += 1
        elif offset == 0 and at < len(self._places):
            return place
        until = None if self._has_gap else at + 1
        for each in self._places[at:until]:
            if not _follows(before, each):
                return Place(each.day, before.index + 1 if each.day == before.day else 1)
            before = each
        return None

    def slices(self, begin: int, end: int) -> Iterator[Slice]:
        """All that lies between two positions."""
        (first, at), (last, until) = self._packing.place(begin), self._packing.place(end)
        for number in range(bisect_left(self._places, first), len(self._places)):
            place = self._places[number]
            if place > last:
                return
            known = self._files[place]
            low = at if place == first else 0
            high = until if place == last else known.size
            if low < high:
                is_last = number == len(self._places) - 1
                yield Slice(place, known.path, low, high, known.size, is_last)


def _follows(before: Place, place: Place) -> bool:
    """Whether there is no file between them. Numbers begin again with each date."""
    if place.day == before.day:
        return place.index <= before.index + 1
    return place.index == 1
