"""The fields of csv rows as Arrow columns. Pure."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conf.sources.csv_format import CsvFormat
from sinks.types.casts.base64_texts import cut_out, from_base64
from streaming.protocols.csv.fields import Mask, escapes_in
from streaming.protocols.json_text.byte_places import Bytes, Indexes

_GO_BYTES: Final = re.compile(rb"\[(?:\d{1,3}(?: \d{1,3})*)?\]")
_OPEN: Final = ord("[")
_NEW_LINES: Final = ((ord("r"), ord("\r")), (ord("n"), ord("\n")))


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """``begins``, ``ends``: of each field, by row and column, without its quotes. ``is_bad``: the
    rows with a field that is none; a column's function marks more of them."""

    data: Bytes
    begins: Indexes
    ends: Indexes
    is_null: Mask
    is_quoted: Mask
    has_doubled: Mask  # by column: whether a quote stands within some field
    csv: CsvFormat
    is_bad: Mask

    def text(self, column: int) -> pa.Array:
        """null is SQL NULL. A field that is no UTF-8 makes its row bad."""
        found = self._raw(column)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            for row, each in enumerate(found.to_pylist()):
                try:
                    texts.append(None if each is None else each.decode())
                except UnicodeDecodeError:
                    texts.append(None)
                    self.is_bad[row] = True
            return pa.array(texts, pa.string())

    def binary(self, column: int) -> pa.Array:
        """The bytes that a field has in base64, or as hexadecimal digits."""
        text = self.text(column)
        if self.csv.binary == "hex":
            return self._from_hex(text)
        found, bad = from_base64(text)
        if bad is not None:
            self.is_bad[:] |= bad
        return found

    def are(self, column: int, text: bytes) -> Mask:
        """Which fields of a column are this text. Fields with escapes are read first."""
        begins, ends = self.begins[:, column], self.ends[:, column]
        plain = _are(self.data, begins, ends, text)
        if plain.all() or not (self.has_doubled[column] or not self.csv.quote):
            return plain
        found = pc.fill_null(pc.equal(self._raw(column), pa.scalar(text, pa.binary())), False)
        return np.asarray(found.to_numpy(zero_copy_only=False))

    def _raw(self, column: int) -> pa.BinaryArray:
        begins, ends = self.begins[:, column], self.ends[:, column]
        nulls = self.is_null[:, column]
        found = cut_out(self.data, begins, ends, nulls if nulls.any() else None)
        if not self.csv.quote:
            return unescaped(found)
        if self.has_doubled[column]:
            found = pc.replace_substring(found, self.csv.quote * 2, self.csv.quote)
        bare = np.flatnonzero(~self.is_quoted[:, column] & ~nulls & (ends > begins))
        bare = bare[self.data[begins[bare]] == _OPEN]
        if len(bare):
            return _without_go_bytes(found, bare)
        return found

    def _from_hex(self, text: pa.Array) -> pa.Array:
        lengths = pc.fill_null(pc.binary_length(text), 0).to_numpy()
        bounds = np.zeros(len(text) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        digits = "".join(pc.fill_null(text, "").to_pylist())
        try:
            if (lengths % 2).any():
                raise binascii.Error("half a byte")
            data = np.frombuffer(binascii.unhexlify(digits), np.uint8)
        except ValueError:  # some are none
            return pa.array(map(self._hex, range(len(text)), text.to_pylist()), pa.binary())
        is_null = text.is_null().to_numpy(zero_copy_only=False) if text.null_count else None
        return cut_out(data, bounds[:-1] // 2, bounds[1:] // 2, is_null)

    def _hex(self, row: int, text: str | None) -> bytes | None:
        try:
            return None if text is None else binascii.unhexlify(text)
        except ValueError:
            self.is_bad[row] = True
            return None


def fields_of(data: Bytes, begins: Indexes, ends: Indexes, csv: CsvFormat) -> Fields:
    """``begins``, ``ends``: of the fields of each row, as they stand."""
    is_null = _are(data, begins, ends, csv.null.encode())
    is_quoted = np.zeros(begins.shape, np.bool_)
    has_doubled = np.zeros(begins.shape[1], np.bool_)
    is_bad = np.zeros(len(begins), np.bool_)
    if csv.quote and len(begins):
        quote = ord(csv.quote)
        is_quoted = ends - begins >= 2
        is_quoted &= data[np.minimum(begins, len(data) - 1)] == quote
        is_quoted &= data[np.maximum(ends - 1, 0)] == quote
        inner = data == quote
        inner[begins[is_quoted]] = False
        inner[ends[is_quoted] - 1] = False
        begins, ends = begins + is_quoted, ends - is_quoted
        _mark_doubled(np.flatnonzero(inner), begins, ends, is_quoted, has_doubled, is_bad)
    return Fields(data, begins, ends, is_null, is_quoted, has_doubled, csv, is_bad)


def _are(data: Bytes, begins: Indexes, ends: Indexes, text: bytes) -> Mask:
    """Which fields are this text."""
    found: Mask = ends - begins == len(text)
    for behind, byte in enumerate(text):
        found[found] = data[begins[found] + behind] == byte
    return found


def _mark_doubled(  # noqa: PLR0917
    quotes: Indexes,
    begins: Indexes,
    ends: Indexes,
    is_quoted: Mask,
    has_doubled: Mask,
    is_bad: Mask,
) -> None:
    """``quotes``: those within fields, which stand in pairs in quoted ones, and nowhere else."""
    flat = begins.ravel()
    cell = np.searchsorted(flat, quotes, side="right") - 1
    is_here = (cell >= 0) & (quotes < ends.ravel()[cell])
    quotes, cell = quotes[is_here], cell[is_here]
    if not len(quotes):
        return
    row, column = np.divmod(cell, begins.shape[1])
    has_doubled[np.unique(column)] = True
    number = np.arange(len(cell))
    is_first = np.ones(len(cell), np.bool_)
    is_first[1:] = cell[1:] != cell[:-1]
    first = np.maximum.accumulate(np.where(is_first, number, 0))
    opens = (number - first) % 2 == 0
    has_next = np.zeros(len(cell), np.bool_)
    has_next[:-1] = (quotes[1:] == quotes[:-1] + 1) & (cell[1:] == cell[:-1])
    is_bad[row[(opens & ~has_next) | ~is_quoted.ravel()[cell]]] = True


def unescaped(found: pa.BinaryArray) -> pa.BinaryArray:
    """Without the backslashes that stand before characters."""
    offsets = np.frombuffer(found.buffers()[1], np.int32, len(found) + 1, 4 * found.offset)
    data = np.frombuffer(found.buffers()[2] or b"", np.uint8)[: offsets[-1]]
    escapes = escapes_in(data)
    if not len(escapes):
        return found
    plain, behind = data.copy(), np.minimum(escapes + 1, len(data) - 1)
    for letter, meant in _NEW_LINES:
        plain[behind[data[behind] == letter]] = meant
    kept = np.ones(len(data), np.bool_)
    kept[escapes] = False
    shorter = offsets - np.searchsorted(escapes, offsets)
    buffers = [
        found.buffers()[0],
        pa.py_buffer(shorter.astype(np.int32)),
        pa.py_buffer(plain[kept]),
    ]
    return pa.Array.from_buffers(pa.binary(), len(found), buffers, found.null_count)


def _without_go_bytes(found: pa.BinaryArray, rows: Indexes) -> pa.BinaryArray:
    """Go writes the bytes of a text as ``[110 101 119]`` where TiCDC took the text for a number. It
    has no quotes then, and other texts have them."""
    values = found.to_pylist()
    for row in rows.tolist():
        if values[row] is not None and _GO_BYTES.fullmatch(values[row]):
            numbers = [int(each) for each in values[row][1:-1].split()]
            values[row] = bytes(each & 0xFF for each in numbers)
    return pa.array(values, pa.binary())
