"""One changefeed as etcd has it, and what a tick wants changed in it.

Writes of info, status and schedule come from `changefeed_writes.py` alone; only task positions, by
which captures report, are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Literal, TypeVar

from coordination.etcd import keys
from coordination.etcd.client import KeyValue
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_writes import POSITIONS_PER_GROUP, ChangefeedWrites
from coordination.metadata.errors import ChangefeedNotFound
from coordination.metadata.model import (
    NO_ROW,
    ChangefeedInfo,
    ChangefeedStatus,
    ChangefeedUUID,
    Record,
    RunningError,
    ScheduleRow,
    TaskPosition,
    load,
)
from coordination.metadata.record_patch import (
    deleted,
    only_in_epoch,
    record_patch,
    unless_refused,
)
from coordination.model import CaptureID
from coordination.orchestrator.transaction import Patch, PatchGroup

R = TypeVar("R", bound=Record)


class ChangefeedReactorState:
    """Of one thread; one of many in a ``GlobalReactorState``. What is read once from etcd
    (`lookup.py`) has this shape too."""

    def __init__(self, cluster_id: str, name: ChangefeedName) -> None:
        self.name = name
        self.info: ChangefeedInfo | None = None
        self.status: ChangefeedStatus | None = None
        self.schedule: ScheduleRow | None = None
        self.uuid = ChangefeedUUID(0)  # of this life; 0 without an info
        self.task_positions: dict[CaptureID, TaskPosition] = {}
        self.last_reports: dict[CaptureID, TaskPosition] = {}  # what was seen last, taken or not
        self._broken: set[str] = set()  # keys whose values are not understood; the last good counts
        self._cluster_id = cluster_id
        self._groups: list[PatchGroup] = []

    @property
    def is_empty(self) -> bool:
        """Whether etcd has nothing of it."""
        return not (
            self.info or self.status or self.schedule or self.task_positions or self._broken
        )

    @property
    def known_info(self) -> ChangefeedInfo:
        """Raises ``ChangefeedNotFound`` where there is none."""
        if self.info is None:
            raise ChangefeedNotFound(f"there is no changefeed {self.name}")
        return self.info

    def writes(self, *, by_owner: bool = False) -> ChangefeedWrites:
        """Of its present life; ``by_owner``: of its present launch."""
        return ChangefeedWrites(
            cluster_id=self._cluster_id,
            name=self.name,
            row=self.schedule or NO_ROW,
            by_owner=by_owner,
        )

    def update(self, key: str, parsed: keys.ParsedKey, kv: KeyValue | None) -> None:
        """Take over a key of this changefeed. Raises ``BrokenValue`` where the value is not
        understood; the one before it stays."""
        self._broken.add(key)
        match parsed.kind:
            case keys.KeyKind.INFO:
                self.info = _load(ChangefeedInfo, kv)
                self.uuid = ChangefeedUUID(kv.create_revision if kv is not None else 0)
            case keys.KeyKind.STATUS:
                self.status = _load(ChangefeedStatus, kv)
            case keys.KeyKind.SCHEDULE:
                self.schedule = _load(ScheduleRow, kv)
            case keys.KeyKind.POSITION:
                self._take_position(parsed.capture_id, _load(TaskPosition, kv))
            case _:
                pass
        self._broken.discard(key)

    def _take_position(self, capture_id: CaptureID, position: TaskPosition | None) -> None:
        if position is None:
            self.task_positions.pop(capture_id, None)
            self.last_reports.pop(capture_id, None)
            return
        last = self.last_reports.get(capture_id, position)
        self.task_positions[capture_id] = position
        self.last_reports[capture_id] = replace(
            position,
            error=position.error or last.error,
            warning=position.warning or last.warning,
        )

    def add_group(self, *groups: PatchGroup) -> None:
        """Have each written with this tick, all or none, in their order. One that refuses on the
        newest values does nothing: that is no reason to end the worker, the next tick sees what has
        changed."""
        self._groups += (unless_refused(group) for group in groups)

    def take_patches(self) -> list[PatchGroup]:
        taken, self._groups = self._groups, []
        return taken

    def reported(self, which: Literal["error", "warning"]) -> list[RunningError]:
        """What captures reported, one of each code."""
        found: dict[str, RunningError] = {}
        for _, position in sorted(self.task_positions.items()):
            report: RunningError | None = getattr(position, which)
            if report is not None:
                found.setdefault(report.code, report)
        return list(found.values())

    def clear_reports(self) -> None:
        """Of what was seen; a newer report that came in between is for the next tick. To be called
        when what comes of them has been added: it must not be written after they are gone."""
        for capture_id, seen in sorted(self.task_positions.items()):
            if seen.error is not None or seen.warning is not None:
                self.add_group((self._position_patch(capture_id, _cleared(seen)),))

    def report(
        self,
        capture_id: CaptureID,
        epoch: int,
        error: RunningError | None,
        warning: RunningError | None,
    ) -> None:
        """What went wrong on that capture in that epoch; None leaves what it said before."""

        def change(old: TaskPosition | None) -> TaskPosition:
            position = old or TaskPosition()
            return replace(
                position, error=error or position.error, warning=warning or position.warning
            )

        patch = self._position_patch(capture_id, change)
        self.add_group(only_in_epoch(self._info_key, epoch, patch))

    def remove_stale_positions(self, alive: Collection[CaptureID]) -> None:
        """Delete what dead captures reported, and all that is left of a changefeed that is gone."""
        is_gone = self.info is None and self._info_key not in self._broken
        stale = sorted(set(self.task_positions).difference(() if is_gone else alive))
        patches = [deleted(self._position_key(each)) for each in stale]
        for start in range(0, len(patches), POSITIONS_PER_GROUP):
            self.add_group(tuple(patches[start : start + POSITIONS_PER_GROUP]))

    @property
    def _info_key(self) -> str:
        return keys.changefeed_info_key(self._cluster_id, self.name)

    def _position_key(self, capture_id: CaptureID) -> str:
        return keys.task_position_key(self._cluster_id, capture_id, self.name)

    def _position_patch(
        self, capture_id: CaptureID, change: Callable[[TaskPosition | None], TaskPosition | None]
    ) -> Patch:
        return record_patch(self._position_key(capture_id), TaskPosition, change)


def _cleared(seen: TaskPosition) -> Callable[[TaskPosition | None], TaskPosition | None]:
    def change(position: TaskPosition | None) -> TaskPosition | None:
        if position is None:
            return None
        return replace(
            position,
            error=None if position.error == seen.error else position.error,
            warning=None if position.warning == seen.warning else position.warning,
        )

    return change


def _load(kind: type[R], kv: KeyValue | None) -> R | None:
    return None if kv is None else load(kind, kv.value)
