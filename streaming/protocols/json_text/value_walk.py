"""Many texts whose values may be of any kind: texts, numbers, truth values and nulls, read side by
side.

A number has no mark where it ends: it goes to where the next name begins, less what stands
between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.json_text.quote_scanner import Cells, Indexes, Mask, Text, Walk

# From texts (null: a null) and which of them are no texts in JSON, to cells and which are none
# (None: all are good).
Read = Callable[[pa.StringArray, Mask], tuple[pa.StringArray, Mask | None]]


_FEW: Final = 500  # values that one pattern tells sooner than several functions
_COMMA, _QUOTE, _N = b',"n'
_NULL: Final = b"null"
NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_BARE: Final = rf"^(?:{NUMBER}|true|false)$"


def no_values(texts: pa.StringArray, is_bare: Mask) -> Mask | None:
    """Which are no value of JSON; None: all are one."""
    if not is_bare.any():
        return None
    bare = texts if is_bare.all() else texts.filter(pa.array(is_bare))
    is_quick = len(bare) > _FEW and pc.all(pc.ascii_is_decimal(bare)).as_py()
    if is_quick and not _has_zero_before(bare):
        return None
    good = pc.match_substring_regex(bare, _BARE)
    if pc.all(good).as_py():
        return None
    found = np.zeros(len(texts), np.bool_)
    found[is_bare] = ~good.to_numpy(zero_copy_only=False)
    return found


def _has_zero_before(digits: pa.StringArray) -> bool:
    """Whether some number of more than one digit begins with a zero."""
    is_zero = pc.and_(pc.starts_with(digits, "0"), pc.greater(pc.binary_length(digits), 1))
    return bool(pc.any(is_zero).as_py())


@dataclass(frozen=True, slots=True)
class Value:
    """``is_bare``: numbers and truth values, also what is neither."""

    cells: Cells
    is_bare: Mask

    @property
    def is_other(self) -> Mask:
        """Which are no texts."""
        return self.is_bare | self.cells.is_null

    def read(self, rows: Indexes, reader: Read | None) -> tuple[pa.StringArray, Mask | None]:
        """The cells of these rows, and which are none."""
        texts, is_bare = self.cells.take(rows), self.is_bare[rows]
        return (texts, no_values(texts, is_bare)) if reader is None else reader(texts, is_bare)

    def wrong(self, rows: Indexes, reader: Read | None) -> Mask | None:
        """Which of these are none, of cells that nobody wants."""
        if reader is None and not self.is_bare.any():
            return None
        return self.read(rows, reader)[1]


class ValueWalk(Walk):
    """``ends``: of each row."""

    def __init__(self, text: Text, at: Indexes, quote: Indexes, ends: Indexes) -> None:
        super().__init__(text, at, quote)
        self.ends = ends

    def narrowed(self, rows: Indexes) -> ValueWalk:
        return ValueWalk(self.text, self.at[rows], self.quote[rows], self.ends[rows])

    def bare_end(self, following: bytes) -> Indexes:
        """Where a value that is no text ends, if this follows."""
        behind = following.find(b'"')
        if behind < 0:
            return self.ends - len(following)
        return self.text.quote(self.quote) - behind

    def value(self, following: bytes) -> Value:
        """Goes on behind it."""
        text, at = self.text, self.at
        first = text.byte(at)
        is_text = first == _QUOTE
        escaped = dict[int, str]()
        if are_bare := not is_text.any():
            begins, ends = at, self.bare_end(following)
            self.at = ends
        else:
            last = self.quote + 1
            begins, ends = at + 1, text.quote(last)
            self.at = ends + 1
            if are_texts := bool(is_text.all()):
                self.quote = self.quote + 2
            else:
                bare = self.bare_end(following)
                begins = np.where(is_text, begins, at)
                ends = np.where(is_text, ends, bare)
                self.at = np.where(is_text, self.at, bare)
                self.quote = np.where(is_text, self.quote + 2, self.quote)
            if len(text.is_escaped):
                is_escaped = self.is_right & is_text & text.is_escaped.take(last, mode="clip")
                rows = np.flatnonzero(is_escaped)
                escaped = self._unescaped(begins, ends, rows)
            if are_texts:
                none = np.zeros(len(at), np.bool_)
                return Value(Cells(text, begins, ends, is_text, none, escaped), none)
        is_null = first == _N
        if is_null.any():
            is_null &= text.has(_NULL, at) & (ends - at == len(_NULL))
        self.is_right &= ends > begins if are_bare else is_text | (ends > begins)
        cells = Cells(text, begins, ends, ~is_null, is_null, escaped)
        return Value(cells, ~is_null & ~is_text)

    def member(self, name: bytes, first: Indexes) -> Value:
        """The value of a member of an object that begins at ``first`` and ends its message, of
        which each row may lack some. Goes on behind it where it is there."""
        text, at = self.text, self.at
        is_named = text.has(name, at + 1) & ((text.byte(at) == _COMMA) | (at == first))
        begins, quote = at + (1 + len(name)), self.quote + name.count(b'"')
        letters = text.byte(begins)
        is_text = letters == _QUOTE
        last, following = quote + 1, text.quote(quote)
        bare = np.where(following < self.ends, following - 1, self.ends - 2)
        ends = np.where(is_text, text.quote(last), bare)
        begins = np.where(is_text, begins + 1, begins)
        escaped = dict[int, str]()
        if len(text.is_escaped):
            is_escaped = text.is_escaped.take(last, mode="clip")
            rows = np.flatnonzero(self.is_right & is_named & is_text & is_escaped)
            escaped = self._unescaped(begins, ends, rows)
        is_null = ~is_text & (letters == _N)
        if is_null.any():
            is_null &= text.has(_NULL, begins) & (ends - begins == len(_NULL))
        self.is_right &= ~is_named | is_text | (ends > begins)
        self.at = np.where(is_named, np.where(is_text, ends + 1, ends), at)
        self.quote = np.where(is_named, np.where(is_text, quote + 2, quote), self.quote)
        is_there = is_named & ~is_null
        begins = np.where(is_there, begins, at)
        cells = Cells(text, begins, ends, is_there, is_named & is_null, escaped)
        return Value(cells, is_there & ~is_text)
