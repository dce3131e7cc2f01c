"""Metadata as a reactor's state has it: what the observations read when a tick calls them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from coordination.etcd.keys import ChangefeedName
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.model import ChangefeedUUID
from coordination.metadata.querier import Stored, StoredQuerier
from coordination.model import CaptureID, CaptureInfo


class StateQuerier(StoredQuerier):
    """One moment of etcd, without asking it. Of the state's thread."""

    def __init__(self, state: GlobalReactorState) -> None:
        self._state = state

    def captures(self) -> Sequence[CaptureInfo]:
        state = self._state
        return [info for id_, info in sorted(state.captures.items()) if not state.is_gone(id_)]

    def reporting(self, name: ChangefeedName) -> Sequence[CaptureID]:
        changefeed = self._state.changefeeds.get(name)
        return sorted(changefeed.task_positions) if changefeed is not None else ()

    def _read(self, uuids: Collection[ChangefeedUUID]) -> Mapping[ChangefeedUUID, Stored]:
        named = (
            each for each in self._state.changefeeds.values() if not uuids or each.uuid in uuids
        )
        found = ((each.uuid, each.stored) for each in named)
        return {uuid: stored for uuid, stored in found if stored is not None}
