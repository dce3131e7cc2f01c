"""Every step of a schedule, by value; differences with no tail lost."""

from __future__ import annotations

import itertools

import pytest

from coordination.metadata.errors import InvalidSchedule
from coordination.metadata.model import ChangefeedUUID, dump, load
from coordination.metadata.schedule import (
    SchedState,
    ScheduledChangefeed,
    ScheduleRow,
    check_schedule_state,
    diff_scheduled_changefeeds,
)
from coordination.model import CaptureID, Revision

REMOVED, LAUNCHED, REMOVING = SchedState.REMOVED, SchedState.LAUNCHED, SchedState.REMOVING
SAME_OWNER = {
    (REMOVED, LAUNCHED),
    (LAUNCHED, LAUNCHED),
    (LAUNCHED, REMOVING),
    (LAUNCHED, REMOVED),
    (REMOVING, REMOVED),
}


def at(owner: str | None, state: SchedState, uuid: int = 1) -> ScheduledChangefeed:
    return ScheduledChangefeed(
        changefeed_uuid=ChangefeedUUID(uuid),
        owner=None if owner is None else CaptureID(owner),
        owner_state=state,
    )


@pytest.mark.parametrize("target_owner", ["c1", "c2"])
@pytest.mark.parametrize(("before", "after"), list(itertools.product(SchedState, SchedState)))
def test_every_step_is_allowed_or_refused_as_the_table_says(
    target_owner: str, before: SchedState, after: SchedState
) -> None:
    is_same = target_owner == "c1"
    allowed = (before, after) in (SAME_OWNER if is_same else {(REMOVED, LAUNCHED)})
    origin, target = at("c1", before), at(target_owner, after)
    if allowed:
        check_schedule_state(origin, target)
    else:
        with pytest.raises(InvalidSchedule):
            check_schedule_state(origin, target)


def test_equal_owners_in_two_rows_are_the_same_owner() -> None:
    """TiCDC compares pointers: a running owner could then never be stopped."""
    one, other = "".join(["c", "1"]), "".join(["c", "1"])
    assert one is not other
    check_schedule_state(at(one, LAUNCHED), at(other, REMOVING))


@pytest.mark.parametrize("before", [LAUNCHED, REMOVING])
def test_who_lets_go_leaves_nobody_behind(before: SchedState) -> None:
    check_schedule_state(at("c1", before), at(None, REMOVED))


@pytest.mark.parametrize("state", [LAUNCHED, REMOVING])
def test_nobody_owns_nothing(state: SchedState) -> None:
    with pytest.raises(InvalidSchedule, match="nobody"):
        check_schedule_state(at("c1", LAUNCHED), at(None, state))


def test_schedules_of_two_changefeeds_do_not_follow_each_other() -> None:
    with pytest.raises(InvalidSchedule, match="two"):
        check_schedule_state(at("c1", LAUNCHED, 1), at("c1", REMOVING, 2))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_difference_has_both_tails_whatever_the_order(order: tuple[int, ...]) -> None:
    """TiCDC ends with the shorter list: 3, 4 (only before) and 5, 6 (only after) were
    dropped."""
    before = [at("c1", LAUNCHED, uuid) for uuid in (1, 2, 3, 4)]
    kept = [at("c1", LAUNCHED, 1), at("c1", REMOVING, 2)]
    after = [*kept, at("c2", LAUNCHED, 5), at("c2", LAUNCHED, 6)]
    found = diff_scheduled_changefeeds([before[i] for i in order], [after[i] for i in order])
    assert found == [
        at("c1", REMOVING, 2),
        at("c1", REMOVING, 3),
        at("c1", REMOVING, 4),
        at("c2", LAUNCHED, 5),
        at("c2", LAUNCHED, 6),
    ]


def test_a_difference_to_nothing_and_from_nothing() -> None:
    assert diff_scheduled_changefeeds([], [at("c1", LAUNCHED)]) == [at("c1", LAUNCHED)]
    assert diff_scheduled_changefeeds([at("c1", LAUNCHED)], []) == [at("c1", REMOVING)]
    for over in (at("c1", REMOVING), at(None, REMOVED)):
        assert diff_scheduled_changefeeds([over], []) == []
    assert diff_scheduled_changefeeds([], []) == []


def test_rows_that_differ_in_revision_alone_are_no_difference() -> None:
    read = ScheduledChangefeed(
        changefeed_uuid=ChangefeedUUID(1),
        owner=CaptureID("c1"),
        owner_state=LAUNCHED,
        row_revision=Revision(7),
    )
    assert diff_scheduled_changefeeds([read], [at("c1", LAUNCHED)]) == []


def test_a_difference_that_takes_two_steps_is_refused() -> None:
    with pytest.raises(InvalidSchedule):
        diff_scheduled_changefeeds([at("c1", LAUNCHED)], [at("c2", LAUNCHED)])
    with pytest.raises(InvalidSchedule):
        diff_scheduled_changefeeds([], [at("c1", REMOVING)])


def test_each_launch_of_a_row_is_unlike_any_other() -> None:
    row = ScheduleRow(creation_epoch=4)
    first = row.moved(at("c1", LAUNCHED))
    assert (first.owner, first.state, first.launches) == ("c1", LAUNCHED, 1)
    assert first.moved(at("c1", LAUNCHED)) == first
    over = first.moved(at("c1", REMOVING)).moved(at(None, REMOVED))
    assert over.moved(at("c1", LAUNCHED)).launches == 2


def test_a_row_comes_back_and_a_state_that_is_unknown_is_invalid() -> None:
    row = ScheduleRow(owner=CaptureID("c1"), owner_state="Launched", launches=3, unknown={"a": 1})
    assert load(ScheduleRow, dump(row)) == row
    assert load(ScheduleRow, b'{"owner-state":"Odd"}').state is SchedState.INVALID
    assert [str(each) for each in SchedState] == ["Invalid", "Removed", "Launched", "Removing"]
