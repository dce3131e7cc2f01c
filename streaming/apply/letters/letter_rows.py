"""Dead letters as rows once more: their bytes are decoded, and the keys that they are about found.

letters ──decode──► blocks, whose positions are the letters' numbers ──► entries: one of each key
                └──► why it is no row of the table
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName, Ts
from sinks.types.key_hash import Keys, keys_of
from sinks.types.last_per_key import joined_keys
from streaming.apply.change_log import event_identities
from streaming.apply.changes import incomplete_rows
from streaming.apply.last_change import order_of_pieces
from streaming.apply.row_block import RowBlock
from streaming.apply.rows_to_apply import Piece, RowNumbers, pieces_to_apply
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.apply.values.typed_rows import typed_keys
from streaming.changefeed.routes import RoutedWanted, Routes, routed_blocks
from streaming.protocols.contract import (
    OP_DELETE,
    Block,
    Decoder,
    Kind,
    Messages,
    Order,
    WantedTable,
)

FOREVER = Ts((1 << 62) - 1)
NO_NUMBER = (
    "it could not be read as a row when it came, so its reader has given it no commit-ts: rewind "
    "to below it"
)
NO_BYTES = (
    "nobody has its bytes: the source had deleted the message before it was put here, or columns "
    "are masked ([[sink.column-masks]]). After a mend and a rewind, resolve it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRows:
    """``blocks``: of the letters that are rows of the table. ``others``: for every other letter,
    why it is no row."""

    blocks: list[RowBlock]
    others: dict[int, str]

    def only(self, letters: npt.NDArray[np.bool_]) -> list[RowBlock]:
        """Blocks with some rows of these letters, by number."""
        return [each for each in self.blocks if letters[each.first : each.last + 1].any()]


def letter_rows(
    values: pa.ChunkedArray,
    name: TableName,
    decode: Decoder,
    routes: Routes,
    commit_ts: pa.ChunkedArray | None = None,
) -> LetterRows:
    """Decode letters of a target, which are numbered as they come (`row_bytes.py` has the
    decoders). ``commit_ts``: of each, where messages have none."""
    others = {n: NO_BYTES for n in np.flatnonzero(values.is_null().to_numpy()).tolist()}
    if commit_ts is not None:
        is_unknown = commit_ts.is_null()
        others |= {n: NO_NUMBER for n in np.flatnonzero(is_unknown.to_numpy()).tolist()}
        values = pc.if_else(is_unknown, None, values)
        commit_ts = pc.fill_null(commit_ts, 0)
    blocks = []
    for block in decoded(values, name, decode, routes, commit_ts):
        if block.kind is Kind.ROW and block.name == name and block.body is not None:
            blocks.append(RowBlock.of(block))
        else:
            others |= {n: why for n, why in _told(block) if n not in others}
    return LetterRows(blocks=blocks, others=others)


def decoded(
    values: pa.ChunkedArray,
    name: TableName,
    decode: Decoder,
    routes: Routes,
    commit_ts: pa.ChunkedArray | None = None,
) -> Iterator[Block]:
    """With rows of this table only; positions are numbers."""
    messages = Messages(
        part="",
        positions=pa.array(np.arange(len(values))),
        values=values.combine_chunks() if len(values) else pa.array([], pa.binary()),
        commit_ts=None if commit_ts is None else commit_ts.combine_chunks(),
    )
    wanted = {name: WantedTable(above_ts=Ts(0), key=None)}
    if not routes:
        return decode(messages, wanted)
    return routed_blocks(decode(messages, RoutedWanted(routes, wanted)), routes)


def _told(block: Block) -> Iterator[tuple[int, str]]:
    if block.kind is Kind.BAD:
        bad = block.table()
        yield from zip(bad["position"].to_pylist(), bad["error_message"].to_pylist(), strict=True)
    elif block.kind is Kind.DDL:
        for number in block.table()["position"].to_pylist():
            yield number, "it is a DDL and no row: a rewind to below it has it run"
    elif block.kind is Kind.SCHEMA:
        for number in block.table()["position"].to_pylist():
            yield number, "it tells the schema of a table: there is nothing to apply"
    elif block.kind is Kind.WATERMARK:
        yield block.last, "it is a watermark: there is nothing to apply"
    elif block.kind is Kind.ROW:
        yield block.first, f"it is a row of {block.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LetterEntries:
    """The keys of letters: one of each row, and for an UPDATE that changes the key its old one too.
    In a change log the values that make each letter one event. ``letter``: by number, and
    ``position`` where it was in its part."""

    keys: Keys
    order: Order
    commit_ts: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    index: npt.NDArray[np.int32]
    is_put: npt.NDArray[np.bool_]
    letter: npt.NDArray[np.int64]
    is_old: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Where letters were, by their numbers."""

    part: Sequence[str]
    position: npt.NDArray[np.int64]
    index: npt.NDArray[np.int32]

    def of(self, piece: Piece) -> Piece:
        """The same rows at the places from which their letters came."""
        parts, origins = np.unique(np.array(self.part, np.str_), return_inverse=True)
        return replace(
            piece,
            parts=tuple(parts.tolist()),
            origin=origins[piece.position].astype(np.int32),
            position=self.position[piece.position],
            index=self.index[piece.position],
        )


def letter_entries(
    task: TableTask, blocks: list[RowBlock], rules: ChangeRules, places: Places
) -> LetterEntries:
    """The entries of those letters whose keys can be read: by the shape of their commit-ts, else by
    the next shape that can read them."""
    found: list[tuple[Keys, Piece, RowNumbers]] = []
    is_left: npt.NDArray[np.bool_] | None = None  # by letter
    for later in range(len(task.older) + 1):
        if is_left is not None and not is_left.any():
            break
        bad = []
        for piece in pieces_to_apply(task.by_later_shapes(later), blocks, FOREVER):
            keys, is_good = _keys(task, places.of(piece), rules)
            wanted = (
                np.ones(len(piece.op), np.bool_) if is_left is None else is_left[piece.position]
            )
            bad.append(piece.position[wanted & ~is_good])
            rows = np.flatnonzero(wanted & ~np.isin(piece.position, bad[-1]))
            if len(rows):
                found.append((keys, piece, rows))
        last = max((each.last for each in blocks), default=-1)
        is_left = np.zeros(last + 1, np.bool_)
        is_left[np.concatenate([np.empty(0, np.int64), *bad])] = True
    return _entries(found, places)


def _keys(task: TableTask, piece: Piece, rules: ChangeRules) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """The keys of all entries of a piece, and whether they are known."""
    then, present = piece.of.schema, task.schema
    count = len(piece.op)
    typed = typed_keys(piece, rules, finds_rows=not task.is_log) if then.key else None
    is_good = np.ones(count, np.bool_)
    if typed is not None and typed.is_bad is not None:
        is_good &= ~typed.is_bad
    if task.is_log:
        return event_identities(piece, typed), is_good
    rows = count if present.key_is_row else None
    columns = {} if typed is None else piece.of.carried(typed.columns, rules, rows=rows).columns
    if set(present.key) - columns.keys():  # it had another key
        return Keys(np.zeros(count, np.int64), None), np.zeros(count, np.bool_)
    if present.key_is_row:
        is_good[: piece.count] &= ~incomplete_rows(piece)
        is_good[piece.count :] &= is_good[piece.moved]
    return keys_of([columns[name] for name in present.key]), is_good


def _entries(found: list[tuple[Keys, Piece, RowNumbers]], places: Places) -> LetterEntries:
    def joined(column: Callable[[Piece], npt.NDArray[np.generic]], kind: type) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, kind), *(column(p)[rows] for _, p, rows in found)])

    letter = joined(lambda piece: piece.position, np.int64)
    is_old = joined(lambda piece: np.arange(len(piece.op)) >= piece.count, np.bool_)
    # A message of several rows is no letter that can be followed: some of them are written.
    rows_of = np.bincount(letter[~is_old], minlength=int(letter.max(initial=-1)) + 1)
    one = np.flatnonzero(rows_of[letter] == 1)
    return LetterEntries(
        keys=_of(joined_keys([_of(keys, rows) for keys, _, rows in found]), one),
        order=order_of_pieces([piece for _, piece, _ in found]),
        commit_ts=joined(lambda piece: piece.commit_ts, np.int64)[one],
        position=places.position[letter[one]],
        index=places.index[letter[one]],
        is_put=joined(lambda piece: piece.op != OP_DELETE, np.bool_)[one],
        letter=letter[one],
        is_old=is_old[one],
    )


def _of(keys: Keys, rows: RowNumbers) -> Keys:
    return Keys(keys.first[rows], None if keys.second is None else keys.second[rows])
