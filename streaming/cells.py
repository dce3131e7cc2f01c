"""A table's text cells to typed ones, and the first reason why a row cannot be applied.

The expressions depend on the table's schema alone, never on the batch, so each is built once:
building them is a call into the JVM per operator, and equal expressions find their compiled code
again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from sinks.delta_types import delta_type
from sinks.schema import Column as TableColumn
from sinks.schema import TableSchema
from sinks.sql_casts import cast_column, cast_failure

CELLS: Final = "_cells"  # array<string>: a row's text in table order
TYPED: Final = "_typed"  # struct of the delivered columns in Delta's types
FAILED_INDEX: Final = "_failed_index"
FAILED_TEXT: Final = "_failed_text"
UNKNOWN: Final = "_unknown"  # array<string>: what a row has and its table lacks; null for nothing
QUOTED_CHARS = 80  # of a bad value in an error message


@dataclass(frozen=True, slots=True, kw_only=True)
class CastRules:
    """How text becomes values: the TiCDC server's zone, what a zero date is, and what becomes of a
    column that the table lacks.
    """

    time_zone: str
    zero_date: Literal["null", "fail"]
    unknown_column: Literal["dead-letter", "drop"] = "dead-letter"

    @property
    def drops(self) -> bool:
        return self.unknown_column == "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellExpressions:
    """Of one table."""

    text: Column  # data -> array<string>
    unknown: Column  # data, op -> UNKNOWN
    typed: Column  # CELLS -> TYPED
    failed: Column  # CELLS, TYPED, op -> the index of the first cell that cannot be cast
    sentence: Column  # FAILED_INDEX, FAILED_TEXT -> what to say about it


def cell_expressions(schema: TableSchema, rules: CastRules) -> CellExpressions:
    """Build the expressions of one table."""
    struct = F.col(TYPED)
    cells = []
    for index, column in enumerate(schema.delivered):
        cell = cast_column(_text(index), column, rules.time_zone)
        if column.name in schema.key:
            cell = key_cell(cell, delta_type(column.type))
        cells.append(cell.alias(column.name))
    return CellExpressions(
        text=_in_table_order(schema),
        unknown=unknown_columns(F.array(*_names(schema))),
        typed=F.struct(*cells),
        failed=_first_failure(schema, struct, rules),
        sentence=_sentence(schema),
    )


def key_cell(cell: Column, spark_type: str) -> Column:
    """-0.0 as 0.0: one key in MySQL, two to a merge that compares bits."""
    return cell + F.lit(0.0).cast(spark_type) if spark_type in ("float", "double") else cell


def _text(index: int) -> Column:
    return F.get(CELLS, F.lit(index))


def _in_table_order(schema: TableSchema) -> Column:
    """TiCDC sends a row in table order, so mostly no look-up by name is needed."""
    in_order = F.map_keys("data") == F.array(*_names(schema))
    looked_up = F.array(*[F.col("data")[column.name] for column in schema.delivered])
    return F.when(in_order, F.map_values("data")).otherwise(looked_up)


def _names(schema: TableSchema) -> list[Column]:
    return [F.lit(column.name) for column in schema.delivered]


def unknown_columns(names: Column) -> Column:
    """What ``data`` has beside the table's ``names``, or null; of a DELETE only the key counts."""
    in_order = F.map_keys("data") == names
    others = F.array_except(F.map_keys("data"), names)
    is_harmless = in_order | (F.col("op") == "DELETE")
    return F.when(~is_harmless & (F.size(others) > 0), others)


def unknown_sentence() -> Column:
    """What to say about the columns of UNKNOWN."""
    return F.concat(
        F.lit("the target table lacks column "),
        F.array_join(UNKNOWN, ", "),
        F.lit(": add it there and start again, and the rows that come then have it"),
    )


def _first_failure(schema: TableSchema, struct: Column, rules: CastRules) -> Column:
    """The index of the first cell that cannot be cast, or null; of a DELETE only the key counts."""
    indexed = list(enumerate(schema.delivered))
    in_key = [(i, column) for i, column in indexed if column.name in schema.key]
    others = [(i, column) for i, column in indexed if column.name not in schema.key]
    checks = [(struct[column.name].isNull(), F.lit(i)) for i, column in in_key]
    checks.append((F.col("op") == "DELETE", F.lit(None).cast("int")))
    checks += [(_failed(i, column, struct, rules), F.lit(i)) for i, column in others]
    failed = F.when(*checks[0])
    for condition, index in checks[1:]:
        failed = failed.when(condition, index)
    return failed


def _failed(index: int, column: TableColumn, struct: Column, rules: CastRules) -> Column:
    return cast_failure(_text(index), struct[column.name], column, rules.zero_date)


def _sentence(schema: TableSchema) -> Column:
    """What to say about the cell at FAILED_INDEX, whose text is FAILED_TEXT."""
    names = F.array(*[F.lit(column.name) for column in schema.delivered])
    types = F.array(*[F.lit(delta_type(column.type)) for column in schema.delivered])
    cannot_read = F.concat(
        F.lit(": cannot read '"),
        F.substring(FAILED_TEXT, 1, QUOTED_CHARS),
        F.lit("' as "),
        F.get(types, F.col(FAILED_INDEX)),
    )
    reason = F.coalesce(cannot_read, F.lit(": a key column has no value"))
    return F.concat(F.lit("column "), F.get(names, F.col(FAILED_INDEX)), reason)
