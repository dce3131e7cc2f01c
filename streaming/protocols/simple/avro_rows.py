"""The plain rows of one table and version of simple in Avro, many at once.

A row is taken if its map has the expected columns, each once, and each with a value of one type or
NULL. All other rows are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.avro_binary.byte_walk import Bytes, Indexes, Mask, Walk, texts
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.protocols.rows.parsed_message import Shape
from streaming.protocols.rows.row_arrays import RowArrays, struct
from streaming.protocols.simple.avro_heads import RowHeads
from streaming.protocols.simple.avro_maps import NOT_READ, MapCells, Names, Zone
from streaming.protocols.simple.avro_reader import (
    BYTES,
    CELL_TYPES,
    DOUBLE,
    FLOAT,
    LONG,
    MOMENT,
    NULL,
    TEXT,
    UNSIGNED,
    shape_of,
)

_MAY_BE_BAD: Final = (TEXT, MOMENT)  # as the bytes of a value are no text
_PLAIN: Final = r'^[^"\\\x00-\x1f]*$'


@dataclass(frozen=True, slots=True, eq=False)
class PlainRows:
    """Some rows, and behind them the old ones of the UPDATEs among them, whose numbers are
    ``updates``; ``positions`` are the messages' in their chunk."""

    of: Bytes
    positions: Indexes
    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    updates: Indexes
    cells: MapCells
    is_right: Mask

    @staticmethod
    def read(heads: RowHeads, positions: Indexes, names: Names, zone: Zone) -> PlainRows:
        """The messages at some places of ``heads``, which rise."""
        of, op, commit_ts = heads.of, heads.op[positions], heads.commit_ts[positions]
        walk = Walk(of, of.starts[positions] + heads.body[positions], of.ends[positions])
        updates = np.flatnonzero(op == OP_UPDATE)
        cells = MapCells(len(names), len(op) + len(updates))
        numbers = np.arange(len(op))
        old = numbers.copy()  # where an old row goes: that of a DELETE is its row
        old[updates] = len(op) + np.arange(len(updates))
        for rows, without in ((numbers, OP_DELETE), (old, OP_INSERT)):
            here, away = np.flatnonzero(op != without), np.flatnonzero(op == without)
            if len(here):
                part = walk.part(here)
                cells.fill(part, rows[here], names, zone)
                walk.join(part, here)
            if len(away):
                part = walk.part(away)
                part.expect(NULL)
                walk.join(part, away)
        walk.is_right &= walk.at == walk.ends
        return PlainRows(of, positions, op, commit_ts, updates, cells, walk.is_right)

    def branches(self, column: int) -> npt.NDArray[np.uint8]:
        """The branches of the values that right rows have in a column."""
        found = self.cells.branches[column]
        new, old = found[: len(self.op)], found[len(self.op) :]
        seen = np.concatenate([new[self.is_right], old[self.is_right[self.updates]]])
        kept: npt.NDArray[np.uint8] = seen[seen != NULL]
        return kept

    def keep(self, column: int, branch: int) -> None:
        """A row with a value of another branch in a column is not right."""
        found = self.cells.branches[column]
        is_fine = (found == branch) | (found == NULL) | (found == NOT_READ)
        self.is_right[:] &= is_fine[: len(self.op)]
        self.is_right[self.updates] &= is_fine[len(self.op) :]

    def arrays(
        self, names: Sequence[str], branches: Sequence[int], zone: Zone, key: Sequence[str] | None
    ) -> RowArrays:
        """The right rows. A row with a text that is none is not right any more."""
        kept = [n for n, name in enumerate(names) if key is None or name in key]
        while True:
            rows = np.flatnonzero(self.is_right)
            olds = np.flatnonzero(self.is_right[self.updates])
            is_fine = self.is_right.copy()
            data, old = [], []
            for column, branch in enumerate(branches):
                found, fine = self._cells(column, branch, rows, zone)
                data.append(found)
                if fine is not None:
                    is_fine[rows[~fine]] = False
                if column in kept or branch in _MAY_BE_BAD:
                    found, fine = self._cells(column, branch, olds + len(self.op), zone)
                    if fine is not None:
                        is_fine[self.updates[olds[~fine]]] = False
                if column in kept:
                    old.append(found)
            if (is_fine == self.is_right).all():
                break
            self.is_right[:] = is_fine
        return RowArrays(
            positions=self.positions[rows],
            op=self.op[rows],
            commit_ts=self.commit_ts[rows],
            data=struct(names, data, len(rows)),
            old=struct([names[n] for n in kept], old, len(olds)),
            old_at=np.searchsorted(rows, self.updates[olds]),
            errors={},
        )

    def _cells(
        self, column: int, branch: int, rows: Indexes, zone: Zone
    ) -> tuple[pa.Array, Mask | None]:
        """A column of some rows, and which cells are what they must be; None: all."""
        kind = CELL_TYPES[branch]
        if branch == NULL or not len(rows):
            return pa.nulls(len(rows), kind), None
        is_null = self.cells.branches[column][rows] == NULL
        missing = is_null if is_null.any() else None
        begins, ends = self.cells.begins[column][rows], self.cells.ends[column][rows]
        if branch in (LONG, UNSIGNED):
            numbers = ends.view(np.uint64) if branch == UNSIGNED else ends
            return pa.array(numbers, kind, mask=missing), None
        if missing is not None:  # where the value before it ends
            begins = np.where(missing, np.maximum.accumulate(np.where(missing, 0, ends)), begins)
        if branch in (FLOAT, DOUBLE):
            words = self.of.words(begins if missing is None else np.where(missing, 0, begins))
            floats = words.view("<f8") if branch == DOUBLE else words.view("<f4")[::2]
            return pa.array(np.ascontiguousarray(floats), kind, mask=missing), None
        pieces = self.of.pieces(begins, ends, None if missing is None else ~missing)
        if branch == BYTES:
            return pieces, None
        found, fine = texts(pieces)
        return (found, fine) if branch != MOMENT else _located(found, fine, zone)


def _located(
    found: pa.StringArray, fine: Mask | None, zone: Zone
) -> tuple[pa.StringArray, Mask | None]:
    is_plain = pc.fill_null(pc.match_substring_regex(found, _PLAIN), True)
    if not pc.all(is_plain).as_py():
        mask = is_plain.to_numpy(zero_copy_only=False)
        fine = mask if fine is None else fine & mask
    head = f'{{"location":"{zone.name}","value":"'
    return pc.binary_join_element_wise(head, found, '"}', ""), fine


def rows_of(
    pieces: Sequence[PlainRows],
    names: Sequence[str],
    version: int,
    zone: Zone,
    key: Sequence[str] | None,
) -> Iterator[tuple[Shape, RowArrays]]:
    """The right rows of each piece, and the shape that all have."""
    branches = []
    for column in range(len(names)):
        seen = (found for piece in pieces if len(found := piece.branches(column)))
        first = next(seen, None)
        branches.append(NULL if first is None else int(first[0]))
        for piece in pieces:
            piece.keep(column, branches[-1])
    shape = shape_of(names, version, branches)
    for piece in pieces:
        rows = piece.arrays(names, branches, zone, key)
        if len(rows.positions):
            yield shape, rows
