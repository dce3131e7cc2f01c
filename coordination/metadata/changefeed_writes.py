"""Metadata in etcd: the only place that builds writes of info, status and schedule.

Here are the writes, as groups of patches; who commits them is an EtcdWorker with its tick, or
`commit_once` for an operator. Each group first reads the schedule row, which must be the one that
its maker knows, and still be it at the commit:

    of a life    the row's `creation_epoch`: not of a changefeed that was made anew under this name
    of a launch  its owner, its state LAUNCHED and its `launches` too: the fence of an owner

What refuses comes before what changes, so a group is done wholly or not at all. In a tick, where a
refusal would end the worker, the reactor states wrap it in `unless_refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.errors import (
    ChangefeedExists,
    ChangefeedNotFound,
    ChangefeedUpdateRefused,
    InvalidSchedule,
    MetadataError,
    NotLaunched,
)
from coordination.metadata.feed_state import (
    ADMIN_JOB_WRITTEN,
    NEW_EPOCH,
    TRANSITIONS,
    Decision,
    FeedEvent,
    known_state,
    next_state,
)
from coordination.metadata.model import (
    NO_PROGRESS,
    NO_ROW,
    AdminJobType,
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    Record,
    SchedState,
    ScheduleRow,
)
from coordination.metadata.record_patch import deleted, only_in_epoch, record_patch
from coordination.model import CaptureID, Ts
from coordination.orchestrator.transaction import Patch, PatchGroup

R = TypeVar("R", bound=Record)
POSITIONS_PER_GROUP = 50  # far below a transaction's 128: > 128 stale ones blocked TiCDC for good


class NextEpoch:
    """The epoch that a group gives out: above the last one, and above the info's own."""

    def __init__(self, cluster_id: str) -> None:
        self.floor = 0
        self.value = 0
        self.patch = Patch(keys.epoch_key(cluster_id), self._count)

    def _count(self, old: bytes | None) -> bytes:
        self.value = max(int(old or b"0"), self.floor) + 1
        return str(self.value).encode()


def create_writes(cluster_id: str, info: ChangefeedInfo) -> PatchGroup:
    """Info, status and schedule of a changefeed that is not there yet, in state normal and owned by
    nobody. Raises ``ChangefeedExists``, also for a removed one that is not cleaned up."""
    epoch, name = NextEpoch(cluster_id), info.name
    begun = ChangefeedStatus(checkpoint_ts=info.start_ts, min_table_barrier_ts=info.start_ts)
    wanted = replace(info, state=FeedState.NORMAL, admin_job_type=AdminJobType.NONE)

    def new(key: str, kind: type[R], make: Callable[[], R]) -> Patch:
        def change(old: R | None) -> R:
            if old is not None:
                raise ChangefeedExists(f"there is a changefeed {name}, or what is left of one")
            return make()

        return record_patch(key, kind, change)

    return (
        epoch.patch,
        new(
            keys.changefeed_info_key(cluster_id, name),
            ChangefeedInfo,
            lambda: replace(wanted, epoch=epoch.value).started(epoch.value),
        ),
        new(keys.changefeed_status_key(cluster_id, name), ChangefeedStatus, lambda: begun),
        new(
            keys.schedule_key(cluster_id, name),
            ScheduleRow,
            lambda: ScheduleRow(task_position=begun, creation_epoch=epoch.value),
        ),
    )


def anew_writes(
    cluster_id: str, info: ChangefeedInfo, reporting: Iterable[CaptureID]
) -> PatchGroup:
    """The same by who is alone with it, whatever is there: what ``reporting`` told is dropped. Of
    its checkpoint Delta knows, and its first owner waits for nobody's end."""
    epoch, name = NextEpoch(cluster_id), info.name

    def made(old: ChangefeedInfo | None) -> ChangefeedInfo:
        epoch.floor = old.epoch if old is not None else 0
        return replace(info, epoch=epoch.value).started(epoch.value)

    def row(_old: ScheduleRow | None) -> ScheduleRow:
        return ScheduleRow(creation_epoch=epoch.value)

    status_key = keys.changefeed_status_key(cluster_id, name)
    return (
        epoch.patch,
        record_patch(keys.changefeed_info_key(cluster_id, name), ChangefeedInfo, made),
        record_patch(status_key, ChangefeedStatus, lambda _old: NO_PROGRESS),
        record_patch(keys.schedule_key(cluster_id, name), ScheduleRow, row),
        *(deleted(keys.task_position_key(cluster_id, each, name)) for each in reporting),
    )


def offline_writes(
    cluster_id: str, capture_id: CaptureID, releases: Iterable[PatchGroup]
) -> list[PatchGroup]:
    """Release what a capture owned, then forget what it reported. Refused while it is registered:
    it is alive then, and keeps what it owns."""

    def refuse_alive(old: bytes | None) -> None:
        if old is not None:
            raise MetadataError(f"the capture {capture_id} is registered")

    gone = Patch(keys.capture_key(cluster_id, capture_id), refuse_alive, is_compared=True)
    forgotten = (deleted(keys.capture_progress_key(cluster_id, capture_id)),)
    return [(gone, *group) for group in (*releases, forgotten)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedWrites:
    """Of the life of a changefeed that the row is of; with `by_owner` of that launch. Pure."""

    cluster_id: str
    name: ChangefeedName
    row: ScheduleRow
    by_owner: bool = False

    def feed_event(self, decision: Decision) -> PatchGroup:
        """Move the state, with all that goes with it; ``InvalidTransition`` where the state has no
        such way."""
        target = next(iter(TRANSITIONS[decision.event].values()))
        epoch = NextEpoch(self.cluster_id)

        def check(info: ChangefeedInfo) -> ChangefeedInfo:
            epoch.floor = info.epoch
            next_state(known_state(info), decision.event)
            return info

        return (
            self._known_row(),
            self._info(check),
            *((epoch.patch,) if decision.event in NEW_EPOCH else ()),
            self._info(lambda info: _info_after(info, target, decision, epoch.value)),
            self._status(lambda old: _status_after(old, target, decision.overwrite_checkpoint_ts)),
        )

    def remove(self) -> PatchGroup:
        """Mark it as removed, and have its owner stop."""

        def stop(row: ScheduleRow) -> ScheduleRow:
            return row.stopped() if row.owner_state is SchedState.LAUNCHED else row

        return (*self.feed_event(Decision(event=FeedEvent.REMOVE)), self._row(stop))

    def cleanup(self, reporting: Iterable[CaptureID]) -> list[PatchGroup]:
        """Delete all that is stored of a removed changefeed whose owner has stopped; what captures
        reported in groups of their own, and first."""

        def check_removed(info: ChangefeedInfo) -> ChangefeedInfo:
            if info.state is not FeedState.REMOVED:
                raise ChangefeedUpdateRefused(
                    f"changefeed {self.name} is not removed: do that first"
                )
            return info

        def check_released(row: ScheduleRow) -> ScheduleRow:
            if row.owner_state is not SchedState.REMOVED:
                raise InvalidSchedule(f"changefeed {self.name} still has an owner: {row.owner}")
            return row

        removed = (self._known_row(), self._info(check_removed), self._row(check_released))
        positions = [
            deleted(keys.task_position_key(self.cluster_id, each, self.name)) for each in reporting
        ]
        starts = range(0, len(positions), POSITIONS_PER_GROUP)
        stored = (self._status_key, self._row_key, self._info_key)
        return [
            *((*removed, *positions[start : start + POSITIONS_PER_GROUP]) for start in starts),
            (*removed, *(deleted(key) for key in stored)),
        ]

    def launch(self, owner: CaptureID) -> PatchGroup:
        """Launch it at who asks: the guards of its writes say that it is registered and leads."""

        def check(info: ChangefeedInfo) -> ChangefeedInfo:
            if info.state is FeedState.REMOVED:
                raise InvalidSchedule(f"{self.name} is removed: it is not launched any more")
            return info

        return (self._known_row(), self._info(check), self._row(lambda row: row.launched(owner)))

    def stop_owner(self) -> PatchGroup:
        return (self._known_row(), self._row(ScheduleRow.stopped))

    def release(self, owner: CaptureID, position: ChangefeedStatus | None) -> PatchGroup:
        """That owner has ended, and had come so far (None: as far as the row says)."""
        return (self._known_row(), self._row(lambda row: row.released(owner, position)))

    def update(self, wanted: ChangefeedInfo) -> PatchGroup:
        """Replace what was asked for, of one that is paused; what it *is* stays."""

        def change(info: ChangefeedInfo) -> ChangefeedInfo:
            check_updatable(info)
            return replace(
                info,
                upstream_id=wanted.upstream_id,
                sink_uri=wanted.sink_uri,
                target_ts=wanted.target_ts,
                sort_engine=wanted.sort_engine,
                sort_dir=wanted.sort_dir,
                config=wanted.config,
            )

        return (self._known_row(), self._info(change))

    def advance_checkpoint(
        self, checkpoint_ts: Ts, min_table_barrier_ts: Ts, epoch: int
    ) -> PatchGroup:
        """How far the run of that epoch is. Nothing if it runs no more; never back."""

        def change(old: ChangefeedStatus | None) -> ChangefeedStatus:
            before = old or NO_PROGRESS
            if checkpoint_ts < before.checkpoint_ts:
                return before
            return replace(
                before, checkpoint_ts=checkpoint_ts, min_table_barrier_ts=min_table_barrier_ts
            )

        return (self._known_row(), *only_in_epoch(self._info_key, epoch, self._status(change)))

    @property
    def _info_key(self) -> str:
        return keys.changefeed_info_key(self.cluster_id, self.name)

    @property
    def _status_key(self) -> str:
        return keys.changefeed_status_key(self.cluster_id, self.name)

    @property
    def _row_key(self) -> str:
        return keys.schedule_key(self.cluster_id, self.name)

    def _known_row(self) -> Patch:
        """It is of the life, and of the launch, that these writes are of."""

        def check(row: ScheduleRow) -> ScheduleRow:
            if row.creation_epoch != self.row.creation_epoch:
                raise ChangefeedNotFound(f"that life of changefeed {self.name} is over")
            launch = (self.row.owner, SchedState.LAUNCHED, self.row.launches)
            if self.by_owner and (row.owner, row.owner_state, row.launches) != launch:
                raise NotLaunched(
                    f"changefeed {self.name} is not launched at {self.row.owner} any more: it is "
                    f"{row.owner_state} at {row.owner}"
                )
            return row

        return self._row(check)

    def _row(self, change: Callable[[ScheduleRow], ScheduleRow]) -> Patch:
        """A change, or a look that raises to refuse: what was read must still be so at the commit.
        A changefeed that TiCDC's tools made has no row, until it gets another one here."""

        def change_or_make(old: ScheduleRow | None) -> ScheduleRow | None:
            row = change(old or NO_ROW)
            return old if row == (old or NO_ROW) else row

        return record_patch(self._row_key, ScheduleRow, change_or_make, is_compared=True)

    def _info(self, change: Callable[[ChangefeedInfo], ChangefeedInfo]) -> Patch:
        """The same of the info, which must be there."""

        def change_found(info: ChangefeedInfo | None) -> ChangefeedInfo:
            if info is None:
                raise ChangefeedNotFound(f"there is no changefeed {self.name} any more")
            return change(info)

        return record_patch(self._info_key, ChangefeedInfo, change_found, is_compared=True)

    def _status(
        self, change: Callable[[ChangefeedStatus | None], ChangefeedStatus | None]
    ) -> Patch:
        return record_patch(self._status_key, ChangefeedStatus, change)


def check_updatable(info: ChangefeedInfo) -> None:
    """Raise ``ChangefeedUpdateRefused`` unless nothing runs by what it says."""
    if info.state not in (FeedState.STOPPED, FeedState.FAILED):
        raise ChangefeedUpdateRefused(
            f"changefeed {info.name} is in state {known_state(info)}: pause it first"
        )


def _info_after(
    info: ChangefeedInfo, state: FeedState, decision: Decision, epoch: int
) -> ChangefeedInfo:
    overwrite = decision.overwrite_checkpoint_ts
    after = replace(
        info,
        state=state,
        admin_job_type=ADMIN_JOB_WRITTEN[state],
        epoch=epoch or info.epoch,
    )
    if overwrite is not None:
        after = replace(after, start_ts=overwrite).started(after.epoch)
    if state is FeedState.NORMAL:
        return replace(after, error=None, warning=None)
    if decision.error is None:
        return after
    if decision.event is FeedEvent.WARNING:
        return replace(after, warning=decision.error)
    return replace(after, error=decision.error)


def _status_after(
    status: ChangefeedStatus | None, state: FeedState, overwrite: Ts | None
) -> ChangefeedStatus | None:
    if overwrite is not None:
        status = replace(
            status or NO_PROGRESS, checkpoint_ts=overwrite, min_table_barrier_ts=overwrite
        )
    return status and replace(status, admin_job_type=ADMIN_JOB_WRITTEN[state])
