"""A fold: several files of a table written anew as one, in a commit that changes no row.

It is a commit of its own, since one that mixes it with an upsert would tell readers of the change
stream that old rows are new. All its actions say ``dataChange: false``, and the records on both
sides are the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from coordination.errors import TryAgain
from sinks.merge_on_write.file_rows import FileRows
from sinks.merge_on_write.folding import FoldCandidate, choose
from sinks.merge_on_write.open_table import OpenTable
from sinks.merge_on_write.sorted_files import NewFile, write_sorted

TARGET_BYTES = 128 * 1024 * 1024
MOST_BYTES = 256 * 1024 * 1024  # read by one fold, which no commit of the table waits for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What one fold did."""

    version: int
    files: int  # taken together
    bytes_read: int
    bytes_written: int


def fold(table: OpenTable, key: Sequence[str]) -> Folded | None:
    """The next fold of a table whose lock is held and which was followed just now; None where
    nothing needs one, or another commit came first."""
    looked_at = table.state.version
    chosen = choose(
        (_candidate(table, each) for each in table.files.values()),
        target_bytes=TARGET_BYTES,
        most_bytes=MOST_BYTES,
    )
    if not chosen:
        return None
    files = [table.files[path] for path in chosen]
    rows = pa.concat_tables([table.live_rows(each) for each in files])
    written = write_sorted(table.storage, rows, key, table.shape)
    now_ms = int(time.time() * 1000)
    actions = [each.file.remove(now_ms, data_change=False) for each in files]
    actions += [each.file.add(data_change=False) for each in written]
    try:
        version = table.commit(
            looked_at,
            actions,
            operation="OPTIMIZE",
            user_metadata=json.dumps({"folded": len(files)}),
        )
    except TryAgain:
        table.storage.delete(each.file.path for each in written)
        return None
    learn(table, written)
    return Folded(
        version=version,
        files=len(files),
        bytes_read=sum(each.file.size for each in files),
        bytes_written=sum(each.file.size for each in written),
    )


def learn(table: OpenTable, written: Sequence[NewFile]) -> None:
    """After a commit: what is known of its new files need not be read."""
    for each in written:
        table.learn(each.file, each.rows, each.bounds, each.index)


def _candidate(table: OpenTable, each: FileRows) -> FoldCandidate:
    rows = table.count(each)
    vector = each.file.deletion_vector
    return FoldCandidate(
        path=each.file.path,
        size=each.file.size,
        rows=rows,
        live=rows - (0 if vector is None else vector.cardinality),
    )
