"""UPDATEs that TiCDC has split into a DELETE and an INSERT of one commit-ts, and what event filters
say of them.

TiCDC splits an UPDATE that changes a key of any kind. Up to 8.5 it asks its event filters before
that, and later ones after it. So what it has let pass may come here in either form, and the same
filters must not take a half of it away:

- Halves of one key are ignored together: where the rules of UPDATEs say so, and those of their
  DELETE or their INSERT as well. Rows that TiCDC has asked already fulfil one of the two at most.
- Where TiKV has the rows by another key (NONCLUSTERED, or no primary key), halves have different
  keys, and nothing tells which ones belong together. Such a DELETE or INSERT is not ignored.
- Nor is one of a text key, if the other's may be the same in TiKV: a collation may pass over case,
  accents, or blanks at the end. Which one a column has is not known here, nor what all of them do
  beyond ASCII: with such a key all halves of its table's moment may be of one UPDATE.

In all other tables an UPDATE of the key *is* a DELETE and an INSERT, in TiKV and for TiCDC.
A binlog has UPDATEs as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conf.rows.row_filter import Kind, RowFilter
from coordination.model import TableName
from sinks.types.key_hash import keys_of
from sinks.types.mysql_type import TEXT_TYPES
from sinks.types.table_schema import TableSchema
from sinks.types.text_arrays import CastRules, as_mask
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
    found: list[_Found] = []
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
            cells = {name: each.take(at) for name, each in typed_keys(piece, rules).columns.items()}
            moment = [pa.array(piece.commit_ts[rows]), pa.array(table[rows])]
            found.append(_Found(of, rows, piece.op[rows] == OP_DELETE, schema, cells, moment))
    if not found:
        return SplitUpdates(halves, 0)
    is_delete = np.concatenate([each.is_delete for each in found])
    pair = _groups([_words([*each.cells.values(), *each.moment]) for each in found])
    is_pair = _have_both(pair, is_delete)
    for each, here in zip(found, _parts(found), strict=True):
        rows = each.rows[is_pair[here]]
        each.of.pair[rows] = pair[here][is_pair[here]]
        each.of.is_half[rows] = True
    _mark_alike([each.alone() for each in found if each.texts()])
    return SplitUpdates(halves, int(pair.max()) + 1)


def _mark_alike(found: Sequence[_Found]) -> None:
    """Those whose text key may be that of another half."""
    if not any(len(each.rows) for each in found):
        return
    is_delete = np.concatenate([each.is_delete for each in found])
    moment = _groups([_words(each.moment) for each in found])
    is_any = np.concatenate([each.is_any() for each in found])
    alike = _groups([_words([*each.alike(), *each.moment]) for each in found])
    of_any = np.bincount(moment, weights=is_any) > 0
    may_be = _have_both(np.where(of_any[moment], moment, len(moment) + alike), is_delete)
    for each, here in zip(found, _parts(found), strict=True):
        each.of.is_half[each.rows[may_be[here]]] = True


@dataclass(frozen=True, slots=True)
class _Found:
    """DELETEs and INSERTs of moments that have both. ``cells``: the typed key, by column;
    ``moment``: commit-ts and table."""

    of: Halves
    rows: RowNumbers
    is_delete: Mask
    schema: TableSchema
    cells: Mapping[str, pa.Array]
    moment: Sequence[pa.Array]

    def alone(self) -> _Found:
        """Those without another half of the same key."""
        at = self.of.pair[self.rows] < 0
        mask = pa.array(at)
        cells = {name: each.filter(mask) for name, each in self.cells.items()}
        moment = [each.filter(mask) for each in self.moment]
        return replace(
            self, rows=self.rows[at], is_delete=self.is_delete[at], cells=cells, moment=moment
        )

    def texts(self) -> list[str]:
        """The key's columns whose collation says what is equal."""
        return [name for name in self.cells if self.schema.column(name).type.name in TEXT_TYPES]

    def is_any(self) -> Mask:
        """Whether the key may be any text."""
        found = np.zeros(len(self.rows), np.bool_)
        for name in self.texts():
            is_plain = as_mask(pc.string_is_ascii(pc.fill_null(self.cells[name], "")))
            found |= bool(self.schema.column(name).mask) | ~is_plain
        return found

    def alike(self) -> list[pa.Array]:
        """The key, without what a collation may pass over in ASCII."""
        texts = self.texts()
        return [
            pc.ascii_lower(pc.replace_substring_regex(each, r"[\x00-\x20\x7f]", ""))
            if name in texts
            else each
            for name, each in self.cells.items()
        ]


def _words(cells: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    keys = keys_of(cells)
    if keys.second is None:  # of no row
        return np.empty((0, 2), np.uint64)
    return np.stack([keys.first.view(np.uint64), keys.second], axis=1)


def _groups(words: Sequence[npt.NDArray[np.uint64]]) -> RowNumbers:
    """Equal ones have one number."""
    _, found = np.unique(np.concatenate(words), axis=0, return_inverse=True)
    return found.reshape(-1)


def _have_both(group: RowNumbers, is_delete: Mask) -> Mask:
    """By row, whether its group has a DELETE and an INSERT."""
    deletes, inserts = (np.bincount(group, weights=of) > 0 for of in (is_delete, ~is_delete))
    return np.asarray((deletes & inserts)[group])


def _parts(found: Sequence[_Found]) -> list[slice]:
    """Where each one is in an array of all."""
    ends = np.cumsum([len(each.rows) for each in found]).tolist()
    return [slice(end - len(each.rows), end) for end, each in zip(ends, found, strict=True)]


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
