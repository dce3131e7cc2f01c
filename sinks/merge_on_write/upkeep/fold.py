"""A fold: several files of a table are written anew as one, in a commit that changes no row. Or one
file is, without its deleted rows.

It is a commit of its own: mixed with an upsert, it would tell readers of the change stream that old
rows are new. All its actions have ``dataChange: false``, and removed and added files hold the same
rows.

Writes go on meanwhile: files are read and written without the table's lock. Rows that were deleted
from the old files in that time become the new file's deletion vector when the fold is committed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from coordination.errors import TryAgain
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.file_cache import CachedFile, DeletedRows, mark
from sinks.merge_on_write.files.sorted_files import NewFile, write_sorted
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.commit import LostRace
from sinks.merge_on_write.log.file_locations import is_whole_in_table
from sinks.merge_on_write.log.pause import is_paused
from sinks.merge_on_write.log.physical_schema import PhysicalSchema
from sinks.merge_on_write.table_handle import TableHandle
from sinks.merge_on_write.upkeep.fold_choice import (
    FULL_BYTES,
    FULL_MEMORY_BYTES,
    FULL_ROWS,
    FoldCandidate,
    choose,
    one_file_of,
)
from sinks.types.key_hash import Ordinals

_log = logging.getLogger(__name__)


_Begun = Sequence[tuple[DataFile, DeletedRows]]  # a fold's files, and their deleted rows, when read


class CannotFold(TryAgain):
    """Another commit has changed the table too much for this fold: the next one chooses anew."""


def fold(
    table: TableHandle, key: Sequence[str], *, rows_wait: bool = False, outside: bool = False
) -> int | None:
    """Do a table's next fold. Returns its version, or None where no files need one, another commit
    came first, or the table has no such key (any more). Call it without the table's lock.
    ``outside``: of files that are not in the table's folder, whether they need one or not."""
    with table.lock:
        table.refresh()
        if not key or not set(key) <= {column.name for column in table.shape.columns}:
            return None
        paths = paths_outside(table) if outside else paths_to_fold(table, rows_wait=rows_wait)
        files = [table.files[path] for path in paths]
        if not files:
            return None
        begun = [(each.file, table.deleted_rows(each)) for each in files]
        shape = table.shape
    if len(files) == 1:
        written = _cut(table, *begun[0], key, shape)
    else:
        rows = _together(table, files, begun, shape)
        if len(rows) < 2 and not outside:
            return None
        begun = begun[: len(rows)]
        written = write_sorted(table.storage, pa.concat_tables(rows), key, shape)
    try:
        with table.lock:
            version = _commit(table, begun, shape, written, key)
    except (CannotFold, LostRace):  # no commit names the new files, and none will
        table.storage.delete(each.file.path for each in written)
        return None
    except TryAgain:  # our commit may count, or come late: then it names the files, and they stay
        return None
    size = sum(file.size for file, _ in begun)
    _log.debug("folded table=%s files=%d bytes=%d", table.uri, len(begun), size)
    return version


def paths_to_fold(table: TableHandle, *, rows_wait: bool = False) -> Sequence[str]:
    """The paths of the files to fold next, at the version that was followed; empty where no fold is
    needed. Call it under the table's lock."""
    candidates = (_candidate(table, each) for each in table.files.values())
    return choose(candidates, rows_wait=rows_wait)


def paths_outside(table: TableHandle) -> Sequence[str]:
    """The same, of the files that are not in the table's folder, or whose vectors are not."""
    outside = (each for each in table.files.values() if not is_whole_in_table(each.file))
    return one_file_of((_candidate(table, each) for each in outside), at_least=1)


def _together(
    table: TableHandle, files: Sequence[CachedFile], begun: _Begun, shape: PhysicalSchema
) -> list[pa.Table]:
    """The live rows of each of the files, from the first on, as many as go into one file."""
    found: list[pa.Table] = []
    total = 0
    for each, (file, deleted) in zip(files, begun, strict=True):
        rows = data_files.read_live_rows(table.located, file, deleted.mask, shape)
        if rows.num_rows:  # as much as it would take without its deleted rows
            each.memory_bytes = rows.nbytes * len(deleted.mask) // rows.num_rows
        total += rows.nbytes
        if found and total > FULL_MEMORY_BYTES:
            break
        found.append(rows)
    return found


def _cut(
    table: TableHandle,
    file: DataFile,
    deleted: DeletedRows,
    key: Sequence[str],
    shape: PhysicalSchema,
) -> list[NewFile]:
    """The live rows of one file, which may be another writer's and of any size, written anew."""
    written: list[NewFile] = []
    base = 0
    most = min(FULL_ROWS, len(deleted.mask) * FULL_BYTES // max(1, file.size))
    for piece in data_files.read_live_pieces(
        table.located, file, deleted.mask, shape.columns, most
    ):
        live = pa.Table.from_arrays(piece.columns, schema=shape.schema)
        new = write_sorted(table.storage, live, key, shape)
        written += [replace(each, taken=each.taken + base) for each in new]
        base += live.num_rows
    return written


def _commit(
    table: TableHandle,
    begun: _Begun,
    shape: PhysicalSchema,
    written: Sequence[NewFile],
    key: Sequence[str],
) -> int:
    """Commit the new files in place of the old ones, without the rows that were deleted meanwhile.
    The lock is held. Raises CannotFold, and the errors of a commit."""
    table.refresh()
    if is_paused(table.state.metadata):
        raise CannotFold("the table is paused")
    if table.shape != shape:
        raise CannotFold("the table has changed its shape")
    looked_at = table.state.version
    present = [table.files[file.path] for file, _ in begun if file.path in table.files]
    if len(present) < len(begun):
        raise CannotFold("a file is gone")
    late = _deleted_since(table, begun, present, written)
    marked = {
        file.path: (file, deleted)
        for file, deleted in mark(table.storage, {new.file.path: new.file for new in written}, late)
    }
    now_ms = int(time.time() * 1000)
    actions = [each.file.remove(now_ms, data_change=False) for each in present]
    for new in written:
        file, _ = marked.get(new.file.path, (new.file, None))
        actions.append(file.add(data_change=False))
    note = json.dumps({"folded": len(present)})
    version = table.commit(looked_at, actions, operation="OPTIMIZE", user_metadata=note)
    table.learn(key, written)
    for path, (file, deleted) in marked.items():
        table.files[path].file, table.files[path].deleted = file, deleted
    return version


def _deleted_since(
    table: TableHandle, begun: _Begun, present: Sequence[CachedFile], written: Sequence[NewFile]
) -> dict[str, DeletedRows]:
    """Which rows of the new files have been deleted since they were read, by the old files'
    vectors: path of a new file -> its deleted rows."""
    gone: list[Ordinals] = []  # places in the sequence of all rows that were read, file by file
    base = 0
    for (_, then), each in zip(begun, present, strict=True):
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


def _candidate(table: TableHandle, each: CachedFile) -> FoldCandidate:
    rows = table.count(each)
    vector = each.file.deletion_vector
    return FoldCandidate(
        path=each.file.path,
        size=each.file.size,
        rows=rows,
        live=rows - (0 if vector is None else vector.cardinality),
        vector_bytes=each.vector_bytes,
        memory_bytes=each.memory_bytes,
    )
