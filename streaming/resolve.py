"""Due rows to one typed change per key (design 3, rule 4), for one table or for many in one frame.

``rows of segments -> cells by the table's schema -> cast -> error, if any -> last change per key``

Order is ``(commit_ts, delete before insert, offset)``: TiCDC's streams are at least once and may
swap keys within one commit-ts. An UPDATE whose key changed is first made a DELETE of the old key
and an INSERT of the new one. Casts come before the choice of the last change, so that a key whose
last change cannot be cast keeps its last good one (rule 8); rows with an error all pass, each by
itself, on their way to the dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from coordination.model import TableName, Ts
from sinks.apply import DELETE, OP_COLUMN, UPSERT
from sinks.casts import cast_column, cast_failure, delta_type
from sinks.schema import Column as TableColumn
from sinks.schema import TableSchema
from streaming.events import ROW
from streaming.segments import Segment, union

ERROR_CLASS: Final = "_error_class"
ERROR_MESSAGE: Final = "_error_message"
ORIGIN_COLUMNS: Final = ("_topic", "_partition", "_offset", "_commit_ts")
TABLE_COLUMN: Final = "_table"
CHANGE_COLUMNS: Final = (OP_COLUMN, ERROR_CLASS, ERROR_MESSAGE, *ORIGIN_COLUMNS)
_QUOTED_CHARS = 80  # of a bad value in an error message


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """What one batch has to do for one table."""

    name: TableName
    schema: TableSchema
    checkpoint: Ts
    segments: tuple[Segment, ...]
    ignored_events: frozenset[str] = frozenset()  # of insert, update, delete: the event filter

    @property
    def max_rows(self) -> int:
        """No more rows than this are due."""
        return sum(segment.tables[self.name].rows for segment in self.segments)

    @property
    def has_key_updates(self) -> bool:
        return any(segment.tables[self.name].key_updates for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class CastRules:
    """How text becomes values: the TiCDC server's zone, and what a zero date is."""

    time_zone: str
    zero_date: Literal["null", "fail"]


def struct_name(number: int) -> str:
    """The column that holds the cells of the group's ``number``-th table."""
    return f"t{number}"


def resolve(tasks: Sequence[TableTask], limit: Ts, rules: CastRules) -> DataFrame:
    """Changes in ``(checkpoint, limit]`` of a group of tables, at most one good one per key.

    Columns: ``_table`` (number in ``tasks``), ``t0`` … (a struct of the table's delivered columns
    in Delta's types, null for rows of other tables), ``_op``, ``_error_class``, ``_error_message``,
    and, where there is an error, ``_topic``, ``_partition``, ``_offset``, ``_commit_ts``."""
    rows = _due_rows(tasks, limit)
    if any(task.has_key_updates for task in tasks):
        rows = _split_key_updates(rows, tasks)
    typed = _with_errors(_typed(rows, tasks, rules), tasks, rules)
    return _last_per_key(typed, tasks)


def flatten(changes: DataFrame, task: TableTask) -> DataFrame:
    """The changes of a group of one table with its columns at the top, before "
    "``CHANGE_COLUMNS``."""
    cells = [
        F.col(struct_name(0))[column.name].alias(column.name) for column in task.schema.delivered
    ]
    return changes.select(*cells, *CHANGE_COLUMNS)


def _due_rows(tasks: Sequence[TableTask], limit: Ts) -> DataFrame:
    segments = {id(segment): segment for task in tasks for segment in task.segments}
    read = union(segment.frame for segment in segments.values())
    checkpoint = _per_table(tasks, lambda task: F.lit(task.checkpoint).cast("bigint"))
    ignored = _per_table(
        tasks, lambda task: F.col("op").isin(*sorted(e.upper() for e in task.ignored_events))
    )
    return (
        read.where((F.col("kind") == ROW) & (F.col("commit_ts") <= limit))
        .withColumn(TABLE_COLUMN, _table_number(tasks))
        .where(F.col(TABLE_COLUMN).isNotNull())
        .where(F.col("commit_ts") > checkpoint)
        .where(~ignored if any(task.ignored_events for task in tasks) else F.lit(True))
    )


def _table_number(tasks: Sequence[TableTask]) -> Column:
    """Which table of the group a row belongs to; null for none."""
    number = F.lit(None).cast("int")
    for index, task in reversed(list(enumerate(tasks))):
        is_it = (F.col("schema_name") == task.name.schema) & (
            F.col("table_name") == task.name.table
        )
        number = F.when(is_it, index).otherwise(number)
    return number


def _per_table(tasks: Sequence[TableTask], expression: object) -> Column:
    """``expression(task)`` of the row's table."""
    assert callable(expression)
    if len(tasks) == 1:
        return expression(tasks[0])  # type: ignore[no-any-return]
    cases = F.when(F.col(TABLE_COLUMN) == 0, expression(tasks[0]))
    for index, task in list(enumerate(tasks))[1:]:
        cases = cases.when(F.col(TABLE_COLUMN) == index, expression(task))
    return cases


def _split_key_updates(rows: DataFrame, tasks: Sequence[TableTask]) -> DataFrame:
    """With a DELETE of the old key beside each UPDATE that changed the key.

    ``old`` may hold changed columns only (content-compatible): what it lacks is as in ``data``.
    """
    old, new = F.col("old"), F.col("data")

    def changed(task: TableTask) -> Column:
        differs = (F.coalesce(old[key] != new[key], F.lit(False)) for key in task.schema.key)
        return reduce(lambda left, right: left | right, differs, F.lit(False))

    def old_key(task: TableTask) -> Column:
        keys = task.schema.key
        return F.map_from_arrays(
            F.array(*[F.lit(key) for key in keys]),
            F.array(*[F.coalesce(old[key], new[key]) for key in keys]),
        )

    keyed = rows.where(old.isNotNull() & _per_table(tasks, changed))
    deletes = keyed.withColumn("data", _per_table(tasks, old_key)).withColumn("op", F.lit("DELETE"))
    return rows.unionAll(deletes)


def _cells(schema: TableSchema) -> Column:
    """The row's text in table order. TiCDC sends it in that order, so mostly no look-up is "
    "needed."""
    names = [column.name for column in schema.delivered]
    in_order = F.map_keys("data") == F.array(*[F.lit(name) for name in names])
    looked_up = F.array(*[F.col("data")[name] for name in names])
    return F.when(in_order, F.map_values("data")).otherwise(looked_up)


def _typed(rows: DataFrame, tasks: Sequence[TableTask], rules: CastRules) -> DataFrame:
    def cells(task: TableTask) -> Column:
        return F.struct(
            *[
                cast_column(F.get("_cells", F.lit(index)), column, rules.time_zone).alias(
                    column.name
                )
                for index, column in enumerate(task.schema.delivered)
            ]
        )

    with_cells = rows.withColumn("_cells", _per_table(tasks, lambda task: _cells(task.schema)))
    if len(tasks) == 1:
        return with_cells.withColumn(struct_name(0), cells(tasks[0]))
    structs = {
        struct_name(index): F.when(F.col(TABLE_COLUMN) == index, cells(task))
        for index, task in enumerate(tasks)
    }
    return with_cells.withColumns(structs)


def _with_errors(typed: DataFrame, tasks: Sequence[TableTask], rules: CastRules) -> DataFrame:
    """Add ``_op`` and the first reason, if any, for which a row cannot be applied."""
    op = F.when(F.col("op") == "DELETE", DELETE).otherwise(UPSERT)
    indices = {id(task): index for index, task in enumerate(tasks)}

    def failure(task: TableTask) -> Column:
        typed_cells = F.col(struct_name(indices[id(task)]))
        return _first_failure(task.schema, typed_cells, rules)

    message = F.coalesce("error_message", _per_table(tasks, failure))
    return (
        typed.withColumn(OP_COLUMN, op)
        .withColumn(ERROR_MESSAGE, message)
        .withColumn(
            ERROR_CLASS,
            F.coalesce("error_class", F.when(F.col(ERROR_MESSAGE).isNotNull(), F.lit("cast"))),
        )
    )


def _first_failure(schema: TableSchema, cells: Column, rules: CastRules) -> Column:
    """A sentence about the first cell that cannot be cast; of a DELETE only the key counts."""
    keys = set(schema.key)
    indexed = list(enumerate(schema.delivered))
    in_key = [(i, column) for i, column in indexed if column.name in keys]
    others = [(i, column) for i, column in indexed if column.name not in keys]
    sentence = F.lit(None).cast("string")
    for index, column in reversed(others):
        failed = _failed(index, column, cells, rules) & (F.col("op") != "DELETE")
        sentence = F.when(failed, _cannot_read(index, column)).otherwise(sentence)
    for index, column in reversed(in_key):
        text = F.get("_cells", F.lit(index))
        missing = F.lit(f"column {column.name}: a key column has no value")
        sentence = (
            F.when(text.isNull(), missing)
            .when(cells[column.name].isNull(), _cannot_read(index, column))
            .otherwise(sentence)
        )
    return sentence


def _failed(index: int, column: TableColumn, cells: Column, rules: CastRules) -> Column:
    text = F.get("_cells", F.lit(index))
    return F.coalesce(cast_failure(text, cells[column.name], column, rules.zero_date), F.lit(False))


def _cannot_read(index: int, column: TableColumn) -> Column:
    text = F.substring(F.get("_cells", F.lit(index)), 1, _QUOTED_CHARS)
    return F.concat(
        F.lit(f"column {column.name}: cannot read '"),
        text,
        F.lit(f"' as {delta_type(column.type)}"),
    )


def _last_per_key(typed: DataFrame, tasks: Sequence[TableTask]) -> DataFrame:
    failed = F.col(ERROR_CLASS).isNotNull()
    by_itself = F.when(failed, F.xxhash64("topic", "partition", "offset")).otherwise(F.lit(0))
    keys = [F.col(struct_name(0))[key] for key in tasks[0].schema.key]
    if len(tasks) > 1:
        numbered = {id(task): index for index, task in enumerate(tasks)}
        keys = [
            F.col(TABLE_COLUMN),
            _per_table(tasks, lambda task: _key_text(task.schema.key, numbered[id(task)])),
        ]
    newest_first = Window.partitionBy(*keys, by_itself).orderBy(
        F.col("commit_ts").desc(), (F.col(OP_COLUMN) == UPSERT).desc(), F.col("offset").desc()
    )
    last = typed.withColumn("_rank", F.row_number().over(newest_first)).where(F.col("_rank") == 1)
    origin = [
        F.when(failed, F.col(column.removeprefix("_"))).alias(column) for column in ORIGIN_COLUMNS
    ]
    structs = [struct_name(index) for index in range(len(tasks))]
    return last.select(TABLE_COLUMN, *structs, OP_COLUMN, ERROR_CLASS, ERROR_MESSAGE, *origin)


def _key_text(key: Iterable[str], number: int) -> Column:
    cells = F.col(struct_name(number))
    return F.array(*[cells[column].cast("string") for column in key])


def settled_keys(tables: Mapping[TableName, TableSchema | None]) -> dict[TableName, Sequence[str]]:
    """What a decoder wants to know of the tables that need no schema from the stream any more."""
    return {name: schema.key if schema else () for name, schema in tables.items()}
