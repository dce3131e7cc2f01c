"""Which capture owns a changefeed, and how that may change.

               set_owner(capture)            set_owner: stop it
    REMOVED ────────────────────► LAUNCHED ────────────────────► REMOVING
       ▲                             │   post_owner_removed, or      │
       └─────────────────────────────┴── its capture is dead ────────┘

Only from REMOVED may it go to another capture: there is no moment with two owners. Owners are
compared by value (TiCDC compares pointers, so equal owners in two rows differ).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from coordination.metadata.errors import InvalidSchedule
from coordination.metadata.model import (
    NO_PROGRESS,
    ChangefeedProgress,
    ChangefeedStatus,
    ChangefeedUUID,
    Record,
)
from coordination.model import CaptureID, Revision

NO_REVISION: Final = Revision(0)


class SchedState(IntEnum):
    INVALID = 0
    REMOVED = 1
    LAUNCHED = 2
    REMOVING = 3

    def __str__(self) -> str:
        return self.name.capitalize()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledChangefeed:
    """One changefeed's schedule. TiCDC has no key for it: the JSON is ours (`ScheduleRow`)."""

    changefeed_uuid: ChangefeedUUID
    owner: CaptureID | None = None
    owner_state: SchedState = SchedState.REMOVED
    processors: str | None = None
    task_position: ChangefeedProgress = NO_PROGRESS
    # Of the row: what each later write of the owner depends on. 0: not read from etcd.
    row_revision: Revision = NO_REVISION  # mod-revision of the row


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow(Record):
    """The value of the schedule key. It is made and deleted with the info, in one transaction.

    `creation_epoch` (the info's first epoch) and `launches` make each launch of each life unlike
    any other *by its value*: who checks the value needs no revision.
    """

    owner: CaptureID | None = None
    owner_state: str = str(SchedState.REMOVED)
    processors: str | None = None
    task_position: ChangefeedStatus = NO_PROGRESS
    creation_epoch: int = 0
    launches: int = 0

    @property
    def state(self) -> SchedState:
        try:
            return SchedState[self.owner_state.upper()]
        except KeyError:
            return SchedState.INVALID

    def scheduled(self, uuid: ChangefeedUUID, revision: Revision) -> ScheduledChangefeed:
        return ScheduledChangefeed(
            changefeed_uuid=uuid,
            owner=self.owner,
            owner_state=self.state,
            processors=self.processors,
            task_position=self.task_position,
            row_revision=revision,
        )

    def moved(self, target: ScheduledChangefeed) -> ScheduleRow:
        """The row after a legal step to the target; raises ``InvalidSchedule``."""
        check_schedule_state(self.scheduled(target.changefeed_uuid, NO_REVISION), target)
        is_launch = target.owner_state is SchedState.LAUNCHED
        is_new = is_launch and self.state is SchedState.REMOVED
        return replace(
            self,
            owner=target.owner,
            owner_state=str(target.owner_state),
            processors=target.processors,
            launches=self.launches + is_new,
        )


_SAME_OWNER: Final = {
    (SchedState.REMOVED, SchedState.LAUNCHED),
    (SchedState.LAUNCHED, SchedState.LAUNCHED),
    (SchedState.LAUNCHED, SchedState.REMOVING),
    (SchedState.LAUNCHED, SchedState.REMOVED),
    (SchedState.REMOVING, SchedState.REMOVED),
}
_OTHER_OWNER: Final = {(SchedState.REMOVED, SchedState.LAUNCHED)}


def check_schedule_state(origin: ScheduledChangefeed, target: ScheduledChangefeed) -> None:
    """Raise ``InvalidSchedule`` unless target may directly follow origin."""
    if origin.changefeed_uuid != target.changefeed_uuid:
        raise InvalidSchedule(_story(origin, target, "they are of two changefeeds"))
    if SchedState.INVALID in (origin.owner_state, target.owner_state):
        raise InvalidSchedule(_story(origin, target, "a state is invalid"))
    if target.owner is None and target.owner_state is not SchedState.REMOVED:
        raise InvalidSchedule(_story(origin, target, "nobody cannot own it"))
    lets_go = target.owner is None and target.owner_state is SchedState.REMOVED
    is_same = lets_go or origin.owner == target.owner
    allowed = _SAME_OWNER if is_same else _OTHER_OWNER
    if (origin.owner_state, target.owner_state) not in allowed:
        raise InvalidSchedule(_story(origin, target, "there is no such step"))


def diff_scheduled_changefeeds(
    origin: Iterable[ScheduledChangefeed], target: Iterable[ScheduledChangefeed]
) -> list[ScheduledChangefeed]:
    """What must be set to come from origin to target, by UUID; both in any order.

    A changefeed that the target lacks is to be stopped. Raises ``InvalidSchedule`` if one step does
    not get there. (TiCDC's loop ends with the shorter list and drops the other's tail.)
    """
    before = {each.changefeed_uuid: each for each in origin}
    after = {each.changefeed_uuid: each for each in target}
    steps = (_step(before.get(uuid), after.get(uuid)) for uuid in sorted({*before, *after}))
    return [step for step in steps if step is not None]


def _step(
    origin: ScheduledChangefeed | None, target: ScheduledChangefeed | None
) -> ScheduledChangefeed | None:
    if target is None:
        assert origin is not None
        if origin.owner_state is not SchedState.LAUNCHED:
            return None
        return replace(origin, owner_state=SchedState.REMOVING)
    before = origin or ScheduledChangefeed(changefeed_uuid=target.changefeed_uuid)
    if _place(before) == _place(target):
        return None
    check_schedule_state(before, target)
    return target


def _place(each: ScheduledChangefeed) -> tuple[CaptureID | None, SchedState, str | None]:
    return each.owner, each.owner_state, each.processors


def _story(origin: ScheduledChangefeed, target: ScheduledChangefeed, why: str) -> str:
    return (
        f"changefeed {target.changefeed_uuid}: {origin.owner_state} at {origin.owner} cannot "
        f"become {target.owner_state} at {target.owner}: {why}"
    )
