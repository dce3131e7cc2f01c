"""The state of a table's log at one version: files, tombstones, identities, protocol, metadata.

Pure: commits are passed in as their actions. Replay follows Delta's rules of reconciliation: the
actions of a commit have no order, and a logical file is (path, vector's ID).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from sinks.merge_on_write.log.actions import (
    AppTransaction,
    DataFile,
    Json,
    Metadata,
    Protocol,
    Tombstone,
)
from sinks.merge_on_write.log.tombstones import ExpendableTombstones

NONCE = "tidelakeNonce"  # in commitInfo: we recognise our own commit by it
OURS = "tidelake/"  # how the app IDs of our transaction identities begin
NEVER = -1


@dataclass(slots=True, kw_only=True, eq=False)
class LogState:
    """Not thread-safe: it has one owner, who calls ``advance`` for each commit that follows."""

    version: int = NEVER
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: dict[str, DataFile] = field(default_factory=dict)  # by path
    transactions: dict[str, AppTransaction] = field(default_factory=dict)  # by app ID
    domains: dict[str, Json] = field(default_factory=dict)
    tombstones: dict[tuple[str, str | None], Tombstone] = field(default_factory=dict)
    commit_time_ms: int = 0
    in_commit_timestamp_ms: int | None = None
    head_fingerprint: str | None = None  # None: the head's commit is gone, a checkpoint is left
    forget_vectors_within_ms: int | None = None  # see tombstones.py; None: every tombstone is kept
    forgotten: ExpendableTombstones = field(default_factory=ExpendableTombstones)
    begun_at: int = NEVER  # the checkpoint's version: commits at or below were not seen
    foreign: list[int] = field(default_factory=list)  # others' commits among those that were

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties; none where its metadata has not been read."""
        return {} if self.metadata is None else self.metadata.configuration

    def advance(self, version: int, actions: Sequence[Json], raw: bytes) -> None:
        """Apply the next commit. ``raw``: its bytes. Raises ValueError for any other version."""
        if version != self.version + 1:
            raise ValueError(f"commit {version} does not follow {self.version}")
        self._take_commit_info(actions)
        removes = [Tombstone(each["remove"]) for each in actions if each.get("remove")]
        for each in removes:
            live = self.files.get(each.path)
            if live is not None and live.vector_id == each.vector_id:
                del self.files[each.path]
            self.tombstones[each.path, each.vector_id] = each
        added = self._add(each["add"] for each in actions if each.get("add"))
        if self.forget_vectors_within_ms is not None:
            self._forget(removes, added)
        self._take_the_rest(actions)
        if not is_ours(actions):
            self.foreign.append(version)
        self.version = version
        self.head_fingerprint = fingerprint(raw)

    def _add(self, adds: Iterable[Json]) -> list[DataFile]:
        added = []
        for fields in adds:
            file = DataFile.from_add(fields)
            self.files[file.path] = file
            self.tombstones.pop((file.path, file.vector_id), None)
            added.append(file)
        return added

    def _forget(self, removes: Iterable[Tombstone], added: Iterable[DataFile]) -> None:
        assert self.forget_vectors_within_ms is not None
        for each in removes:
            if each.path in self.files and self.forgotten.may_forget(
                each, self.commit_time_ms, self.forget_vectors_within_ms
            ):
                self.tombstones.pop((each.path, each.vector_id), None)
        self.forgotten.note(removes, added, self.commit_time_ms)

    def _take_the_rest(self, actions: Iterable[Json]) -> None:
        for action in actions:
            if fields := action.get("txn"):
                transaction = AppTransaction.from_json(fields)
                self.transactions[transaction.app_id] = transaction
            elif fields := action.get("domainMetadata"):
                self._take_domain(fields)
            elif fields := action.get("protocol"):
                self.protocol = Protocol.from_json(fields)
            elif fields := action.get("metaData"):
                known = {name: value for name, value in fields.items() if value is not None}
                self.metadata = Metadata(fields=known)  # a null is no field, as in a checkpoint

    def _take_domain(self, fields: Json) -> None:
        if fields.get("removed"):
            self.domains.pop(fields["domain"], None)
        else:
            self.domains[fields["domain"]] = fields

    def _take_commit_info(self, actions: Iterable[Json]) -> None:
        info = commit_info(actions)
        self.in_commit_timestamp_ms = info.get("inCommitTimestamp")
        told = self.in_commit_timestamp_ms or info.get("timestamp")
        self.commit_time_ms = told or self.commit_time_ms

    def take_checkpoint(self, version: int, actions: Sequence[Json]) -> None:
        """Fill an empty state from a checkpoint's actions. ``take_head`` is to follow where the
        commit of that version is still there."""
        self._add(each["add"] for each in actions if each.get("add"))
        self._take_the_rest(actions)
        removes = (Tombstone(each["remove"]) for each in actions if each.get("remove"))
        self.tombstones = {(each.path, each.vector_id): each for each in removes}
        self.version = self.begun_at = version

    def take_head(self, actions: Sequence[Json], raw: bytes) -> None:
        """Take the facts that the checkpoint lacks from its own version's commit: times and
        fingerprint."""
        self._take_commit_info(actions)
        self.head_fingerprint = fingerprint(raw)

    def copy(self) -> LogState:
        """An independent copy. The values in it are shared, as they never change."""
        twin = copy(self)
        twin.files = dict(self.files)
        twin.transactions = dict(self.transactions)
        twin.domains = dict(self.domains)
        twin.tombstones = dict(self.tombstones)
        twin.forgotten = self.forgotten.copy()
        twin.foreign = list(self.foreign)
        return twin

    def bare(self) -> LogState:
        """A copy without files, identities and tombstones. It is enough for ``clean_log``, which
        can then run while the owner commits."""
        return LogState(
            version=self.version,
            protocol=self.protocol,
            metadata=self.metadata,
            head_fingerprint=self.head_fingerprint,
        )


def fingerprint(raw: bytes) -> str:
    """A hash that tells a commit's bytes from those of any other."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def parse_commit(raw: bytes) -> list[Json]:
    """The actions in a commit's bytes, one JSON document per line. Raises ValueError."""
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


def nonce_of(raw: bytes) -> str | None:
    """The nonce by which we recognise our own commit; None in other writers' commits and in damaged
    ones."""
    lines = (json.loads(line) for line in raw.splitlines() if line.strip())
    try:
        nonce: str | None = commit_info(lines).get(NONCE)  # it is in our first line: reads no more
    except (ValueError, AttributeError):
        return None
    return nonce


def is_ours(actions: Iterable[Json]) -> bool:
    """Whether a commit is of this program: by its nonce, or where Spark or delta-rs made it for us
    by its transaction identity."""
    return bool(commit_info(actions).get(NONCE)) or any(
        str(each["txn"].get("appId", "")).startswith(OURS) for each in actions if each.get("txn")
    )


def commit_info(actions: Iterable[Json]) -> Json:
    """The fields of ``commitInfo``; empty where the writer left it out."""
    found = (each["commitInfo"] for each in actions if each.get("commitInfo"))
    return next(found, Json())
