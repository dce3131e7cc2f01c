"""UPDATEs that TiCDC has split into a DELETE and an INSERT of one commit-ts, and what event filters
say of them.

TiCDC splits an UPDATE that changes a key of any kind. Up to 8.5 it asks its event filters before
that, and later ones after it. So what it has let pass may come here in either form, and the same
filters must not take a half of it away:

- Halves of one key are ignored together: where the rules of UPDATEs say so, and those of their
  DELETE or their INSERT as well. Rows that TiCDC has asked already fulfil one of the two at most.
- Where TiKV has the rows by another key (NONCLUSTERED, or no primary key), halves have different
  keys, and nothing tells which ones belong together. Such a DELETE or INSERT is not ignored.

In all other tables an UPDATE of the key *is* a DELETE and an INSERT, in TiKV and for TiCDC.
A binlog has UPDATEs as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conf.rows.row_filter import Kind, RowFilter
from coordination.model import TableName
from sinks.types.key_hash import keys_of
from sinks.types.text_arrays import CastRules
from streaming.apply.rows_to_apply import OP_OF_EVENT, Mask, Piece, RowNumbers
from streaming.apply.values.asked_rows import AskedRows
from streaming.apply.values.typed_rows import typed_keys
from streaming.protocols.contract import OP_DELETE, OP_INSERT, Order

_OF_UPDATES: Final[tuple[Kind, ...]] = ("update_old", "update_new")
_HALF: Final[Mapping[Kind, int]] = {
    "delete": OP_DELETE,
    "update_old": OP_DELETE,
    "insert": OP_INSERT,
    "update_new": OP_INSERT,
}


_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Halves:
    """By row of a piece. ``pair``: the number of the UPDATE; -1: of none whose halves are known.
    ``is_half``: it may be half of one."""

    pair: RowNumbers
    is_half: Mask


@dataclass(frozen=True, slots=True)
class SplitUpdates:
    of_pieces: Sequence[Halves]
    count: int


def split_updates(pieces: Sequence[Piece], rules: CastRules) -> SplitUpdates:
    """The UPDATEs of these pieces of one target that TiCDC has split."""
    tables = _tables(pieces)
    both = _moments_of_both(pieces, tables)
    halves = [Halves(np.full(p.count, -1), np.zeros(p.count, np.bool_)) for p in pieces]
    found: list[tuple[Halves, RowNumbers, npt.NDArray[np.uint64], Mask]] = []
    for piece, table, of in zip(pieces, tables, halves, strict=True) if both else ():
        is_split = np.zeros(piece.count, np.bool_)
        for number, moments in both.items():
            is_split |= (table == number) & np.isin(piece.commit_ts[: piece.count], moments)
        rows = np.flatnonzero(is_split & _is_half(piece))
        if not len(rows):
            continue
        schema = piece.of.schema
        of.is_half[rows] = not schema.is_by_key
        if schema.key and not schema.key_is_row:
            at = pa.array(rows)
            cells = [each.take(at) for each in typed_keys(piece, rules).columns.values()]
            keys = keys_of([*cells, pa.array(piece.commit_ts[rows]), pa.array(table[rows])])
            assert keys.second is not None, "a key of several columns is a hash"
            words = np.stack([keys.first.view(np.uint64), keys.second], axis=1)
            found.append((of, rows, words, piece.op[rows] == OP_DELETE))
    if not found:
        return SplitUpdates(halves, 0)
    words, is_delete = (np.concatenate([each[at] for each in found]) for at in (2, 3))
    _, inverse = np.unique(words, axis=0, return_inverse=True)
    pair = inverse.reshape(-1)
    deletes, inserts = (np.bincount(pair, weights=of) > 0 for of in (is_delete, ~is_delete))
    is_pair = (deletes & inserts)[pair]
    begin = 0
    for of, rows, _, _ in found:
        here = slice(begin, begin + len(rows))
        begin += len(rows)
        of.pair[rows[is_pair[here]]] = pair[here][is_pair[here]]
        of.is_half[rows[is_pair[here]]] = True
    return SplitUpdates(halves, int(pair.max()) + 1)


def _is_half(piece: Piece) -> Mask:
    op = piece.op[: piece.count]
    return np.asarray((op == OP_DELETE) | (op == OP_INSERT))


def _tables(pieces: Sequence[Piece]) -> list[npt.NDArray[np.int64]]:
    """By row of each piece, its upstream table as a number."""
    numbers: dict[TableName, int] = {}
    found = []
    for piece in pieces:
        runs = [(numbers.setdefault(of, len(numbers)), count) for of, count in piece.upstreams()]
        found.append(np.repeat([number for number, _ in runs], [count for _, count in runs]))
    return found


def _moments_of_both(
    pieces: Sequence[Piece], tables: Sequence[npt.NDArray[np.int64]]
) -> dict[int, npt.NDArray[np.int64]]:
    """The commit-ts at which an upstream table has a DELETE and an INSERT."""
    moments = defaultdict[tuple[int, int], list[npt.NDArray[np.int64]]](list)
    for piece, table in zip(pieces, tables, strict=True):
        if piece.order is not Order.NET:
            continue
        for op in (OP_DELETE, OP_INSERT):
            of_op = piece.op[: piece.count] == op
            for number in np.unique(table[of_op]).tolist():
                commit_ts = piece.commit_ts[: piece.count][of_op & (table == number)]
                moments[number, op].append(np.unique(commit_ts))
    found = {}
    for number in {number for number, _ in moments}:
        deletes, inserts = (
            np.concatenate([*moments[number, op], _NONE]) for op in (OP_DELETE, OP_INSERT)
        )
        both = np.intersect1d(deletes, inserts)
        if len(both):
            found[number] = both
    return found


def ask_halves(
    asked: Sequence[AskedRows], split: SplitUpdates, filters: Mapping[TableName, RowFilter]
) -> None:
    """Ignores the halves of one key that are to be ignored as an UPDATE, and as a DELETE or an
    INSERT as well."""
    if not split.count:
        return
    answers = _Answers(split.count)
    for each, of in zip(asked, split.of_pieces, strict=True):
        for upstream, row_filter, within in each.filtered(filters):
            rows = np.flatnonzero(within & (of.pair >= 0))
            answers.add_events(of.pair[rows], each.piece.op[rows], row_filter)
            answers.add_conditions(of.pair[rows], rows, each, upstream, row_filter)
    is_ignored = np.append(answers.ignored(filters), False)  # the last one: of no pair
    for each, of in zip(asked, split.of_pieces, strict=True):
        each.ignore(is_ignored[of.pair])


class _Answers:
    """What the rules say of each pair, from all pieces."""

    def __init__(self, count: int) -> None:
        self._as_update, self._as_half = np.zeros((2, count), np.bool_)
        self._told = defaultdict[tuple[TableName, int, Kind], Mask](
            lambda: np.zeros(count, np.bool_)
        )

    def add_events(self, pairs: RowNumbers, op: npt.NDArray[np.int8], of: RowFilter) -> None:
        self._as_update[pairs] |= "update" in of.events
        for event in of.events - {"update"}:
            self._as_half[pairs[op == OP_OF_EVENT[event]]] = True

    def add_conditions(
        self, pairs: RowNumbers, rows: RowNumbers, asked: AskedRows, name: TableName, of: RowFilter
    ) -> None:
        op = asked.piece.op[rows]
        for number, rule in enumerate(of.rules):
            for kind, expression in rule.expressions.items():
                here = op == _HALF[kind]
                is_true = pairs[here][asked.answer(expression, rows[here])]
                self._told[name, number, kind][is_true] = True
                if kind not in _OF_UPDATES:
                    self._as_half[is_true] = True

    def ignored(self, filters: Mapping[TableName, RowFilter]) -> Mask:
        for name, number in {key[:2] for key in self._told}:
            rule = filters[name].rules[number]
            kinds = [kind for kind in _OF_UPDATES if kind in rule.expressions]
            answers = [self._told[name, number, kind] for kind in kinds]
            if answers:
                join = np.logical_and if rule.needs_both else np.logical_or
                self._as_update |= join.reduce(answers)
        return self._as_update & self._as_half
