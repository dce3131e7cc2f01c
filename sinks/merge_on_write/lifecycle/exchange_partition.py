"""EXCHANGE PARTITION: the rows of a partition and those of a table change places.

TiCDC sends none of these rows. They are two logs, and so two commits, each with the DDL's identity:

    1. the table gets the partition's rows, and its own go; it notes the version that had them
    2. the partition's rows go, and those of that version come

Nobody writes to either of them meanwhile: all rows below the DDL are there, and rows from above it
wait. After a kill in between, the next owner makes the second commit. The rows are written anew,
since the two tables have different names for their columns in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from coordination.errors import TidelakeError
from sinks.merge_on_write.alter.ddl_commit import notes_of
from sinks.merge_on_write.alter.partition_rows import find_partitions
from sinks.merge_on_write.alter.rewrite import SLICE_ROWS, in_slices
from sinks.merge_on_write.alter.table_ddl import ExchangeRows
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.file_cache import Dead, DeletedRows
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.physical_schema import PhysicalSchema
from sinks.merge_on_write.log.reader import VersionGone, read_log
from sinks.merge_on_write.table_handle import TableHandle
from sinks.target.engine_port import Target
from sinks.target.table_properties import DdlIdentity
from sinks.target.write_mode import UPSERT
from sinks.types.table_schema import TableSchema
from sinks.types.text_arrays import CastRules


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExchange:
    """``partition``: of the first target, by the definition in its schema."""

    partitioned: Target
    partition: str
    table: Target
    ddl: DdlIdentity
    rules: CastRules
    before_commit: Callable[[], None] = lambda: None


def exchange(engine: MergeOnWriteEngine, order: PartitionExchange) -> None:
    """Does the whole DDL, or the steps that an earlier try left undone.

    Raises TidelakeError, before anything has changed, where the two tables are not alike or a row
    of the table does not belong to the partition; NotForThisEngine, TableHeld, TryAgain.
    """
    _refuse_unlike(order)
    one, other = engine.table(order.table.uri), engine.table(order.partitioned.uri)
    whole = ExchangeRows(
        target=order.table,
        ddl=order.ddl,
        rules=order.rules,
        before_commit=order.before_commit,
        comes=lambda: in_slices(_of_partition(order, one, other)),
    )
    engine.alter(whole)
    engine.alter(
        replace(
            whole,
            target=order.partitioned,
            partitions=(order.partition,),
            comes=lambda: in_slices(_of_table(order, one)),
        )
    )


def _refuse_unlike(order: PartitionExchange) -> None:
    """Compares the known definitions of both tables, and asks whether a key may stand in two
    partitions."""
    partitioned, table = order.partitioned, order.table
    both = f"{partitioned.name} and {table.name}"
    for each in (partitioned, table):
        if each.form != UPSERT:
            raise TidelakeError(
                f"table {each.name} has {each.form} in [[sink.tables]], by which its target is not "
                "what the table is: only plain upserted tables exchange rows"
            )
    if _likeness(partitioned.schema) != _likeness(table.schema):
        raise TidelakeError(f"the known columns of {both} differ: load both anew")
    partitioning = partitioned.schema.partitioning
    by = set() if partitioning is None else {name.lower() for name in partitioning.columns}
    if not by or not by <= {name.lower() for name in partitioned.schema.key}:
        raise TidelakeError(
            f"the key of {partitioned.name} does not tell in which partition a row is, so that two "
            "rows might get one key: load both tables anew"
        )


def _likeness(schema: TableSchema) -> tuple[object, ...]:
    columns = tuple((each.name.lower(), each.type, each.mask) for each in schema.delivered)
    return columns, tuple(name.lower() for name in schema.key)


def _of_partition(
    order: PartitionExchange, table: TableHandle, partitioned: TableHandle
) -> Iterator[pa.Table]:
    """The partition's rows, as the table names its columns. First the table's own are looked at."""
    own = replace(order.table.schema, partitioning=order.partitioned.schema.partitioning)
    inside = find_partitions(table, own, (order.partition,), order.rules)
    live = sum(int((~table.deleted_rows(each).mask).sum()) for each in table.files.values())
    if sum(map(len, inside.values())) != live:
        raise TidelakeError(
            f"rows of {order.table.name} are not in partition {order.partition} (WITHOUT "
            "VALIDATION), where no later DDL of a partition would find them: load both tables anew"
        )
    with partitioned.lock:
        partitioned.refresh()
        schema = order.partitioned.schema
        hits = find_partitions(partitioned, schema, (order.partition,), order.rules)
        for path, ordinals in hits.items():
            each = partitioned.files[path]
            others = np.ones(partitioned.count(each), np.bool_)
            others[ordinals] = False
            yield from _named(partitioned, each.file, others, partitioned.shape, order.table)


def _of_table(order: PartitionExchange, table: TableHandle) -> Iterator[pa.Table]:
    """The table's rows as they were, with the partitioned table's names of columns."""
    with table.lock:
        table.refresh()
        version = notes_of(table.state).left_at(order.ddl.commit_ts)
        try:
            left = None if version is None else read_log(table.storage, version=version)
        except VersionGone as gone:
            raise _no_longer_there(order) from gone
        if left is None:
            raise _no_longer_there(order)
        assert left.protocol is not None
        assert left.metadata is not None
        shape = PhysicalSchema.of(left.protocol, left.metadata)
        for file in left.files.values():
            rows = data_files.count_rows(table.located, file)
            dead = DeletedRows.read(table.located, file, rows).mask
            yield from _named(table, file, dead, shape, order.partitioned)


def _named(
    place: TableHandle, file: DataFile, dead: Dead, shape: PhysicalSchema, into: Target
) -> Iterator[pa.Table]:
    """The live rows of a file, with the columns of ``into``."""
    spelled = {column.name.lower(): column for column in shape.columns}
    names = [column.name for column in into.schema.delivered]
    columns = [spelled[name.lower()] for name in names]
    for piece in data_files.read_live_pieces(place.located, file, dead, columns, SLICE_ROWS):
        yield piece.rename_columns(names)


def _no_longer_there(order: PartitionExchange) -> TidelakeError:
    return TidelakeError(
        f"the rows that {order.table.name} had are no longer at {order.table.uri}: its log was "
        "cut, or somebody has changed it; load both tables anew"
    )
