"""Reads a table's log: the newest checkpoint and the commits after it, then whatever follows.

"There is no commit N + 1" is news only while N itself is still there as we know it: the log may
have been cleaned beyond us, or the table made again in the same place. So whoever follows looks at
its head again, and reads from scratch when that is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.checkpoint_reader import UNREADABLE, read_checkpoint
from sinks.merge_on_write.log_paths import (
    LAST_CHECKPOINT,
    LOG,
    LogCheckpoint,
    classify,
    commit_path,
    whole_checkpoints,
)
from sinks.merge_on_write.log_state import LogState, fingerprint, parse_commit
from sinks.merge_on_write.storage import TableStorage

TRIES = 5  # a log that is cleaned while it is read is read again


class LogMoved(TryAgain):
    """Where our head was is another commit, or nothing: read the log from scratch, decide anew."""


def read_log(
    storage: TableStorage, *, forget_vectors_within_ms: int | None = None
) -> LogState | None:
    """The newest state; None where there is no table. TidelakeError: a log with holes.

    ``forget_vectors_within_ms``: leave tombstones out that ``forgotten`` calls needless.
    """
    gone: FileNotFoundError | None = None
    for _ in range(TRIES):
        try:
            return _read_once(storage, LogState(forget_vectors_within_ms=forget_vectors_within_ms))
        except FileNotFoundError as error:  # cleaned between listing and reading
            gone = error
    raise TryAgain(f"the log of {storage.uri} changes faster than it can be read: {gone}")


def follow(storage: TableStorage, state: LogState) -> None:
    """Take in the commits that came since. LogMoved: nothing was taken in, read from scratch."""
    commits: list[bytes] = []
    while (raw := read_commit(storage, state.version + 1 + len(commits))) is not None:
        commits.append(raw)
    check_head(storage, state)
    for raw in commits:
        _advance(storage, state, raw)


def check_head(storage: TableStorage, state: LogState) -> None:
    """LogMoved unless the commit that the state stands on is still there, byte for byte."""
    head = read_commit(storage, state.version)
    at = f"version {state.version} of {storage.uri}"
    if head is None and state.head_fingerprint is not None:
        raise LogMoved(f"{at} is no longer in the log; reading the log anew")
    if head is not None and fingerprint(head) != state.head_fingerprint:
        raise LogMoved(f"{at} is another commit than before; reading the log anew")


def read_commit(storage: TableStorage, version: int) -> bytes | None:
    """A commit's bytes; None where it is not there."""
    try:
        return storage.read(commit_path(version))
    except FileNotFoundError:
        return None


def _read_once(storage: TableStorage, state: LogState) -> LogState | None:
    names = _newest_names(storage)
    checkpoints = whole_checkpoints(names)
    kinds = filter(None, map(classify, names))
    commits = sorted(version for kind, version in kinds if kind == "commit")
    if not checkpoints and not commits:
        return None
    _take_checkpoint(storage, state, checkpoints, commits)
    for version in (each for each in commits if each > state.version):
        if version != state.version + 1:
            raise _hole(storage, state.version + 1, version)
        _advance(storage, state, storage.read(commit_path(version)))
    if state.protocol is None or state.metadata is None:
        raise TidelakeError(
            f"the log of {storage.uri} names no protocol or no schema up to version "
            f"{state.version}: it is damaged; restore the table"
        )
    return state


def _newest_names(storage: TableStorage) -> list[str]:
    """The log's files from the checkpoint that the hint names on; all where it leads nowhere."""
    hint = _hint(storage)
    if hint is not None:
        found = [each.path for each in storage.list(LOG, start_after=f"{LOG}{hint:020}")]
        if whole_checkpoints(found):
            return found
    return [each.path for each in storage.list(LOG)]


def _hint(storage: TableStorage) -> int | None:
    """What ``_last_checkpoint`` says; it may be old, torn, or of a checkpoint that is gone."""
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
) -> None:
    """The newest one that can be read; none where the commits begin at 0."""
    unreadable = ""
    for checkpoint in checkpoints:
        try:
            found = read_checkpoint(storage, checkpoint)
        except UNREADABLE as error:
            unreadable = f" (and {checkpoint.paths[0]} cannot be read: {error})"
            continue
        state.take_checkpoint(checkpoint.version, found)
        if checkpoint.version in commits:
            raw = storage.read(commit_path(checkpoint.version))
            with _damage_told(storage, checkpoint.version):
                state.take_head(parse_commit(raw), raw)
        return
    if not commits or commits[0] != 0:
        raise _hole(storage, 0, commits[0] if commits else None, unreadable)


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
