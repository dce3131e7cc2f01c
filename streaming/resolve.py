"""The due rows of one table as one typed change per key (design 3, rule 4).

``rows of segments -> cells in table order -> cast -> error, if any -> last change per key``

Order is ``(commit_ts, delete before insert, offset)``: TiCDC's streams are at least once and may
swap keys within one commit-ts. Casts come before the choice of the last change, which is by typed
key, so that a key whose last change cannot be cast keeps its last good one (rule 8); rows with an
error all pass, each by itself, on their way to the dead letters. An UPDATE whose key changed is
made a DELETE of the old key and an INSERT of the new one, but only when its new row is good: else
the old row stays. ``small_tables`` does the same for many tables in one frame."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from coordination.model import Ts
from sinks.apply import DELETE, OP_COLUMN, UPSERT
from sinks.schema import TableSchema
from streaming.cells import (
    CELLS,
    FAILED_INDEX,
    FAILED_TEXT,
    TYPED,
    UNKNOWN,
    CastRules,
    CellExpressions,
    cell_expressions,
    unknown_sentence,
)
from streaming.due import (
    CHANGE_COLUMNS,
    DROPPED,
    ERROR_CLASS,
    ERROR_MESSAGE,
    ORIGIN_COLUMNS,
    UNKNOWN_COLUMN,
    TableTask,
)
from streaming.events import ROW
from streaming.segments import union


class Resolver:
    """Builds the frames of changes. Keeps the expressions of each table; has no other state."""

    def __init__(self, rules: CastRules) -> None:
        self._rules = rules
        self._known: dict[TableSchema, CellExpressions] = {}

    def resolve(self, task: TableTask, limit: Ts) -> DataFrame:
        """Changes in ``(checkpoint, limit]``, at most one good one per key.

        Columns: the table's delivered ones in Delta's types, then ``CHANGE_COLUMNS``.
        """
        rows = _due_rows(task, limit)
        cells = self._known.get(task.schema)
        if cells is None:
            cells = self._known[task.schema] = cell_expressions(task.schema, self._rules)
        typed = _typed(rows, cells)
        failed = _is_failed(self._rules)
        if task.has_key_updates:
            left = _left_keys(typed.where(~failed), task.schema.key).select(rows.columns)
            typed = typed.unionAll(_typed(left, cells))
        return _last_per_key(typed, task, cells, failed)


def _due_rows(task: TableTask, limit: Ts) -> DataFrame:
    due = (
        (F.col("kind") == ROW)
        & (F.col("schema_name") == task.name.schema)
        & (F.col("table_name") == task.name.table)
        & (F.col("commit_ts") <= limit)
        & (F.col("commit_ts") > task.checkpoint)
    )
    if task.ignored_events:
        due = due & ~F.col("op").isin(*[event.upper() for event in sorted(task.ignored_events)])
    return union(segment.frame for segment in task.segments).where(due)


def _left_keys(good: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """A DELETE of the old key for each UPDATE that changed the key.

    ``old`` may hold changed columns only (content-compatible): what it lacks is as in ``data``.
    """
    old, new = F.col("old"), F.col("data")
    differs = [F.coalesce(old[column] != new[column], F.lit(False)) for column in key]
    old_key = F.map_from_arrays(
        F.array(*[F.lit(column) for column in key]),
        F.array(*[F.coalesce(old[column], new[column]) for column in key]),
    )
    changed = old.isNotNull() & reduce(lambda left, right: left | right, differs)
    return good.where(changed).withColumns({"data": old_key, "op": F.lit("DELETE")})


def _typed(rows: DataFrame, cells: CellExpressions) -> DataFrame:
    """Add the struct of typed cells, ``_op``, and which cell failed with which text.

    One step each: Spark evaluates what an earlier step made once, however often a later one uses
    it."""
    failed = F.col(FAILED_INDEX)
    return (
        rows.withColumns({CELLS: cells.text, UNKNOWN: cells.unknown})
        .withColumn(TYPED, cells.typed)
        .withColumn(FAILED_INDEX, cells.failed)
        .withColumns(
            {
                FAILED_TEXT: F.when(failed.isNotNull(), F.get(CELLS, failed)),
                OP_COLUMN: F.when(F.col("op") == "DELETE", DELETE).otherwise(UPSERT),
            }
        )
    )


def _is_failed(rules: CastRules) -> Column:
    failed = F.col("error_class").isNotNull() | F.col(FAILED_INDEX).isNotNull()
    return failed if rules.drops else failed | F.col(UNKNOWN).isNotNull()


def _last_per_key(
    typed: DataFrame, task: TableTask, cells: CellExpressions, failed: Column
) -> DataFrame:
    cast_failed, is_unknown = F.col(FAILED_INDEX).isNotNull(), failed & F.col(UNKNOWN).isNotNull()
    by_itself = F.when(failed, F.xxhash64("topic", "partition", "offset")).otherwise(F.lit(0))
    keys = [F.col(TYPED)[column] for column in task.schema.key]
    newest_first = Window.partitionBy(*keys, by_itself).orderBy(
        F.desc("commit_ts"), F.desc(OP_COLUMN), F.desc("offset")
    )
    ranked = typed.withColumn("_rank", F.row_number().over(newest_first))
    reason = F.when(cast_failed, F.lit("cast")).when(is_unknown, F.lit(UNKNOWN_COLUMN))
    sentence = F.when(cast_failed, cells.sentence).when(is_unknown, unknown_sentence())
    origin = {name: F.when(failed, F.col(name.strip("_ "))) for name in ORIGIN_COLUMNS}
    return (
        ranked.where(F.col("_rank") == 1)
        .withColumns(
            {
                ERROR_CLASS: F.coalesce("error_class", reason),
                ERROR_MESSAGE: F.coalesce("error_message", sentence),
                DROPPED: F.when(~failed, F.col(UNKNOWN)),
                **origin,
            }
        )
        .select(f"{TYPED}.*", *CHANGE_COLUMNS)
    )
