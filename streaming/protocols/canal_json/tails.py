"""The ends of many row messages, from behind ``mysqlType`` on, parsed in one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

# What ``pyarrow.json`` says no with; the last where it cuts a text within its message.
REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)

_BINARY = pa.binary()
_NULL = np.frombuffer(b'":null', np.uint8)
_BACKSLASH = ord("\\")


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """One JSON object a line, ``lines``; each begins with ``{`` and ends with ``}``."""

    lines: pa.BinaryArray

    @staticmethod
    def of(tails: pa.BinaryArray) -> Tails:
        """``tails`` are the messages from some top-level name on, without a raw newline."""
        brace, line = pa.scalar(b"{", _BINARY), pa.scalar(b"\n", _BINARY)
        return Tails(pc.binary_join_element_wise(brace, tails, line, pa.scalar(b"", _BINARY)))

    def parse(self, schema: pa.Schema) -> pa.Table:
        """A row a line. Raises one of ``REFUSALS`` for the first that is not by ``schema``.

        Every line begins with a brace and ends with one, so it holds at least one object, and as
        many rows as lines means one in each.
        """
        text = self._text()
        read = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
        parse = pj.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
        )
        table = pj.read_json(pa.BufferReader(text), read, parse)
        if len(table) != len(self.lines):
            raise pa.ArrowInvalid("several objects in one message")
        return table

    def explicit_nulls(self, begin: Positions, at: Positions) -> Positions:
        """How many names have a null, in those lines, from a place in each on.

        A quote within a text has a backslash before it, and no name ends with one.
        """
        text = np.frombuffer(self._text(), np.uint8)
        starts = (text[1:-5] == _NULL[0]) & (text[2:-4] == _NULL[1]) & (text[3:-3] == _NULL[2])
        hits = np.flatnonzero(starts) + 1
        for index, byte in enumerate(_NULL[3:], start=3):
            hits = hits[text[hits + index] == byte]
        hits = hits[text[hits - 1] != _BACKSLASH]
        offsets = self._offsets()
        upto: Positions = np.searchsorted(hits, offsets[at + 1])
        return upto - np.searchsorted(hits, offsets[at] + begin)

    def find(self, text: bytes, at: Positions) -> Positions:
        """Where ``text`` stands first in those lines; -1 for nowhere."""
        found: Positions = (
            pc.find_substring(self.lines.take(pa.array(at)), text).to_numpy().astype(np.int64)
        )
        return found

    def _offsets(self) -> npt.NDArray[np.int32]:
        return np.frombuffer(self.lines.buffers()[1], np.int32, len(self.lines) + 1)

    def _text(self) -> pa.Buffer:
        return self.lines.buffers()[2].slice(0, int(self._offsets()[-1]))


def all_named(table: pa.Table, tails: Tails, at: Positions) -> Mask:
    """Which rows of ``table``, of the lines ``at``, name every column of ``data``.

    A column that is missing is null like one that is: the nulls that are written are counted. Who
    leaves out columns of ``old``, which may be, writes it before ``data``: the rest is counted.
    """
    missing = _null_values(column(table, "data").flatten(), len(table))
    if not missing.any():
        return np.ones(len(table), np.bool_)
    for name in table.column_names[3:]:
        missing += ~valid(column(table, name))
    old = column(table, "old")
    olds = lengths(old)
    in_old = (~valid(old)).astype(np.int64)
    in_old[np.flatnonzero(olds)] += _null_values(old.flatten(), int(olds.sum()))
    named = tails.explicit_nulls(np.zeros(len(at), np.int64), at) == missing + in_old
    unsure = np.flatnonzero(~named & (olds > 0))
    if len(unsure):
        lines = at[unsure]
        data_at, old_at = tails.find(b'"data":[{', lines), tails.find(b'"old":[{', lines)
        counted = tails.explicit_nulls(data_at, lines) == missing[unsure]
        named[unsure] = (old_at >= 0) & (old_at < data_at) & counted
    return named  # type: ignore[no-any-return]


def old_rows(table: pa.Table, tails: Tails, at: Positions) -> tuple[pa.StructArray, Mask]:
    """The old rows of ``table``, of the lines ``at``, with what was not sent of them as it is in
    ``data``; and by row of the table whether that is certain.

    A null of an old row was sent as null, or it was not sent: the nulls that are written are
    counted, and only where some were sent and some not each name is looked for.
    """
    old, is_told = column(table, "old"), np.ones(len(table), np.bool_)
    rows = np.flatnonzero(lengths(old))
    before, now = old.flatten(), column(table, "data").flatten().take(pa.array(rows))
    nulls = _null_values(before, len(before))
    unsure = np.flatnonzero(nulls)
    if not len(unsure):
        return before, is_told
    lines = at[rows[unsure]]
    begins, ends = tails.find(b'"old":[{', lines), tails.find(b'}],"data":[{', lines)
    is_in_order = (begins >= 0) & (begins < ends)
    is_told[rows[unsure[~is_in_order]]] = False
    sent = tails.explicit_nulls(begins, lines) - tails.explicit_nulls(ends, lines)
    mixed = np.flatnonzero(is_in_order & (sent > 0) & (sent < nulls[unsure]))
    left = sent[mixed]
    columns = []
    for field in before.type:
        values = before.field(field.name)
        if values.null_count:
            is_unsent = np.zeros(len(before), np.bool_)
            is_unsent[unsure[is_in_order & (sent == 0)]] = True
            if len(mixed):
                place = tails.find(f'"{field.name}":null'.encode(), lines[mixed])
                is_sent = (place > begins[mixed]) & (place < ends[mixed])
                is_unsent[unsure[mixed[~is_sent]]] = True
                left -= is_sent
            is_unsent &= ~valid(values)
            values = pc.if_else(pa.array(is_unsent), now.field(field.name), values)
        columns.append(values)
    is_told[rows[unsure[mixed[left != 0]]]] = False  # a name is written in another way
    return pa.StructArray.from_arrays(columns, fields=list(before.type)), is_told


def column(table: pa.Table, name: str) -> pa.Array:
    chunked = table.column(name)
    return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()


def valid(array: pa.Array) -> Mask:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return array.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def lengths(lists: pa.ListArray) -> Positions:
    """Zero for a null."""
    found = pc.fill_null(pc.list_value_length(lists), 0)
    return found.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _null_values(rows: pa.StructArray, length: int) -> Positions:
    counts = np.zeros(length, np.int64)
    for index in range(rows.type.num_fields):
        values = rows.field(index)
        if values.null_count:
            counts += ~valid(values)
    return counts
