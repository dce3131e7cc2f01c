"""How the plain rows of a table look, byte by byte, and reading many of them at once.

TiCDC writes one table's rows alike: the columns in one order, each with its type and flags. One of
the rows, read slowly, gives the names and types to expect. A row is only taken if every byte
outside its values is as expected; a value goes from where its column's constant part ends to a
quote, or to the bracket that closes its column. An old row may lack columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.base64_texts import from_base64
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.protocols.json_text.quote_scanner import Cells, Indexes, Mask, Text, Walk
from streaming.protocols.json_text.strict_json import GO_ESCAPED, Malformed, parse
from streaming.protocols.open.columns import Form
from streaming.protocols.open.encoded_cells import from_quoted
from streaming.protocols.open.strict_parser import column_of
from streaming.protocols.rows.parsed_message import ParsedRow, Shape
from streaming.protocols.rows.row_arrays import RowArrays, struct

_NUMBER: Final = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$"
_QUOTE: Final = ord('"')
_NULL: Final = b"null"
_COMMA, _END, _N = b",}n"
_DELETED, _WRITTEN = b'{"d":', b'{"u":'
_OLD: Final = b',"p":'


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    form: Form
    head: bytes  # all up to the value
    quotes: int  # that it has


@dataclass(frozen=True, slots=True)
class Template:
    shape: Shape
    columns: Sequence[_Column]

    @staticmethod
    def of(value: bytes, row: ParsedRow) -> Template | None:
        """From one row's value and its meaning; None where it is not plain."""
        is_delete = row.op == OP_DELETE
        try:
            fields = parse(value)
            columns = _columns(fields["d" if is_delete else "u"])
            old = _columns(fields["p"]) if row.op == OP_UPDATE else []
        except (Malformed, TypeError):
            return None
        known = {each.name: each for each in columns}
        if row.error is not None or any(known.get(each.name) != each for each in old):
            return None
        return Template(row.shape, columns)

    def read(
        self,
        values: pa.BinaryArray,
        positions: Indexes,
        commit_ts: Indexes,
        key: Sequence[str] | None,
    ) -> tuple[RowArrays, Indexes]:
        """The rows of values that turn out to be plain, and the indices of those. As
        `side_by_side.Template.read`."""
        text = Text.of(values)
        quotes = np.searchsorted(text.quotes, text.starts)
        walk = _RowWalk(text, text.starts, quotes, text.ends)
        is_written = text.has(_WRITTEN, walk.at)
        walk.is_right = is_written | text.has(_DELETED, walk.at)
        walk.at, walk.quote = walk.at + len(_WRITTEN), walk.quote + 2
        data = walk.side(self.columns, is_old=False)
        old: dict[str, Cells] = {}
        old_at = np.flatnonzero(walk.is_right & is_written & text.has(_OLD, walk.at))
        if len(old_at):
            before = _RowWalk(text, walk.at[old_at], walk.quote[old_at], text.ends[old_at])
            before.expect(_OLD)
            old = before.side(self.columns, is_old=True)
            walk.join(before, old_at)
        walk.expect(b"}")
        walk.is_right &= walk.at == text.ends
        if key is None:
            old = {name: each.filled_from(data[name], old_at) for name, each in old.items()}
        new, olds = self._arrays(walk, data, old, old_at)
        at = np.flatnonzero(walk.is_right)
        old_at = old_at[walk.is_right[old_at]]
        names = [n for n in (self.shape.columns if key is None else key) if n in new]
        is_told = np.zeros(len(old_at), np.bool_)
        for name in names:
            if name in olds:
                is_told |= olds[name].is_there
        told = pa.array(np.flatnonzero(is_told))
        kept = [olds[name].cells.take(told) if olds else new[name][:0] for name in names]
        op = np.where(is_written, OP_INSERT, OP_DELETE).astype(np.int8)
        op[old_at] = OP_UPDATE
        found = RowArrays(
            positions=positions[at],
            op=op[at],
            commit_ts=commit_ts[at],
            data=struct([*new], [*new.values()], len(at)),
            old=struct(names, kept, len(told)),
            old_at=np.searchsorted(at, old_at[is_told]),
            errors={},
        )
        return found, at

    def _arrays(
        self, walk: Walk, data: Mapping[str, Cells], old: Mapping[str, Cells], old_at: Indexes
    ) -> tuple[dict[str, pa.Array], dict[str, _Old]]:
        """The cells of the rows that are right, of old rows also those that nobody wants. A value
        that is none makes its row wrong: then all are made once more, without it."""
        forms = {column.name: column.form for column in self.columns}
        while True:
            at, olds = np.flatnonzero(walk.is_right), np.flatnonzero(walk.is_right[old_at])
            is_wrong = np.zeros(len(walk.is_right), np.bool_)
            new, before = dict[str, pa.Array](), dict[str, _Old]()
            for name, cells in data.items():
                new[name], bad = _decoded(cells.take(at), forms[name])
                if bad is not None:
                    is_wrong[at[bad]] = True
            for name, cells in old.items():
                found, bad = _decoded(cells.take(olds), forms[name])
                before[name] = _Old(found, cells.is_there[olds])
                if bad is not None:
                    is_wrong[old_at[olds[bad]]] = True
            if not is_wrong.any():
                return new, before
            walk.is_right &= ~is_wrong


@dataclass(frozen=True, slots=True, eq=False)
class _Old:
    cells: pa.Array
    is_there: Mask


class _RowWalk(Walk):
    """``ends``: of each row."""

    def __init__(self, text: Text, at: Indexes, quote: Indexes, ends: Indexes) -> None:
        super().__init__(text, at, quote)
        self.ends = ends

    def side(self, columns: Sequence[_Column], *, is_old: bool) -> dict[str, Cells]:
        """An object of columns, of which an old row may lack some. Goes on behind it."""
        first = self.at
        self.is_right &= self.text.has(b"{", first)
        last = len(columns) - 1
        found = {
            column.name: self._column(
                column, first, may_lack=is_old, is_end=place == last and not is_old
            )
            for place, column in enumerate(columns)
        }
        self.at = np.where(self.at == first, first + 1, self.at) if is_old else self.at
        self.expect(b"}")
        return found

    def _column(self, column: _Column, first: Indexes, *, may_lack: bool, is_end: bool) -> Cells:
        """``is_end``: the last column of a new row: an old one may come behind it."""
        text, at, head = self.text, self.at, column.head
        is_named = text.has(head, at + 1)
        is_named &= (text.byte(at) == _COMMA) | (at == first)
        begins, quote = at + (1 + len(head)), self.quote + column.quotes
        is_null = text.byte(begins) == _N
        if has_null := bool(is_null.any()):
            is_null = text.has(_NULL, begins)
        value = self._number if column.form is Form.NUMBER else self._text
        cells, behind, after = value(begins, quote, is_null, is_end=is_end)
        is_ended = cells.ends >= cells.begins
        if has_null:
            behind = np.where(is_null, begins + len(_NULL), behind)
            after = np.where(is_null, quote, after)
            is_ended |= is_null
        # A value ends where it must, and before its row does.
        is_ended &= (text.byte(behind) == _END) & (behind < self.ends)
        is_there = is_named & cells.is_there & is_ended
        self.is_right &= is_there | ~is_named if may_lack else is_there
        self.at = np.where(is_there, behind + 1, at) if may_lack else behind + 1
        self.quote = np.where(is_there, after, self.quote) if may_lack else after
        return self._kept(cells, is_there if may_lack else None, at)

    def _number(
        self, begins: Indexes, quote: Indexes, is_null: Mask, *, is_end: bool
    ) -> tuple[Cells, Indexes, Indexes]:
        """The cells, where each of them goes on, and which of the quotes is the next one there. A
        number ends right before the next column's name, or before its row's end."""
        following = self.text.quote(quote)
        ends = following - (3 if is_end else 2)
        ends = np.where(following >= self.ends, self.ends - 3, ends)
        return Cells(self.text, begins, ends, ~is_null, is_null, {}), ends, quote

    def _text(
        self,
        begins: Indexes,
        quote: Indexes,
        is_null: Mask,
        *,
        is_end: bool,  # noqa: ARG002
    ) -> tuple[Cells, Indexes, Indexes]:
        """As ``_number``."""
        is_text = self.text.byte(begins) == _QUOTE
        last = quote + 1
        ends = self.text.quote(last)
        escaped = dict[int, str]()
        if len(self.text.is_escaped):
            is_escaped = self.text.is_escaped.take(last, mode="clip")
            rows = np.flatnonzero(self.is_right & is_text & is_escaped & (ends < self.ends))
            escaped = self._unescaped(begins + 1, ends, rows)
        return Cells(self.text, begins + 1, ends, is_text, is_null, escaped), ends + 1, quote + 2

    def _kept(self, cells: Cells, is_there: Mask | None, at: Indexes) -> Cells:
        """Without those that are not there. Places rise, also those of no text."""
        is_text, is_null = cells.is_text, cells.is_null
        if is_there is not None:
            is_text, is_null = is_text & is_there, is_null & is_there
        if is_text.all():
            return cells
        begins = np.where(is_text, cells.begins, at)
        escaped = {row: text for row, text in cells.escaped.items() if is_text[row]}
        return Cells(cells.text, begins, cells.ends, is_text, is_null, escaped)


def _columns(found: Mapping[str, Any]) -> list[_Column]:
    columns = []
    for name, each in found.items():
        told, _, _ = column_of(each)
        head = _head(name, each)
        quotes = head.count(b'"') - head.count(b'\\"')
        columns.append(_Column(name, told.form, head, quotes))
    return columns


def _head(name: str, fields: Mapping[str, Any]) -> bytes:
    is_key = b'"h":true,' if fields.get("h") is True else b""
    told = json.dumps(name, ensure_ascii=False).translate(GO_ESCAPED).encode()
    flags = f'"f":{fields.get("f")},"v":'.encode()
    return b"".join((told, b':{"t":', str(fields["t"]).encode(), b",", is_key, flags))


def _decoded(texts: pa.StringArray, form: Form) -> tuple[pa.Array, Mask | None]:
    """The cells of values as they are written, and which are none (None: all are good)."""
    if form is Form.NUMBER:
        if pc.all(pc.ascii_is_decimal(texts)).as_py() and not _has_zero_before(texts):
            return texts, None
        are_numbers = pc.match_substring_regex(texts, _NUMBER)
        if pc.all(are_numbers).as_py() in (True, None):
            return texts, None
        return texts, ~pc.fill_null(are_numbers, True).to_numpy(zero_copy_only=False)
    if form is Form.QUOTED:
        return from_quoted(texts)
    if form is Form.TEXT:
        return texts, None
    found, bad = from_base64(texts)
    return (found, bad) if form is Form.BASE64 else _as_texts(found, bad)


def _has_zero_before(digits: pa.StringArray) -> bool:
    """Whether some number of more than one digit begins with a zero."""
    is_zero = pc.and_(pc.starts_with(digits, "0"), pc.greater(pc.binary_length(digits), 1))
    return bool(pc.any(is_zero).as_py())


def _as_texts(found: pa.BinaryArray, bad: Mask | None) -> tuple[pa.Array, Mask | None]:
    try:
        return found.cast(pa.string()), bad
    except pa.ArrowInvalid:
        is_bad = np.zeros(len(found), np.bool_) if bad is None else bad
        for place, value in enumerate(found.to_pylist()):
            is_bad[place] |= value is not None and not _is_utf8(value)
        return found, is_bad


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
