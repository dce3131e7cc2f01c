"""Rows that cannot be applied, as dead letters ask for them (rule 8).

What is here is why and where; their bytes are read once more by their offsets, by whoever buries
them: to keep every row's bytes for the few that fail would double what is held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from coordination.model import TableName, Ts
from streaming.apply.due_rows import due_pieces, origins_of
from streaming.apply.row_block import RowBlock
from streaming.apply.row_errors import error_table, told_errors
from streaming.apply.table_task import TableTask

NO_KEY: Final = "no-key"  # error classes
NO_KEY_MESSAGE: Final = "the table has no primary key and no NOT NULL unique key that is known"
NO_TABLE: Final = "no-table"
NO_TABLE_MESSAGE: Final = (
    "there is no target: no whole row has told yet which columns and key it has"
)

REASONS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("commit_ts", pa.int64()),
        ("error_class", pa.string()),
        ("message", pa.string()),
    ]
)
_ORDER: Final = [(name, "ascending") for name in ("topic", "partition", "offset")]


def keyless_errors(task: TableTask, blocks: Sequence[RowBlock], limit: Ts) -> pa.Table:
    """``row_errors.ERRORS`` of every due row of a table without a target."""
    reason = (NO_KEY, NO_KEY_MESSAGE) if task.is_keyless else (NO_TABLE, NO_TABLE_MESSAGE)
    errors = [
        (piece, told_errors(piece, np.arange(len(piece)), reason))
        for piece in due_pieces(task, blocks, limit)
    ]
    return error_table(errors, origins_of(blocks))


def reasons(errors: Mapping[TableName, pa.Table]) -> pa.Table:
    """``REASONS`` by topic, partition and offset, a row per message: of one with several rows that
    cannot be applied, the first one's."""
    tables = [_named(name, table) for name, table in errors.items() if len(table)]
    if not tables:
        return REASONS.empty_table()
    every = pa.concat_tables(tables).sort_by([*_ORDER, ("index", "ascending")])
    return every.take(_first_of_each_message(every)).select(REASONS.names).cast(REASONS)


def _named(name: TableName, errors: pa.Table) -> pa.Table:
    for column, text in (("schema_name", name.schema), ("table_name", name.table)):
        errors = errors.append_column(column, pa.repeat(pa.scalar(text, pa.string()), len(errors)))
    return errors


def _first_of_each_message(ordered: pa.Table) -> pa.Array:
    is_new = np.zeros(len(ordered), np.bool_)
    is_new[0] = True
    for name, _ in _ORDER:
        column = ordered[name].combine_chunks()
        values = column.dictionary_encode().indices if pa.types.is_string(column.type) else column
        numbers = values.to_numpy()
        is_new[1:] |= numbers[1:] != numbers[:-1]
    return pa.array(np.flatnonzero(is_new))
