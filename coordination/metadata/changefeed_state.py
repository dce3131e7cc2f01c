"""One changefeed as etcd has it, and the changes that a tick wants.

Writes of info, status and schedule row come from `changefeed_writes.py` alone. This module writes
only task positions, in which captures report their errors and warnings.
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
from coordination.metadata.record_patch import deleted, only_in_epoch, record_patch
from coordination.metadata.records import (
    NO_ROW,
    ChangefeedInfo,
    ChangefeedStatus,
    Record,
    RunningError,
    ScheduleRow,
    TaskPosition,
    load,
)
from coordination.model import CaptureID
from coordination.orchestrator.transaction import Patch, PatchGroup

R = TypeVar("R", bound=Record)


class ChangefeedReactorState:
    """One changefeed of a ``GlobalReactorState``; belongs to one thread. A read of etcd without a
    reactor (`lookup.py`) returns it too."""

    def __init__(self, cluster_id: str, name: ChangefeedName) -> None:
        self.name = name
        self.info: ChangefeedInfo | None = None
        self.status: ChangefeedStatus | None = None
        self.schedule: ScheduleRow | None = None
        self.task_positions: dict[CaptureID, TaskPosition] = {}
        self.last_reports: dict[CaptureID, TaskPosition] = {}  # kept when a report is cleared
        self._broken: set[str] = set()  # keys whose value cannot be read; the last good one counts
        self._cluster_id = cluster_id
        self._groups: list[PatchGroup] = []

    @property
    def is_empty(self) -> bool:
        """Whether etcd has no key of this changefeed."""
        return not (
            self.info or self.status or self.schedule or self.task_positions or self._broken
        )

    @property
    def known_info(self) -> ChangefeedInfo:
        """The info; raises ``ChangefeedNotFound`` if there is none."""
        if self.info is None:
            raise ChangefeedNotFound(f"there is no changefeed {self.name}")
        return self.info

    def writes(self, *, by_owner: bool = False) -> ChangefeedWrites:
        """The writes to this changefeed, refused if it was created anew since; with ``by_owner``
        refused also if the present launch of its owner is over."""
        return ChangefeedWrites(
            cluster_id=self._cluster_id,
            name=self.name,
            row=self.schedule or NO_ROW,
            by_owner=by_owner,
        )

    def update(self, key: str, parsed: keys.ParsedKey, kv: KeyValue | None) -> None:
        """Take over a key of this changefeed (`kv` None: deleted). Raises ``BrokenValue`` if the
        value cannot be read; the value before it then stays."""
        self._broken.add(key)
        match parsed.kind:
            case keys.KeyKind.INFO:
                self.info = _load(ChangefeedInfo, kv)
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
        """Have the groups written after this tick, in their order, each wholly or not at all. A
        group that refuses on the newest values does nothing and does not end the worker: the next
        tick sees the newer values and decides again."""
        self._groups += groups

    def take_patches(self) -> list[PatchGroup]:
        taken, self._groups = self._groups, []
        return taken

    def reported(self, which: Literal["error", "warning"]) -> list[RunningError]:
        """The errors, or the warnings, that captures reported: one of each code."""
        found: dict[str, RunningError] = {}
        for _, position in sorted(self.task_positions.items()):
            report: RunningError | None = getattr(position, which)
            if report is not None:
                found.setdefault(report.code, report)
        return list(found.values())

    def concerns(self) -> list[RunningError]:
        """The trouble that lasts on captures in the changefeed's present epoch."""
        epoch = self.known_info.epoch
        found = (each.concern(epoch) for _, each in sorted(self.task_positions.items()))
        return [each for each in found if each is not None]

    def clear_reports(self) -> None:
        """Have the reports cleared that this tick has seen; a newer report that came meanwhile
        stays for the next tick. Call it after ``add_group`` with the writes that follow from the
        reports, so that those are written before the reports are gone."""
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
        """Write the error or warning of that capture; None leaves the one that it reported before.
        Does nothing unless the changefeed runs in that epoch at the commit."""

        def change(old: TaskPosition | None) -> TaskPosition:
            position = old or TaskPosition()
            return replace(
                position, error=error or position.error, warning=warning or position.warning
            )

        patch = self._position_patch(capture_id, change)
        self.add_group(only_in_epoch(self._info_key, epoch, patch))

    def report_concern(
        self, capture_id: CaptureID, epoch: int, concern: RunningError | None
    ) -> None:
        """Write which trouble lasts on that capture; None: none does any more. Like ``report``."""
        patch = self._position_patch(
            capture_id, lambda old: (old or TaskPosition()).with_concern(epoch, concern)
        )
        self.add_group(only_in_epoch(self._info_key, epoch, patch))

    def remove_stale_positions(self, alive: Collection[CaptureID]) -> None:
        """Have the reports of captures deleted that are not in `alive`; if the changefeed has no
        info any more, the reports of all captures."""
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
