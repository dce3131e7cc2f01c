"""The rows of a table's blocks that are due, as columns: what the order and the key need at once,
the other cells when somebody asks for those of certain rows.

    blocks ──due? (commit-ts, event filter)──► Part: of one record batch
    Parts of one shape ──► Piece: their columns one after the other, in rows numbered from 0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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

HELD_BYTES: Final = 256 << 20  # decompressed; further blocks are read again for their other cells
PIECE_BYTES: Final = 128 << 20  # decompressed: no column of text comes near the 2 GiB of an array

Rows = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]
_EVENTS: Final = {"delete": OP_DELETE, "insert": OP_INSERT, "update": OP_UPDATE}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """The due rows of one record batch of a block."""

    block: RowBlock
    number: int  # of the batch in its block
    rows: Rows | None  # which are due; None: all
    count: int
    size_bytes: int  # decompressed, due or not
    held: pa.RecordBatch | None  # None: it is read again

    def batch(self) -> pa.RecordBatch:
        return self.held if self.held is not None else self.block.batches()[self.number]

    def due(self, column: pa.Array) -> pa.Array:
        """Of a column of the batch, the due rows."""
        return column if self.rows is None else column.take(pa.array(self.rows))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovedKeys:
    """UPDATEs that may have changed the key, and the text of their old key."""

    rows: Rows
    keys: tuple[pa.Array, ...]  # by the table's key columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Due rows of one shape."""

    shape: pa.StructType  # of data
    parts: tuple[Part, ...]
    op: npt.NDArray[np.int8]
    commit_ts: Ints
    offset: Ints
    index: npt.NDArray[np.int32]
    origin: npt.NDArray[np.int32]  # number of the partition among those of all the blocks
    keys: tuple[pa.Array, ...]  # text, by the table's key columns
    moved: MovedKeys | None
    error_class: pa.Array | None  # None: no row has one
    error_message: pa.Array | None

    def __len__(self) -> int:
        return len(self.op)

    def columns(self) -> list[str]:
        return [each.name for each in self.shape]

    def cells(self, rows: Rows) -> pa.StructArray:
        """``data`` of these rows, which rise."""
        found = []
        begin = 0
        bounds = np.searchsorted(rows, np.cumsum([part.count for part in self.parts]))
        low = 0
        for part, high in zip(self.parts, bounds.tolist(), strict=True):
            if high > low:
                wanted = rows[low:high] - begin
                found.append(_gathered(part, wanted))
            begin, low = begin + part.count, high
        return found[0] if len(found) == 1 else pa.concat_arrays(found or [pa.nulls(0, self.shape)])


@dataclass(slots=True)
class _HeldRows:
    """How much is held decompressed."""

    bytes: int = 0

    def takes(self, size: int) -> bool:
        self.bytes += size
        return self.bytes <= HELD_BYTES


@dataclass(slots=True)
class _Collected:
    """Parts of one shape, and their batches as long as the piece is being made."""

    shape: pa.StructType
    bytes: int = 0
    parts: list[Part] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)


def origins_of(blocks: Sequence[RowBlock]) -> list[TopicPartition]:
    """The partitions of the blocks, in an order of their own."""
    return sorted({block.partition for block in blocks})


def due_pieces(task: TableTask, blocks: Sequence[RowBlock], limit: Ts) -> list[Piece]:
    """Rows in ``(checkpoint, limit]`` whose events are not ignored; no piece is empty."""
    numbers = {partition: number for number, partition in enumerate(origins_of(blocks))}
    return [
        _piece(collected, task.schema.key, numbers) for collected in _collected(task, blocks, limit)
    ]


def _collected(task: TableTask, blocks: Sequence[RowBlock], limit: Ts) -> Iterator[_Collected]:
    open_ones: list[_Collected] = []
    held = _HeldRows()
    for block in blocks:
        for number, batch in enumerate(block.batches()):
            rows = _due(batch, block, task, limit)
            if rows is not None and not len(rows):
                continue
            shape = batch.schema.field(DATA).type
            here = next((each for each in open_ones if each.shape.equals(shape)), None)
            if here is None:
                here = _Collected(shape)
                open_ones.append(here)
            size = batch.nbytes
            here.parts.append(
                Part(
                    block=block,
                    number=number,
                    rows=rows,
                    count=batch.num_rows if rows is None else len(rows),
                    size_bytes=size,
                    held=batch if held.takes(size) else None,
                )
            )
            here.batches.append(batch)
            here.bytes += size
            if here.bytes >= PIECE_BYTES:
                open_ones.remove(here)
                yield here
    yield from open_ones


def _due(batch: pa.RecordBatch, block: RowBlock, task: TableTask, limit: Ts) -> Rows | None:
    """Which rows are due; None: all."""
    is_due: npt.NDArray[np.bool_] | None = None
    if block.min_ts <= task.checkpoint or block.max_ts > limit:
        commit_ts = batch.column("commit_ts").to_numpy()
        is_due = (commit_ts > task.checkpoint) & (commit_ts <= limit)
    for event in task.ignored_events:
        is_other = batch.column("op").to_numpy() != _EVENTS[event]
        is_due = is_other if is_due is None else is_due & is_other
    return None if is_due is None or is_due.all() else np.flatnonzero(is_due)


def _piece(collected: _Collected, key: Sequence[str], numbers: dict[TopicPartition, int]) -> Piece:
    pairs = list(zip(collected.parts, collected.batches, strict=True))
    counts = [part.count for part in collected.parts]
    origins = [numbers[part.block.partition] for part in collected.parts]
    places = {each.name: number for number, each in enumerate(collected.shape)}
    heads = {
        name: _numbers([part.due(batch.column(name)) for part, batch in pairs])
        for name in ("op", "commit_ts", "offset", "index")
    }
    errors = {name: _texts(pairs, name) for name in (ERROR_CLASS, ERROR_MESSAGE)}
    return Piece(
        shape=collected.shape,
        parts=tuple(collected.parts),
        **heads,
        origin=np.repeat(np.array(origins, np.int32), counts),
        keys=tuple(_key_text(pairs, places.get(name)) for name in key),
        moved=_moved(pairs, key, places),
        error_class=errors[ERROR_CLASS],
        error_message=errors[ERROR_MESSAGE],
    )


_Pairs = Sequence[tuple[Part, pa.RecordBatch]]


def _numbers(arrays: Sequence[pa.Array]) -> npt.NDArray[Any]:
    columns = [array.to_numpy() for array in arrays]
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _texts(pairs: _Pairs, name: str) -> pa.Array | None:
    if all(name not in batch.schema.names for _, batch in pairs):
        return None
    return pa.concat_arrays(
        [
            part.due(batch.column(name))
            if name in batch.schema.names
            else pa.nulls(part.count, pa.string())
            for part, batch in pairs
        ]
    )


def _key_text(pairs: _Pairs, place: int | None) -> pa.Array:
    found = []
    for part, batch in pairs:
        if place is None:
            found.append(pa.nulls(part.count, pa.string()))
            continue
        found.append(part.due(batch.column(DATA).field(place)))
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _moved(pairs: _Pairs, key: Sequence[str], places: dict[str, int]) -> MovedKeys | None:
    """Where ``old`` tells another key. A key column that it lacks is as in ``data``."""
    found: list[tuple[Rows, list[pa.Array]]] = []
    begin = 0
    for part, batch in pairs:
        if part.block.key_changes and OLD in batch.schema.names:
            rows, keys = _moved_in(part, batch, key, places)
            if len(rows):
                found.append((rows + begin, keys))
        begin += part.count
    if not found:
        return None
    columns = zip(*(keys for _, keys in found), strict=True)
    return MovedKeys(
        rows=np.concatenate([rows for rows, _ in found]),
        keys=tuple(pa.concat_arrays(list(column)) for column in columns),
    )


def _moved_in(
    part: Part, batch: pa.RecordBatch, key: Sequence[str], places: dict[str, int]
) -> tuple[Rows, list[pa.Array]]:
    old = batch.column(OLD)
    old_places = {each.name: number for number, each in enumerate(old.type)}
    differs = np.zeros(part.count, np.bool_)
    keys = []
    for name in key:
        now = _key_text([(part, batch)], places.get(name))
        if name not in old_places:
            keys.append(now)
            continue
        before = part.due(pc.struct_field(old, [old_places[name]]))  # null where there is no old
        changed = pc.fill_null(pc.not_equal(before, now), False)
        differs |= np.asarray(changed.to_numpy(zero_copy_only=False))
        keys.append(pc.coalesce(before, now))
    rows = np.flatnonzero(differs)
    return rows, [text.take(pa.array(rows)) for text in keys]


def _gathered(part: Part, wanted: Rows) -> pa.StructArray:
    """``data`` of some of a part's rows; ``wanted`` counts the due ones."""
    data = part.batch().column(DATA)
    if len(wanted) == part.count:
        rows = part.rows
    else:
        rows = wanted if part.rows is None else part.rows[wanted]
    return data if rows is None else data.take(pa.array(rows))
