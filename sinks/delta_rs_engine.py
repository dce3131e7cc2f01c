"""The delta-rs engine: a merge in the driver, for small tables and batches (design 5).

The commit is a compare-and-set on the version whose identity was looked at
(``max_commit_retries=0``), so its fence is exact. A fresh handle per write: opening takes a few
milliseconds, and a cached one would not notice that a table was taken away and made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.apply import DELETE, OP_COLUMN, Applied, Skipped, TableWrite
from sinks.engine_choice import DELTA_RS_FEATURES
from sinks.storage_errors import one_sentence
from sinks.tables import TableState, open_table, refused

# zstd level 1: the time of snappy and 60 % of its bytes (1 M rows); level 3 took twice the time.
WRITER = WriterProperties(compression="ZSTD", compression_level=1)


class DeltaRsEngine:
    """Commits a ``pa.Table`` of changes. Threads may apply different tables at the same time."""

    name = "delta-rs"

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._storage_options = dict(storage_options)

    def supports(self, state: TableState) -> bool:
        """Whether deltalake writes tables with these features."""
        return state.features <= DELTA_RS_FEATURES

    def apply(self, write: TableWrite) -> Applied | Skipped:
        target = write.target
        handle = open_table(target.uri, self._storage_options)
        if handle is None:
            raise TidelakeError(f"table {target.name} is gone from {target.uri}; restore it")
        identity = handle.transaction_version(target.app_id)
        if identity is not None and identity >= write.limit:
            return Skipped(handle.version(), Ts(identity))
        write.before_commit()
        looked_at = handle.version()
        try:
            with one_sentence("write to", target.uri):
                _merge(handle, write)
                if handle.version() == looked_at:  # no row changed: delta-rs has made no commit
                    _commit_identity(handle, write)
        except CommitFailedError as error:
            raise refused(target.uri, error) from error
        return Applied(handle.version())


def _commit(write: TableWrite) -> CommitProperties:
    return CommitProperties(
        app_transactions=[Transaction(write.target.app_id, write.limit)],
        custom_metadata={"userMetadata": write.user_metadata},
        max_commit_retries=0,
    )


def _commit_identity(handle: DeltaTable, write: TableWrite) -> None:
    """The table is at the limit, and its log must say so."""
    nothing = cast("pa.Table", write.changes).slice(0, 0).drop_columns([OP_COLUMN])
    write_deltalake(handle, nothing, mode="append", commit_properties=_commit(write))


def _merge(handle: DeltaTable, write: TableWrite) -> None:
    changes = cast("pa.Table", write.changes)
    names = [name for name in changes.column_names if name != OP_COLUMN]
    values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
    key = [_quoted(name) for name in write.target.schema.key]
    is_delete = f"s.{_quoted(OP_COLUMN)} = '{DELETE}'"
    equal = [f"t.{name} = s.{name}" for name in key]
    merger = handle.merge(
        changes,
        " AND ".join([*equal, *_in_range(changes, write.target.schema.key)]),
        source_alias="s",
        target_alias="t",
        streamed_exec=True,  # False prunes files by rounded statistics of decimals: doubled rows
        writer_properties=WRITER,
        commit_properties=_commit(write),
    )
    # Explicit columns: update_all() fails on a name with a backtick.
    merger = merger.when_matched_delete(is_delete).when_matched_update(values)
    merger.when_not_matched_insert(values, f"NOT ({is_delete})").execute()


def _in_range(changes: pa.Table, key: Sequence[str]) -> Iterator[str]:
    """Which files can hold a key of the batch, of key columns whose statistics are exact: a batch
    of growing keys opens the last files alone. All keys count, inserted ones too (rule 4)."""
    for name in key:
        column = changes[name]
        if pa.types.is_integer(column.type) and len(column):
            bounds = pc.min_max(column)
            yield f"t.{_quoted(name)} BETWEEN {bounds['min']} AND {bounds['max']}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
