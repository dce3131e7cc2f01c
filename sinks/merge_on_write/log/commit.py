"""One commit: put-if-absent of exactly the next version, and only on top of the head that we know.

The put is the table's compare-and-set, by two measures. It is checked before *and* after the put
that the head from which the actions were computed is still there. And a nonce in each commit tells
ours from another writer's when storage answers late, twice or not at all.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from coordination.errors import TidelakeError, TryAgain
from coordination.trust.clock import SystemClock
from sinks.merge_on_write.log.actions import JSON, DataFile, Json, Metadata, Protocol
from sinks.merge_on_write.log.file_locations import folders_of
from sinks.merge_on_write.log.paths import LOG, classify, commit_path
from sinks.merge_on_write.log.reader import LogMoved, check_head, read_commit
from sinks.merge_on_write.log.state import NONCE, LogState, nonce_of
from sinks.storage.table_storage import TEMPORARY_SUFFIX, TableStorage
from sinks.target.retention_properties import ORPHAN_AGE_MS, file_retention_ms, log_retention_ms

PUT_TRIES = 4
LEAST_PATIENCE_S = 60.0  # even for a table whose retention is shorter
PAUSE_S = 0.2  # between tries, doubled each time
ENGINE_INFO = "tidelake"
_CLOCK = SystemClock()


class LostRace(TryAgain):
    """Another commit has this version: the caller must follow the log and decide anew."""


class TooLate(TryAgain):
    """Too much time has passed for a safe put: the caller must follow the log first."""


def commit(
    storage: TableStorage,
    state: LogState,
    actions: Sequence[Json],
    *,
    operation: str,
    user_metadata: str | None = None,
    now_ms: int,
    followed_at: float,
    monotonic: Callable[[], float] = _CLOCK.monotonic,
) -> int:
    """Write the next version, advance the state to it, and return the version.

    ``followed_at``: ``monotonic()`` (``SystemClock``'s, not ``time``'s) from *before* the last
    ``follow`` or ``read_log``. Raises LostRace, LogMoved or TooLate: then nothing was committed,
    and the state is as before. After an OSError the outcome is unknown: follow the log, and look at
    the table's identities. Raises TidelakeError where the head's commit is missing from the log.
    """
    if state.head_fingerprint is None:
        raise TidelakeError(
            f"{storage.uri}: the commit of version {state.version} is gone from the log, only its "
            "checkpoint is left: nothing can be put behind it safely; make a commit with Spark"
        )
    limit = followed_at + _patience_s(state.properties)
    all_actions = [_commit_info(state, actions, operation, user_metadata, now_ms), *actions]
    raw = encode(all_actions)

    def before_put() -> None:
        check_head(storage, state)
        if monotonic() >= limit:
            raise TooLate(f"{storage.uri}: too long since the log was followed")

    version = state.version + 1
    # The names of the files in a commit must be durable before the commit is.
    added = (DataFile(each["add"]) for each in actions if each.get("add"))
    for folder in {folder for each in added for folder in folders_of(each)}:
        storage.sync_folder(folder)
    _put(storage, version, raw, before_put)
    _check_after_put(storage, state, raw)
    state.advance(version, all_actions, raw)
    return version


def create_table(
    storage: TableStorage,
    protocol: Protocol,
    metadata: Metadata,
    others: Sequence[Json] = (),
    *,
    operation: str = "CREATE TABLE",
    user_metadata: str | None = None,
    now_ms: int,
) -> LogState:
    """Commit version 0 in an empty folder, and return the state. Raises LostRace where another
    writer made a table there first, TidelakeError where the folder has other files. ``others``: the
    rest of its actions, which name no file in the folder."""
    for entry in storage.list(""):
        if (kind := classify(entry.path)) is not None and kind[0] in ("commit", "checkpoint"):
            raise LostRace(f"there is a Delta table at {storage.uri} already")
        if not (entry.path.startswith(LOG) or entry.path.endswith(TEMPORARY_SUFFIX)):
            raise TidelakeError(
                f"cannot make a table at {storage.uri}: the folder holds {entry.path} and no Delta "
                "table; empty it, or take another place"
            )
    state = LogState()
    actions = [protocol.to_json(), metadata.to_json(), *others]
    info = _commit_info(state, actions, operation, user_metadata, now_ms)
    info["commitInfo"]["isBlindAppend"] = True
    all_actions = [info, *actions]
    raw = encode(all_actions)
    _put(storage, 0, raw, lambda: None)
    state.advance(0, all_actions, raw)
    return state


def prove_put_if_absent(storage: TableStorage) -> None:
    """Raises TidelakeError where the storage lets a file be made twice: commits are not safe
    there. It tries with a temporary file."""
    path = f"{LOG}.probe.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
    try:
        storage.create(path, b"first")  # False: the client tried again, as an answer was lost
        if storage.create(path, b"second") or storage.size(path) is None:
            raise TidelakeError(
                f"{storage.uri}: the storage makes a file twice (it has no conditional put), so "
                "two writers could overwrite each other's commits: use a storage that refuses that"
            )
    finally:
        storage.delete([path])


def prove_no_other_lock(storage: TableStorage) -> None:
    """Raises TidelakeError if Spark commits to the table under a lock that is outside of the table:
    such a writer may overwrite our commit, or take it for its own."""
    if next(storage.list(f"{LOG}.tmp/"), None) is not None:
        raise TidelakeError(
            f"{storage.uri}: _delta_log/.tmp/ is there, so Spark commits to this table through "
            "DynamoDB's log store, which does not know of conditional puts: let one engine commit "
            "to it; delete that folder when Spark no longer does"
        )


def encode(actions: Sequence[Json]) -> bytes:
    """The bytes of a commit: a JSON document per line."""
    return "".join(f"{JSON.encode(each)}\n" for each in actions).encode("utf-8")


def _put(storage: TableStorage, version: int, raw: bytes, before_put: Callable[[], None]) -> None:
    """Put the commit if absent, and try again until the outcome is known. Raises LostRace; an
    OSError where the outcome stays unknown; and what ``before_put`` raises, which is called before
    each try."""
    failure: OSError | None = None
    for number in range(PUT_TRIES):
        if number:
            time.sleep(PAUSE_S * 2 ** (number - 1))
        before_put()
        try:
            if storage.create(commit_path(version), raw):
                return
        except OSError as error:  # the file may be there nevertheless, or still come
            failure = error
        try:
            found = read_commit(storage, version)
        except OSError as error:
            failure = error
            continue
        if found is not None and nonce_of(found) == nonce_of(raw):
            return
        if found is not None:
            raise LostRace(f"another commit came first on {storage.uri}, version {version}")
    raise failure or OSError(f"{storage.uri}/{commit_path(version)}: neither made nor there")


def _check_after_put(storage: TableStorage, state: LogState, raw: bytes) -> None:
    """Our commit counts only if the head that it was computed from is still there: otherwise it is
    withdrawn, and LogMoved raised."""
    try:
        check_head(storage, state)
    except LogMoved:
        _withdraw(storage, state.version + 1, raw)
        raise


def _withdraw(storage: TableStorage, version: int, raw: bytes) -> None:
    """Delete our commit that has no predecessor, before another writer commits on top of it.

    If the log has later files, the commit stays. Either the log was cleaned beyond it: then no
    reader reads it, and the next cleaning deletes it. Or the commit did count, and later commits
    follow it.
    """
    later = (
        each.path
        for each in storage.list(LOG, start_after=commit_path(version))
        if (kind := classify(each.path)) is not None and kind[0] in ("commit", "checkpoint")
    )
    if next(later, None) is None and read_commit(storage, version) == raw:
        storage.delete([commit_path(version)])


def _patience_s(properties: Mapping[str, str]) -> float:
    """For how many seconds after the log was followed a put is safe: so long the log cannot have
    been cleaned, and the commit's new files are not old enough to be deleted as orphans."""
    first_ms = min(log_retention_ms(properties), file_retention_ms(properties), ORPHAN_AGE_MS)
    return max(first_ms / 2 / 1000, LEAST_PATIENCE_S)


def _commit_info(
    state: LogState, actions: Sequence[Json], operation: str, user_metadata: str | None, now_ms: int
) -> Json:
    info: Json = {}
    if (stamp := _in_commit_timestamp(state, actions, now_ms)) is not None:
        info["inCommitTimestamp"] = stamp
    info |= {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": ENGINE_INFO,
        "isBlindAppend": False,
        NONCE: uuid.uuid4().hex,
    }
    if user_metadata is not None:
        info["userMetadata"] = user_metadata
    return {"commitInfo": info}


def _in_commit_timestamp(state: LogState, actions: Sequence[Json], now_ms: int) -> int | None:
    """The commit's inCommitTimestamp, which is later than the one before; None for a table without
    that feature."""
    protocol, metadata = state.protocol, state.metadata
    for action in actions:
        if fields := action.get("protocol"):
            protocol = Protocol.from_json(fields)
        elif fields := action.get("metaData"):
            metadata = Metadata(fields=fields)
    if protocol is None or "inCommitTimestamp" not in protocol.features:
        return None
    if metadata is None or metadata.configuration.get("delta.enableInCommitTimestamps") != "true":
        return None
    before = state.in_commit_timestamp_ms or state.commit_time_ms
    return max(now_ms, before + 1)
