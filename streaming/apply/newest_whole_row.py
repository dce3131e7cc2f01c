"""The columns and the key of a table whose CREATE TABLE was not read, from its rows.

The newest whole row tells them. DELETEs are not used, since they may have the key only; neither are
rows that TiCDC cut to their key, or in which a column has no type.

A type such as ``datetime`` does not tell its digits of a fraction of a second, but a value does:
TiCDC writes all of them. Types of typed cells tell theirs, but for M and D of a FLOAT or DOUBLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.model import Ts
from sinks.types.mysql_type import TIMED_TYPES, MySQLType
from streaming.apply.row_block import RowBlock
from streaming.apply.values.typed_rows import untold
from streaming.changefeed.schema_from_rows import Untold, WholeRow
from streaming.protocols.contract import (
    DATA,
    ERROR_CLASS,
    OP_DELETE,
    Cells,
    Order,
    cells_of,
    key_names,
    order_of,
    version_of,
    wire_types,
)

_MOST_DIGITS = 6
Place = tuple[int, int, int]  # commit-ts, position, index: the greater one is the newer row


class NewestWholeRow:
    """Finds the newest whole row at or below ``limit`` in the blocks that it is shown, in any
    order. It keeps what that row tells, not the rows."""

    def __init__(self, limit: Ts) -> None:
        self._limit = limit
        self._newest: tuple[Place, WholeRow] | None = None
        self._is_cut = False
        self._columns: dict[int, frozenset[str]] = {}  # of whole rows, by the schema's version

    def look(self, block: RowBlock) -> None:
        if self._newest is not None and block.max_ts < self._newest[0][0] and not self._columns:
            return
        for batch in block.batches():
            if (version := version_of(batch.schema)) is not None:
                self._look_at_version(batch, version)
                continue
            row, has_cut = _newest_in(batch, self._limit)
            self._is_cut |= has_cut
            if row is None:
                continue
            place = _place(batch, row)
            if self._newest is None or place > self._newest[0]:
                self._newest = place, _told(batch, row)

    def _look_at_version(self, batch: pa.RecordBatch, version: int) -> None:
        """Any row tells the version, and a whole one which columns come."""
        commit_ts = batch.column("commit_ts").to_numpy()
        rows = np.flatnonzero(commit_ts <= self._limit)
        if not len(rows):
            return
        if version not in self._columns:
            self._columns[version] = frozenset()
        is_whole = batch.column("op").to_numpy()[rows] != OP_DELETE
        if ERROR_CLASS in batch.schema.names:
            is_whole &= batch.column(ERROR_CLASS).is_null().to_numpy(zero_copy_only=False)[rows]
        if is_whole.any():
            names = frozenset(batch.schema.field(DATA).type.names)
            self._columns[version] |= names
        place = _place(batch, _last(batch, rows))
        if self._newest is None or place > self._newest[0]:
            self._newest = place, WholeRow({}, (), Ts(place[0]), version=version)

    def told(self) -> WholeRow | Untold:
        if self._newest is None:
            return Untold.ONLY_CUT if self._is_cut else Untold.NOT_WRITTEN
        found = self._newest[1]
        if found.version is None:
            return found
        return replace(found, columns=self._columns[found.version] or None)


def newest_whole_row(blocks: Sequence[RowBlock], limit: Ts) -> WholeRow | Untold:
    """The columns and key that the newest whole row at or below ``limit`` tells, in the blocks of
    one table."""
    newest = NewestWholeRow(limit)
    for block in sorted(blocks, key=lambda block: block.max_ts, reverse=True):
        newest.look(block)
    return newest.told()


def _newest_in(batch: pa.RecordBatch, limit: Ts) -> tuple[int | None, bool]:
    """The newest whole row in a batch (no DELETE), and whether a row was cut."""
    commit_ts = batch.column("commit_ts").to_numpy()
    is_written = (batch.column("op").to_numpy() != OP_DELETE) & (commit_ts <= limit)
    shape = batch.schema.field(DATA).type
    names = {each.name for each in shape}
    is_told = bool(names) and names <= wire_types(batch.schema).keys()
    if cells_of(batch.schema) is Cells.TYPED:
        is_told &= not untold(shape)
    is_whole = np.full(len(commit_ts), is_told)
    if ERROR_CLASS in batch.schema.names:
        is_whole &= batch.column(ERROR_CLASS).is_null().to_numpy(zero_copy_only=False)
    has_cut = bool((is_written & ~is_whole).any())
    rows = np.flatnonzero(is_written & is_whole)
    if not len(rows):
        return None, has_cut
    return _last(batch, rows), has_cut


def _last(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> int:
    columns = (batch.column(name).to_numpy()[rows] for name in ("index", "position", "commit_ts"))
    return int(rows[np.lexsort(tuple(columns))[-1]])


def _place(batch: pa.RecordBatch, row: int) -> Place:
    commit_ts, position, index = (
        batch.column(name)[row].as_py() for name in ("commit_ts", "position", "index")
    )
    return commit_ts, position, index


def _told(batch: pa.RecordBatch, row: int) -> WholeRow:
    """If a column is NULL in this row, an older row tells nothing about it: it may have been
    another column."""
    types = wire_types(batch.schema)
    if cells_of(batch.schema) is Cells.TYPED:
        found = {each.name: _full(types[each.name]) for each in batch.schema.field(DATA).type}
    else:
        values = batch.column(DATA)[row].as_py()
        found = {name: _with_digits(types[name], text) for name, text in values.items()}
    is_coarse = cells_of(batch.schema) is Cells.AVRO
    key, ts = key_names(batch.schema) or (), Ts(_place(batch, row)[0])
    of_connector = cells_of(batch.schema) is Cells.CONNECT and order_of(batch.schema) is Order.PLACE
    return WholeRow(found, key, ts, is_coarse=is_coarse, is_key_guessed=of_connector)


def _with_digits(told: str, text: str | None) -> str:
    """A type, with the digits of a fraction of a second that a value of it has."""
    if told not in TIMED_TYPES or text is None:
        return told
    digits = len(text.partition(".")[2])
    return f"{told}({digits})" if digits <= _MOST_DIGITS else told


def _full(told: str) -> str:
    """A full type, in which digits that it leaves out are none."""
    of = MySQLType.parse(told)
    if of.name in TIMED_TYPES:
        return f"{of.name}({of.length or 0})"
    return str(of.as_untold()) if of.name in ("float", "double") else told
