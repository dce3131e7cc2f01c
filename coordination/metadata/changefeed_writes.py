"""Metadata in etcd: the only place that builds writes of info, status and schedule.

The writes are groups of patches. They are committed by an EtcdWorker after its tick, or by
`commit_once` for an operator. A write to an existing changefeed first reads the schedule row. It is
refused unless the row, at the commit, still agrees with the one that the caller has read:

    always      in `creation_epoch`: else the changefeed was created anew under its name
    by_owner    in owner, LAUNCHED and `launches` too: else the owner that writes was replaced

A group is written wholly or not at all. For an operator a refusal is an error; after a tick the
group is dropped, and the next tick decides again.
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
from coordination.metadata.record_patch import deleted, only_in_epoch, record_patch, unless_broken
from coordination.metadata.records import (
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
from coordination.model import CaptureID, Ts
from coordination.orchestrator.transaction import Patch, PatchGroup

R = TypeVar("R", bound=Record)
POSITIONS_PER_GROUP = 50  # far below etcd's 128: more stale positions than that blocked TiCDC


class NextEpoch:
    """Gives out a new changefeed epoch in a group of patches: above the last epoch of the cluster's
    counter, and above `floor`, the epoch in the changefeed's info.

    `patch` counts the key up and sets `value`; patches after it in the group use `value`.
    """

    def __init__(self, cluster_id: str) -> None:
        self.floor = 0
        self.value = 0
        self.patch = Patch(keys.epoch_key(cluster_id), self._count)

    def _count(self, old: bytes | None) -> bytes:
        self.value = max(int(old or b"0"), self.floor) + 1
        return str(self.value).encode()


def create_writes(cluster_id: str, info: ChangefeedInfo) -> PatchGroup:
    """Creates info, status and schedule row of a new changefeed, in state normal and without an
    owner. The commit raises ``ChangefeedExists`` if the name is taken, also by a removed changefeed
    that is not cleaned up yet."""
    epoch, name = NextEpoch(cluster_id), info.name
    begun = ChangefeedStatus(checkpoint_ts=info.start_ts, min_table_barrier_ts=info.start_ts)
    wanted = replace(info, state=FeedState.NORMAL, admin_job_type=AdminJobType.NONE)

    def new(key: str, kind: type[R], make: Callable[[], R]) -> Patch:
        def change(old: R | None) -> R:
            if old is not None:
                raise ChangefeedExists(f"a changefeed {name} exists, or is not cleaned up yet")
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
            lambda: ScheduleRow(creation_epoch=epoch.value),
        ),
    )


def anew_writes(
    cluster_id: str, info: ChangefeedInfo, reporting: Iterable[CaptureID]
) -> PatchGroup:
    """Writes info, status and schedule row anew over whatever is there, for a process that is alone
    with the changefeed. The reports of the captures in ``reporting`` are deleted.

    The status starts empty, since Delta knows the checkpoint; the row names no owner, so that the
    first owner need not wait until another one has ended."""
    epoch, name = NextEpoch(cluster_id), info.name

    def made(_old: ChangefeedInfo | None) -> ChangefeedInfo:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedWrites:
    """The writes to one changefeed, for as long as it is the one that `row` was read of (the same
    `creation_epoch`); with `by_owner`, only while the launch in `row` lasts.

    Pure: each method returns groups of patches. The errors in a docstring are raised at the commit.
    All raise ``ChangefeedNotFound`` if the changefeed was deleted or created anew, and with
    `by_owner` ``NotLaunched`` if the launch is over.
    """

    cluster_id: str
    name: ChangefeedName
    row: ScheduleRow
    by_owner: bool = False

    def feed_event(self, decision: Decision) -> PatchGroup:
        """Move the state, and change error, warning, epoch and checkpoint as the decision says.
        Raises ``InvalidTransition`` if the event is not possible in the present state."""
        target = next(iter(TRANSITIONS[decision.event].values()))
        epoch = NextEpoch(self.cluster_id)

        def check(info: ChangefeedInfo) -> ChangefeedInfo:
            epoch.floor = info.epoch
            next_state(known_state(info), decision.event)
            return info

        overwrite = decision.overwrite_checkpoint_ts
        status = self._status(lambda old: _status_after(old, target, overwrite))
        return (
            self._known_row(),
            self._info(check),
            *((epoch.patch,) if decision.event in NEW_EPOCH else ()),
            self._info(lambda info: _info_after(info, target, decision, epoch.value)),
            unless_broken(status) if self.by_owner else status,
        )

    def remove(self) -> PatchGroup:
        """Mark the changefeed as removed, and tell its owner to stop."""

        def stop(row: ScheduleRow) -> ScheduleRow:
            return row.stopped() if row.owner_state is SchedState.LAUNCHED else row

        return (*self.feed_event(Decision(event=FeedEvent.REMOVE)), self._row(stop))

    def cleanup(self, reporting: Iterable[CaptureID]) -> list[PatchGroup]:
        """Delete all keys of a removed changefeed whose owner has stopped. The reports of the
        captures in `reporting` are deleted first, in groups of their own. Raises
        ``ChangefeedUpdateRefused`` if the changefeed is not removed, ``InvalidSchedule`` if it has
        an owner."""

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
        """Make `owner`, the capture that writes this, the owner of the changefeed. That it is
        registered and elected, the guards of its EtcdWorker check. Raises ``InvalidSchedule`` if
        the changefeed is removed, or has an owner."""

        def check(info: ChangefeedInfo) -> ChangefeedInfo:
            if info.state is FeedState.REMOVED:
                raise InvalidSchedule(f"{self.name} is removed: it is not launched any more")
            return info

        return (self._known_row(), self._info(check), self._row(lambda row: row.launched(owner)))

    def stop_owner(self) -> PatchGroup:
        return (self._known_row(), self._row(ScheduleRow.stopped))

    def release(self, owner: CaptureID) -> PatchGroup:
        """Record that `owner` has ended. Raises ``NotLaunched`` if it does not own the
        changefeed."""
        return (self._known_row(), self._row(lambda row: row.released(owner)))

    def release_dead(self, owner: CaptureID) -> PatchGroup:
        """The same for an owner that is dead. Raises ``MetadataError`` while it is registered: then
        it is alive, and keeps its changefeeds."""

        def refuse_alive(old: bytes | None) -> None:
            if old is not None:
                raise MetadataError(f"the capture {owner} is registered")

        gone = Patch(keys.capture_key(self.cluster_id, owner), refuse_alive, is_compared=True)
        return (gone, *self.release(owner))

    def update(self, wanted: ChangefeedInfo) -> PatchGroup:
        """Replace the parts of a paused changefeed that a user may change (its URI, target-ts,
        config); its identity and its state stay. Raises ``ChangefeedUpdateRefused`` unless it is
        stopped, failed or finished."""

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
        self, checkpoint_ts: Ts, min_table_barrier_ts: Ts, epoch: int, *, awaits: str = ""
    ) -> PatchGroup:
        """Write the checkpoint of the run of that epoch, and the sentence that says what it awaits.
        Does nothing if that run is over, or if the stored checkpoint is higher."""

        def change(old: ChangefeedStatus | None) -> ChangefeedStatus:
            before = old or NO_PROGRESS
            if checkpoint_ts < before.checkpoint_ts:
                return before
            return replace(
                before.awaiting(awaits),
                checkpoint_ts=checkpoint_ts,
                min_table_barrier_ts=min_table_barrier_ts,
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
        """Reads the schedule row, and refuses if the changefeed was created anew since `self.row`
        was read, or (with `by_owner`) if that launch is over."""

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
        """A patch of the schedule row: a change, or a check that raises to refuse. The row that it
        has read must still be there at the commit. A changefeed that TiCDC's tools created has no
        row (``NO_ROW``); the key is written when a change makes another one of it."""

        def change_or_make(old: ScheduleRow | None) -> ScheduleRow | None:
            row = change(old or NO_ROW)
            return old if row == (old or NO_ROW) else row

        return record_patch(self._row_key, ScheduleRow, change_or_make, is_compared=True)

    def _info(self, change: Callable[[ChangefeedInfo], ChangefeedInfo]) -> Patch:
        """The same for the info; raises ``ChangefeedNotFound`` if there is none."""

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
    """Raise ``ChangefeedUpdateRefused`` unless the changefeed is stopped, failed or finished: in
    any other state something may run by the info."""
    if info.state not in (FeedState.STOPPED, FeedState.FAILED, FeedState.FINISHED):
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
    if state in (FeedState.NORMAL, FeedState.FINISHED):
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
