"""The rows of a table's blocks that are due, as columns: what the order and the key need at once,
the other values when somebody asks for those of certain rows.

    blocks ──due? (commit-ts, event filter)──► Part: of one record batch
    Parts of one shape ──► Piece: their columns one after the other, in rows numbered from 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import Ts
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import TableTask
from streaming.protocols.contract import (
    DATA,
    ERROR_CLASS,
    ERROR_MESSAGE,
    OLD,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
)
from streaming.source.ranges import TopicPartition

HELD_BYTES: Final = 256 << 20  # decompressed; further blocks are read again for their other values
PIECE_BYTES: Final = 128 << 20  # decompressed: no column of text comes near the 2 GiB of an array

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NO_ROWS: Final[Rows] = np.empty(0, np.int64)
_EVENTS: Final = {"delete": OP_DELETE, "insert": OP_INSERT, "update": OP_UPDATE}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """The due rows of one record batch of a block."""

    block: RowBlock
    number: int  # of the batch in its block
    rows: Rows | None  # which are due; None: all
    count: int
    held: pa.RecordBatch | None  # None: it is read again

    def due(self, column: pa.Array) -> pa.Array:
        """Of a column of the batch, the due rows."""
        return column if self.rows is None else column.take(pa.array(self.rows))

    def data(self, wanted: Rows) -> pa.StructArray:
        """The columns of some of the due rows, which are numbered from 0 and rise."""
        batch = self.held if self.held is not None else self.block.batches()[self.number]
        if len(wanted) == self.count:
            return self.due(batch.column(DATA))
        rows = wanted if self.rows is None else self.rows[wanted]
        return batch.column(DATA).take(pa.array(rows))


_Batches = Sequence[tuple[Part, pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Due rows of one shape, and behind them the DELETEs of keys that UPDATEs have left.

    ``op`` to ``keys`` have an entry for each of the ``count`` rows and then one for each of
    ``moved``, which says the row of the UPDATE."""

    shape: pa.StructType  # of data
    parts: tuple[Part, ...]
    count: int
    moved: Rows
    op: npt.NDArray[np.int8]
    commit_ts: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    index: npt.NDArray[np.int32]
    origin: npt.NDArray[np.int32]  # number of the partition among those of all the blocks
    keys: tuple[pa.Array, ...]  # text, by the table's key columns
    error_class: pa.Array | None  # None: no row has one
    error_message: pa.Array | None

    def data(self, rows: Rows) -> pa.StructArray:
        """The columns of these rows, which rise."""
        found = []
        bounds = np.searchsorted(rows, np.cumsum([part.count for part in self.parts]))
        begin = low = 0
        for part, high in zip(self.parts, bounds.tolist(), strict=True):
            if high > low:
                found.append(part.data(rows[low:high] - begin))
            begin, low = begin + part.count, high
        return found[0] if len(found) == 1 else pa.concat_arrays(found or [pa.nulls(0, self.shape)])


def origins_of(blocks: Sequence[RowBlock]) -> list[TopicPartition]:
    """The partitions of the blocks, in an order of their own."""
    return sorted({block.partition for block in blocks})


def due_pieces(task: TableTask, blocks: Sequence[RowBlock], limit: Ts) -> Iterator[Piece]:
    """Rows in ``(checkpoint, limit]`` whose events are not ignored; no piece is empty."""
    numbers = {partition: number for number, partition in enumerate(origins_of(blocks))}
    waiting: dict[pa.StructType, list[tuple[Part, pa.RecordBatch]]] = {}
    sizes: Counter[pa.StructType] = Counter()
    held_bytes = 0
    for block in blocks:
        for number, batch in enumerate(block.batches()):
            rows = _due(batch, block, task, limit)
            if rows is not None and not len(rows):
                continue
            size = batch.nbytes
            held_bytes += size
            part = Part(
                block=block,
                number=number,
                rows=rows,
                count=batch.num_rows if rows is None else len(rows),
                held=batch if held_bytes <= HELD_BYTES else None,
            )
            shape = batch.schema.field(DATA).type
            waiting.setdefault(shape, []).append((part, batch))
            sizes[shape] += size
            if sizes[shape] >= PIECE_BYTES:
                del sizes[shape]
                yield _piece(shape, waiting.pop(shape), task.schema.key, numbers)
    for shape, batches in waiting.items():
        yield _piece(shape, batches, task.schema.key, numbers)


def _due(batch: pa.RecordBatch, block: RowBlock, task: TableTask, limit: Ts) -> Rows | None:
    """Which rows are due; None: all."""
    is_due: Mask | None = None
    if block.min_ts <= task.checkpoint or block.max_ts > limit:
        commit_ts = batch.column("commit_ts").to_numpy()
        is_due = (commit_ts > task.checkpoint) & (commit_ts <= limit)
    for event in task.ignored_events:
        is_other = batch.column("op").to_numpy() != _EVENTS[event]
        is_due = is_other if is_due is None else is_due & is_other
    return None if is_due is None or is_due.all() else np.flatnonzero(is_due)


def _piece(
    shape: pa.StructType,
    batches: _Batches,
    key: Sequence[str],
    numbers: Mapping[TopicPartition, int],
) -> Piece:
    counts = [part.count for part, _ in batches]
    origins = np.array([numbers[part.block.partition] for part, _ in batches], np.int32)
    entries = {
        name: _joined([part.due(batch.column(name)).to_numpy() for part, batch in batches])
        for name in ("op", "commit_ts", "offset", "index")
    }
    entries["origin"] = np.repeat(origins, counts)
    places = {field.name: number for number, field in enumerate(shape)}
    keys = [_key_text(batches, places.get(name)) for name in key]
    moved, old_keys = _old_keys(batches, key, places)
    if len(moved):
        keys = [pa.concat_arrays(both) for both in zip(keys, old_keys, strict=True)]
        entries = {name: np.append(column, column[moved]) for name, column in entries.items()}
        entries["op"][-len(moved) :] = OP_DELETE
    return Piece(
        shape=shape,
        parts=tuple(part for part, _ in batches),
        count=sum(counts),
        moved=moved,
        **entries,
        keys=tuple(keys),
        error_class=_errors(batches, ERROR_CLASS),
        error_message=_errors(batches, ERROR_MESSAGE),
    )


def _joined(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _key_text(batches: _Batches, place: int | None) -> pa.Array:
    found = [
        pa.nulls(part.count, pa.string())
        if place is None
        else part.due(batch.column(DATA).field(place))
        for part, batch in batches
    ]
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _errors(batches: _Batches, name: str) -> pa.Array | None:
    if all(name not in batch.schema.names for _, batch in batches):
        return None
    return pa.concat_arrays(
        part.due(batch.column(name))
        if name in batch.schema.names
        else pa.nulls(part.count, pa.string())
        for part, batch in batches
    )


def _old_keys(
    batches: _Batches, key: Sequence[str], places: Mapping[str, int]
) -> tuple[Rows, list[pa.Array]]:
    """The rows of which ``old`` tells another key, and that key's text. A key column that ``old``
    lacks is as in ``data``."""
    moved: list[Rows] = []
    found: list[list[pa.Array]] = []
    begin = 0
    for part, batch in batches:
        if part.block.key_changes and OLD in batch.schema.names:
            old = batch.column(OLD)
            old_places = {field.name: number for number, field in enumerate(old.type)}
            differs = np.zeros(part.count, np.bool_)
            keys = []
            for name in key:
                now = before = _key_text([(part, batch)], places.get(name))
                if name in old_places:  # a field of ``old`` is null where there is no old row
                    before = part.due(pc.struct_field(old, [old_places[name]]))
                    changed = pc.fill_null(pc.not_equal(before, now), False)
                    differs |= np.asarray(changed.to_numpy(zero_copy_only=False))
                    before = pc.coalesce(before, now)
                keys.append(before)
            rows = np.flatnonzero(differs)
            if len(rows):
                moved.append(rows + begin)
                found.append([text.take(pa.array(rows)) for text in keys])
        begin += part.count
    if not moved:
        return NO_ROWS, []
    return np.concatenate(moved), [pa.concat_arrays(each) for each in zip(*found, strict=True)]
