"""A piece of due rows, and what the rules of event filters say of them, row by row.

An INSERT is asked about its row, a DELETE about the row that goes, an UPDATE about both of its
rows. A row that does not tell what a condition asks becomes a dead letter: it lacks the column, or
its value cannot be read. A row that the decoder has refused stays one.
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
from coordination.model import TableName
from sinks.types.table_schema import Column, TableSchema
from sinks.types.text_arrays import CastRules, as_mask
from streaming.apply.rows_to_apply import OP_OF_EVENT, Mask, Piece, RowNumbers
from streaming.apply.values.conditions import TypedColumn, holds
from streaming.apply.values.row_errors import (
    NO_OLD_TO_ASK_MESSAGE,
    NO_WHOLE_ROW,
    RowErrors,
    no_column_errors,
    same_text,
)
from streaming.apply.values.typed_rows import typed_values, untold
from streaming.protocols.contract import (
    DATA,
    OLD,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Cells,
)

_OP_OF: Final[Mapping[Kind, int]] = {
    "insert": OP_INSERT,
    "delete": OP_DELETE,
    "update_new": OP_UPDATE,
    "update_old": OP_UPDATE,
}


class AskedRows:
    """A piece, and what conditions have said of its rows so far."""

    def __init__(self, piece: Piece, name: TableName, rules: CastRules) -> None:
        self.piece, self._name, self._rules = piece, name, rules
        self._errors: list[RowErrors] = []
        lacking = untold(piece.shape) if piece.cells is Cells.TYPED else ()
        self._shape = {each.name for each in piece.shape if each.name not in lacking}
        self._is_ignored = np.zeros(piece.count, np.bool_)
        self._by_event = np.zeros(piece.count, np.bool_)  # whatever else is wrong with the row
        told = piece.error_class
        self._is_open = np.ones(piece.count, np.bool_) if told is None else as_mask(told.is_null())

    def filtered(
        self, filters: Mapping[TableName, RowFilter]
    ) -> Iterator[tuple[TableName, RowFilter, Mask]]:
        """The filters of the rows' upstream tables, each with the rows that it is for."""
        begin = 0
        for upstream, count in self.piece.upstreams():
            within = np.zeros(self.piece.count, np.bool_)
            within[begin : begin + count] = True
            begin += count
            if (row_filter := filters.get(upstream)) is not None:
                yield upstream, row_filter, within

    def ask(self, row_filter: RowFilter, within: Mask) -> None:
        """``within``: the rows that are asked."""
        for event in row_filter.events:
            self._by_event |= within & (self.piece.op[: self.piece.count] == OP_OF_EVENT[event])
        for rule in row_filter.rules:
            found = {
                kind: self._holds(kind, expression, within)
                for kind, expression in rule.expressions.items()
            }
            if rule.needs_both and {"update_old", "update_new"} <= found.keys():
                self._is_ignored |= found.pop("update_old") & found.pop("update_new")
            for answer in found.values():
                self._is_ignored |= answer
        self._is_ignored &= self._is_open

    def ignore(self, rows: Mask) -> None:
        self._is_ignored |= rows & self._is_open

    def ignored(self) -> Mask:
        """The rows that are ignored, so far."""
        return self._is_ignored | self._by_event

    def answer(self, expression: ValueExpression, rows: RowNumbers) -> Mask:
        """Whether it is true of the data of these rows, which rise; False where they do not
        tell."""
        found, _ = self._answer(expression, rows, DATA)
        return found[rows] & self._is_open[rows]

    def told(self) -> Piece:
        if not self._errors:
            return self.piece
        rows = np.concatenate([each.rows for each in self._errors])
        at = np.full(self.piece.count, -1)
        at[rows] = np.arange(len(rows))
        which = pa.array(at, mask=at < 0)
        classes = pa.concat_arrays([each.error_class for each in self._errors]).take(which)
        messages = pa.concat_arrays([each.message for each in self._errors]).take(which)
        piece = self.piece
        if piece.error_class is not None and piece.error_message is not None:
            classes = pc.coalesce(piece.error_class, classes)
            messages = pc.coalesce(piece.error_message, messages)
        return replace(piece, error_class=classes, error_message=messages)

    def _holds(self, kind: Kind, expression: ValueExpression, within: Mask) -> Mask:
        piece, side = self.piece, OLD if kind == "update_old" else DATA
        is_asked = within & (piece.op[: piece.count] == _OP_OF[kind]) & self._is_open
        rows = np.flatnonzero(is_asked & ~self.ignored())
        if side == OLD and len(rows):
            has_old = as_mask(piece.values(rows, OLD).is_valid())
            self._refuse(
                RowErrors(
                    rows[~has_old],
                    same_text(NO_WHOLE_ROW, rows[~has_old]),
                    same_text(NO_OLD_TO_ASK_MESSAGE, rows[~has_old]),
                )
            )
            rows = rows[has_old]
        answer, errors = self._answer(expression, rows, side)
        for each in errors:
            self._refuse(each)
        return answer & self._is_open

    def _answer(
        self, expression: ValueExpression, rows: RowNumbers, side: str
    ) -> tuple[Mask, Sequence[RowErrors]]:
        """By row of the piece; and the errors of rows that do not tell, of which it is False."""
        piece = self.piece
        answer = np.zeros(piece.count, np.bool_)
        if not len(rows):
            return answer, ()
        columns = self._columns(expression)
        if missing := [each.name for each in columns if each.name not in self._shape]:
            return answer, (no_column_errors(rows, missing, expression.key),)
        # Conditions are on the source's values; an error quotes none that is masked.
        typed = typed_values(piece, rows, columns, self._rules, side, in_clear=True)
        found = {
            each.name.lower(): TypedColumn(replace(each, mask=""), typed.columns[each.name])
            for each in columns
        }
        answer[rows] = self._evaluated(expression, expression.condition, found, rows)
        if typed.is_bad is not None:
            answer[rows[typed.is_bad]] = False
        return answer, typed.errors

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
        schema: TableSchema = self.piece.of.schema
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
