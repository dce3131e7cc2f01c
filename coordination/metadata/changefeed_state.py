"""One changefeed as etcd has it, and what a tick wants changed in it.

Writes of info, status and schedule are made in `metadata/etcd_observation.py` alone and come in
through `patch` and `add_group`; only task positions, by which captures report, are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Literal, TypeVar

from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.errors import BrokenValue
from coordination.metadata.model import (
    ChangefeedIdent,
    ChangefeedInfo,
    ChangefeedStatus,
    ChangefeedUUID,
    Record,
    RunningError,
    TaskPosition,
    load,
)
from coordination.metadata.querier import NO_ROW, Stored
from coordination.metadata.record_patch import gated, record_patch, runs_in, unless_refused
from coordination.metadata.schedule import ScheduleRow
from coordination.model import CaptureID
from coordination.orchestrator.patch import Patch, PatchGroup
from coordination.orchestrator.reactor import ABSENT, Update

R = TypeVar("R", bound=Record)
POSITIONS_PER_GROUP = 50  # far below a transaction's 128: > 128 stale ones blocked TiCDC for good


class ChangefeedReactorState:
    """Of one thread. A ``ReactorState`` by itself, or one of many in a ``GlobalReactorState``."""

    def __init__(self, cluster_id: str, name: ChangefeedName) -> None:
        self.name = name
        self.info: ChangefeedInfo | None = None
        self.status: ChangefeedStatus | None = None
        self.schedule: ScheduleRow | None = None
        self.task_positions: dict[CaptureID, TaskPosition] = {}
        self.last_reports: dict[CaptureID, TaskPosition] = {}  # what was seen last, taken or not
        self.broken: dict[str, str] = {}  # key -> why its value is not understood; the last counts
        self._cluster_id = cluster_id
        self._created = ABSENT  # the info
        self._scheduled = ABSENT  # the row, last
        self._tick_patches: list[Patch] = []
        self._groups: list[PatchGroup] = []
        self._of_epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether etcd has nothing of it."""
        return not (self.info or self.status or self.schedule or self.task_positions or self.broken)

    @property
    def uuid(self) -> ChangefeedUUID:
        """Of this life; 0 without an info."""
        return ChangefeedUUID(self._created)

    @property
    def stored(self) -> Stored | None:
        """All of it, as a querier has it; None without an info."""
        if self.info is None:
            return None
        return Stored(
            ident=ChangefeedIdent(uuid=self.uuid, name=self.name),
            info=self.info,
            status=self.status,
            row=self.schedule or NO_ROW,
            row_revision=self._scheduled,
        )

    def update(self, update: Update) -> None:
        """Take over a key; one of another changefeed, or of no kind that we know, is passed by."""
        parsed = keys.parse_key(self._cluster_id, update.key)
        if getattr(parsed, "name", None) != self.name:
            return
        self.broken.pop(update.key, None)
        try:
            self._take_in(parsed, update)
        except BrokenValue as error:
            self.broken[update.key] = str(error)

    def _take_in(self, parsed: keys.Parsed | None, update: Update) -> None:
        value = update.value
        match parsed:
            case keys.ChangefeedInfoOf():
                self.info = _load(ChangefeedInfo, value)
                self._created = update.create_revision
            case keys.ChangefeedStatusOf():
                self.status = _load(ChangefeedStatus, value)
            case keys.ScheduleOf():
                self.schedule = _load(ScheduleRow, value)
                self._scheduled = update.mod_revision
            case keys.TaskPositionOf(capture_id, _) if value is None:
                self.task_positions.pop(capture_id, None)
                self.last_reports.pop(capture_id, None)
            case keys.TaskPositionOf(capture_id, _):
                position = load(TaskPosition, value or b"")
                last = self.last_reports.get(capture_id, position)
                self.task_positions[capture_id] = position
                self.last_reports[capture_id] = replace(
                    position,
                    error=position.error or last.error,
                    warning=position.warning or last.warning,
                )
            case _:
                pass

    def update_pending_change(self, now_s: float) -> None:
        """Nothing here waits for its time."""

    def take_patches(self) -> list[PatchGroup]:
        """The groups that were added, then all single patches of the tick as one group."""
        groups, self._groups = self._groups, []
        patches, self._tick_patches = self._tick_patches, []
        epoch, self._of_epoch = self._of_epoch, None
        if not patches:
            return groups
        if epoch is not None:
            return [*groups, gated(self._info_key, runs_in(epoch), patches)]
        return [*groups, tuple(patches)]

    def patch(self, *patches: Patch) -> None:
        """Have them in this tick's one transaction for the changefeed.

        If one of them refuses on the newest values, it and those after it of this call are left
        out: a refusal is no reason to end the worker, the next tick sees what has changed.
        """
        self._tick_patches += unless_refused(patches)

    def add_group(self, *groups: PatchGroup) -> None:
        """Have each in one transaction, apart from the tick's patches and before them; one that
        refuses does nothing."""
        self._groups += (unless_refused(group) for group in groups)

    def only_in_epoch(self, epoch: int) -> None:
        """Drop this tick's patches if the changefeed does not run in that epoch when they are
        committed: what is reported late is of a run that is over, or of a changefeed that is gone.

        Decided on the newest info each time the patches are run, and compared at the commit. (TiCDC
        remembers a stop that it saw, and drops patches of a changefeed resumed since.)
        """
        self._of_epoch = epoch

    def patch_task_position(
        self, capture_id: CaptureID, change: Callable[[TaskPosition | None], TaskPosition | None]
    ) -> None:
        """Change what a capture reports; None deletes it."""
        self.patch(self._position_patch(capture_id, change))

    def take_processor_errors(self) -> list[RunningError]:
        """What captures reported, one of each code; it is cleared in etcd with this tick."""
        return self._take_reports("error")

    def take_processor_warnings(self) -> list[RunningError]:
        return self._take_reports("warning")

    def remove_stale_positions(self, alive: Collection[CaptureID]) -> None:
        """Delete what dead captures reported, and all that is left of a changefeed that is gone,
        in groups of their own."""
        is_gone = self.info is None and self._info_key not in self.broken
        stale = sorted(set(self.task_positions).difference(() if is_gone else alive))
        for start in range(0, len(stale), POSITIONS_PER_GROUP):
            part = stale[start : start + POSITIONS_PER_GROUP]
            self.add_group(tuple(self._position_patch(each, lambda _old: None) for each in part))

    @property
    def _info_key(self) -> str:
        return keys.changefeed_info_key(self._cluster_id, self.name)

    def _take_reports(self, which: Literal["error", "warning"]) -> list[RunningError]:
        found: dict[str, RunningError] = {}
        for capture_id, position in sorted(self.task_positions.items()):
            report: RunningError | None = getattr(position, which)
            if report is not None:
                found.setdefault(report.code, report)
                self.patch_task_position(capture_id, _clear(which, report))
        return list(found.values())

    def _position_patch(
        self, capture_id: CaptureID, change: Callable[[TaskPosition | None], TaskPosition | None]
    ) -> Patch:
        key = keys.task_position_key(self._cluster_id, capture_id, self.name)
        return record_patch(key, TaskPosition, change)


def _clear(
    which: Literal["error", "warning"], taken: RunningError
) -> Callable[[TaskPosition | None], TaskPosition | None]:
    """Only what was taken: a newer report that came in between is for the next tick."""

    def change(position: TaskPosition | None) -> TaskPosition | None:
        if position is None or getattr(position, which) != taken:
            return position
        if which == "error":
            return replace(position, error=None)
        return replace(position, warning=None)

    return change


def _load(kind: type[R], value: bytes | None) -> R | None:
    return None if value is None else load(kind, value)
