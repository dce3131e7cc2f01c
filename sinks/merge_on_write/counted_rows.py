"""A table without a key, with each row as often as the table upstream has it.

Its changes are relative: one row more, one row less. So each change must count once, whichever
incarnation of the changefeed brings it. The table's log says up to where it holds changes, and a
change at or below is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.key_index import sort_keys
from sinks.merge_on_write.log.actions import AppTransaction
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.table_handle import TableHandle, rows_at
from sinks.target.engine_port import DELETE, OP_COLUMN, TS_COLUMN
from sinks.target.target_table import ROWS_REACHED
from sinks.target.way_out import load_anew
from sinks.types.key_hash import Keys, Ordinals, keys_of, pairs_of


def held_until(state: LogState) -> Ts:
    """The commit-ts of the last change that the table can have; 0: it has none."""
    found = state.transactions.get(ROWS_REACHED)
    return Ts(0 if found is None else found.version)


def holds_until(ts: Ts, now_ms: int) -> AppTransaction:
    """What says so from a commit on."""
    return AppTransaction(app_id=ROWS_REACHED, version=ts, last_updated_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedChanges:
    """Changes by distinct row. ``at``: for each of these rows a change that has it; ``more``: how
    many more of it there are afterwards, below 0 for fewer."""

    changes: pa.Table
    key: tuple[pa.Array, ...]  # the columns of ``changes``, in the table's types
    at: Ordinals
    more: npt.NDArray[np.int64]

    @classmethod
    def above(cls, changes: pa.Table, reached: Ts, table: TableHandle) -> CountedChanges:
        """``changes``: one row each, with all columns of the table, `OP_COLUMN` and `TS_COLUMN`;
        those at or below ``reached`` do not count."""
        changes = changes.filter(pc.greater(changes[TS_COLUMN], reached))
        is_gone = np.asarray(pc.equal(changes[OP_COLUMN], DELETE).to_numpy())
        changes = changes.drop_columns([OP_COLUMN, TS_COLUMN])
        key = tuple(
            data_files.one_array(changes[name], table.shape.column(name).arrow)
            for name in changes.column_names
        )
        _, at, of = np.unique(pairs_of(keys_of(key)), return_index=True, return_inverse=True)
        more = np.zeros(len(at), np.int64)
        np.add.at(more, of, np.where(is_gone, -1, 1))
        return cls(changes=changes, key=key, at=at, more=more)

    def find_gone(
        self, table: TableHandle, sorted_by: Sequence[str], name: object
    ) -> dict[str, Ordinals]:
        """Live rows of the table to take out. Raises TidelakeError where it has too few."""
        at, fewer = self.at[self.more < 0], -self.more[self.more < 0]
        columns = dict(zip(self.changes.column_names, self.key, strict=True))
        wanted = [columns[each].take(pa.array(at)) for each in sorted_by]
        hits = table.find(sorted_by, wanted, sort_keys(keys_of(wanted)))
        found: dict[str, Ordinals] = {}
        words = pairs_of(keys_of([column.take(pa.array(at)) for column in self.key]))
        order = np.argsort(words)
        left = fewer[order]
        for path, ordinals in hits.items():
            rising = np.sort(ordinals)
            here = np.searchsorted(words[order], pairs_of(self._keys_at(table, path, rising)))
            nth = _nth_of_its_kind(here)
            taken = nth < left[here]
            left = left - np.bincount(here[taken], minlength=len(left))
            if taken.any():
                found[path] = rising[taken]
        if (lacking := int(left.sum())) > 0:
            raise TidelakeError(
                f"table {name} lacks {lacking} rows that the database has deleted or changed, so "
                f"it is not what the database was: {load_anew(name)}"
            )
        return found

    def _keys_at(self, table: TableHandle, path: str, ordinals: Ordinals) -> Keys:
        rows = pa.concat_tables(rows_at(table, {path: ordinals}))
        columns = (table.shape.column(name) for name in self.changes.column_names)
        return keys_of([data_files.one_array(rows[c.physical], c.arrow) for c in columns])

    def come(self) -> Ordinals:
        """The changes whose rows are written, each as often as it comes."""
        return np.repeat(self.at[self.more > 0], self.more[self.more > 0])


def _nth_of_its_kind(kinds: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """For each how many equal ones stand before it."""
    order = np.argsort(kinds, kind="stable")
    sorted_kinds = kinds[order]
    begins = np.searchsorted(sorted_kinds, sorted_kinds)
    nth = np.empty(len(kinds), np.int64)
    nth[order] = np.arange(len(kinds)) - begins
    return nth


def without_marks(changes: pa.Table) -> pa.Table:
    """The rows alone."""
    marks: Mapping[str, None] = dict.fromkeys((OP_COLUMN, TS_COLUMN))
    return changes.drop_columns([name for name in changes.column_names if name in marks])
