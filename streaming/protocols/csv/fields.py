"""Where the rows of a csv file begin and end, and their fields. Pure, in numpy: no byte is looked
at by itself.

    with a quote    "I","orders","shop",4706…,"a, b"     a line's end or a delimiter counts outside
    without one     I|orders|shop|4706…|a \\| b           a backslash stands before one in a value
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from streaming.protocols.csv.quotes import Quotes
from streaming.protocols.json_text.byte_places import Bytes, Indexes, bits_of, places, places_of

Mask = npt.NDArray[np.bool_]
_LF, _CR, BACKSLASH = b"\n\r\\"
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Marks:
    """The delimiters that count, of a whole text: they are looked for where somebody asks."""

    text: bytes
    delimiter: bytes
    quote: int | None

    @cached_property
    def data(self) -> Bytes:
        return np.frombuffer(self.text, np.uint8)

    @cached_property
    def quotes(self) -> Quotes:
        """The text must have quotes."""
        assert self.quote is not None
        delimiter = self.delimiter[0] if len(self.delimiter) == 1 else None
        first = self.text.find(b"\n")
        has_cr = first > 0 and self.text[first - 1] == _CR
        return Quotes.of(self.data, self.quote, delimiter, has_cr=has_cr)

    @property
    def lines(self) -> Indexes:
        """The ends of lines that count."""
        return places_of(self.data, _LF) if self.quote is None else self.quotes.lines

    @cached_property
    def delimiters(self) -> Indexes:
        found = bits_of(self.data, self.delimiter[0])
        if self.quote is not None:
            found &= ~self.quotes.inside
        at = places(found)
        if self.quote is None:
            at = at[~np.isin(at, escapes_in(self.data) + 1, assume_unique=True)]
        return _whole(self.data, at, self.delimiter)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """``begins``, ``ends``: of each row, without its line's end; ``nexts``: where the next one
    begins. ``odd``: quotes of the text that its writer has not set (see ``quotes``); of a delimiter
    of one byte. ``is_cut``: the last row has no line's end."""

    marks: Marks
    begins: Indexes
    ends: Indexes
    nexts: Indexes
    odd: Indexes
    is_cut: bool = False

    @property
    def data(self) -> Bytes:
        return self.marks.data

    @property
    def delimiters(self) -> Indexes:
        return self.marks.delimiters

    def __len__(self) -> int:
        return len(self.begins)

    def part(self, first: int, last: int) -> Rows:
        of = slice(first, last)
        is_cut = self.is_cut and last == len(self)
        return Rows(self.marks, self.begins[of], self.ends[of], self.nexts[of], self.odd, is_cut)

    def first_fields(self, row: int, count: int) -> list[bytes]:
        """So many fields of one row, as they stand; fewer if it has no more."""
        text = self.marks.text[self.begins[row] : self.ends[row]]
        inner = Marks(text, self.marks.delimiter, self.marks.quote).delimiters[:count].tolist()
        begins = [0, *(each + len(self.marks.delimiter) for each in inner)]
        pairs = zip(begins, [*inner, len(text)], strict=True)
        return [text[low:high] for low, high in pairs][:count]

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


def rows_of(text: bytes, delimiter: bytes, quote: int | None, *, is_whole: bool) -> Rows:
    """The rows of a text that begins with one. ``is_whole``: what stands behind the last line's end
    is a row too."""
    marks = Marks(text, delimiter, quote)
    data = marks.data
    nexts = marks.lines + 1
    is_cut = bool(is_whole and len(data) and (not len(nexts) or nexts[-1] < len(data)))
    if is_cut:
        nexts = np.append(nexts, len(data))
    begins = np.concatenate([[0], nexts[:-1]]).astype(np.int64) if len(nexts) else _NONE
    ends = nexts.copy()
    for end_of_line in (_LF, _CR):
        ends -= (data[np.maximum(ends - 1, 0)] == end_of_line) & (ends > begins)
    odd = _NONE if quote is None else marks.quotes.odd
    return Rows(marks, begins, ends, nexts, odd, is_cut)


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
