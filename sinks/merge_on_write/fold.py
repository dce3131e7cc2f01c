"""A fold: several files of a table written anew as one, in a commit that changes no row.

It is a commit of its own, since one that mixes it with an upsert would tell readers of the change
stream that old rows are new. All its actions say ``dataChange: false``, and the records on both
sides are the same.

The table goes on meanwhile: files are read and written without its lock. What was deleted of them
since becomes the vector of the new file, in the moment of the commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from coordination.errors import TryAgain
from sinks.merge_on_write import data_files
from sinks.merge_on_write.actions import DataFile
from sinks.merge_on_write.commit import LostRace
from sinks.merge_on_write.file_rows import DeletedRows, FileRows
from sinks.merge_on_write.folding import FoldCandidate, choose
from sinks.merge_on_write.key_index import Ordinals
from sinks.merge_on_write.open_table import OpenTable
from sinks.merge_on_write.pause import is_paused
from sinks.merge_on_write.sorted_files import NewFile, write_sorted
from sinks.merge_on_write.table_shape import TableShape
from sinks.merge_on_write.vectors import mark

TARGET_BYTES = 128 * 1024 * 1024
MOST_BYTES = 256 * 1024 * 1024  # read by one fold: some 2 GB of rows in memory at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    version: int
    files: int  # taken together
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What a fold reads: files with what was deleted of them when it began."""

    files: tuple[DataFile, ...]
    deleted: tuple[DeletedRows, ...]
    shape: TableShape


class CannotFold(TryAgain):
    """A file of the fold was taken out by another commit: the next fold chooses anew."""


def fold(table: OpenTable, key: Sequence[str]) -> Folded | None:
    """The next fold of a table; None where nothing needs one, or another commit came first."""
    with table.lock:
        table.refresh()
        plan = _plan(table)
    if plan is None:
        return None
    parts = [
        data_files.read_live_rows(table.located, file, deleted.mask, plan.shape)
        for file, deleted in zip(plan.files, plan.deleted, strict=True)
    ]
    written = write_sorted(table.storage, pa.concat_tables(parts), key, plan.shape)
    try:
        with table.lock:
            version = _commit(table, plan, written, key)
    except (CannotFold, LostRace):  # no commit names the files, and none will
        table.storage.delete(each.file.path for each in written)
        return None
    except TryAgain:  # one may: it counted before the log was cleaned, or storage is late
        return None
    return Folded(
        version=version, files=len(plan.files), bytes_read=sum(each.size for each in plan.files)
    )


def paths_to_fold(table: OpenTable) -> Sequence[str]:
    """The files of the next fold, of the version that was followed; none where all is well."""
    return choose(
        (_candidate(table, each) for each in table.files.values()),
        target_bytes=TARGET_BYTES,
        most_bytes=MOST_BYTES,
    )


def _plan(table: OpenTable) -> _Plan | None:
    known = [table.files[path] for path in paths_to_fold(table)]
    if not known:
        return None
    return _Plan(
        files=tuple(each.file for each in known),
        deleted=tuple(table.deleted_rows(each) for each in known),
        shape=table.shape,
    )


def _commit(table: OpenTable, plan: _Plan, written: Sequence[NewFile], key: Sequence[str]) -> int:
    """Put the new files in the place of the old ones, as these are now. Raises TryAgain."""
    table.refresh()
    if is_paused(table.state.metadata):
        raise CannotFold("the table is paused")
    if table.shape != plan.shape:
        raise CannotFold("the table has changed its shape")
    looked_at = table.state.version
    now = [table.files.get(file.path) for file in plan.files]
    if any(each is None for each in now):
        raise CannotFold("a file is gone")
    present = [each for each in now if each is not None]
    late = _deleted_since(table, plan, present, written)
    marked = {
        each.file.path: each
        for each in mark(table.storage, {new.file.path: new.file for new in written}, late)
    }
    now_ms = int(time.time() * 1000)
    actions = [each.file.remove(now_ms, data_change=False) for each in present]
    for new in written:
        file = marked[new.file.path].file if new.file.path in marked else new.file
        actions.append(file.add(data_change=False))
    note = json.dumps({"folded": len(present)})
    version = table.commit(looked_at, actions, operation="OPTIMIZE", user_metadata=note)
    learn(table, key, written)
    for path, each in marked.items():
        table.files[path].file = each.file
        table.files[path].deleted = each.deleted
    return version


def _deleted_since(
    table: OpenTable, plan: _Plan, present: Sequence[FileRows], written: Sequence[NewFile]
) -> dict[str, DeletedRows]:
    """Which rows of the new files are no longer in the table, by the old ones' vectors."""
    gone: list[Ordinals] = []  # places in all rows that were read, one file after the other
    base = 0
    for then, each in zip(plan.deleted, present, strict=True):
        live = np.flatnonzero(~then.mask)
        now = table.deleted_rows(each).mask
        if (then.mask & ~now).any():
            raise CannotFold("rows have come back: somebody has restored an older version")
        gone.append(np.flatnonzero(now[live]) + base)
        base += len(live)
    everything = np.zeros(base, np.bool_)
    everything[np.concatenate(gone)] = True
    found = {}
    for new in written:
        dead = np.flatnonzero(everything[new.taken])
        if len(dead):
            found[new.file.path] = DeletedRows.none(new.rows).with_more(dead)
    return found


def learn(table: OpenTable, key: Sequence[str], written: Sequence[NewFile]) -> None:
    """After a commit: what is known of its new files need not be read."""
    for each in written:
        table.learn(each.file, each.rows, key, each.bounds, each.index)


def _candidate(table: OpenTable, each: FileRows) -> FoldCandidate:
    rows = table.count(each)
    vector = each.file.deletion_vector
    return FoldCandidate(
        path=each.file.path,
        size=each.file.size,
        rows=rows,
        live=rows - (0 if vector is None else vector.cardinality),
        vector_bytes=each.vector_bytes,
    )
