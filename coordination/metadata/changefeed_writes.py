"""Metadata in etcd: the only place that builds writes of info, status and schedule.

Here are the writes, as groups of patches; who commits them is an EtcdWorker's tick, or a
`Committer` on behalf of the observations (`etcd_observation.py`). Each group first reads the
schedule row, which must be the one that its maker knows, and still be it at the commit:

    of a life    the row's `creation_epoch`: not of a changefeed that was made anew under this name
    of a launch  its owner, its state LAUNCHED and its `launches` too: the fence of an owner

What refuses comes before what changes, so a group is done wholly or not at all. In a tick, where a
refusal would end the worker, the reactor states wrap it in `unless_refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.capture_writes import LastProgress, capture_gone, capture_read
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
    AdminJobType,
    ChangefeedInfo,
    ChangefeedProgress,
    ChangefeedStatus,
    ChangefeedUUID,
    FeedState,
    Record,
    TaskPosition,
    UpstreamInfo,
)
from coordination.metadata.querier import NO_ROW
from coordination.metadata.record_patch import gated, record_patch, record_read, runs_in
from coordination.metadata.schedule import SchedState, ScheduledChangefeed, ScheduleRow
from coordination.model import CaptureID, Ts
from coordination.orchestrator.patch import Patch, PatchGroup

POSITIONS_PER_GROUP = 50  # far below a transaction's 128


class NextEpoch:
    """The epoch that a group gives out: above the last one, and above the info's own."""

    def __init__(self, cluster_id: str) -> None:
        self.floor = 0
        self.value = 0
        self.patch = Patch(keys.epoch_key(cluster_id), self._count)

    def _count(self, old: bytes | None) -> bytes:
        self.value = max(int(old or b"0"), self.floor) + 1
        return str(self.value).encode()


def create_writes(
    cluster_id: str, info: ChangefeedInfo, upstream: UpstreamInfo | None
) -> PatchGroup:
    """Info, status, schedule (and upstream) of a changefeed that is not there yet."""
    epoch = NextEpoch(cluster_id)
    begun = ChangefeedStatus(checkpoint_ts=info.start_ts, min_table_barrier_ts=info.start_ts)
    wanted = replace(info, state=FeedState.NORMAL, admin_job_type=AdminJobType.NONE)

    def refuse(found: Record | None) -> None:
        if found is not None:
            raise ChangefeedExists(f"there is a changefeed {info.name}, or what is left of one")

    info_key = keys.changefeed_info_key(cluster_id, info.name)
    status_key = keys.changefeed_status_key(cluster_id, info.name)
    row_key = keys.schedule_key(cluster_id, info.name)
    return (
        record_read(info_key, ChangefeedInfo, refuse),
        record_read(status_key, ChangefeedStatus, refuse),
        record_read(row_key, ScheduleRow, refuse),
        *_upstream_patches(cluster_id, info, upstream),
        epoch.patch,
        record_patch(
            info_key,
            ChangefeedInfo,
            lambda _old: replace(wanted, epoch=epoch.value).started(epoch.value),
        ),
        record_patch(status_key, ChangefeedStatus, lambda _old: begun),
        record_patch(
            row_key,
            ScheduleRow,
            lambda _old: ScheduleRow(task_position=begun, creation_epoch=epoch.value),
        ),
    )


def anew_writes(
    cluster_id: str, info: ChangefeedInfo, reporting: Sequence[CaptureID]
) -> PatchGroup:
    """The same by who is alone with it, whatever is there: what ``reporting`` told is dropped. Of
    its checkpoint Delta knows, and its first owner waits for nobody's end."""
    epoch, name = NextEpoch(cluster_id), info.name

    def made(old: ChangefeedInfo | None) -> ChangefeedInfo:
        epoch.floor = old.epoch if old is not None else 0
        return replace(info, epoch=epoch.value).started(epoch.value)

    def row(_old: ScheduleRow | None) -> ScheduleRow:
        return ScheduleRow(creation_epoch=epoch.value)

    told = [keys.task_position_key(cluster_id, each, name) for each in reporting]
    status_key = keys.changefeed_status_key(cluster_id, name)
    return (
        epoch.patch,
        record_patch(keys.changefeed_info_key(cluster_id, name), ChangefeedInfo, made),
        record_patch(status_key, ChangefeedStatus, lambda _old: NO_PROGRESS),
        record_patch(keys.schedule_key(cluster_id, name), ScheduleRow, row),
        *(record_patch(key, TaskPosition, lambda _old: None) for key in told),
    )


def _upstream_patches(
    cluster_id: str, info: ChangefeedInfo, upstream: UpstreamInfo | None
) -> tuple[Patch, ...]:
    if upstream is None:
        return ()

    def change(old: UpstreamInfo | None) -> UpstreamInfo:
        if old is not None and replace(old, unknown={}) != replace(upstream, unknown={}):
            raise MetadataError(f"the upstream {upstream.id} is known with other addresses")
        return old or upstream

    key = keys.upstream_key(cluster_id, upstream.id, info.namespace)
    return (record_patch(key, UpstreamInfo, change, is_compared=True),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedWrites:
    """Of one life of a changefeed, or of one launch of it if `owner` is given. Pure."""

    cluster_id: str
    name: ChangefeedName
    creation_epoch: int
    owner: CaptureID | None = None
    launches: int = 0

    @classmethod
    def of(
        cls,
        cluster_id: str,
        name: ChangefeedName,
        row: ScheduleRow | None,
        owner: CaptureID | None = None,
    ) -> ChangefeedWrites:
        """Of the life that the row is of; `owner` makes them of its present launch."""
        known = row or NO_ROW
        return cls(
            cluster_id=cluster_id,
            name=name,
            creation_epoch=known.creation_epoch,
            owner=owner,
            launches=known.launches if owner else 0,
        )

    def feed_event(self, decision: Decision) -> PatchGroup:
        """Move the state, with all that goes with it; refused where the state has no such way."""
        target = next(iter(TRANSITIONS[decision.event].values()))
        epoch = NextEpoch(self.cluster_id)

        def check(info: ChangefeedInfo | None) -> None:
            epoch.floor = self._found(info).epoch
            next_state(known_state(self._found(info)), decision.event)

        def change(info: ChangefeedInfo | None) -> ChangefeedInfo:
            return _after(self._found(info), target, decision, epoch.value)

        return (
            self._row_read(),
            record_read(self._info_key, ChangefeedInfo, check),
            *((epoch.patch,) if decision.event in NEW_EPOCH else ()),
            record_patch(self._info_key, ChangefeedInfo, change),
            record_patch(
                self._status_key,
                ChangefeedStatus,
                lambda old: _status_after(old, target, decision.overwrite_checkpoint_ts),
            ),
        )

    def remove(self) -> PatchGroup:
        """Mark it as removed, and have its owner stop."""

        def stop(row: ScheduleRow | None) -> ScheduleRow | None:
            if row is None or row.state is not SchedState.LAUNCHED:
                return row
            return replace(row, owner_state=str(SchedState.REMOVING))

        event = self.feed_event(Decision(event=FeedEvent.REMOVE))
        return (*event, record_patch(self._row_key, ScheduleRow, stop))

    def cleanup(self, positions: Sequence[CaptureID]) -> list[PatchGroup]:
        """Delete it; what captures reported in groups of their own, and first."""
        removed = (
            self._row_read(self._check_released),
            record_read(self._info_key, ChangefeedInfo, self._check_removed),
        )
        position_keys = [
            keys.task_position_key(self.cluster_id, each, self.name) for each in positions
        ]
        deletes = [record_patch(key, TaskPosition, lambda _old: None) for key in position_keys]
        starts = range(0, len(deletes), POSITIONS_PER_GROUP)
        return [
            *((*removed, *deletes[start : start + POSITIONS_PER_GROUP]) for start in starts),
            (
                *removed,
                record_patch(self._status_key, ChangefeedStatus, lambda _old: None),
                record_patch(self._row_key, ScheduleRow, lambda _old: None),
                record_patch(self._info_key, ChangefeedInfo, lambda _old: None),
            ),
        ]

    def set_owner(self, target: ScheduledChangefeed) -> PatchGroup:
        """Launch at a registered capture, or have the owner stop."""
        if target.owner_state not in (SchedState.LAUNCHED, SchedState.REMOVING):
            raise InvalidSchedule(
                f"{self.name} can be launched or removed, not set to {target.owner_state}"
            )
        is_launch = target.owner_state is SchedState.LAUNCHED

        def check(info: ChangefeedInfo | None) -> None:
            if is_launch and self._found(info).state is FeedState.REMOVED:
                raise InvalidSchedule(f"{self.name} is removed: it is not launched any more")

        return (
            self._row_read(),
            record_read(self._info_key, ChangefeedInfo, check),
            *((capture_read(self.cluster_id, target.owner),) if is_launch and target.owner else ()),
            record_patch(self._row_key, ScheduleRow, lambda row: (row or NO_ROW).moved(target)),
        )

    def update(self, wanted: ChangefeedInfo) -> PatchGroup:
        """Replace what was asked for, of one that is paused; what it *is* stays."""

        def change(info: ChangefeedInfo | None) -> ChangefeedInfo:
            old = self._found(info)
            check_updatable(old)
            return replace(
                old,
                upstream_id=wanted.upstream_id,
                sink_uri=wanted.sink_uri,
                target_ts=wanted.target_ts,
                sort_engine=wanted.sort_engine,
                sort_dir=wanted.sort_dir,
                config=wanted.config,
            )

        return (self._row_read(), record_patch(self._info_key, ChangefeedInfo, change))

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

        patch = record_patch(self._status_key, ChangefeedStatus, change)
        return (self._row_read(), *gated(self._info_key, runs_in(epoch), [patch]))

    def release(
        self, owner: CaptureID, position: Callable[[], ChangefeedProgress | None]
    ) -> PatchGroup:
        """That owner has ended, and had come so far (None: as far as the row says)."""

        def change(row: ScheduleRow | None) -> ScheduleRow:
            if row is None or row.owner != owner or row.state is SchedState.REMOVED:
                raise NotLaunched(f"changefeed {self.name} is not owned by the capture {owner}")
            return replace(
                row,
                owner=None,
                owner_state=str(SchedState.REMOVED),
                task_position=position() or row.task_position,
            )

        check = replace(self, owner=None)._row_read()
        return (check, record_patch(self._row_key, ScheduleRow, change))

    @property
    def _info_key(self) -> str:
        return keys.changefeed_info_key(self.cluster_id, self.name)

    @property
    def _status_key(self) -> str:
        return keys.changefeed_status_key(self.cluster_id, self.name)

    @property
    def _row_key(self) -> str:
        return keys.schedule_key(self.cluster_id, self.name)

    def _row_read(self, check: Callable[[ScheduleRow], None] = lambda _row: None) -> Patch:
        def look(found: ScheduleRow | None) -> None:
            row = found or NO_ROW
            if row.creation_epoch != self.creation_epoch:
                raise ChangefeedNotFound(f"that life of changefeed {self.name} is over")
            launch = (self.owner, SchedState.LAUNCHED, self.launches)
            if self.owner is not None and (row.owner, row.state, row.launches) != launch:
                raise NotLaunched(
                    f"changefeed {self.name} is not launched at {self.owner} any more: it is "
                    f"{row.state} at {row.owner}"
                )
            check(row)

        return record_read(self._row_key, ScheduleRow, look)

    def _found(self, info: ChangefeedInfo | None) -> ChangefeedInfo:
        if info is None:
            raise ChangefeedNotFound(f"there is no changefeed {self.name} any more")
        return info

    def _check_released(self, row: ScheduleRow) -> None:
        if row.state is not SchedState.REMOVED:
            raise InvalidSchedule(f"changefeed {self.name} still has an owner: {row.owner}")

    def _check_removed(self, info: ChangefeedInfo | None) -> None:
        if self._found(info).state is not FeedState.REMOVED:
            raise ChangefeedUpdateRefused(f"changefeed {self.name} is not removed: do that first")


def check_updatable(info: ChangefeedInfo) -> None:
    """Raise ``ChangefeedUpdateRefused`` unless nothing runs by what it says."""
    if info.state not in (FeedState.STOPPED, FeedState.FAILED):
        raise ChangefeedUpdateRefused(
            f"changefeed {info.name} is in state {known_state(info)}: pause it first"
        )


def _after(
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


def offline_writes(
    cluster_id: str, capture_id: CaptureID, owned: Sequence[tuple[ChangefeedWrites, ChangefeedUUID]]
) -> list[PatchGroup]:
    """Release what a capture owned (with its UUID), each with the progress that it last reported;
    then forget that. Refused while it is registered."""
    gone = capture_gone(cluster_id, capture_id)
    progress_key = keys.capture_progress_key(cluster_id, capture_id)
    groups: list[PatchGroup] = []
    for writes, uuid in owned:
        last = LastProgress(progress_key, uuid)
        groups.append((gone, last.read, *writes.release(capture_id, last.position)))
    return [*groups, (gone, Patch(progress_key, lambda _old: None))]
