"""Reading metadata: the port (TiCDC's ``Querier``), and etcd behind it. Nothing here writes.

Who reads, reads etcd itself (`EtcdQuerier`), or what a reactor has seen of it
(`state_querier.py`): the observations work on either.

An argument names a changefeed by UUID; without any, all are meant. A UUID that is not there is
simply not in the answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, KeyValue
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.elector import read_captures
from coordination.metadata.errors import BrokenValue, ChangefeedNotFound
from coordination.metadata.model import (
    NO_PROGRESS,
    ChangefeedIdent,
    ChangefeedInfo,
    ChangefeedProgress,
    ChangefeedState,
    ChangefeedStatus,
    ChangefeedUUID,
    load,
)
from coordination.metadata.schedule import NO_REVISION, ScheduledChangefeed, ScheduleRow
from coordination.model import CaptureID, CaptureInfo, Revision

NO_ROW = ScheduleRow()  # of a changefeed that TiCDC's tools made: nobody has owned it here yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Changefeed:
    """What was asked for, and which life of the name this is."""

    ident: ChangefeedIdent
    info: ChangefeedInfo


class Querier(Protocol):
    """Thread-safe."""

    def get_changefeed(self, *uuids: ChangefeedUUID) -> Sequence[Changefeed]: ...

    def get_changefeed_state(self, *uuids: ChangefeedUUID) -> Sequence[ChangefeedState]: ...

    def get_changefeed_progress(
        self, *uuids: ChangefeedUUID
    ) -> Mapping[ChangefeedUUID, ChangefeedProgress]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """All that etcd has of one changefeed."""

    ident: ChangefeedIdent
    info: ChangefeedInfo
    status: ChangefeedStatus | None = None
    row: ScheduleRow = NO_ROW
    row_revision: Revision = NO_REVISION

    @property
    def scheduled(self) -> ScheduledChangefeed:
        return self.row.scheduled(self.ident.uuid, self.row_revision)


class StoredQuerier(ABC):
    """A ``Querier``, and what the observations look up besides.

    A changefeed whose info is not understood is left out; a status or a row that is not understood
    counts as missing."""

    @abstractmethod
    def _read(self, uuids: Collection[ChangefeedUUID]) -> Mapping[ChangefeedUUID, Stored]:
        """Those at least; none named: all."""

    @abstractmethod
    def captures(self) -> Sequence[CaptureInfo]:
        """All that are registered, by ID."""

    @abstractmethod
    def reporting(self, name: ChangefeedName) -> Sequence[CaptureID]:
        """The captures that have a task position of that changefeed."""

    def get_changefeed(self, *uuids: ChangefeedUUID) -> Sequence[Changefeed]:
        return [Changefeed(ident=each.ident, info=each.info) for each in self.stored(*uuids)]

    def get_changefeed_state(self, *uuids: ChangefeedUUID) -> Sequence[ChangefeedState]:
        return [
            ChangefeedState(
                changefeed_uuid=each.ident.uuid,
                state=each.info.state,
                error=each.info.error,
                warning=each.info.warning,
            )
            for each in self.stored(*uuids)
        ]

    def get_changefeed_progress(
        self, *uuids: ChangefeedUUID
    ) -> Mapping[ChangefeedUUID, ChangefeedProgress]:
        return {each.ident.uuid: each.status or NO_PROGRESS for each in self.stored(*uuids)}

    def stored(self, *uuids: ChangefeedUUID) -> list[Stored]:
        """Everything of each, by UUID: in the order in which they were created."""
        found = self._read(uuids)
        return [each for uuid, each in sorted(found.items()) if not uuids or uuid in uuids]

    def find(self, uuid: ChangefeedUUID) -> Stored:
        """That one; raises ``ChangefeedNotFound``."""
        for each in self.stored(uuid):
            return each
        raise ChangefeedNotFound(f"there is no changefeed with the UUID {uuid} (any more)")

    def find_name(self, name: ChangefeedName) -> Stored:
        """The present life of a name; raises ``ChangefeedNotFound``."""
        for each in self.stored():
            if each.ident.name == name:
                return each
        raise ChangefeedNotFound(f"there is no changefeed {name}")


class EtcdQuerier(StoredQuerier):
    """Reads etcd at each call."""

    def __init__(self, client: EtcdClient, cluster_id: str) -> None:
        self._client = client
        self._cluster_id = cluster_id

    def captures(self) -> Sequence[CaptureInfo]:
        return read_captures(self._client, self._cluster_id)

    def reporting(self, name: ChangefeedName) -> Sequence[CaptureID]:
        prefix = f"{keys.base_prefix(self._cluster_id)}{name.namespace}/task/position/"
        parsed = (
            keys.parse_key(self._cluster_id, kv.key)
            for kv in self._client.range(prefix, prefix=True).kvs
        )
        return [
            each.capture_id
            for each in parsed
            if isinstance(each, keys.TaskPositionOf) and each.name == name
        ]

    def _read(self, uuids: Collection[ChangefeedUUID]) -> Mapping[ChangefeedUUID, Stored]:  # noqa: ARG002
        """All of one moment."""
        prefixes = (keys.base_prefix(self._cluster_id), keys.own_prefix(self._cluster_id))
        kvs = self._client.range(prefixes, prefix=True).kvs
        found: dict[ChangefeedName, Stored] = {}
        for kv in kvs:
            match keys.parse_key(self._cluster_id, kv.key):
                case keys.ChangefeedInfoOf(name) if (info := _info(kv)) is not None:
                    uuid = ChangefeedUUID(kv.create_revision)
                    found[name] = Stored(ident=ChangefeedIdent(uuid=uuid, name=name), info=info)
                case _:
                    pass
        for kv in kvs:
            with suppress(BrokenValue):
                self._add(found, kv)
        return {each.ident.uuid: each for each in found.values()}

    def _add(self, found: dict[ChangefeedName, Stored], kv: KeyValue) -> None:
        match keys.parse_key(self._cluster_id, kv.key):
            case keys.ChangefeedStatusOf(name) if name in found:
                found[name] = replace(found[name], status=load(ChangefeedStatus, kv.value))
            case keys.ScheduleOf(name) if name in found:
                found[name] = replace(
                    found[name],
                    row=load(ScheduleRow, kv.value),
                    row_revision=kv.mod_revision,
                )
            case _:
                pass


def _info(kv: KeyValue) -> ChangefeedInfo | None:
    try:
        return load(ChangefeedInfo, kv.value)
    except BrokenValue:
        return None
