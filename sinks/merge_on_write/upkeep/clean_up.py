"""Deletes files that no version within retention needs: old commits and checkpoints, and data files
that were removed from the table.

The table's writer calls this now and then, with a state that was followed just before. Nothing here
changes the table's content: at worst a file stays longer than it must.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sinks.merge_on_write.log.actions import Tombstone
from sinks.merge_on_write.log.checkpoint_reader import UNREADABLE, sidecars_of
from sinks.merge_on_write.log.file_locations import files_of, is_in_table
from sinks.merge_on_write.log.paths import LOG, SIDECARS, LogCheckpoint, classify, whole_checkpoints
from sinks.merge_on_write.log.reader import check_head
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.log.tombstones import WITHIN_MS
from sinks.storage.table_storage import TEMPORARY_SUFFIX, Entry, TableStorage
from sinks.target.retention_properties import (
    DAY_MS,
    ORPHAN_AGE_MS,
    file_retention_ms,
    log_retention_ms,
)

LEFT_BEHIND_MS = DAY_MS  # age of temporary files, and of sidecars that no checkpoint names
MOST_FILES = 10_000  # of the log that one call deletes
CHECK_EVERY = 50  # deleted log files between two looks at the head
_ORPHANS = (".parquet", ".bin", TEMPORARY_SUFFIX)


def clean_log(
    storage: TableStorage,
    state: LogState,
    *,
    now_ms: int,
    retention_ms: int | None = None,
    most_files: int = MOST_FILES,
) -> int:
    """Delete commits and checkpoints that no version within retention is read from. Returns how
    many files were deleted. Raises LogMoved if the table was made again.

    The newest checkpoint that is older than the retention is kept, with its commit, and everything
    after it. Commits are deleted one by one, the oldest first: a writer that slept meanwhile must
    find its own head gone before it finds the version after it gone. The next call deletes the
    files that ``most_files`` left. Only the state's head is used, so ``state.bare()`` is enough.
    """
    if not _may_clean(state):
        return 0
    entries = list(storage.list(LOG))
    kept_ms = log_retention_ms(state.properties) if retention_ms is None else retention_ms
    keep = _cutoff(entries, now_ms - kept_ms)
    doomed = [] if keep is None else _older_than(entries, keep)[:most_files]
    for number, path in enumerate(doomed):
        if number % CHECK_EVERY == 0:  # a table made again in the same place has the same names
            check_head(storage, state)
        storage.delete([path])
    left_behind = list(_left_behind(storage, entries, doomed, now_ms))
    storage.delete(left_behind)
    return len(doomed) + len(left_behind)


def clean_files(
    storage: TableStorage,
    state: LogState,
    *,
    now_ms: int,
    retention_ms: int | None = None,
    orphans: bool = False,
) -> int:
    """Delete data files and vectors that were removed from the table longer ago than the retention.
    Returns how many. Raises LogMoved where the state is not the table's any more.

    ``orphans``: also delete files that no commit names, after a week or the retention, whichever is
    longer; for that the whole folder is listed. Never deleted are files that a live file or a
    younger tombstone names, and those with absolute paths. The state's expired tombstones are
    dropped.
    """
    check_head(storage, state)
    kept_ms = file_retention_ms(state.properties) if retention_ms is None else retention_ms
    cutoff_ms = now_ms - kept_ms
    expired = [each for each in state.tombstones.values() if _is_expired(each, cutoff_ms)]
    young = (each for each in state.tombstones.values() if not _is_expired(each, cutoff_ms))
    protected = {path for each in state.files.values() for path in files_of(each)}
    protected |= {path for each in young for path in files_of(each)}
    doomed = {path for each in expired for path in files_of(each)}
    doomed |= set(state.forgotten.left_before(cutoff_ms - WITHIN_MS))
    if orphans:
        doomed |= set(_orphans(storage, now_ms - max(kept_ms, ORPHAN_AGE_MS)))
    elsewhere = {path.rpartition("/")[2] for path in protected if not is_in_table(path)}
    gone = sorted(
        path
        for path in doomed - protected
        if is_in_table(path) and path.rpartition("/")[2] not in elsewhere
    )
    storage.delete(gone)
    for each in expired:
        del state.tombstones[each.path, each.vector_id]
    return len(gone)


def _may_clean(state: LogState) -> bool:
    configuration = {} if state.metadata is None else state.metadata.configuration
    enabled = configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "true"
    features = frozenset() if state.protocol is None else state.protocol.features
    return enabled and "checkpointProtection" not in features


def _cutoff(entries: Sequence[Entry], cutoff_ms: int) -> int | None:
    """The version of the checkpoint that is to be the oldest one left; None if no checkpoint is old
    enough, and nothing may be deleted."""
    found = ((classify(entry.path), entry.modified_ms) for entry in entries)
    commits = {kind[1]: at_ms for kind, at_ms in found if kind is not None and kind[0] == "commit"}
    newest_old = -1  # every commit up to it is older than the retention
    for version, at_ms in commits.items():
        if at_ms > cutoff_ms:
            break
        newest_old = version
    for checkpoint in whole_checkpoints(e.path for e in entries if e.modified_ms <= cutoff_ms):
        if checkpoint.version <= newest_old and checkpoint.version in commits:
            return checkpoint.version
    return None


def _older_than(entries: Iterable[Entry], keep: int) -> list[str]:
    """The paths of log files below version ``keep``, by version, and of compacted ones that begin
    at ``keep``."""
    found = []
    for entry in entries:
        if (kind := classify(entry.path)) is None:
            continue
        if kind[1] < keep or (kind[0] == "compacted" and kind[1] == keep):
            found.append((kind[1], entry.path))
    return [path for _, path in sorted(found)]


def _left_behind(
    storage: TableStorage, entries: Iterable[Entry], gone: Sequence[str], now_ms: int
) -> Iterator[str]:
    """Old temporary files of killed writers, and old sidecars that no checkpoint names."""
    deleted = set(gone)
    rest = [each for each in entries if each.path not in deleted]
    old = [each.path for each in rest if each.modified_ms < now_ms - LEFT_BEHIND_MS]
    yield from (path for path in old if path.endswith(TEMPORARY_SUFFIX))
    sidecars = [path for path in old if path.startswith(SIDECARS)]
    if not sidecars:
        return
    named = _named_sidecars(storage, whole_checkpoints(each.path for each in rest))
    if named is not None:
        yield from (path for path in sidecars if path.removeprefix(SIDECARS) not in named)


def _named_sidecars(storage: TableStorage, checkpoints: Iterable[LogCheckpoint]) -> set[str] | None:
    """The names of the sidecars of these checkpoints; None where one cannot be read, so that not
    all are known."""
    try:
        return {name for each in checkpoints for name in sidecars_of(storage, each)}
    except (*UNREADABLE, FileNotFoundError):
        return None


def _orphans(storage: TableStorage, cutoff_ms: int) -> Iterator[str]:
    """Old files with the endings of data files, vectors and temporary files, outside of hidden
    folders."""
    for entry in storage.list(""):
        *folders, name = entry.path.split("/")
        hidden = any(each.startswith(("_", ".")) and "=" not in each for each in folders)
        if not hidden and name.endswith(_ORPHANS) and entry.modified_ms < cutoff_ms:
            yield entry.path


def _is_expired(tombstone: Tombstone, cutoff_ms: int) -> bool:
    return tombstone.deletion_timestamp_ms < cutoff_ms
