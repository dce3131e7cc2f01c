"""Due rows to one typed change per key (design 3, rule 4), for one table or for many in one frame.

``rows of segments -> cells by the table's schema -> cast -> error, if any -> last change per key``

Order is ``(commit_ts, delete before insert, offset)``: TiCDC's streams are at least once and may
swap keys within one commit-ts. An UPDATE whose key changed is first made a DELETE of the old key
and an INSERT of the new one. Casts come before the choice of the last change, so that a key whose
last change cannot be cast keeps its last good one (rule 8); rows with an error all pass, each by
itself, on their way to the dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from coordination.model import TableName, Ts
from sinks.apply import DELETE, OP_COLUMN, UPSERT
from sinks.schema import TableSchema
from streaming.cells import (
    CELLS,
    FAILED_INDEX,
    FAILED_TEXT,
    CastRules,
    CellExpressions,
    cell_expressions,
)
from streaming.events import ROW
from streaming.segments import Segment, union

ERROR_CLASS: Final = "_error_class"
ERROR_MESSAGE: Final = "_error_message"
ORIGIN_COLUMNS: Final = ("_topic", "_partition", "_offset", "_commit_ts")
TABLE_COLUMN: Final = "_table"
CHANGE_COLUMNS: Final = (OP_COLUMN, ERROR_CLASS, ERROR_MESSAGE, *ORIGIN_COLUMNS)


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


def struct_name(number: int) -> str:
    """The column that holds the cells of the group's ``number``-th table."""
    return f"t{number}"


class Resolver:
    """Builds the frames of changes. Keeps the expressions of each table; has no other state."""

    def __init__(self, rules: CastRules) -> None:
        self._rules = rules
        self._known: dict[tuple[TableSchema, int], CellExpressions] = {}

    def resolve(self, tasks: Sequence[TableTask], limit: Ts) -> DataFrame:
        """Changes in ``(checkpoint, limit]`` of a group of tables, at most one good one per key.

        Columns: ``_table`` (number in ``tasks``), ``t0`` … (a struct of the table's delivered
        columns in Delta's types, null for rows of other tables), ``_op``, ``_error_class``,
        ``_error_message``, and, where there is an error, ``_topic``, ``_partition``, ``_offset``,
        ``_commit_ts``."""
        rows = _due_rows(tasks, limit)
        if any(task.has_key_updates for task in tasks):
            rows = _split_key_updates(rows, tasks)
        cells = [self._cells(task.schema, number) for number, task in enumerate(tasks)]
        return _last_per_key(_typed(rows, cells), tasks, cells)

    def _cells(self, schema: TableSchema, number: int) -> CellExpressions:
        found = self._known.get((schema, number))
        if found is None:
            found = cell_expressions(schema, struct_name(number), self._rules)
            self._known[schema, number] = found
        return found


def flatten(changes: DataFrame) -> DataFrame:
    """The changes of a group of one table: its columns at the top, then ``CHANGE_COLUMNS``."""
    return changes.select(f"{struct_name(0)}.*", *CHANGE_COLUMNS)


def _due_rows(tasks: Sequence[TableTask], limit: Ts) -> DataFrame:
    segments = {id(segment): segment for task in tasks for segment in task.segments}
    read = union(segment.frame for segment in segments.values())
    tables = _table_number(tasks)
    checkpoint = _of_table([F.lit(task.checkpoint).cast("bigint") for task in tasks], tables)
    due = (
        (F.col("kind") == ROW)
        & tables.isNotNull()
        & (F.col("commit_ts") <= limit)
        & (F.col("commit_ts") > checkpoint)
    )
    if any(task.ignored_events for task in tasks):
        ignored = [
            F.col("op").isin(*[event.upper() for event in sorted(task.ignored_events)])
            for task in tasks
        ]
        due = due & ~_of_table(ignored, tables)
    return read.where(due).withColumn(TABLE_COLUMN, tables)


def _table_number(tasks: Sequence[TableTask]) -> Column:
    """Which table of the group a row belongs to; null for none."""
    conditions = [
        (F.col("schema_name") == task.name.schema) & (F.col("table_name") == task.name.table)
        for task in tasks
    ]
    number = F.when(conditions[0], 0)
    for index, condition in enumerate(conditions[1:], start=1):
        number = number.when(condition, index)
    return number


def _of_table(expressions: Sequence[Column], table: Column) -> Column:
    """The expression of the row's table."""
    if len(expressions) == 1:
        return expressions[0]
    cases = F.when(table == 0, expressions[0])
    for index, expression in enumerate(expressions[1:], start=1):
        cases = cases.when(table == index, expression)
    return cases


def _split_key_updates(rows: DataFrame, tasks: Sequence[TableTask]) -> DataFrame:
    """With a DELETE of the old key beside each UPDATE that changed the key.

    ``old`` may hold changed columns only (content-compatible): what it lacks is as in ``data``.
    """
    old, new, table = F.col("old"), F.col("data"), F.col(TABLE_COLUMN)

    def changed(key: Sequence[str]) -> Column:
        differs = (F.coalesce(old[column] != new[column], F.lit(False)) for column in key)
        return reduce(lambda left, right: left | right, differs)

    def old_key(key: Sequence[str]) -> Column:
        return F.map_from_arrays(
            F.array(*[F.lit(column) for column in key]),
            F.array(*[F.coalesce(old[column], new[column]) for column in key]),
        )

    def per_table(expression: Callable[[Sequence[str]], Column]) -> Column:
        return _of_table([expression(task.schema.key) for task in tasks], table)

    deletes = rows.where(old.isNotNull() & per_table(changed)).withColumns(
        {"data": per_table(old_key), "op": F.lit("DELETE")}
    )
    return rows.unionAll(deletes)


def _typed(rows: DataFrame, cells: Sequence[CellExpressions]) -> DataFrame:
    """Add the struct of each table's cells, ``_op``, and which cell failed with which text."""
    table = F.col(TABLE_COLUMN)
    alone = len(cells) == 1
    structs = {
        struct_name(number): each.typed if alone else F.when(table == number, each.typed)
        for number, each in enumerate(cells)
    }
    return (
        rows.withColumn(CELLS, _of_table([each.text for each in cells], table))
        .withColumns(structs)
        .withColumn(FAILED_INDEX, _of_table([each.failed for each in cells], table))
        .withColumns(
            {
                FAILED_TEXT: F.when(
                    F.col(FAILED_INDEX).isNotNull(), F.get(CELLS, F.col(FAILED_INDEX))
                ),
                OP_COLUMN: F.when(F.col("op") == "DELETE", DELETE).otherwise(UPSERT),
            }
        )
    )


def _last_per_key(
    typed: DataFrame, tasks: Sequence[TableTask], cells: Sequence[CellExpressions]
) -> DataFrame:
    table = F.col(TABLE_COLUMN)
    failed = F.col("error_class").isNotNull() | F.col(FAILED_INDEX).isNotNull()
    by_itself = F.when(failed, F.xxhash64("topic", "partition", "offset")).otherwise(F.lit(0))
    if len(tasks) == 1:
        keys = [F.col(struct_name(0))[column] for column in tasks[0].schema.key]
    else:
        keys = [table, _of_table([each.key_text for each in cells], table)]
    newest_first = Window.partitionBy(*keys, by_itself).orderBy(
        F.desc("commit_ts"), F.desc(OP_COLUMN), F.desc("offset")
    )
    ranked = typed.withColumn("_rank", F.row_number().over(newest_first))
    cast_failed = F.col(FAILED_INDEX).isNotNull()
    sentence = F.when(cast_failed, _of_table([each.sentence for each in cells], table))
    return ranked.where(F.col("_rank") == 1).select(
        TABLE_COLUMN,
        *[struct_name(number) for number in range(len(tasks))],
        OP_COLUMN,
        F.coalesce("error_class", F.when(cast_failed, F.lit("cast"))).alias(ERROR_CLASS),
        F.coalesce("error_message", sentence).alias(ERROR_MESSAGE),
        *[F.when(failed, F.col(name.removeprefix("_"))).alias(name) for name in ORIGIN_COLUMNS],
    )


def settled_keys(tables: Mapping[TableName, TableSchema | None]) -> dict[TableName, Sequence[str]]:
    """What a decoder wants to know of the tables that need no schema from the stream any more."""
    return {name: schema.key if schema else () for name, schema in tables.items()}
