"""Many messages walked through side by side, from one name to the next, by their quotes.

A text goes from a quote to the next one that has no backslash before it. So if a name and the quote
behind it are as expected, the next quote but one ends the value. Every byte outside the values is
compared. The values are known to be UTF-8 without control characters, and a value with a backslash
is read by Python's parser. So nothing passes that is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int64]

_QUOTE, _BACKSLASH, _COMMA, _ZERO = b'"\\,0'
_DIGITS: Final = 18  # of a number that is read here
_PLACES: Final = np.arange(_DIGITS, 0, -1, dtype=np.int64)[:, None]
_POWERS: Final = 10 ** (_PLACES[:, 0] - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """The bytes of messages, one behind the other, without control characters."""

    buffer: pa.Buffer
    data: npt.NDArray[np.uint8]
    starts: Indexes
    ends: Indexes
    quotes: Indexes  # those with no backslash before them, and one behind the end
    is_escaped: Mask  # by quote: whether a backslash stands between the one before it and it

    @staticmethod
    def of(values: pa.BinaryArray) -> Text:
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        buffer = values.buffers()[2].slice(first, last - first)
        text = np.frombuffer(buffer, np.uint8)
        bounds = offsets.astype(np.int64) - first
        escapes, is_quote = escapes_in(text), np.ones(len(text) + 1, np.bool_)
        np.equal(text, _QUOTE, out=is_quote[:-1])
        is_quote[escapes[escapes < len(text) - 1] + 1] = False
        quotes = np.flatnonzero(is_quote)
        is_escaped = np.zeros(len(quotes) if len(escapes) else 0, np.bool_)
        is_escaped[np.searchsorted(quotes, escapes)] = True
        return Text(buffer, text, bounds[:-1], bounds[1:], quotes, is_escaped)

    def has(self, piece: bytes, at: Indexes) -> Mask:
        """Where ``piece`` stands at these places."""
        count = len(self.data) - len(piece) + 1
        if count <= 0:
            return np.zeros(len(at), np.bool_)
        windows = np.ndarray(count, f"S{len(piece)}", self.data, strides=(1,))
        found: Mask = windows[np.minimum(at, count - 1)] == piece
        return found

    def quote(self, index: Indexes) -> Indexes:
        return self.quotes.take(index, mode="clip")

    def byte(self, at: Indexes) -> npt.NDArray[np.uint8]:
        return self.data.take(at, mode="clip")

    def pieces(self, bounds: Indexes) -> pa.StringArray:
        """The bytes between each of these places and the next; the places rise."""
        assert (bounds[1:] >= bounds[:-1]).all(), "Arrow would read outside of its memory"
        assert not len(bounds) or 0 <= bounds[0] <= bounds[-1] <= len(self.data)
        offsets = pa.py_buffer(bounds.astype(np.int32))
        count = max(0, len(bounds) - 1)
        return pa.Array.from_buffers(pa.string(), count, [None, offsets, self.buffer])


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """One column's values of some messages; ``begins`` and ``ends`` if there is a text."""

    text: Text
    begins: Indexes
    ends: Indexes
    is_text: Mask
    is_null: Mask
    escaped: dict[int, str]  # texts that are not as they are written

    @property
    def is_there(self) -> Mask:
        return self.is_text | self.is_null

    def take(self, rows: Indexes) -> pa.StringArray:
        """The values of messages that were read to their end; a value that is no text is null."""
        begins, ends, is_text = self.begins, self.ends, self.is_text
        if len(rows) < len(begins):
            begins, ends, is_text = begins[rows], ends[rows], is_text[rows]
        are_texts = bool(is_text.all())
        bounds = np.empty((len(begins), 2), np.int64)
        bounds[:, 0] = begins
        bounds[:, 1] = ends if are_texts else np.where(is_text, ends, begins)
        texts = self.text.pieces(bounds.ravel())
        indices = np.arange(0, 2 * len(rows), 2)
        found = texts.take(pa.array(indices, mask=None if are_texts else ~is_text))
        if not self.escaped:
            return found
        is_escaped = np.zeros(len(self.begins), np.bool_)
        is_escaped[[*self.escaped]] = True
        is_escaped = is_escaped[rows]
        texts = [self.escaped[row] for row in rows[is_escaped].tolist()]
        return pc.replace_with_mask(found, pa.array(is_escaped), pa.array(texts, pa.string()))

    def filled_from(self, others: Cells, rows: Indexes) -> Cells:
        """A missing value is taken from that row of ``others``."""
        is_there = self.is_there
        if is_there.all():
            return self
        escaped = self.escaped
        if others.escaped:
            theirs = ((n, int(rows[n])) for n in np.flatnonzero(~is_there).tolist())
            found = {n: others.escaped[row] for n, row in theirs if row in others.escaped}
            escaped = escaped | found
        return Cells(
            self.text,
            np.where(is_there, self.begins, others.begins[rows]),
            np.where(is_there, self.ends, others.ends[rows]),
            np.where(is_there, self.is_text, others.is_text[rows]),
            np.where(is_there, self.is_null, others.is_null[rows]),
            escaped,
        )


class Walk:
    """``at``: where each message goes on; ``quote``: which of the quotes is the next one;
    ``is_right``: whether all bytes up to there were as expected. If not, the rest is nonsense.

    Places only rise, and a walk beyond the last message stays there. So a walk that ends at its
    message's end has seen nothing of another message.
    """

    def __init__(self, text: Text, at: Indexes, quote: Indexes) -> None:
        self.text = text
        self.at = at
        self.quote = quote
        self.is_right = np.ones(len(at), np.bool_)

    def expect(self, piece: bytes) -> None:
        self.is_right &= self.text.has(piece, self.at)
        self.at = self.at + len(piece)
        self.quote = self.quote + piece.count(b'"')

    def part(self, rows: Indexes) -> Walk:
        return Walk(self.text, self.at[rows], self.quote[rows])

    def join(self, part: Walk, rows: Indexes) -> None:
        self.at[rows], self.quote[rows] = part.at, part.quote
        self.is_right[rows] &= part.is_right

    def cells(self, names: Sequence[str], opening: bytes = b"{") -> list[Cells]:
        """The values that have some of these names, in this order, behind a byte that begins them.
        Goes on behind the last of them."""
        first = self.at
        self.is_right &= self.text.has(opening, first)
        return [self._cell(f'"{name}":'.encode(), first) for name in names]

    def _cell(self, name: bytes, first: Indexes) -> Cells:
        text, at = self.text, self.at
        is_text = text.has(name + b'"', at + 1)
        is_null = np.zeros(len(at), np.bool_)
        is_apart = (text.byte(at) == _COMMA) | (at == first)
        begins, last = at + (len(name) + 2), self.quote + 3
        ends = text.quote(last)
        if is_text.all():
            self.is_right &= is_apart
            self.at, self.quote = ends + 1, self.quote + 4
        else:
            is_null = text.has(name + b"null", at + 1)
            self.is_right &= is_apart | ~(is_text | is_null)
            self.at = np.where(is_text, ends + 1, np.where(is_null, begins + 3, at))
            self.quote = self.quote + np.where(is_text, 4, np.where(is_null, 2, 0))
            begins = np.where(is_text, begins, at)
        escaped = {}
        if len(text.is_escaped):
            is_escaped = self.is_right & is_text & text.is_escaped.take(last, mode="clip")
            escaped = self._unescaped(begins, ends, np.flatnonzero(is_escaped))
        return Cells(text, begins, ends, is_text, is_null, escaped)

    def _unescaped(self, begins: Indexes, ends: Indexes, at: Indexes) -> dict[int, str]:
        """The texts of these rows, which have a backslash. A row whose text is none is not
        right."""
        whole, rows = memoryview(self.text.buffer), at.tolist()
        bounds = zip(begins[at].tolist(), ends[at].tolist(), strict=True)
        texts = [whole[begin:end] for begin, end in bounds]
        try:
            return dict(zip(rows, _loaded(texts), strict=True))
        except ValueError:
            found = {}
            for row, text in zip(rows, texts, strict=True):
                try:
                    (found[row],) = _loaded([text])
                except ValueError:
                    self.is_right[row] = False
            return found

    def number(self, ends: Indexes, *, may_be_zero: bool = False) -> Indexes:
        """A number above zero up to there, of at most 18 digits."""
        width = ends - self.at
        digits = self.text.byte(ends - _PLACES) - np.uint8(_ZERO)
        digits[width < _PLACES] = 0
        self.is_right &= (width > 0) & (width <= _DIGITS) & (digits <= 9).all(axis=0)
        begins_right = self.text.byte(self.at) != _ZERO
        self.is_right &= begins_right | (width == 1) if may_be_zero else begins_right
        self.at = ends
        found: Indexes = _POWERS @ digits
        return found


def _loaded(texts: Sequence[memoryview]) -> list[str]:
    """The meaning of texts that stand between quotes. Raises ValueError, also for half a surrogate
    pair."""
    if not texts:
        return []
    found: list[str] = json.loads(b'["' + b'","'.join(texts) + b'"]')
    "".join(found).encode()
    return found


def escapes_in(text: npt.NDArray[np.uint8]) -> Indexes:
    """Among backslashes side by side, every other one, from the first."""
    at = np.flatnonzero(text == _BACKSLASH)
    if not len(at):
        return at
    is_first = np.diff(at, prepend=-2) != 1
    place = np.arange(len(at)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    escapes: Indexes = at[place % 2 == 0]
    return escapes
