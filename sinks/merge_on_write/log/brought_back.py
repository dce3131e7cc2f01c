"""Another writer's commit that brings an older state of a table back, found in the table's log.

    commits above the last version that is known to be right ──► RESTORE, an overwrite … ──► since
    which of our limits do changes lack? ──► the rewind that heals it

Such a commit takes our commits back and leaves their transaction identities, which say that their
rows are in the table (rule 4): these rows would never come again. Operators' changes of rows
(DELETE, UPDATE, MERGE, INSERT, OPTIMIZE, VACUUM) take back nothing of ours and stay theirs.

The content tells which version came back, whatever the operation says: each commit is a set of
logical files that come and go, and from that version on all of them cancel out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.model import NO_TS, SEALED_TS, TableName, Ts
from sinks.merge_on_write.log.actions import Json, LogFile
from sinks.merge_on_write.log.reader import VersionGone, read_commit, read_log
from sinks.merge_on_write.log.state import OURS, commit_info, is_ours, parse_commit
from sinks.storage.table_storage import TableStorage
from sinks.target.engine_port import LastSeen
from sinks.target.table_properties import CHANGEFEED, DDL
from sinks.target.way_out import load_anew

ACCEPTED = "tidelake.accepted"  # an operator's word: the table is right as it is in this version
RESTORE = "RESTORE"
ROWS_OF_THEIRS = frozenset({"DELETE", "UPDATE", "MERGE", "TRUNCATE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCommit:
    """The facts of one commit. ``limit``: our identity after it; ``checkpoint``: the ts up to which
    the table had all changes before; ``files``: a hash of the logical files that come or go by
    it."""

    version: int
    is_ours: bool = True
    limit: Ts | None = None
    checkpoint: Ts | None = None
    operation: str = ""
    by: str = ""
    restores: int | None = None  # the version that the operation names
    takes_away: bool = False  # rows, and not for the same ones in other files
    files: int = 0
    made_at_ts: Ts | None = None  # of its CREATE TABLE, where the commit tells it

    @property
    def brings_back(self) -> bool:
        """Whether an older state may come with it."""
        if self.is_ours:
            return False
        return self.operation == RESTORE or (
            self.takes_away and self.operation not in ROWS_OF_THEIRS
        )

    @classmethod
    def of(cls, version: int, actions: Sequence[Json]) -> LogCommit:
        info, files, limit, takes_away = commit_info(actions), 0, None, False
        made_at: Ts | None = None
        for action in actions:
            if fields := action.get("add") or action.get("remove"):
                files ^= _mark(LogFile(fields))
                takes_away |= "remove" in action and bool(fields.get("dataChange", True))
            elif (txn := action.get("txn")) and txn["appId"].startswith(OURS):
                limit = limit if txn["version"] == SEALED_TS else Ts(txn["version"])
            elif fields := action.get("metaData"):
                made_at = _made_at(fields.get("configuration") or {})
        return cls(
            version=version,
            is_ours=is_ours(actions),
            limit=limit,
            checkpoint=_checkpoint(info),
            operation=str(info.get("operation", "")),
            by=str(info.get("engineInfo", "")),
            restores=_named(info),
            takes_away=takes_away,
            files=files,
            made_at_ts=made_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtBack:
    """A table holds an older state than its identity says. ``whole_ts``: up to where it has all
    changes, ``source``: the version that came back; None: it cannot be known. ``begin_ts``: it has
    none at or below."""

    version: int
    operation: str
    by: str = ""
    source: int | None = None
    whole_ts: Ts | None = None
    begin_ts: Ts | None = None
    known_version: int | None = None  # that the log had before: itself it is an older copy
    is_ours: bool = True  # its properties say so

    def sentence(self, name: TableName) -> str:
        return (
            f"table {name}: {self._what()}, and {self._way()}. Until then the table waits and the "
            f"other tables go on{self._or_not(name)}"
        )

    def _what(self) -> str:
        if self.known_version is not None:
            return (
                f"its log is an older copy: it ends at version {self.version}, and version "
                f"{self.known_version} was there"
            )
        made = f"version {self.version} ({', '.join(filter(None, (self.operation, self.by)))})"
        if self.source is None:
            return f"{made}, a commit of another writer, has put other rows in the place of its own"
        return f"{made} has brought version {self.source} back"

    def _way(self) -> str:
        if not self.is_ours:
            return "its properties are gone, by which Tidelake knows it: undo that"
        if self.whole_ts is not None:
            return (
                f"changes above commit-ts {self.whole_ts} do not come again by themselves: "
                f"rewind with --overwrite-checkpoint-ts {self.whole_ts}"
            )
        first = "TS" if self.begin_ts is None else f"{self.begin_ts}, which is before its first row"
        return (
            "which changes it lacks cannot be known: rewind with --overwrite-checkpoint-ts "
            f"{first}, or to any ts up to which it has all changes"
        )

    def _or_not(self, name: TableName) -> str:
        if self.known_version is not None:
            return f". Or put the newer copy back; or {load_anew(name)}"
        undo = f". Or undo it: RESTORE TABLE … TO VERSION AS OF {self.version - 1}"
        if not self.is_ours:
            return undo
        accept = f"set its property '{ACCEPTED}' = '{self.version}'"
        return f"{undo}; or {load_anew(name)}; or, if the table is right now, {accept}"

    def is_accepted(self, properties: Mapping[str, str]) -> bool:
        """Whether an operator has said that it is right so."""
        text = properties.get(ACCEPTED, "")
        return self.known_version is None and text.isdigit() and int(text) >= self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNow:
    """The end of a table's log: its newest version, and the content there."""

    version: int
    identity: Ts | None
    properties: Mapping[str, str]


def look(storage: TableStorage, last: LastSeen, now: LogNow) -> BroughtBack | None:
    """The hold on a table that was right when it was last seen; None: nothing holds it. Reads the
    commits since, and if one is suspicious those before it too."""
    is_older = last.identity is not None and (now.identity or NO_TS) < last.identity
    if now.version < last.version or is_older:
        return BroughtBack(
            version=now.version,
            operation="",
            source=now.version,
            whole_ts=now.identity or _before(_made_at(now.properties)),
            known_version=last.version,
            is_ours=CHANGEFEED in now.properties,
        )
    found = brought_back(storage, above=last.version, upto=now.version)
    if found is None or found.is_accepted(now.properties):
        return None
    return replace(found, is_ours=CHANGEFEED in now.properties)


def brought_back(storage: TableStorage, *, above: int, upto: int) -> BroughtBack | None:
    """Whether commits of others in ``(above, upto]`` have left the table in an older state than
    that of version ``above``, which was right. Reads each of them, and if one is suspicious those
    before it too. Commits that are gone from the log are not known."""
    commits: dict[int, LogCommit | None] = {}

    def read(version: int) -> LogCommit | None:
        if version not in commits:
            raw = read_commit(storage, version) if version >= 0 else None
            commits[version] = LogCommit.of(version, parse_commit(raw)) if raw else None
        return commits[version]

    suspicious = [
        each
        for each in map(read, range(above + 1, upto + 1))
        if each is not None and each.brings_back
    ]
    found: BroughtBack | None = None
    before: list[tuple[int, BroughtBack | None]] = []  # after which commit the table was how
    for each in suspicious:
        found = _judged(each, read, before)
        before.append((each.version, found))
    if found is not None and found.source is not None and found.whole_ts is None:
        return _with_checkpoint(storage, found)
    return found


def _judged(
    commit: LogCommit,
    read: Callable[[int], LogCommit | None],
    before: Sequence[tuple[int, BroughtBack | None]],
) -> BroughtBack | None:
    found = BroughtBack(version=commit.version, operation=commit.operation, by=commit.by)
    source = _source(commit, read)
    if source is None:
        return replace(found, begin_ts=_begin(commit.version - 1, read))
    was = next((state for at, state in reversed(before) if at <= source), None)
    lost = [each for at in range(source + 1, commit.version) if (each := read(at)) is not None]
    ours = [each for each in lost if each.limit is not None]
    if not ours:  # nothing of ours was taken back
        return was
    at_source = _limit_at(source, read)
    whole = [ours[0].checkpoint if at_source is None else at_source, *(x.limit for x in ours)]
    if was is not None:
        whole.append(was.begin_ts if was.whole_ts is None else was.whole_ts)
    known = [ts for ts in whole if ts is not None]
    return replace(found, source=source, whole_ts=min(known) if len(known) == len(whole) else None)


def _source(commit: LogCommit, read: Callable[[int], LogCommit | None]) -> int | None:
    """The earlier version that has the same content as the commit: the version that the commit
    names, or the newest with the same files."""
    if commit.restores is not None:
        return commit.restores
    files, version = commit.files, commit.version - 1
    while files and (each := read(version)) is not None:
        files ^= each.files
        version -= 1
    return version if not files and version >= 0 else None


def _limit_at(version: int, read: Callable[[int], LogCommit | None]) -> Ts | None:
    """Up to where the version held all changes; None: it cannot be known."""
    while (each := read(version)) is not None:
        if each.limit is not None:
            return each.limit
        if version == 0:
            return _before(each.made_at_ts)
        version -= 1
    return None


def _begin(version: int, read: Callable[[int], LogCommit | None]) -> Ts | None:
    """Before the first change of the table, as far as its log goes back."""
    made_at: Ts | None = None
    first: Ts | None = None
    while (each := read(version)) is not None:
        made_at, first = each.made_at_ts or made_at, each.checkpoint or first
        version -= 1
    if made_at is not None:
        return _before(made_at)
    return first if version < 0 else None


def _with_checkpoint(storage: TableStorage, found: BroughtBack) -> BroughtBack:
    """If the commits before ``source`` are gone, a checkpoint there still has our identity."""
    assert found.source is not None
    try:
        state = read_log(storage, version=found.source)
    except VersionGone:
        return found
    ours = [] if state is None else state.transactions.values()
    open_ones = [t.version for t in ours if t.app_id.startswith(OURS) and t.version != SEALED_TS]
    return replace(found, whole_ts=Ts(max(open_ones)) if open_ones else None)


def _made_at(properties: Mapping[str, str]) -> Ts | None:
    text = properties.get(DDL)
    return Ts(json.loads(text)["commit_ts"]) if text else None


def _before(made_at: Ts | None) -> Ts | None:
    """A table that was made from its rows has no such ts."""
    return Ts(made_at - 1) if made_at else None


def _checkpoint(info: Json) -> Ts | None:
    """As the applier notes it in each write."""
    try:
        found = json.loads(info.get("userMetadata") or "{}").get("checkpoint")
    except (ValueError, AttributeError):  # another writer's
        return None
    return Ts(found) if isinstance(found, int) else None


def _named(info: Json) -> int | None:
    """The version that a RESTORE names; a RESTORE to a time names none."""
    text = str((info.get("operationParameters") or {}).get("version", ""))
    return int(text) if info.get("operation") == RESTORE and text.isdigit() else None


def _mark(file: LogFile) -> int:
    name = f"{file.path}\n{file.vector_id or ''}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "big")
