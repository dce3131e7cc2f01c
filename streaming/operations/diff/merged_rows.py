"""Several upstream tables that routes lead into one target, compared with it as one table.

Each row has the values of the columns that tell its table. So a row of the target is looked for in
its own table alone, and rows of a table that is no more (a DROP TABLE leaves them in the target,
as in DM) are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from sinks.types.table_schema import TableSchema
from sinks.types.text_arrays import Mask, as_mask
from streaming.changefeed.routes import Route, Routes, Shards
from streaming.operations.diff.database_rows import DatabaseRows
from streaming.operations.diff.fingerprints import Batch
from streaming.operations.diff.shape import NotComparable, Shape, compared_together

_BETWEEN = "\0"  # no name of a table has it


class MergedRows:
    """See ``table_diff.DatabaseTable``. A place is that of a chunk among those of all tables."""

    def __init__(self, tables: Mapping[TableName, DatabaseRows]) -> None:
        """At least one."""
        self._tables = tables
        self._chunks: list[tuple[DatabaseRows, int]] = []

    def shape(self, schema: TableSchema, lake: Collection[str]) -> Shape:
        columns = {name: each.columns for name, each in self._tables.items()}
        return compared_together(schema, lake, columns)

    def batches(self, shape: Shape) -> Iterator[Batch]:
        self._chunks = []
        for table in self._tables.values():
            first = len(self._chunks)
            for batch in table.batches(shape):
                at = first + batch.place
                self._chunks += [(table, each - first) for each in range(len(self._chunks), at + 1)]
                yield replace(batch, place=at)

    def chunk(self, shape: Shape, place: int) -> Iterator[Batch]:
        table, own = self._chunks[place]
        return table.chunk(shape, own)

    def rows(self, shape: Shape, keys: Sequence[Sequence[Any]]) -> Iterator[Batch]:
        for table in self._tables.values():
            yield from table.rows(shape, keys)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The upstream tables of a target, each with the target's columns that tell it. ``None``: there
    are no routes, and the table of its name is all that it has."""

    routes: Mapping[TableName, Route] | None

    def tables(self, name: TableName) -> list[TableName]:
        return [name] if self.routes is None else list(self.routes)

    def added(self, origin: TableName) -> dict[str, str]:
        return {} if self.routes is None else dict(self.routes[origin].columns)

    def is_among(self, shape: Shape, batch: Batch) -> Mask | None:
        """Which of the target's rows are of one of the tables; None: all are."""
        routes = [] if self.routes is None else list(self.routes.values())
        if not routes or not routes[0].columns:
            return None
        told = {name: at for at, name in enumerate(routes[0].names)}
        own = {
            told[each.name]: batch.key[at] for at, each in enumerate(shape.key) if each.name in told
        }
        texts = pc.binary_join_element_wise(*(own[at] for at in sorted(own)), _BETWEEN)
        known = {_BETWEEN.join(value for _, value in each.columns) for each in routes}
        return as_mask(pc.is_in(texts, value_set=pa.array(sorted(known), texts.type)))


UNROUTED: Final = Upstream(None)


def upstream_of(name: TableName, shards: Shards, routes: Routes | None) -> Upstream:
    """Raises NotComparable where no upstream table is known, ConfigError where one matches two
    routes."""
    if routes is None:
        return UNROUTED
    found = {each: routes.of(each) for each in shards}
    if not found and routes.of(name).target == name:
        found = {name: routes.of(name)}
    if not found:
        raise NotComparable("no table of the database goes into it now")
    return Upstream(found)
