"""The due rows of many small tables in one frame, whose plan does not grow with the tables.

Spark plans a query in a time that grows with its columns: a struct per table cost seconds for a
hundred tables of fifty rows. So a row's cells are one array here, ``array<struct<f0, f1, …>>`` with
a field per *Delta type* that occurs, of which each cell fills the one of its own type. The casts
are those of ``sinks/sql_casts.py``, one branch per MySQL type that occurs. What differs from table
to table (names, kinds, key, checkpoint) is data: one literal.

    cells ──(kind of each)──► typed cells ──► first cell that failed ──► last change per key
    one toArrow ──► per table: every n-th cell is a column
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import WindowSpec

from coordination.model import Ts
from sinks.apply import DELETE, OP_COLUMN, UPSERT
from sinks.delta_types import cast_kind, delta_type
from sinks.schema import Column as TableColumn
from sinks.schema import MySQLType
from sinks.sql_casts import cast_column, cast_failure
from streaming.cells import QUOTED_CHARS, UNKNOWN, CastRules, unknown_columns, unknown_sentence
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

TABLE: Final = "_table"
TYPED: Final = "_typed"
MANY_KINDS = 40
_META_TYPE = (
    "map<string, struct<number:int, checkpoint:bigint, names:array<string>, kinds:array<int>, "
    "key:array<int>, keys:array<string>, ignored:array<string>>>"
)


@dataclass(frozen=True, slots=True)
class Kinds:
    """What cells are cast to (a cell's kind is its index): MySQL types, and their Delta types."""

    types: tuple[MySQLType, ...] = ()
    fields: tuple[str, ...] = ()  # Delta types; f0, f1 … of a typed cell

    def of(self, tasks: Sequence[TableTask]) -> Kinds:
        """With those of all delivered columns. The same one as long as nothing new comes, whatever
        tables a batch has and in which order: expressions need not be built again.
        """
        columns = [column for task in tasks for column in task.schema.delivered]
        wanted = dict.fromkeys(cast_kind(column.type) for column in columns)
        types = tuple(dict.fromkeys((*self.types, *wanted)))
        if len(types) > MANY_KINDS:  # each cell is compared with each kind
            types = tuple(wanted)
        return self if types == self.types else Kinds(types, _delta_types(types))

    def field(self, mysql_type: MySQLType) -> str:
        """Where the cell of such a column is."""
        return f"f{self.fields.index(delta_type(mysql_type))}"


def _delta_types(types: Sequence[MySQLType]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(delta_type, types)))


@dataclass(frozen=True, slots=True)
class SmallChanges:
    """The changes of a group of tables, before they are read.

    ``frame``: ``_table`` (number in ``tasks``), ``_typed``, and ``CHANGE_COLUMNS``.
    """

    frame: DataFrame
    tasks: Sequence[TableTask]
    kinds: Kinds

    def read(self) -> list[pa.Table]:
        """By one Spark job. One table per task: its delivered columns in Delta's types, then
        ``CHANGE_COLUMNS``."""
        return _split(self.frame.toArrow(), self.tasks, self.kinds)


@dataclass(frozen=True, slots=True)
class _Expressions:
    """What depends on the types alone: building it is a call into the JVM per operator."""

    cells: Column
    unknown: Column
    typed: Column
    failed: Column
    chosen: Sequence[Column | str]


class SmallTables:
    """Builds the frame; keeps the kinds that it has seen and their expressions, and no other state.
    Threads may resolve different groups at the same time.
    """

    def __init__(self, rules: CastRules) -> None:
        self._rules = rules
        self._kinds = Kinds()
        self._expressions_of_kinds: _Expressions | None = None
        self._lock = threading.Lock()

    def resolve(self, tasks: Sequence[TableTask], limit: Ts) -> SmallChanges:
        """Changes in ``(checkpoint, limit]``, at most one good one per key of each table."""
        kinds, known = self._known(tasks)
        rows = _due_rows(tasks, kinds, limit)
        typed = _typed(rows, known)
        failed = _is_failed(self._rules)
        if any(task.has_key_updates for task in tasks):
            left = _left_keys(typed.where(~failed)).select(rows.columns)
            typed = typed.unionAll(_typed(left, known))
        ranked = typed.withColumn("_rank", F.row_number().over(_newest_first(failed)))
        chosen = ranked.where(F.col("_rank") == 1).select(*known.chosen)
        return SmallChanges(chosen, tasks, kinds)

    def _known(self, tasks: Sequence[TableTask]) -> tuple[Kinds, _Expressions]:
        with self._lock:
            kinds = self._kinds.of(tasks)
            if self._expressions_of_kinds is None or kinds != self._kinds:
                self._expressions_of_kinds = self._expressions(kinds)
                self._kinds = kinds
            return kinds, self._expressions_of_kinds

    def _expressions(self, kinds: Kinds) -> _Expressions:
        data, names = F.col("data"), F.col("m.names")
        in_order = F.when(F.map_keys(data) == names, F.map_values(data))
        looked_up = F.transform(names, lambda name: F.element_at(data, name))
        numbers = F.sequence(F.lit(0), F.size("_cells") - 1)
        failed = F.filter(numbers, lambda number: self._cannot_apply(number, kinds))
        return _Expressions(
            cells=in_order.otherwise(looked_up),
            unknown=unknown_columns(names),
            typed=F.zip_with(
                "_cells", F.col("m.kinds"), lambda text, kind: self._cast(text, kind, kinds)
            ),
            failed=F.get(failed, F.lit(0)),
            chosen=_chosen(kinds, _is_failed(self._rules)),
        )

    def _cast(self, text: Column, kind: Column, kinds: Kinds) -> Column:
        fields = []
        for number, spark_type in enumerate(kinds.fields):
            cell = F.lit(None).cast(spark_type)
            for index, mysql_type in enumerate(kinds.types):
                if delta_type(mysql_type) == spark_type:
                    column = TableColumn(name="", type=mysql_type)
                    typed = cast_column(text, column, self._rules.time_zone)
                    cell = F.when(kind == index, typed).otherwise(cell)
            fields.append(cell.alias(f"f{number}"))
        return F.struct(*fields)

    def _cannot_apply(self, number: Column, kinds: Kinds) -> Column:
        """Of a DELETE only the key counts; a key column must have a value."""
        text, cell = F.get("_cells", number), F.get(TYPED, number)
        kind = F.get(F.col("m.kinds"), number)
        lost = F.lit(False)
        for index, mysql_type in enumerate(kinds.types):
            column = TableColumn(name="", type=mysql_type)
            value = cell[kinds.field(mysql_type)]
            failure = cast_failure(text, value, column, self._rules.zero_date)
            lost = F.when(kind == index, failure).otherwise(lost)
        empty = reduce(
            lambda left, right: left & right,
            [cell[f"f{number}"].isNull() for number in range(len(kinds.fields))],
        )
        in_key = F.array_contains(F.col("m.key"), number)
        return F.when(in_key, empty).otherwise((F.col("op") != "DELETE") & lost)


def _due_rows(tasks: Sequence[TableTask], kinds: Kinds, limit: Ts) -> DataFrame:
    segments = {id(segment): segment for task in tasks for segment in task.segments}
    read = union(segment.frame for segment in segments.values())
    about = F.from_json(F.lit(_meta(tasks, kinds)), _META_TYPE)
    name = F.concat_ws("\0", "schema_name", "table_name")
    of_table = read.where((F.col("kind") == ROW) & (F.col("commit_ts") <= limit)).withColumn(
        "m", F.try_element_at(about, name)
    )
    return of_table.where(
        (F.col("commit_ts") > F.col("m.checkpoint"))
        & ~F.array_contains(F.col("m.ignored"), F.col("op"))
    )


def _meta(tasks: Sequence[TableTask], kinds: Kinds) -> str:
    """What the rows of each table need to know, as one JSON text: a literal, read once."""
    kind_of = {mysql_type: index for index, mysql_type in enumerate(kinds.types)}
    about = {}
    for number, task in enumerate(tasks):
        names = [column.name for column in task.schema.delivered]
        about[f"{task.name.schema}\0{task.name.table}"] = {
            "number": number,
            "checkpoint": task.checkpoint,
            "names": names,
            "kinds": [kind_of[cast_kind(column.type)] for column in task.schema.delivered],
            "key": [names.index(key) for key in task.schema.key],
            "keys": list(task.schema.key),
            "ignored": [event.upper() for event in sorted(task.ignored_events)],
        }
    return json.dumps(about, ensure_ascii=False)


def _typed(rows: DataFrame, known: _Expressions) -> DataFrame:
    cells = rows.withColumns({"_cells": known.cells, UNKNOWN: known.unknown})
    typed = cells.withColumn(TYPED, known.typed)
    op = F.when(F.col("op") == "DELETE", DELETE).otherwise(UPSERT)
    return typed.withColumns({OP_COLUMN: op, "_failed": known.failed})


def _left_keys(good: DataFrame) -> DataFrame:
    """A DELETE of the old key for each UPDATE that changed the key (rule 4)."""
    old, new, keys = F.col("old"), F.col("data"), F.col("m.keys")

    def differs(key: Column) -> Column:
        return F.coalesce(F.try_element_at(old, key) != F.try_element_at(new, key), F.lit(False))

    def old_value(key: Column) -> Column:
        return F.coalesce(F.try_element_at(old, key), F.try_element_at(new, key))

    return good.where(old.isNotNull() & F.exists(keys, differs)).withColumns(
        {"data": F.map_from_arrays(keys, F.transform(keys, old_value)), "op": F.lit("DELETE")}
    )


def _is_failed(rules: CastRules) -> Column:
    failed = F.col("error_class").isNotNull() | F.col("_failed").isNotNull()
    return failed if rules.drops else failed | F.col(UNKNOWN).isNotNull()


def _newest_first(failed: Column) -> WindowSpec:
    """Per key, and each row that cannot be applied by itself."""
    by_itself = F.when(failed, F.xxhash64("topic", "partition", "offset"))
    key = F.transform(F.col("m.key"), lambda index: F.get(TYPED, index))
    return Window.partitionBy("m.number", key, by_itself.otherwise(F.lit(0))).orderBy(
        F.desc("commit_ts"), F.desc(OP_COLUMN), F.desc("offset")
    )


def _chosen(kinds: Kinds, failed: Column) -> Sequence[Column | str]:
    cast_failed, is_unknown = F.col("_failed").isNotNull(), failed & F.col(UNKNOWN).isNotNull()
    text = F.substring(F.get("_cells", F.col("_failed")), 1, QUOTED_CHARS)
    spark_types = F.array(*[F.lit(delta_type(mysql_type)) for mysql_type in kinds.types])
    wanted = F.get(spark_types, F.get(F.col("m.kinds"), F.col("_failed")))
    reason = F.coalesce(
        F.concat(F.lit(": cannot read '"), text, F.lit("' as "), wanted),
        F.lit(": a key column has no value"),
    )
    cannot_read = F.concat(F.lit("column "), F.get(F.col("m.names"), F.col("_failed")), reason)
    error = F.when(cast_failed, F.lit("cast")).when(is_unknown, F.lit(UNKNOWN_COLUMN))
    sentence = F.when(cast_failed, cannot_read).when(is_unknown, unknown_sentence())
    return (
        F.col("m.number").alias(TABLE),
        TYPED,
        OP_COLUMN,
        F.coalesce("error_class", error).alias(ERROR_CLASS),
        F.coalesce("error_message", sentence).alias(ERROR_MESSAGE),
        *[F.when(failed, F.col(name.strip("_ "))).alias(name) for name in ORIGIN_COLUMNS],
        F.when(~failed, F.col(UNKNOWN)).alias(DROPPED),
    )


def _split(changes: pa.Table, tasks: Sequence[TableTask], kinds: Kinds) -> list[pa.Table]:
    changes = changes.combine_chunks()
    order = pc.sort_indices(changes[TABLE])
    changes = changes.take(order).combine_chunks()
    numbers = changes[TABLE].to_numpy()
    begins = np.searchsorted(numbers, np.arange(len(tasks) + 1))
    return [
        _columns(changes.slice(begin, end - begin), task, kinds)
        for task, begin, end in zip(tasks, begins[:-1], begins[1:], strict=True)
    ]


def _columns(rows: pa.Table, task: TableTask, kinds: Kinds) -> pa.Table:
    cells = pa.concat_arrays(rows[TYPED].chunks or [pa.array([], rows[TYPED].type)]).flatten()
    width = len(task.schema.delivered)
    columns = {}
    for index, column in enumerate(task.schema.delivered):
        field = pc.struct_field(cells, kinds.field(column.type))
        values = field.take(pa.array(np.arange(index, len(rows) * width, width)))
        if column.name in task.schema.key and pa.types.is_floating(values.type):
            values = pc.add(values, pa.scalar(0.0, values.type))  # see cells.key_cell
        columns[column.name] = values
    return pa.table(columns | {name: rows[name] for name in CHANGE_COLUMNS})
