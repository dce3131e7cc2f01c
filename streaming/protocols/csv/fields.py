"""Where the rows of a csv file begin and end, and their fields. Pure, in numpy: no byte is looked
at by itself.

    with a quote    "I","orders","shop",4706…,"a, b"     a line's end or a delimiter counts outside
    without one     I|orders|shop|4706…|a \\| b           a backslash stands before one in a value
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_LF, _CR, BACKSLASH = b"\n\r\\"
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """``begins``, ``ends``: of each row, without its line's end; ``nexts``: where the next one
    begins. ``delimiters``: all that count, of all rows, in their order. ``escapes``: of the format
    without a quote the backslashes that stand before a character."""

    data: Bytes
    begins: Indexes
    ends: Indexes
    nexts: Indexes
    delimiters: Indexes
    escapes: Indexes

    def __len__(self) -> int:
        return len(self.begins)

    def part(self, first: int, last: int) -> Rows:
        return Rows(
            self.data,
            self.begins[first:last],
            self.ends[first:last],
            self.nexts[first:last],
            self.delimiters,
            self.escapes,
        )

    def first_fields(self, row: int, count: int, width: int) -> list[bytes]:
        """So many fields of one row, as they stand; fewer if it has no more."""
        first = int(np.searchsorted(self.delimiters, self.begins[row]))
        inner = self.delimiters[first : first + count]
        inner = inner[inner < self.ends[row]].tolist()
        bounds = [int(self.begins[row]), *(each + width for each in inner)]
        ends = [*inner, int(self.ends[row])]
        pairs = zip(bounds, ends, strict=True)
        return [self.data[low:high].tobytes() for low, high in pairs][:count]

    def fields(self, count: int, width: int) -> tuple[Mask, Indexes, Indexes]:
        """Which rows have so many fields, and where the fields of those begin and end, by row and
        field. ``width``: of a delimiter."""
        first = np.searchsorted(self.delimiters, self.begins)
        last = np.searchsorted(self.delimiters, self.nexts)
        fits = last - first == count - 1
        at = first[fits][:, None] + np.arange(count - 1)
        inner = self.delimiters[at] if count > 1 else at
        begins = np.concatenate([self.begins[fits][:, None], inner + width], axis=1)
        ends = np.concatenate([inner, self.ends[fits][:, None]], axis=1)
        return fits, begins, ends


def rows_of(data: Bytes, delimiter: bytes, quote: int | None, *, is_whole: bool) -> Rows:
    """The rows of a text that begins with one. ``is_whole``: what stands behind the last line's end
    is a row too."""
    lines = data == _LF
    if quote is not None:
        outside = (np.cumsum(data == quote, dtype=np.uint8) & 1) == 0
        lines &= outside
    nexts = np.flatnonzero(lines).astype(np.int64) + 1
    if is_whole and len(data) and (not len(nexts) or nexts[-1] < len(data)):
        nexts = np.append(nexts, len(data))
    begins = np.concatenate([[0], nexts[:-1]]).astype(np.int64) if len(nexts) else _NONE
    ends = nexts.copy()
    for end_of_line in (_LF, _CR):
        ends -= (data[np.maximum(ends - 1, 0)] == end_of_line) & (ends > begins)
    found = data == delimiter[0]
    if quote is not None:
        found &= outside
    delimiters = np.flatnonzero(found).astype(np.int64)
    escapes = _NONE
    if quote is None:
        escapes = escapes_in(data)
        delimiters = delimiters[~np.isin(delimiters, escapes + 1, assume_unique=True)]
    delimiters = _whole(data, delimiters, delimiter)
    return Rows(data, begins, ends, nexts, delimiters, escapes)


def escapes_in(data: Bytes) -> Indexes:
    """The backslashes that stand before a character: of a run of them every second one."""
    found = np.flatnonzero(data == BACKSLASH).astype(np.int64)
    if not len(found):
        return found
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = np.diff(found) > 1
    begin = np.maximum.accumulate(np.where(is_first, np.arange(len(found)), 0))
    kept: Indexes = found[(np.arange(len(found)) - begin) % 2 == 0]
    return kept


def _whole(data: Bytes, found: Indexes, delimiter: bytes) -> Indexes:
    """The places where the whole delimiter stands; none within another."""
    if len(delimiter) == 1:
        return found
    found = found[found + len(delimiter) <= len(data)]
    for behind, byte in enumerate(delimiter):
        found = found[data[found + behind] == byte]
    kept, free = [], 0
    for at in found.tolist() if (np.diff(found) < len(delimiter)).any() else ():
        if at >= free:
            kept.append(at)
            free = at + len(delimiter)
    return np.array(kept, np.int64) if kept else found
