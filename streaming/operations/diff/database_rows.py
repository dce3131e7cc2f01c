"""The database's side: the rows of one upstream table, in chunks by its key, in the types of Delta.

The cells come as the copy reads them (``streaming/source/dump``), and get their Delta values by the
casts that every change goes through. So a difference that is found is one of the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from coordination.errors import TidelakeError
from sinks.types.casts.columns import arrow_type
from sinks.types.delta_types import quoted
from sinks.types.masks import target_values
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from sinks.types.text_arrays import CastRules, Mask, as_mask
from streaming.changefeed.routes import TYPE as TELLING_TYPE
from streaming.operations.diff.fingerprints import Batch
from streaming.operations.diff.key_lookup import KEYS_AT_A_TIME, where_keys
from streaming.operations.diff.patience import KeptSession
from streaming.operations.diff.shape import Shape, compared
from streaming.source.dump.cells import UnreadableCells, selected
from streaming.source.dump.chunks import chunk_rows
from streaming.source.dump.key_ranges import Bound, KeyRange, bound_statement, rows_statement
from streaming.source.dump.session import Session
from streaming.source.dump.source_table import SourceColumn, SourceTable


class DatabaseRows:
    """See ``table_diff.DatabaseTable``. For the thread of its session."""

    def __init__(
        self,
        session: KeptSession,
        table: SourceTable,
        rules: CastRules,
        *,
        added: Mapping[str, str] = MappingProxyType({}),
        rows_per_chunk: int | None = None,
        pause: Callable[[int], None] = lambda _rows: None,
    ) -> None:
        """``added``: columns of the target that tell this table's rows from those of others, with
        their values. ``rows_per_chunk``: None: some 64 MiB. ``pause`` is called after each chunk
        with the number of its rows."""
        self._session = session
        self._table = table
        self._added = {name.lower(): value for name, value in added.items()}
        self._types = {column.name: column.type for column in table.columns}
        self._types |= dict.fromkeys(added, MySQLType.parse(TELLING_TYPE))
        self._at = {column.name.lower(): at for at, column in enumerate(table.columns)}
        self._rules = rules
        self._chunk_rows = rows_per_chunk or chunk_rows(table)
        self._pause = pause
        self._chunks: list[KeyRange] = []  # by place

    @property
    def columns(self) -> Mapping[str, MySQLType]:
        """Those that tell the table are among them."""
        return self._types

    def shape(self, schema: TableSchema, lake: Collection[str]) -> Shape:
        return compared(schema, lake, self._types)

    def batches(self, shape: Shape) -> Iterator[Batch]:
        self._chunks = []
        after: Bound | None = None
        while True:
            upto = self._end(KeyRange(after, None)) if self._table.has_chunks else None
            self._chunks.append(KeyRange(after, upto))
            yield from self.chunk(shape, len(self._chunks) - 1)
            if upto is None:
                return
            after = upto

    def chunk(self, shape: Shape, place: int) -> Iterator[Batch]:
        statement = rows_statement(self._table, self._chunks[place], None)
        rows = 0
        for batch in self._read(shape, statement, place):
            rows += len(batch.key[0])
            yield batch
        self._pause(rows)

    def _end(self, of: KeyRange) -> Bound | None:
        """The key of the chunk's last row; None: the chunk has all that is left."""
        statement = bound_statement(self._table, of, self._chunk_rows)
        found = self._session.asked(lambda session: session.query(statement))
        return tuple(map(str, found[0])) if found else None

    def rows(self, shape: Shape, keys: Sequence[Sequence[Any]]) -> Iterator[Batch]:
        told = {at: self._added.get(column.name.lower()) for at, column in enumerate(shape.key)}
        own = [at for at, value in told.items() if value is None]
        names = [self._table.columns[self._at[shape.key[at].name.lower()]].name for at in own]
        types = [shape.key[at].type for at in own]
        here = [
            [key[at] for at in own]
            for key in keys
            if all(value in (None, key[at]) for at, value in told.items())
        ]
        for at in range(0, len(here), KEYS_AT_A_TIME):
            some = here[at : at + KEYS_AT_A_TIME]
            statement = f"{all_rows(self._table)}{where_keys(names, some, types)}"
            yield from self._read(shape, statement, place=-1)
            self._pause(len(some))

    def _read(self, shape: Shape, statement: str, place: int) -> Iterable[Batch]:
        """A table without an order is one chunk, which may be too large to be held, and to be read
        again."""
        if not self._table.has_chunks:
            return self._batches(self._session.open(), shape, statement, place)
        return self._session.asked(lambda each: list(self._batches(each, shape, statement, place)))

    def _batches(
        self, session: Session, shape: Shape, statement: str, place: int
    ) -> Iterator[Batch]:
        for texts in session.blocks(statement, len(self._table.columns)):
            yield self._batch(shape, texts, place)

    def _batch(self, shape: Shape, texts: list[pa.LargeBinaryArray], place: int) -> Batch:
        values, strange = [], np.zeros(len(texts[0]), np.bool_)
        for column in shape.columns:
            if (told := self._added.get(column.name.lower())) is not None:
                values.append(pa.repeat(pa.scalar(told, arrow_type(column.type)), len(texts[0])))
                continue
            at = self._at[column.name.lower()]
            array, failed = self._values(column, self._table.columns[at], texts[at])
            values.append(array)
            if failed is not None:
                strange |= failed
        count = len(shape.key)
        is_any = bool(strange.any())
        return Batch(
            tuple(values[:count]), tuple(values[count:]), place, strange if is_any else None
        )

    def _values(
        self, column: Column, source: SourceColumn, texts: pa.LargeBinaryArray
    ) -> tuple[pa.Array, Mask | None]:
        try:
            cells = source.cells(texts)
        except UnreadableCells as error:
            raise TidelakeError(f"column {column.name} of {self._table.name}: {error}") from error
        cast = target_values(cells, column, self._rules, are_typed=True)
        return cast.values, None if cast.failed is None else as_mask(cast.failed)


def all_rows(table: SourceTable) -> str:
    """The SELECT of the same columns as ``rows_statement``, for a condition of its own."""
    columns = ", ".join(selected(each.name, each.type) for each in table.columns)
    return f"SELECT {columns} FROM {quoted(table.name.schema)}.{quoted(table.name.table)}"
