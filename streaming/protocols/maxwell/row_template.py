"""How the plain rows of a table look, byte by byte, and reading many of them at once.

One of them, read slowly, is cut into its values and what stands between them (``sample.py``). A row
is only taken if every byte outside its values is as in the sample, and every value one of JSON that
stands for itself: a row with an array or an object, of a SET or a JSON column, is read alone. An
old row has the columns that were changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from sinks.types.casts.maxwell_cells import LIKE_A_DOCUMENT, MARK
from streaming.protocols.contract import Cells as CellKind
from streaming.protocols.json_text.quote_scanner import Cells, Indexes, Text
from streaming.protocols.json_text.strict_json import Malformed, parse
from streaming.protocols.json_text.value_walk import Value, ValueWalk
from streaming.protocols.maxwell.document_text import text_cell
from streaming.protocols.maxwell.sample import Form, NotPlain, Sample
from streaming.protocols.maxwell.strict_parser import event, names_daemon
from streaming.protocols.rows.parsed_message import ParsedRow, Shape
from streaming.protocols.rows.row_arrays import RowArrays
from streaming.protocols.rows.side_by_side import WalkedRows

_T, _F = b"tf"
# What a text that is like a document begins with, but for the mark, which is always escaped.
_BEGINS: Final = np.zeros(256, np.bool_)
_BEGINS[[*b"[{-0123456789tfn"]] = True


@dataclass(frozen=True, slots=True)
class Template:
    name: TableName
    op: int
    shape: Shape
    sample: Sample

    @staticmethod
    def of(message: bytes) -> Template | None:
        """From one message; None where it is not plain."""
        try:
            fields = parse(message)
            row = event(fields, 1, is_first_part=True)
            sample = Sample.of(message.decode())
        except (Malformed, NotPlain):
            return None
        if not isinstance(row, ParsedRow) or row.shape.only_old:
            return None
        if row.shape.cells is CellKind.MAXWELL and not names_daemon(fields):
            return None  # its values tell the sender, and other rows have others
        columns = tuple(each.column for each in sample.slots if each.column is not None)
        if columns != row.shape.columns:
            return None
        return Template(row.name, row.op, row.shape, sample)

    def walked(self, values: pa.BinaryArray, commit_ts: Indexes) -> Walked:
        """Rows that begin as the sample does."""
        text, sample = Text.of(values), self.sample
        first = np.searchsorted(text.quotes, text.starts)
        walk = ValueWalk(text, text.starts, first, text.ends)
        behind = [*(slot.before for slot in sample.slots[1:]), sample.end]
        data, others = dict[str, Value](), list[Value]()
        for slot, following in zip(sample.slots, behind, strict=True):
            walk.expect(slot.before)
            if slot.form is Form.NUMBER:
                walk.number(walk.bare_end(following), may_be_zero=True)
                continue
            value = walk.value(following)
            if slot.column is not None:
                data[slot.column] = value
            elif slot.form is Form.TEXT:
                walk.is_right &= ~value.is_other
            else:
                others.append(value)
        walk.expect(sample.end)
        old = dict[str, Value]()
        if sample.old is not None:
            begin = walk.at
            walk.is_right &= text.byte(begin) == ord("{")
            old = {name: walk.member(written, begin) for name, written in sample.old}
            walk.at = np.where(walk.at == begin, begin + 1, walk.at)
            walk.expect(b"}}")
        walk.is_right &= walk.at == text.ends
        for value in (*data.values(), *old.values(), *others):
            self._check(walk, value)
        return Walked(self, walk, commit_ts, data, old)

    def _check(self, walk: ValueWalk, value: Value) -> None:
        """A value that is none makes its row wrong. TiCDC has no truth values."""
        bare = np.flatnonzero(value.is_bare & walk.is_right)
        if not len(bare):
            return
        wrong = value.wrong(bare, None)
        if wrong is not None:
            walk.is_right[bare[wrong]] = False
        if self.shape.cells is not CellKind.MAXWELL:
            letters = walk.text.byte(value.cells.begins[bare])
            walk.is_right[bare[(letters == _T) | (letters == _F)]] = False


@dataclass(frozen=True, slots=True)
class Walked:
    """``walk``: over all messages, to their ends."""

    template: Template
    walk: ValueWalk
    commit_ts: Indexes
    data: dict[str, Value]
    old: dict[str, Value]

    def counted(self) -> Indexes:
        """Which of the messages are rows."""
        found: Indexes = np.flatnonzero(self.walk.is_right)
        return found

    def plain(self, positions: Indexes, key: Sequence[str] | None) -> tuple[RowArrays, Indexes]:
        """The rows that are plain, and which of the messages they are."""
        count = len(positions)
        has_old = self.template.sample.old is not None
        rows = WalkedRows(
            is_right=self.walk.is_right,
            positions=positions,
            op=np.full(count, self.template.op, np.int8),
            commit_ts=self.commit_ts,
            data={name: self._cells(value) for name, value in self.data.items()},
            old={name: self._cells(value) for name, value in self.old.items()},
            old_at=np.arange(count if has_old else 0),
        )
        return rows.plain(key)

    def _cells(self, value: Value) -> Cells:
        """The daemon's with their marks (`document_text`)."""
        cells = value.cells
        if self.template.shape.cells is not CellKind.MAXWELL:
            return cells
        escaped = {row: text_cell(text) for row, text in cells.escaped.items()}
        is_near = _BEGINS[self.walk.text.byte(cells.begins)]
        is_near &= cells.is_text & ~value.is_bare & self.walk.is_right
        is_near[[*escaped]] = False
        rows = np.flatnonzero(is_near)
        if len(rows):
            texts = cells.take(rows)
            for at in pc.indices_nonzero(
                pc.match_substring_regex(texts, LIKE_A_DOCUMENT)
            ).to_pylist():
                escaped[int(rows[at])] = MARK + texts[at].as_py()
        return replace(cells, escaped=escaped)
