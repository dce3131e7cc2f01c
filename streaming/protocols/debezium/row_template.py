"""How the plain rows of a table look, byte by byte, and reading many of them at once.

A row's text is its payload, and behind it the key's (``frames.py``). One of them, read slowly, is
cut into its values and what stands between them (``sample.py``). A row is only taken if every byte
outside its values is as in the sample, and every value one of JSON: a column's is a text, a number,
a truth value or null; of the others each is of the sample's kind. A number has no mark where it
ends: it goes to where the next name begins, less what stands between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.contract import OP_DELETE
from streaming.protocols.debezium.cell_readers import readers_of
from streaming.protocols.debezium.envelope import keyed, opened
from streaming.protocols.debezium.sample import Form, Sample, Slot
from streaming.protocols.debezium.strict_parser import read
from streaming.protocols.json_text.quote_scanner import Indexes, Mask, Text
from streaming.protocols.json_text.value_walk import Read, Value, ValueWalk
from streaming.protocols.rows.parsed_message import ParsedRow, Shape
from streaming.protocols.rows.row_arrays import RowArrays, struct

_ENOUGH: Final = 0.9  # of the rows, to go on with all of them


@dataclass(frozen=True, slots=True)
class Template:
    """``side``: the one whose columns are the row; ``has_old``: the other one is there too.
    ``readers``: of columns whose values are not as they are written."""

    name: TableName
    op: int
    shape: Shape
    slots: Sequence[Slot]
    end: bytes
    side: str
    has_old: bool
    readers: Mapping[str, Read]

    @staticmethod
    def of(message: bytes, text: bytes, payload: int, number: int | None) -> Template | None:
        """From one message; None where it is not plain. ``text``: what its frame leaves of it, of
        which ``payload`` bytes are the value's. ``number``: its commit-ts, if its reader has given
        one."""
        row = read(message, number)
        if not isinstance(row, ParsedRow) or row.error is not None or row.shape.only_old:
            return None
        if row.shape.key_names is None:
            return None
        envelope = opened(keyed(message)[1])
        sample = Sample.of(text, payload, envelope.payload)
        if sample is None:
            return None
        side = "before" if row.op == OP_DELETE else "after"
        other = "after" if side == "before" else "before"
        columns: dict[str, list[str]] = {"before": [], "after": []}
        for slot in sample.slots:
            if slot.form is Form.COLUMN:
                columns[slot.path[0]].append(slot.path[1])
        has_old = bool(columns[other])
        told_old = columns[other] if has_old else columns[side]
        if (
            columns[side] != [*row.shape.columns]
            or told_old != columns[side]
            or has_old != (row.old is not None)
            or (number is None and Form.COMMIT_TS not in [each.form for each in sample.slots])
        ):
            return None
        fields = {} if envelope.schema is None else dict(envelope.schema.rows)
        return Template(
            name=row.name,
            op=row.op,
            shape=row.shape,
            slots=sample.slots,
            end=sample.end,
            side=side,
            has_old=has_old,
            readers=readers_of(row.shape.columns, fields),
        )

    def walked(self, values: pa.BinaryArray, numbers: Indexes | None) -> Walked:
        """Rows of the template's frame. ``numbers``: their commit-ts, if readers give it."""
        text = Text.of(values)
        first = np.searchsorted(text.quotes, text.starts)
        walk = ValueWalk(text, text.starts, first, text.ends)
        rows: Indexes = np.arange(len(values))
        commit_ts = numbers
        behind = [*(slot.before for slot in self.slots[1:]), self.end]
        found = dict[tuple[str, str], Value]()
        for slot, following in zip(self.slots, behind, strict=True):
            walk.expect(slot.before)
            if slot.form is Form.COLUMN and not found:
                is_right = walk.is_right
                if np.count_nonzero(is_right) < _ENOUGH * len(is_right):
                    kept = np.flatnonzero(is_right)
                    walk, rows = walk.narrowed(kept), rows[kept]
                    commit_ts = None if commit_ts is None else commit_ts[kept]
            match slot.form:
                case Form.COLUMN:
                    found[slot.path[0], slot.path[1]] = walk.value(following)
                case Form.TEXT:
                    walk.is_right &= ~walk.value(following).is_other
                case Form.ANY:
                    found["", "".join(slot.path)] = walk.value(following)
                case Form.NUMBER | Form.COMMIT_TS:
                    is_ts = slot.form is Form.COMMIT_TS
                    number = walk.number(walk.bare_end(following), may_be_zero=not is_ts)
                    commit_ts = number if is_ts and numbers is None else commit_ts
        walk.expect(self.end)
        walk.is_right &= walk.at == walk.ends
        assert commit_ts is not None, "a template without a commit-ts"
        return Walked(self, walk.is_right, rows, commit_ts, found)


@dataclass(frozen=True, slots=True)
class Walked:
    """``rows``: which of the messages were walked through, and of these: which are right so far,
    their commit-ts, their values by side and name (those of the key have no side)."""

    template: Template
    is_right: Mask
    rows: Indexes
    commit_ts: Indexes
    values: Mapping[tuple[str, str], Value]

    def counted(self) -> tuple[Indexes, Indexes]:
        """The messages that are rows as far as can be seen, and their commit-ts."""
        return self.rows[self.is_right], self.commit_ts[self.is_right]

    def plain(self, positions: Indexes, key: Sequence[str] | None) -> tuple[RowArrays, Indexes]:
        """The rows that turn out to be plain, and which of the messages they are. ``positions``: of
        all messages."""
        template = self.template
        columns = template.shape.columns
        wanted = list(columns) if key is None else [name for name in key if name in columns]
        at: Indexes = np.flatnonzero(self.is_right)
        is_wrong = np.zeros(len(at), np.bool_)
        new, old = dict[str, pa.Array](), dict[str, pa.Array]()
        for (side, name), value in self.values.items():
            reader = template.readers.get(name) if side else None
            if side == template.side:
                new[name], wrong = value.read(at, reader)
            elif side and name in wanted:
                old[name], wrong = value.read(at, reader)
            else:
                wrong = value.wrong(at, reader)
            if wrong is not None:
                is_wrong |= wrong
        data = struct(columns, [new[name] for name in columns], len(at))
        none = pa.array([], pa.string())
        kept = struct(
            wanted, [old.get(n, none) for n in wanted], len(at) if template.has_old else 0
        )
        if is_wrong.any():
            good = pa.array(~is_wrong)
            at, data = at[~is_wrong], data.filter(good)
            kept = kept.filter(good) if template.has_old else kept
        rows = RowArrays(
            positions=positions[self.rows[at]],
            op=np.full(len(at), template.op, np.int8),
            commit_ts=self.commit_ts[at],
            data=data,
            old=kept,
            old_at=np.arange(len(at) if template.has_old else 0),
            errors={},
        )
        return rows, self.rows[at]
