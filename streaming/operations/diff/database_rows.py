"""The database's side: the rows of one table, in chunks by its key, in the types of Delta.

The cells come as the copy reads them (``streaming/source/dump``), and get their Delta values by the
casts that every change goes through. So a difference that is found is one of the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordination.errors import TidelakeError
from sinks.types.casts.columns import cast_column
from sinks.types.delta_types import quoted
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from sinks.types.text_arrays import CastRules, Mask, as_mask
from streaming.operations.diff.fingerprints import Batch
from streaming.operations.diff.keyset import (
    KEYS_AT_A_TIME,
    Chunk,
    is_ordered,
    order,
    where,
    where_keys,
)
from streaming.operations.diff.shape import Shape
from streaming.source.dump.cells import UnreadableCells, cells_of, selected
from streaming.source.dump.session import Session
from streaming.source.dump.source_table import SourceColumn, SourceTable

WHOLE: Final = Chunk()


class DatabaseRows:
    """See ``table_diff.DatabaseTable``. For the thread of its session."""

    def __init__(
        self,
        session: Session,
        table: SourceTable,
        rules: CastRules,
        *,
        chunk_rows: int,
        pause: Callable[[int], None] = lambda _rows: None,
    ) -> None:
        """``pause`` is called after each chunk with the number of its rows."""
        self._session = session
        self._table = table
        self._types = {column.name: column.type for column in table.columns}
        self._by_lower = {column.name.lower(): column for column in table.columns}
        self._rules = rules
        self._chunk_rows = chunk_rows
        self._pause = pause
        self._chunks: list[Chunk] = []  # by place

    @property
    def columns(self) -> Mapping[str, MySQLType]:
        return self._types

    def batches(self, shape: Shape) -> Iterator[Batch]:
        names = [self._source(column).name for column in shape.key]
        types = [self._source(column).type for column in shape.key]
        self._chunks = []
        if not (is_ordered(types) and self._is_unique(names)):
            self._chunks.append(WHOLE)
            yield from self._select(shape, "", place=0)
            return
        after: tuple[bytes, ...] | None = None
        while True:
            place, rows = len(self._chunks), 0
            self._chunks.append(Chunk(after))
            tail = f"{where(names, types, Chunk(after))}{order(names)} LIMIT {self._chunk_rows}"
            for texts, batch in self._blocks(shape, tail, place):
                rows += len(texts[0])
                after = tuple(each[-1].as_py() for each in texts[: len(shape.key)])
                yield batch
            self._pause(rows)
            if rows < self._chunk_rows:
                return
            self._chunks[place] = Chunk(self._chunks[place].after, after)

    def chunk(self, shape: Shape, place: int) -> Iterator[Batch]:
        sources = [self._source(column) for column in shape.key]
        names, types = [each.name for each in sources], [each.type for each in sources]
        yield from self._select(shape, where(names, types, self._chunks[place]), place)

    def rows(self, shape: Shape, keys: Sequence[Sequence[Any]]) -> Iterator[Batch]:
        names = [self._source(column).name for column in shape.key]
        types = [column.type for column in shape.key]
        for at in range(0, len(keys), KEYS_AT_A_TIME):
            some = keys[at : at + KEYS_AT_A_TIME]
            yield from self._select(shape, where_keys(names, some, types), place=-1)
            self._pause(len(some))

    def _source(self, column: Column) -> SourceColumn:
        return self._by_lower[column.name.lower()]

    def _is_unique(self, names: Sequence[str]) -> bool:
        """Whether the server has an index that orders the rows by this key."""
        return tuple(names) == self._table.key

    def _select(self, shape: Shape, tail: str, place: int) -> Iterator[Batch]:
        for _, batch in self._blocks(shape, tail, place):
            yield batch

    def _blocks(
        self, shape: Shape, tail: str, place: int
    ) -> Iterator[tuple[list[pa.LargeBinaryArray], Batch]]:
        sources = [self._source(column) for column in shape.columns]
        asked = ", ".join(selected(each.name, each.type) for each in sources)
        table = f"{quoted(self._table.name.schema)}.{quoted(self._table.name.table)}"
        for texts in self._session.blocks(f"SELECT {asked} FROM {table}{tail}", len(sources)):
            yield texts, self._batch(shape, texts, place)

    def _batch(self, shape: Shape, texts: list[pa.LargeBinaryArray], place: int) -> Batch:
        values, strange = [], np.zeros(len(texts[0]), np.bool_)
        for column, found in zip(shape.columns, texts, strict=True):
            array, failed = self._values(column, found)
            values.append(array)
            if failed is not None:
                strange |= failed
        count = len(shape.key)
        is_any = bool(strange.any())
        return Batch(
            tuple(values[:count]), tuple(values[count:]), place, strange if is_any else None
        )

    def _values(self, column: Column, texts: pa.LargeBinaryArray) -> tuple[pa.Array, Mask | None]:
        try:
            cells = cells_of(texts, self._source(column).type)
        except UnreadableCells as error:
            raise TidelakeError(f"column {column.name} of {self._table.name}: {error}") from error
        cast = cast_column(cells, column, self._rules, are_typed=True)
        return cast.values, None if cast.failed is None else as_mask(cast.failed)
