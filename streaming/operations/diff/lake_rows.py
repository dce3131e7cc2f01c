"""The table's side: rows of one version of a Delta table, a piece of a file at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.merge_on_write.version_reader import TableVersion, open_version
from sinks.target.target_table import TargetState, inspect, table_uri
from sinks.target.write_mode import ROW_DELETED
from sinks.types.casts.columns import arrow_type
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Shards
from streaming.operations.diff.fingerprints import Batch
from streaming.operations.diff.shape import NotComparable, Shape


@dataclass(frozen=True, slots=True, eq=False)
class LakeVersion:
    """One version of a table that holds the database's rows as they are."""

    table: TableVersion
    schema: TableSchema
    has_deleted_rows: bool  # marked, by soft-delete
    shards: Shards  # its upstream tables, where routes lead to it

    @property
    def number(self) -> int:
        return self.table.version

    def count_rows(self) -> int:
        return self.table.count_rows()

    def batches(self, shape: Shape) -> Iterator[Batch]:
        """All rows, in no order. Raises TidelakeError."""
        mark = [ROW_DELETED] if self.has_deleted_rows else []
        names = [column.name for column in shape.columns]
        for part in self.table.batches([*names, *mark]):
            live = part.filter(pc.invert(part[ROW_DELETED])) if mark else part
            arrays = tuple(
                _typed(live[column.name], arrow_type(column.stored)) for column in shape.columns
            )
            yield Batch(key=arrays[: len(shape.key)], cells=arrays[len(shape.key) :])


def open_table(
    warehouse: str,
    name: TableName,
    storage_options: Mapping[str, str],
    version: int | None = None,
) -> LakeVersion:
    """A version, or the newest. Raises NotComparable where the table is no image of the database's,
    and TidelakeError where it cannot be read."""
    uri = table_uri(warehouse, name)
    state = inspect(uri, storage_options, version)
    if state is None:
        raise NotComparable(f"there is no Delta table at {uri}")
    if state.form.mode != "upsert":
        raise NotComparable(
            f"it is written with {state.form}: it has the events or versions of rows, not the "
            "rows of now"
        )
    return LakeVersion(
        open_version(uri, state.version, storage_options),
        _schema(state, uri),
        state.form.soft_delete,
        Shards.of_text(state.shards),
    )


def _schema(state: TargetState, uri: str) -> TableSchema:
    if state.schema is None:
        raise TidelakeError(f"{uri} was not made by Tidelake: its properties name no columns")
    return state.schema


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column that was altered by hand may have another type, which can hold other values."""
    return values if values.type == kind else values.cast(kind)
