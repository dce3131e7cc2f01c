"""Reads a table's log: the newest checkpoint and the commits after it, and then follows it.

That there is no commit N + 1 means something only while commit N is still there as we know it: the
log may have been cleaned up to a later version, or the table made again in the same place. So
`follow` looks at the head again, and a reader must begin from scratch when the head is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.log.checkpoint_reader import UNREADABLE, read_checkpoint
from sinks.merge_on_write.log.paths import (
    LAST_CHECKPOINT,
    LOG,
    LogCheckpoint,
    classify,
    commit_path,
    whole_checkpoints,
)
from sinks.merge_on_write.log.state import NEVER, LogState, fingerprint, parse_commit
from sinks.storage.table_storage import TableStorage

TRIES = 5  # a log that is cleaned while it is read must be read again


class LogMoved(TryAgain):
    """Our head is gone from the log, or another commit is in its place: the caller must read the
    log from scratch and decide anew."""


class VersionGone(TidelakeError):
    """An older version cannot be read any more: its log, or its files, were cleaned up."""


def cleaned_up(uri: str, version: int, what: str) -> VersionGone:
    """The error of a version that the table's retention does not cover any more."""
    return VersionGone(
        f"version {version} of {uri} is gone: its {what} were cleaned up, since the table's "
        "retention is over"
    )


def read_log(
    storage: TableStorage,
    *,
    version: int | None = None,
    forget_vectors_within_ms: int | None = None,
) -> LogState | None:
    """The state at a version, by default the newest; None if there is no table.

    Raises VersionGone, TidelakeError for a log with holes or damage, TryAgain for one that is
    cleaned while it is read.

    ``forget_vectors_within_ms``: see ``tombstones``; with None all tombstones are kept.
    """
    gone: FileNotFoundError | None = None
    for _ in range(TRIES):
        state = LogState(forget_vectors_within_ms=forget_vectors_within_ms)
        try:
            return _read_once(storage, state, version)
        except FileNotFoundError as error:  # cleaned between listing and reading
            gone = error
    raise TryAgain(f"the log of {storage.uri} changes faster than it can be read: {gone}")


def follow(storage: TableStorage, state: LogState) -> None:
    """Advance the state by the commits that came since. Raises LogMoved when the head is gone: then
    the state is as before, and the log must be read from scratch."""
    commits: list[bytes] = []
    while (raw := read_commit(storage, state.version + 1 + len(commits))) is not None:
        commits.append(raw)
    check_head(storage, state)
    for raw in commits:
        _advance(storage, state, raw)


def check_head(storage: TableStorage, state: LogState) -> None:
    """Raises LogMoved unless the commit of the state's version is still there, byte for byte."""
    head = read_commit(storage, state.version)
    at = f"version {state.version} of {storage.uri}"
    if head is None and state.head_fingerprint is not None:
        raise LogMoved(f"{at} is no longer in the log; reading the log anew")
    if head is not None and fingerprint(head) != state.head_fingerprint:
        raise LogMoved(f"{at} is another commit than before; reading the log anew")


def read_commit(storage: TableStorage, version: int) -> bytes | None:
    """A commit's bytes; None if there is no such commit."""
    try:
        return storage.read(commit_path(version))
    except FileNotFoundError:
        return None


def _read_once(storage: TableStorage, state: LogState, wanted: int | None) -> LogState | None:
    commits = _begun(storage, state, wanted)
    if commits is None:
        return None
    for version in (each for each in commits if each > state.version):
        if version != state.version + 1:
            raise _hole(storage, state.version + 1, version)
        _advance(storage, state, storage.read(commit_path(version)))
    if wanted is not None and state.version != wanted:
        raise VersionGone(
            f"{storage.uri} has no version {wanted}, its log ends at {state.version}: it was "
            "replaced by an older copy"
        )
    if state.protocol is None or state.metadata is None:
        raise TidelakeError(
            f"the log of {storage.uri} names no protocol or no schema up to version "
            f"{state.version}: it is damaged; restore the table"
        )
    return state


def _begun(
    storage: TableStorage, state: LogState, wanted: int | None, *, by_hint: bool = True
) -> list[int] | None:
    """Fills the state from a checkpoint, if there is one. Returns the versions of the commits; None
    if there is no table."""
    names = _newest_names(storage, wanted) if by_hint else _all_names(storage)
    checkpoints = whole_checkpoints(names)
    kinds = filter(None, map(classify, names))
    commits = sorted(version for kind, version in kinds if kind == "commit")
    if not checkpoints and not commits:
        return None
    if wanted is not None:
        checkpoints = [each for each in checkpoints if each.version <= wanted]
        commits = [each for each in commits if each <= wanted]
        if not checkpoints and commits[:1] != [0]:
            raise cleaned_up(storage.uri, wanted, "commits")
    unreadable, error = _take_checkpoint(storage, state, checkpoints, commits)
    if state.version == NEVER and commits[:1] != [0]:
        if by_hint:  # there may be an older one
            return _begun(storage, state, wanted, by_hint=False)
        if isinstance(error, OSError):
            raise error
        raise _hole(storage, 0, commits[0] if commits else None, unreadable)
    return commits


def _newest_names(storage: TableStorage, wanted: int | None) -> list[str]:
    """The paths of the log's files, from the checkpoint in the hint on. All of them, if the hint is
    missing or newer than the wanted version, or its checkpoint is gone."""
    hint = _hint(storage)
    if hint is not None and (wanted is None or hint <= wanted):
        found = [each.path for each in storage.list(LOG, start_after=f"{LOG}{hint:020}")]
        if whole_checkpoints(found):
            return found
    return _all_names(storage)


def _all_names(storage: TableStorage) -> list[str]:
    return [each.path for each in storage.list(LOG)]


def _hint(storage: TableStorage) -> int | None:
    """The version in ``_last_checkpoint``; None if that is missing or damaged. The version may be
    old, or its checkpoint gone."""
    try:
        version = json.loads(storage.read(LAST_CHECKPOINT))["version"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, int) and version >= 0 else None


def _take_checkpoint(
    storage: TableStorage,
    state: LogState,
    checkpoints: Sequence[LogCheckpoint],
    commits: Sequence[int],
) -> tuple[str, Exception | None]:
    """Fill the state from the newest checkpoint that can be read. Why one could not be: an OSError
    is the storage's, or Arrow's of a damaged file."""
    unreadable: tuple[str, Exception | None] = "", None
    for checkpoint in checkpoints:
        try:
            found = read_checkpoint(storage, checkpoint)
        except FileNotFoundError:
            raise
        except (*UNREADABLE, OSError) as error:
            unreadable = f" (and {checkpoint.paths[0]} cannot be read: {error})", error
            continue
        state.take_checkpoint(checkpoint.version, found)
        if checkpoint.version in commits:
            raw = storage.read(commit_path(checkpoint.version))
            with _damage_told(storage, checkpoint.version):
                state.take_head(parse_commit(raw), raw)
        break
    return unreadable


def _advance(storage: TableStorage, state: LogState, raw: bytes) -> None:
    with _damage_told(storage, state.version + 1):
        state.advance(state.version + 1, parse_commit(raw), raw)


@contextmanager
def _damage_told(storage: TableStorage, version: int) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TidelakeError(
            f"{storage.uri}/{commit_path(version)} is no commit of Delta's protocol ({error!r}); "
            "restore the table"
        ) from error


def _hole(
    storage: TableStorage, wanted: int, found: int | None, unreadable: str = ""
) -> TidelakeError:
    next_one = "no commit" if found is None else f"version {found}"
    return TidelakeError(
        f"the log of {storage.uri} has a hole: version {wanted} is missing, {next_one} is the next "
        f"there is{unreadable}; restore the missing commits, or the table"
    )
