"""The shapes that a table had before its present one, and the way of their rows into it. Pure.

After a rewind, rows come again that are older than the table's columns. They are cast by the shape
of their commit-ts. Then they go through each later DDL as the stored rows did when it ran
(``column_origin``). So the table holds afterwards what it held before the rewind.

Shapes are known from ``_tidelake/schemas``. The effect of a DDL on columns is read from its
statement, and believed only if it leads to the columns of the next row there: an operator may have
passed over the DDL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.model import TSO_LOGICAL_BITS, Ts
from sinks.control.schemas import SchemaRow
from sinks.ddl.column_origin import ColumnOrigin, OnAddDefault, column_origins
from sinks.ddl.effects import (
    AddColumn,
    AlterSpec,
    AlterTable,
    DropColumn,
    ModifyColumn,
    RenameColumn,
    SetCharset,
    SetDefault,
)
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.logged import server_session
from sinks.types.column_choice import EVERY_COLUMN, ColumnChoice
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import INTEGER_TYPES, MySQLType
from sinks.types.partitioning import Partitioning
from sinks.types.table_schema import Column, TableSchema
from sinks.types.text_arrays import CastRules
from sinks.types.type_changes import needs_untold

_OF_COLUMNS = (*(AddColumn, DropColumn, RenameColumn, ModifyColumn, SetDefault, SetCharset),)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStep:
    """A DDL that has run since. ``origins``: of its columns, in order, with their types."""

    origins: Sequence[tuple[ColumnOrigin, pa.DataType]]
    ddl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedRows:
    """Rows in later columns. ``has_lost``: those with a value that has no place in a later type,
    and is null now; None: there are none."""

    columns: dict[str, pa.Array]
    has_lost: Mask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSchema:
    """The shape of rows at and below ``last_ts``, down to the ``last_ts`` of the shape before.

    ``schema`` casts them. ``steps``: the DDLs since. ``is_known`` False: the present shape stands
    in for it. ``passed``: DDLs between the rows and ``schema``, where a later shape casts them.
    """

    last_ts: Ts
    schema: TableSchema
    steps: tuple[SchemaStep, ...] = ()
    is_known: bool = True
    passed: tuple[SchemaStep, ...] = ()

    def cast_by(self, later: PastSchema) -> PastSchema:
        """The same rows, cast by a later shape."""
        passed = self.steps[: len(self.steps) - len(later.steps)]
        return replace(later, last_ts=self.last_ts, passed=passed)

    @property
    def renames_next(self) -> bool:
        """Whether the first DDL since gives a column another name."""
        origins = (origin for origin, _ in (self.steps[0].origins if self.steps else ()))
        return any(origin.source not in (None, origin.name) for origin in origins)

    def added(self, rules: CastRules, *, rows: int) -> dict[str, pa.Array]:
        """The columns of ``schema`` that the rows' own shape had not, with what their DDLs gave old
        rows; ``rows``: how many."""
        return replace(self, steps=self.passed).carried({}, rules, rows=rows).columns

    def carried(
        self,
        columns: Mapping[str, pa.Array],
        rules: CastRules,
        *,
        rows: int | None = None,
    ) -> UpgradedRows:
        """These columns of ``schema`` (typed, by name) as the present columns that come from them;
        ``rows`` (how many): with the columns that have been added since, too.

        A value without a place in a later type, which TiDB therefore had changed or deleted
        before that DDL, becomes null."""
        found, has_lost = dict(columns), None
        for step in self.steps:
            made = {}
            for origin, kind in step.origins:
                source = None if origin.source is None else found.get(origin.source)
                if source is None and (origin.source is not None or rows is None):
                    continue
                values = origin.values(source, rows or 0, kind, rules, step.ddl_ms, is_strict=False)
                if source is not None and values.null_count > source.null_count:
                    lost = np.asarray(values.is_null()) & np.asarray(source.is_valid())
                    has_lost = lost if has_lost is None else has_lost | lost
                made[origin.name] = values
            found = made
        return UpgradedRows(columns=found, has_lost=has_lost)


def older_shapes(
    rows: Iterable[SchemaRow],
    present: TableSchema,
    *,
    made_ts: Ts,
    on_add_default: OnAddDefault,
    file: TableSchema | None = None,
    choice: ColumnChoice = EVERY_COLUMN,
) -> tuple[PastSchema, ...]:
    """The shapes below the present one, the oldest first. Rows below the shapes that can be known
    are cast by the present one: a shape with ``is_known`` False stands for them.

    ``rows``: the table's, in any order, its present shape among them. ``made_ts``: commit-ts of the
    DDL that made the table; older rows belong to another table. ``file``: the schema file's
    definition, for digits that the table's rows did not tell; without them a DDL that needs them is
    not followed. ``choice``: of the columns that the target has.
    """
    known = sorted((row for row in rows if row.commit_ts >= made_ts), key=lambda row: row.commit_ts)
    found: list[PastSchema] = []
    steps: tuple[SchemaStep, ...] = ()
    is_like = _columns(_schema(known[-1])) == _columns(present)
    first = known[-1] if is_like else None
    for before, row in reversed([*pairwise(known)] if is_like else []):
        schema = choice.chosen(_schema(before))
        change = _change(schema, row, choice)
        if change is not None and file is not None:
            change = replace(change, before=change.before.completed(file))
        if change is None or _needs_untold(change):
            break
        first = before
        is_renamed = any(name != of for name, of in change.sources.items())
        if schema != choice.chosen(_schema(row)) or is_renamed:
            steps = (_step(change, row.commit_ts, on_add_default), *steps)
            schema = replace(  # no rewind goes below another
                schema, key_is_row=present.key_is_row, counts_rows=present.counts_rows
            )
            found.append(PastSchema(last_ts=Ts(row.commit_ts - 1), schema=schema, steps=steps))
    # Where no CREATE TABLE was read, the first shape was told by rows, and is that of older ones.
    if first is None or first is not known[0] or (first.statement and first.commit_ts > made_ts):
        last_ts = Ts((first or known[-1]).commit_ts - 1)
        found.append(PastSchema(last_ts=last_ts, schema=present, is_known=False))
    return tuple(reversed(found))


def partitions_then(
    rows: Iterable[SchemaRow], present: TableSchema, *, made_ts: Ts, ddl_ts: Ts
) -> Partitioning | None:
    """How the table was partitioned right below ``ddl_ts``, by the present names of its columns.
    None: it is not known, or one of these columns is gone, or has other values since. Arguments as
    of ``past_schemas``."""
    rows = [row for row in rows if row.commit_ts >= made_ts]
    before = [row for row in rows if row.commit_ts < ddl_ts]
    if not before:
        return None
    last = max(before, key=lambda row: row.commit_ts)
    shapes = older_shapes(rows, present, made_ts=made_ts, on_add_default="null")
    then = next((each for each in shapes if each.last_ts >= ddl_ts - 1), None)
    if last.partitioning is None or (then is not None and not then.is_known):
        return None
    found = Partitioning.from_json(json.loads(last.partitioning))
    names = [_name_now(name, () if then is None else then.steps) for name in found.columns]
    columns = tuple(name for name in names if name is not None)
    return replace(found, columns=columns) if len(columns) == len(names) else None


def _name_now(name: str, steps: Iterable[SchemaStep]) -> str | None:
    """The name of a column that has the same values after these steps."""
    for step in steps:
        came = (of for of, _ in step.origins if of.source and of.source.lower() == name.lower())
        origin = next(came, None)
        if origin is None or not all(of.name in INTEGER_TYPES for of in origin.types or ()):
            return None
        name = origin.name
    return name


def _needs_untold(change: SchemaChange) -> bool:
    origins = column_origins(change, "null").values()
    return any(origin.types is not None and needs_untold(*origin.types) for origin in origins)


def _step(change: SchemaChange, ddl_ts: int, on_add_default: OnAddDefault) -> SchemaStep:
    origins = column_origins(change, on_add_default)
    kinds = {column.name: arrow_type(column.stored) for column in change.after.delivered}
    return SchemaStep(
        origins=tuple((origin, kinds[name]) for name, origin in origins.items()),
        ddl_ms=ddl_ts >> TSO_LOGICAL_BITS,
    )


def _change(before: TableSchema, row: SchemaRow, choice: ColumnChoice) -> SchemaChange | None:
    """The change that led from these columns to those of the row; None: it is not known."""
    after = _columns(_schema(row))
    statement = read_ddl(row.statement, "", row.schema_name, row.table_name)
    changes: list[AlterSpec] = [
        each
        for effect in statement.effects
        if isinstance(effect, AlterTable)
        for each in effect.changes
        if isinstance(each, _OF_COLUMNS)
    ]
    # It is not noted whether the table's character set is binary, nor need it be.
    tries: list[tuple[bool, list[AlterSpec]]] = [(False, changes), (True, changes), (False, [])]
    for binary, tried in tries:
        try:
            plain = replace(
                before, key=(), key_is_row=False, counts_rows=False, binary_charset=binary
            )
            change = evolved(plain, tried, choice, server_session(row.statement))
        except ValueError:
            continue
        if _columns(change.after) == after:
            return change
    return None


def _columns(schema: TableSchema) -> list[tuple[str, str, str]]:
    """The parts of a column on which the casts of rows depend."""
    return [(each.name, str(each.type), each.generated) for each in schema.columns]


def _schema(row: SchemaRow) -> TableSchema:
    columns = tuple(
        Column(
            name=each["name"],
            type=MySQLType.parse(each["mysql_type"]),
            nullable=each["nullable"],
            generated=each["generated"] or "",
            default=each["default"],
        )
        for each in row.columns
    )
    return TableSchema(columns=columns, key=tuple(row.key))
