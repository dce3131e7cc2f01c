"""The due rows of a table's blocks, as columns: those for order and key at once, the other values
later and only for the rows that need them.

    blocks ──due? (commit-ts)──► DueBatch: the due rows of one record batch
    Parts of one shape ──► Piece: their columns concatenated, rows numbered from 0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName, Ts
from sinks.ddl.past_schemas import PastSchema
from sinks.types.casts.typed_cells import of_one_type
from sinks.types.table_schema import TableSchema
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import TableTask
from streaming.protocols.contract import (
    CHECKSUM,
    DATA,
    ERROR_CLASS,
    ERROR_MESSAGE,
    OLD,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Cells,
    Order,
    cells_of,
    order_of,
)
from streaming.protocols.rows.safe_names import with_names

# Decompressed bytes that are kept in memory; further blocks are read again for their other values.
HELD_BYTES: Final = 256 << 20
# Decompressed bytes of a piece; so its text columns stay far below an Arrow array's 2 GiB.
PIECE_BYTES: Final = 128 << 20

RowNumbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NO_ROWS: Final[RowNumbers] = np.empty(0, np.int64)
OP_OF_EVENT: Final = {"delete": OP_DELETE, "insert": OP_INSERT, "update": OP_UPDATE}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DueBatch:
    """The due rows of one record batch of a block."""

    block: RowBlock
    number: int  # of the batch in its block
    rows: RowNumbers | None  # the rows that are due; None: all
    count: int
    held: pa.RecordBatch | None  # None: read the batch from the block again
    schema: TableSchema  # at their commit-ts

    def of(self, column: pa.Array) -> pa.Array:
        """The due rows of a column of the batch."""
        return column if self.rows is None else column.take(pa.array(self.rows))

    def values(self, side: str, wanted: RowNumbers) -> pa.StructArray | None:
        """The columns of ``side`` (DATA or OLD) of some of the due rows; None if the batch has no
        such side. ``wanted`` are their numbers among the due rows, from 0, rising."""
        batch = self.held
        if batch is None:
            batch = _named(self.block.batches()[self.number], self.schema)
        if side not in batch.schema.names:
            return None
        if len(wanted) == self.count:
            return self.of(batch.column(side))
        rows = wanted if self.rows is None else self.rows[wanted]
        return batch.column(side).take(pa.array(rows))


_Batches = Sequence[tuple[DueBatch, pa.RecordBatch]]


@dataclass(slots=True, eq=False)
class _Waiting:
    """Batches of one shape that are to be a piece, and their decompressed bytes."""

    shape: pa.StructType
    cells: Cells
    batches: list[tuple[DueBatch, pa.RecordBatch]] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Due rows of one shape, followed by DELETEs of the old keys of UPDATEs that changed the key
    (none in a change log, where an UPDATE is one event). ``of``: the table's shape at their
    commit-ts.

    ``op`` to ``keys`` have one entry for each of the ``count`` rows, and then one for each of these
    DELETEs; ``moved`` has the rows of their UPDATEs.
    """

    of: PastSchema
    order: Order
    cells: Cells
    shape: pa.StructType  # of data
    batches: tuple[DueBatch, ...]
    count: int
    moved: RowNumbers
    op: npt.NDArray[np.int8]
    commit_ts: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    index: npt.NDArray[np.int32]
    parts: tuple[str, ...]  # of all blocks
    origin: npt.NDArray[np.int32]  # the part, as its place in ``parts``
    keys: tuple[pa.Array, ...]  # cells, one array for each key column of ``of``
    error_class: pa.Array | None  # from the decoder; None: no row has an error
    error_message: pa.Array | None
    checksum: RowNumbers | None = None  # as in a block, by row; None: the messages have none

    def values(self, rows: RowNumbers, side: str = DATA) -> pa.StructArray:
        """The columns of ``shape`` of these rows; ``rows`` rises. With ``side`` OLD the old values,
        null for a row that has none. A column that has several types there is a text."""
        found = []
        bounds = np.searchsorted(rows, np.cumsum([due.count for due in self.batches]))
        begin = low = 0
        for due, high in zip(self.batches, bounds.tolist(), strict=True):
            if high > low:
                values = due.values(side, rows[low:high] - begin)
                found.append(_shaped(values, self.shape, high - low))
            begin, low = begin + due.count, high
        return found[0] if len(found) == 1 else _joined_values(found or [pa.nulls(0, self.shape)])

    def upstreams(self) -> Iterator[tuple[TableName, int]]:
        """The upstream tables of the rows, in order, with the number of rows that follow each
        other."""
        last, rows = None, 0
        for due in self.batches:
            if last is not None and due.block.upstream != last:
                yield last, rows
                rows = 0
            last, rows = due.block.upstream, rows + due.count
        if last is not None:
            yield last, rows

    def only(self, is_kept: Mask) -> Piece:
        """Some of the rows, each with the DELETE of its old key. ``is_kept``: by row."""
        batches, begin = [], 0
        for due in self.batches:
            here = np.flatnonzero(is_kept[begin : begin + due.count])
            begin += due.count
            if len(here):
                rows = here if due.rows is None else due.rows[here]
                batches.append(replace(due, rows=rows, count=len(here)))
        rows, of_old = np.flatnonzero(is_kept), np.flatnonzero(is_kept[self.moved])
        entries = np.append(rows, of_old + self.count)
        names = ("op", "commit_ts", "position", "index", "origin")
        at, of_rows = pa.array(entries), pa.array(rows)
        told = (self.error_class, self.error_message)
        error_class, error_message = (None if each is None else each.take(of_rows) for each in told)
        return replace(
            self,
            batches=tuple(batches),
            count=len(rows),
            moved=(np.cumsum(is_kept) - 1)[self.moved[of_old]],
            keys=tuple(cells.take(at) for cells in self.keys),
            error_class=error_class,
            error_message=error_message,
            **{name: getattr(self, name)[entries] for name in names},
        )


def _shaped(values: pa.StructArray | None, shape: pa.StructType, count: int) -> pa.StructArray:
    """The values by the columns of ``shape``, in whatever type they are; NULL for a missing
    column."""
    if values is None:
        return pa.nulls(count, shape)
    if values.type == shape:
        return values
    places = {field.name: number for number, field in enumerate(values.type)}
    columns = [
        values.field(places[field.name]) if field.name in places else pa.nulls(count, field.type)
        for field in shape
    ]
    return _struct(columns, shape.names, values.is_null())


def _joined_values(found: Sequence[pa.StructArray]) -> pa.StructArray:
    """Values of the same columns, one after the other."""
    if all(each.type == found[0].type for each in found):
        return pa.concat_arrays(found)
    names = found[0].type.names
    columns = [
        pa.concat_arrays(of_one_type([each.field(place) for each in found]))
        for place in range(len(names))
    ]
    return _struct(columns, names, pa.concat_arrays([each.is_null() for each in found]))


def _struct(columns: Sequence[pa.Array], names: Sequence[str], is_null: pa.Array) -> pa.StructArray:
    fields = [pa.field(name, each.type) for name, each in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=is_null)


def pieces_to_apply(task: TableTask, blocks: Sequence[RowBlock], limit: Ts) -> Iterator[Piece]:
    """The rows in ``(checkpoint, limit]`` whose events are not ignored, in pieces by shape and
    size. No piece is empty."""
    parts = tuple(sorted({block.part for block in blocks}))
    held_bytes = 0
    for above, last, of, ours in _by_shape(task, blocks, limit):
        waiting: list[_Waiting] = []  # to compare shapes takes less than to hash one
        for block in (each for each in ours if each.max_ts > above and each.min_ts <= last):
            for number, told in enumerate(block.batches()):
                batch = _named(told, of.schema)
                rows = _due(batch, block, task, above, last)
                if rows is not None and not len(rows):
                    continue
                size = batch.get_total_buffer_size()
                held_bytes += size
                due = DueBatch(
                    block=block,
                    number=number,
                    rows=rows,
                    count=batch.num_rows if rows is None else len(rows),
                    held=batch if held_bytes <= HELD_BYTES else None,
                    schema=of.schema,
                )
                shape = batch.schema.field(DATA).type
                kind = shape, cells_of(batch.schema)
                here = next((each for each in waiting if (each.shape, each.cells) == kind), None)
                if here is None:
                    here = _Waiting(*kind)
                    waiting.append(here)
                here.batches.append((due, batch))
                here.size += size
                if here.size >= PIECE_BYTES:
                    waiting.remove(here)
                    yield _piece(of, shape, here.batches, task, parts)
        for here in waiting:
            yield _piece(of, here.shape, here.batches, task, parts)


def _named(batch: pa.RecordBatch, of: TableSchema) -> pa.RecordBatch:
    """The rows by the names of the table's columns."""
    if cells_of(batch.schema) is not Cells.AVRO:
        return batch
    return with_names(batch, [column.name for column in of.delivered])


def _by_shape(
    task: TableTask, blocks: Sequence[RowBlock], limit: Ts
) -> Iterator[tuple[Ts, Ts, PastSchema, Sequence[RowBlock]]]:
    """As ``TableTask.ranges``, with the blocks of each shape. A table that is behind its target has
    one shape."""
    here = [each for each in blocks if each.upstream not in task.behind]
    for above, last, of in task.ranges(limit):
        yield above, last, of, here
    for upstream, of in task.behind.items():
        late = [each for each in blocks if each.upstream == upstream]
        if late:
            yield task.checkpoint, limit, of, late


def _due(
    batch: pa.RecordBatch, block: RowBlock, task: TableTask, above: Ts, last: Ts
) -> RowNumbers | None:
    """The rows that are due; None: all of them."""
    is_due: Mask | None = None
    if block.min_ts <= above or block.max_ts > last:
        commit_ts = batch.column("commit_ts").to_numpy()
        is_due = (commit_ts > above) & (commit_ts <= last)
    for event in task.ignored_events:
        is_other = batch.column("op").to_numpy() != OP_OF_EVENT[event]
        is_due = is_other if is_due is None else is_due & is_other
    return None if is_due is None or is_due.all() else np.flatnonzero(is_due)


def _piece(
    of: PastSchema,
    shape: pa.StructType,
    batches: _Batches,
    task: TableTask,
    parts: tuple[str, ...],
) -> Piece:
    schema, told = of.schema, batches[0][1].schema
    counts = [due.count for due, _ in batches]
    origins = np.array([parts.index(due.block.part) for due, _ in batches], np.int32)
    entries = {
        name: _joined([due.of(batch.column(name)).to_numpy() for due, batch in batches])
        for name in ("op", "commit_ts", "position", "index")
    }
    entries["origin"] = np.repeat(origins, counts)
    places = {field.name: number for number, field in enumerate(shape)}
    keys = [_key_cells(batches, places.get(name)) for name in schema.key]
    moved, old_keys = (NO_ROWS, []) if task.is_log else _old_keys(batches, schema, places)
    if len(moved):
        both = zip(keys, old_keys, strict=True)
        keys = [pa.concat_arrays(of_one_type(each)) for each in both]
        entries = {name: np.append(column, column[moved]) for name, column in entries.items()}
        entries["op"][-len(moved) :] = OP_DELETE
    return Piece(
        of=of,
        order=order_of(told),
        cells=cells_of(told),
        shape=shape,
        batches=tuple(due for due, _ in batches),
        count=sum(counts),
        moved=moved,
        parts=parts,
        **entries,
        keys=tuple(keys),
        error_class=_errors(batches, ERROR_CLASS),
        error_message=_errors(batches, ERROR_MESSAGE),
        checksum=_checksums(batches),
    )


def _joined(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _key_cells(batches: _Batches, place: int | None) -> pa.Array:
    found = [
        pa.nulls(due.count, pa.string())
        if place is None
        else due.of(batch.column(DATA).field(place))
        for due, batch in batches
    ]
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _errors(batches: _Batches, name: str) -> pa.Array | None:
    if all(name not in batch.schema.names for _, batch in batches):
        return None
    return pa.concat_arrays(
        due.of(batch.column(name))
        if name in batch.schema.names
        else pa.nulls(due.count, pa.string())
        for due, batch in batches
    )


def _checksums(batches: _Batches) -> RowNumbers | None:
    if all(CHECKSUM not in batch.schema.names for _, batch in batches):
        return None
    return _joined(
        [
            due.of(batch.column(CHECKSUM)).to_numpy()
            if CHECKSUM in batch.schema.names
            else np.zeros(due.count, np.int64)
            for due, batch in batches
        ]
    )


def _old_keys(
    batches: _Batches, schema: TableSchema, places: Mapping[str, int]
) -> tuple[RowNumbers, list[pa.Array]]:
    """The rows whose ``old`` has another key than ``data``, and the cells of the old keys. A key
    column that ``old`` lacks has the same value as in ``data``; where all columns are the key, the
    old row is whole, and its NULLs are values."""
    moved: list[RowNumbers] = []
    found: list[list[pa.Array]] = []
    begin = 0
    for due, batch in batches:
        if due.block.key_changes and OLD in batch.schema.names:
            old = batch.column(OLD)
            old_places = {field.name: number for number, field in enumerate(old.type)}
            differs = np.zeros(due.count, np.bool_)
            keys = []
            for name in schema.key:
                now = before = _key_cells([(due, batch)], places.get(name))
                if name in old_places:  # a field of ``old`` is null where there is no old row
                    before = due.of(pc.struct_field(old, [old_places[name]]))
                    before, now = of_one_type([before, now])
                    changed = pc.fill_null(pc.not_equal(before, now), False)
                    if schema.key_is_row:
                        changed = pc.or_(changed, pc.xor(before.is_null(), now.is_null()))
                    else:
                        before = pc.coalesce(before, now)
                    differs |= np.asarray(changed.to_numpy(zero_copy_only=False))
                keys.append(before)
            if schema.key_is_row:
                differs &= due.of(old.is_valid()).to_numpy(zero_copy_only=False)
            rows = np.flatnonzero(differs)
            if len(rows):
                moved.append(rows + begin)
                found.append([cells.take(pa.array(rows)) for cells in keys])
        begin += due.count
    if not moved:
        return NO_ROWS, []
    columns = zip(*found, strict=True)
    return np.concatenate(moved), [pa.concat_arrays(of_one_type(each)) for each in columns]
