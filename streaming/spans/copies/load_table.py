"""The load of a copied table: its staged files become the table's first version.

    staged Parquet ─► row blocks ─► the casts of the stream ─► `sinks` `TableLoad`: one commit

The rows go the way of rows of the stream, as inserts at the moment from which the table goes on:
so values, write modes and errors are the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.merge_on_write.alter.made_anew import MadeAnew
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.load import TableLoad
from sinks.target.engine_port import Target
from streaming.apply.change_log import change_log_rows
from streaming.apply.changes import TableChanges, changes
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.protocols.contract import (
    DATA,
    OP_INSERT,
    ROW_FIELDS,
    Cells,
    Order,
    wire_metadata,
)
from streaming.source.dump.copy_tables import CopiedTable, CopyProgress
from streaming.spans.copies.leftover import load_note

PIECE_ROWS: Final = 500_000
_INDEX: Final = (1 << 31) - 1  # of a row, within its piece


@dataclass(slots=True, kw_only=True)
class Loaded:
    """``version``: with the rows. ``nulled``: by column, dates that Delta does not have."""

    version: int
    nulled: Counter[str] = field(default_factory=Counter)


def load_table(
    engine: MergeOnWriteEngine,
    copies: Sequence[CopiedTable],
    target: Target,
    at_ts: Ts,
    rules: ChangeRules,
    *,
    added: Mapping[TableName, tuple[tuple[str, str], ...]],
    part: str,
    position: int,
    loads: str = "",
    anew: str = "",
    made_anew: MadeAnew | None = None,
    on_progress: Callable[[CopyProgress], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> Loaded:
    """Fill ``target`` with the copied rows of its upstream tables, as they were at ``at_ts``; once.
    ``added``: the columns that tell each of these. ``loads``: see ``load_note``.
    ``anew``: how the copy is made anew, for an error. ``made_anew``: what the rows put in the place
    of all that the target has; None: it has none. Raises ConfigError for a value that the
    target cannot have, and what `TableLoad` raises."""
    nulled: Counter[str] = Counter()
    task = TableTask(
        name=target.name, schema=target.schema, checkpoint=Ts(at_ts - 1), form=target.form
    )

    counting, done = threading.Lock(), 0

    def rows_of(block: RowBlock) -> pa.Table:
        nonlocal done
        cast = change_log_rows if task.is_log else changes
        found: TableChanges = cast(task, [block], at_ts, rules)
        _refuse_errors(block.upstream, found.errors, anew)
        with counting:
            nulled.update(found.nulled)
            done += block.rows
            left = done  # one table comes after the other, about
            for copied in copies:
                on_progress(loading(copied, min(left, copied.rows)))
                left -= min(left, copied.rows)
        return found.rows

    def pieces() -> Iterator[Callable[[], pa.Table]]:
        for copied in copies:
            for block in _blocks(copied, target.name, at_ts, part, position):
                yield partial(rows_of, replace(block, added=added[copied.table.name]))

    order = TableLoad(
        target=target,
        limit=at_ts,
        pieces=pieces(),
        user_metadata=load_note(sum(each.rows for each in copies), at_ts, loads),
        before_commit=check,
        anew=made_anew,
    )
    return Loaded(version=engine.load(order).version, nulled=nulled)


def _blocks(
    copied: CopiedTable, name: TableName, at_ts: Ts, part: str, position: int
) -> Iterator[RowBlock]:
    table = copied.table
    types = [(column.name, str(column.type)) for column in table.columns]
    metadata = wire_metadata(types, table.key or None, order=Order.PLACE, cells=Cells.TYPED)
    index = 0
    for path in copied.files:
        for rows in _read(path):
            count = rows.num_rows
            data = pa.StructArray.from_arrays(
                [rows.column(name).combine_chunks() for name in rows.column_names],
                names=rows.column_names,
            )
            columns = [
                pa.array(np.full(count, OP_INSERT, np.int8)),
                pa.array(np.full(count, at_ts, np.int64)),
                pa.array(np.full(count, position, np.int64)),
                pa.array((np.arange(index, index + count) & _INDEX).astype(np.int32)),
                data,
            ]
            schema = pa.schema([*ROW_FIELDS, pa.field(DATA, data.type)], metadata=metadata)
            index += count
            yield RowBlock(
                name=name,
                origin=table.name,
                part=part,
                rows=count,
                min_ts=at_ts,
                max_ts=at_ts,
                first=position,
                last=position,
                key_changes=0,
                body=_plain(pa.table(columns, schema=schema)),
            )


def _plain(table: pa.Table) -> pa.Buffer:
    """As blocks of a stream have it, but not compressed: it is read at once."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(PIECE_ROWS):
            yield pa.Table.from_batches([batch])


def _refuse_errors(name: TableName, errors: pa.Table, anew: str) -> None:
    if errors.num_rows:
        first = errors.slice(0, 1).to_pylist()[0]
        raise ConfigError(
            f"table {name} cannot be copied: {errors.num_rows} of its rows have values that "
            f"its target cannot have; the first one: {first['message']}. See zero-date and "
            "docs/types.md; or leave the table out with [filter] rules; or mend the rows, and "
            f"{anew}, since the copy has them as they were"
        )


def loading(copied: CopiedTable, rows: int, *, is_done: bool = False) -> CopyProgress:
    """The progress of a table of which so many rows are loaded."""
    loaded = copied.bytes * rows // copied.rows if copied.rows else 0
    return CopyProgress(
        table=copied.table.name,
        rows=rows,
        of_rows=copied.rows,
        bytes=loaded,
        of_bytes=copied.bytes,
        is_done=is_done,
    )
