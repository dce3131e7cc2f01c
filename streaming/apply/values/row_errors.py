"""The reasons why rows cannot be applied, row by row, as the dead letters will have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import Ts
from sinks.types.casts.dates import is_storable
from sinks.types.delta_types import delta_type
from sinks.types.masks import HIDDEN
from sinks.types.table_schema import MOMENTS, Column
from streaming.apply.row_block import RowBlock
from streaming.apply.rows_to_apply import OP_OF_EVENT, Piece, RowNumbers, pieces_to_apply
from streaming.apply.table_task import TableTask
from streaming.protocols.contract import DAMAGED, LETTER_HEAD

CAST: Final = "cast"  # error classes
UNKNOWN_COLUMN: Final = "unknown-column"
NO_KEY: Final = "no-key"
NO_KEY_MESSAGE: Final = "the table has no primary key and no NOT NULL unique key that is known"
NO_COLUMN_MESSAGE: Final = "the table has no key, and the message names no column of the row"
CHECKSUM_ERROR: Final = "checksum"
DAMAGED_MESSAGE: Final = (
    "TiCDC found the row damaged: in TiKV it has the checksum of another one. Compare it with the "
    "database before you replay or resolve it"
)
NO_WHOLE_ROW: Final = "no-whole-row"
NO_OLD_ROW_MESSAGE: Final = (
    "an UPDATE without its old row: all columns of that row are needed to find it in the table "
    "(key = 'all-columns')"
)
NO_OLD_TO_ASK_MESSAGE: Final = (
    "an UPDATE without its old row, about which ignore-update-old-value-expr asks"
)
NO_TABLE: Final = "no-table"
NO_TABLE_MESSAGE: Final = (
    "the table has no target yet: no whole row has told its columns and its key"
)
NO_DAY_MESSAGE: Final = "no date that Delta has, and zero-date = 'fail'"
NO_DAY_IN_KEY_MESSAGE: Final = (
    "no date that Delta has, and a key can have none such but 0000-00-00, which is NULL in it: two "
    "rows could not be told apart (zero-date, docs/types.md)"
)
QUOTED_CHARS: Final = 80  # of a bad value in an error message

ERRORS: Final = pa.schema(
    [
        ("part", pa.string()),
        ("position", pa.int64()),
        ("index", pa.int32()),
        ("commit_ts", pa.int64()),
        ("error_class", pa.string()),
        ("message", pa.string()),
        ("head", pa.dictionary(pa.int32(), pa.binary())),  # `contract.LETTER_HEAD`, or null
    ]
)
_NO_ERRORS: Final = ERRORS.empty_table()


@dataclass(frozen=True, slots=True, eq=False)
class RowErrors:
    """Rows of one piece that cannot be applied, with an error class and a message each."""

    rows: RowNumbers
    error_class: pa.Array
    message: pa.Array

    def where(self, is_wanted: npt.NDArray[np.bool_]) -> RowErrors:
        """Some of these errors. ``is_wanted`` has one entry for each of ``rows``."""
        if is_wanted.all():
            return self
        mask = pa.array(is_wanted)
        return RowErrors(
            self.rows[is_wanted], self.error_class.filter(mask), self.message.filter(mask)
        )


def cast_errors(
    rows: RowNumbers, text: pa.Array, column: Column, rule: str = NO_DAY_MESSAGE
) -> RowErrors:
    """The errors of rows whose ``text`` in a column cannot be cast, or is NULL in a key column.
    ``rule``: why a date that Delta does not have is one. A value that the target does not have in
    clear is not shown."""
    is_hidden = bool(column.mask) or column.left_out
    if is_hidden:
        text = pc.if_else(text.is_valid(), HIDDEN, pa.scalar(None, pa.string()))
    quoted = pc.utf8_slice_codeunits(text, 0, QUOTED_CHARS)
    cannot_read = pc.binary_join_element_wise(
        f"column {column.name}: cannot read '", quoted, f"' as {delta_type(column.type)}", ""
    )
    if column.type.name in MOMENTS and not is_hidden:
        no_day = pc.binary_join_element_wise(f"column {column.name}: '", quoted, f"' is {rule}", "")
        cannot_read = pc.if_else(pa.array(is_storable(text)), no_day, cannot_read)
    message = pc.fill_null(cannot_read, f"column {column.name}: a key column has no value")
    return RowErrors(rows, same_text(CAST, rows), message)


def unknown_column_errors(rows: RowNumbers, names: Sequence[str]) -> RowErrors:
    """The errors of rows that have columns which the target table lacks."""
    message = (
        f"the target table lacks column {', '.join(names)}: a filter or an operator has passed over"
        " the DDL that adds it. Let that DDL run and rewind to below it, or set on-unknown-column ="
        " 'drop'"
    )
    return RowErrors(rows, same_text(UNKNOWN_COLUMN, rows), same_text(message, rows))


def incomplete_errors(rows: RowNumbers, names: Sequence[str]) -> RowErrors:
    """The errors of rows that lack columns of a table whose rows are found by all of them."""
    message = (
        f"the message lacks column {', '.join(names)}, and the table's rows are found by all "
        "columns (key = 'all-columns')"
    )
    return RowErrors(rows, same_text(NO_WHOLE_ROW, rows), same_text(message, rows))


def untold_errors(rows: RowNumbers, names: Sequence[str]) -> RowErrors:
    """The errors of rows of a binlog that do not tell the values of these columns."""
    message = (
        f"the binlog does not tell column {', '.join(names)} of this row. If binlog_row_image was "
        "not FULL: SET GLOBAL binlog_row_image = 'FULL' on the server, let its sessions connect "
        "again, and bring the row again (UPDATE it there). A MariaDB from 11 on never tells a "
        "generated column of an updated row: leave it out with [[sink.column-selectors]], and copy "
        "the table again"
    )
    return RowErrors(rows, same_text(NO_WHOLE_ROW, rows), same_text(message, rows))


def no_column_errors(rows: RowNumbers, names: Sequence[str], key: str) -> RowErrors:
    """The errors of rows that lack columns about which the condition of an event filter asks."""
    message = f"the message lacks column {', '.join(names)}, about which {key} asks"
    return RowErrors(rows, same_text(NO_WHOLE_ROW, rows), same_text(message, rows))


def checksum_errors(
    rows: RowNumbers, told: npt.NDArray[np.int64], found: npt.NDArray[np.int64]
) -> RowErrors:
    """``told``: as in a block."""
    messages = [
        DAMAGED_MESSAGE
        if one == DAMAGED
        else f"the row has the checksum {other}, and TiCDC computed {one}: a value of it was "
        "changed on the way here"
        for one, other in zip(told.tolist(), found.tolist(), strict=True)
    ]
    return RowErrors(rows, same_text(CHECKSUM_ERROR, rows), pa.array(messages, pa.string()))


def no_old_row_errors(rows: RowNumbers) -> RowErrors:
    return RowErrors(rows, same_text(NO_WHOLE_ROW, rows), same_text(NO_OLD_ROW_MESSAGE, rows))


def no_place_errors(rows: RowNumbers) -> RowErrors:
    """The errors of events with a value that has no place in the type that its column has now."""
    message = "a value has no place in the type that a later DDL has given its column"
    return RowErrors(rows, same_text(CAST, rows), same_text(message, rows))


def told_errors(piece: Piece, rows: RowNumbers, otherwise: tuple[str, str] = ("", "")) -> RowErrors:
    """The errors that the decoder reported for these rows; for rows without one, ``otherwise`` (an
    error class and a message)."""
    at = pa.array(rows)
    told = (piece.error_class, piece.error_message)
    texts = [
        same_text(text, rows) if column is None else pc.fill_null(column.take(at), text)
        for column, text in zip(told, otherwise, strict=True)
    ]
    return RowErrors(rows, *texts)


def keyless_errors(task: TableTask, blocks: Sequence[RowBlock], limit: Ts) -> pa.Table:
    """An error, of schema ``ERRORS``, for every due row of a table that has no target, unless a
    filter ignores its kind of event."""
    reason = (NO_KEY, NO_KEY_MESSAGE) if task.is_keyless else (NO_TABLE, NO_TABLE_MESSAGE)
    errors = [
        (piece, told_errors(piece, np.flatnonzero(_is_taken(piece, task)), reason))
        for piece in pieces_to_apply(task, blocks, limit)
    ]
    return error_table(errors)


def _is_taken(piece: Piece, task: TableTask) -> npt.NDArray[np.bool_]:
    is_taken, begin = np.ones(piece.count, np.bool_), 0
    for upstream, count in piece.upstreams():
        op = piece.op[begin : begin + count]
        for event in task.filters[upstream].events if upstream in task.filters else ():
            is_taken[begin : begin + count] &= op != OP_OF_EVENT[event]
        begin += count
    return is_taken


def error_table(found: Sequence[tuple[Piece, RowErrors]]) -> pa.Table:
    """The errors of all pieces as one table of schema ``ERRORS``, in no particular order."""
    if not found:
        return _NO_ERRORS
    batches = []
    for piece, errors in found:
        at = errors.rows
        origin = pa.array(piece.origin[at])
        arrays = [
            pa.array(piece.parts, pa.string()).take(origin),
            pa.array(piece.position[at]),
            pa.array(piece.index[at]),
            pa.array(piece.commit_ts[at]),
            errors.error_class,
            _with_origins(piece, errors),
            _heads(piece, errors),
        ]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=ERRORS))
    return pa.Table.from_batches(batches, ERRORS)


def _with_origins(piece: Piece, errors: RowErrors) -> pa.Array:
    """The messages, each with the upstream table of its row, where that is not the target's
    name."""
    origins = [str(due.block.upstream) for due in piece.batches]
    if all(due.block.upstream == due.block.name for due in piece.batches):
        return errors.message
    tables = pa.array(origins, pa.string()).take(pa.array(_batches_of(piece, errors.rows)))
    return pc.binary_join_element_wise("table ", tables, ": ", errors.message, "")


def _heads(piece: Piece, errors: RowErrors) -> pa.DictionaryArray:
    """What the bytes of each row's letter begin with."""
    batches, which = np.unique(_batches_of(piece, errors.rows), return_inverse=True)
    schemas = (piece.batches[batch].block.plain_schema() for batch in batches.tolist())
    told = [schema.metadata.get(LETTER_HEAD) for schema in schemas]
    heads = [each for each in dict.fromkeys(told) if each is not None]
    numbers = pa.array([None if each is None else heads.index(each) for each in told], pa.int32())
    return pa.DictionaryArray.from_arrays(
        numbers.take(pa.array(which)), pa.array(heads, pa.binary())
    )


def _batches_of(piece: Piece, rows: RowNumbers) -> RowNumbers:
    """The batch of each row, by number."""
    ends = np.cumsum([due.count for due in piece.batches])
    return np.searchsorted(ends, rows, side="right")


def same_text(text: str, rows: RowNumbers) -> pa.Array:
    """The text for each of the rows."""
    return pa.repeat(pa.scalar(text, pa.string()), len(rows))
