"""Leaves out the events that an event filter ignores by the values of their rows.

    due rows ──cast the columns that conditions name──► is it ignored? ─┬─ no: a piece without them
                                                                        └─ cannot be told: an error

An INSERT is asked about its row, a DELETE about the row that goes, an UPDATE about both of its
rows. An ignored event leaves the table as it was, and comes to no key's last change (rule 4).

A row that does not tell what a condition asks becomes a dead letter: it lacks the column, or its
value cannot be read. A row that the decoder has refused stays one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conf.rows.conditions import Condition
from conf.rows.row_filter import Kind, RowFilter, ValueExpression
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName, Ts
from sinks.types.table_schema import Column, TableSchema
from sinks.types.text_arrays import CastRules, as_mask
from streaming.apply.row_block import RowBlock
from streaming.apply.rows_to_apply import Mask, Piece, RowNumbers, pieces_to_apply
from streaming.apply.table_task import TableTask
from streaming.apply.values.conditions import TypedColumn, holds
from streaming.apply.values.row_errors import (
    NO_OLD_TO_ASK_MESSAGE,
    NO_WHOLE_ROW,
    RowErrors,
    no_column_errors,
    same_text,
)
from streaming.apply.values.typed_rows import typed_values
from streaming.protocols.contract import DATA, OLD, OP_DELETE, OP_INSERT, OP_UPDATE

_OP_OF: Final[Mapping[Kind, int]] = {
    "insert": OP_INSERT,
    "delete": OP_DELETE,
    "update_new": OP_UPDATE,
    "update_old": OP_UPDATE,
}


def pieces_taken(
    task: TableTask, blocks: Sequence[RowBlock], limit: Ts, rules: CastRules
) -> Iterator[Piece]:
    """As ``pieces_to_apply``, without the events that conditions ignore. Raises ConfigError where a
    condition does not fit the table."""
    for piece in pieces_to_apply(task, blocks, limit):
        if not task.filters:
            yield piece
            continue
        ignored, told = ignored_rows(piece, task, rules)
        if not ignored.any():
            yield told
        elif not ignored.all():
            yield told.only(~ignored)


def ignored_positions(
    task: TableTask, blocks: Sequence[RowBlock], limit: Ts, rules: CastRules
) -> set[int]:
    """The positions of the events that conditions ignore."""
    found: set[int] = set()
    for piece in pieces_to_apply(task, blocks, limit) if task.filters else ():
        ignored, _ = ignored_rows(piece, task, rules)
        found.update(piece.position[: piece.count][ignored].tolist())
    return found


def ignored_rows(piece: Piece, task: TableTask, rules: CastRules) -> tuple[Mask, Piece]:
    """Which rows are ignored, and the piece with errors at those of which it cannot be told."""
    asked = _Asked(piece, task.name, rules)
    begin = 0
    for upstream, count in _upstreams(piece):
        within = np.zeros(piece.count, np.bool_)
        within[begin : begin + count] = True
        begin += count
        if (row_filter := task.filters.get(upstream)) is not None:
            asked.ask(row_filter, within)
    return asked.is_ignored, asked.told()


def _upstreams(piece: Piece) -> Iterator[tuple[TableName, int]]:
    """The upstream tables of the rows, in order, with the number of rows that follow each other."""
    last, rows = None, 0
    for due in piece.batches:
        if last is not None and due.block.upstream != last:
            yield last, rows
            rows = 0
        last, rows = due.block.upstream, rows + due.count
    if last is not None:
        yield last, rows


class _Asked:
    """A piece, and what conditions have said of its rows so far."""

    def __init__(self, piece: Piece, name: TableName, rules: CastRules) -> None:
        self._piece, self._name, self._rules = piece, name, rules
        self._errors: list[RowErrors] = []
        self._shape = {each.name for each in piece.shape}
        self.is_ignored = np.zeros(piece.count, np.bool_)
        told = piece.error_class
        self._is_open = np.ones(piece.count, np.bool_) if told is None else as_mask(told.is_null())

    def ask(self, row_filter: RowFilter, within: Mask) -> None:
        """``within``: the rows that the filter is for."""
        for rule in row_filter.rules:
            found = {
                kind: self._holds(kind, expression, within)
                for kind, expression in rule.expressions.items()
            }
            if rule.needs_both and {"update_old", "update_new"} <= found.keys():
                self.is_ignored |= found.pop("update_old") & found.pop("update_new")
            for answer in found.values():
                self.is_ignored |= answer
        self.is_ignored &= self._is_open

    def told(self) -> Piece:
        if not self._errors:
            return self._piece
        rows = np.concatenate([each.rows for each in self._errors])
        at = np.full(self._piece.count, -1)
        at[rows] = np.arange(len(rows))
        which = pa.array(at, mask=at < 0)
        classes = pa.concat_arrays([each.error_class for each in self._errors]).take(which)
        messages = pa.concat_arrays([each.message for each in self._errors]).take(which)
        piece = self._piece
        if piece.error_class is not None and piece.error_message is not None:
            classes = pc.coalesce(piece.error_class, classes)
            messages = pc.coalesce(piece.error_message, messages)
        return replace(piece, error_class=classes, error_message=messages)

    def _holds(self, kind: Kind, expression: ValueExpression, within: Mask) -> Mask:
        piece, side = self._piece, OLD if kind == "update_old" else DATA
        is_asked = within & (piece.op[: piece.count] == _OP_OF[kind]) & self._is_open
        rows = np.flatnonzero(is_asked & ~self.is_ignored)
        answer = np.zeros(piece.count, np.bool_)
        if not len(rows):
            return answer
        columns = self._columns(expression)
        if side == OLD:
            has_old = as_mask(piece.values(rows, OLD).is_valid())
            self._refuse(
                RowErrors(
                    rows[~has_old],
                    same_text(NO_WHOLE_ROW, rows[~has_old]),
                    same_text(NO_OLD_TO_ASK_MESSAGE, rows[~has_old]),
                )
            )
            rows = rows[has_old]
        if missing := [each.name for each in columns if each.name not in self._shape]:
            self._refuse(no_column_errors(rows, missing, expression.key))
            return answer
        # Conditions are on the source's values; an error quotes none that is masked.
        typed = typed_values(piece, rows, columns, self._rules, side, in_clear=True)
        for errors in typed.errors:
            self._refuse(errors)
        found = {
            each.name.lower(): TypedColumn(replace(each, mask=""), typed.columns[each.name])
            for each in columns
        }
        answer[rows] = self._evaluated(expression, expression.condition, found, rows)
        return answer & self._is_open

    def _evaluated(
        self,
        expression: ValueExpression,
        condition: Condition,
        columns: dict[str, TypedColumn],
        rows: RowNumbers,
    ) -> Mask:
        try:
            return as_mask(holds(condition, columns, len(rows), self._rules))
        except (ConfigError, TidelakeError) as error:
            raise type(error)(f"{self._about(expression)}: {error}") from error

    def _columns(self, expression: ValueExpression) -> list[Column]:
        """The columns that it names. Raises ConfigError for one that the table does not have, as
        TiCDC does."""
        schema: TableSchema = self._piece.of.schema
        known = {column.name.lower(): column for column in schema.columns}
        found = []
        for name in expression.names:
            column = known.get(name.lower())
            if column is None:
                raise ConfigError(
                    f"{self._about(expression)}: the table has no column {name}: name others, or "
                    "leave the table out of the matcher"
                )
            found.append(column)
        return found

    def _refuse(self, errors: RowErrors) -> None:
        errors = errors.where(self._is_open[errors.rows])
        if len(errors.rows):
            self._errors.append(errors)
            self._is_open[errors.rows] = False

    def _about(self, expression: ValueExpression) -> str:
        return f"table {self._name}: {expression.key} ({expression.text})"
