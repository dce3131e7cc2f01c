"""One changefeed as a reactor's state: what it takes over, and what it wants changed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Literal

import pytest

from coordination.etcd import keys
from coordination.etcd.client import get
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.errors import BrokenValue, ChangefeedNotFound, MetadataError
from coordination.metadata.feed_state import known_state
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.record_patch import record_patch, unless_broken
from coordination.metadata.records import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    Record,
    RunningError,
    ScheduleRow,
    TaskPosition,
    dump,
    load,
)
from coordination.model import CaptureID, ChangefeedID, Ts
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import Patch
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd

CLUSTER = "test"
SHOP = ChangefeedName(ChangefeedID("shop"))
INFO = ChangefeedInfo(id=SHOP.id, start_ts=Ts(4), unknown={"newer": 1})
C1, C2 = CaptureID("c1"), CaptureID("c2")
INFO_KEY = keys.changefeed_info_key(CLUSTER, SHOP)
STATUS_KEY = keys.changefeed_status_key(CLUSTER, SHOP)
COUNTER = keys.delete_counter_key(CLUSTER)


def error(code: str, message: str = "") -> RunningError:
    return RunningError(code=code, message=message)


class Ground:
    """A state that is kept up with a fake etcd by hand."""

    def __init__(self) -> None:
        self.etcd = FakeEtcd(FakeClock())
        self.cluster = GlobalReactorState(CLUSTER, removal_grace_s=0.0)

    @property
    def state(self) -> ChangefeedReactorState:
        (found,) = self.cluster.changefeeds.values()
        return found

    def put(self, key: str, value: Record | bytes) -> None:
        self.etcd.put(key, value if isinstance(value, bytes) else dump(value))
        self.cluster.update(key, get(self.etcd, key))

    def report(self, capture_id: CaptureID, position: TaskPosition) -> None:
        self.put(keys.task_position_key(CLUSTER, capture_id, SHOP), position)

    def commit(self) -> int:
        """How many transactions it took."""
        groups = self.cluster.take_patches()
        for group in groups:
            with suppress(MetadataError):  # as after a tick
                commit_once(self.etcd, [group], COUNTER)
        return len(groups)

    def position(self, capture_id: CaptureID) -> TaskPosition | None:
        found = get(self.etcd, keys.task_position_key(CLUSTER, capture_id, SHOP))
        return found and load(TaskPosition, found.value)


@pytest.fixture
def ground() -> Ground:
    made = Ground()
    made.put(INFO_KEY, INFO)
    return made


def test_it_takes_over_what_is_its_own_and_forgets_what_is_deleted() -> None:
    ground, row = Ground(), ScheduleRow(launches=2)
    records: list[tuple[str, str, Record]] = [
        (INFO_KEY, "info", INFO),
        (STATUS_KEY, "status", ChangefeedStatus(checkpoint_ts=Ts(7))),
        (keys.schedule_key(CLUSTER, SHOP), "schedule", row),
    ]
    for key, name, record in records:
        ground.put(key, record)
        assert getattr(ground.state, name) == record
    ground.report(C1, TaskPosition(count=3))
    assert ground.state.task_positions == {C1: TaskPosition(count=3)}
    for key in (*(each[0] for each in records), keys.task_position_key(CLUSTER, C1, SHOP)):
        assert not ground.state.is_empty
        ground.cluster.update(key, None)
    assert ground.cluster.changefeeds == {}


@pytest.mark.parametrize(
    "key",
    [
        keys.changefeed_info_key(CLUSTER, ChangefeedName(ChangefeedID("shop-2"))),
        keys.changefeed_info_key(CLUSTER, ChangefeedName(SHOP.id, "other")),
        keys.changefeed_info_key("test2", SHOP),
        "/tidb/cdc/test",
    ],
)
def test_what_is_of_another_is_not_its_own(key: str) -> None:
    ground = Ground()
    ground.put(key, INFO)
    assert SHOP not in ground.cluster.changefeeds


def test_a_value_that_nobody_understands_leaves_the_last_good_one(ground: Ground) -> None:
    ground.put(INFO_KEY, b"{")
    assert ground.state.info == INFO
    broken = Ground()
    broken.put(INFO_KEY, b"{")
    assert broken.state.info is None
    broken.cluster.update(INFO_KEY, None)
    assert broken.cluster.changefeeds == {}


def test_a_record_that_stays_equal_is_not_written_however_it_was_spelled() -> None:
    spelled = b'{ "changefeed-id" : "shop" }'
    patch = record_patch(INFO_KEY, ChangefeedInfo, lambda old: old)
    assert patch.change(spelled) is spelled
    assert patch.change(None) is None


def test_a_report_stands_beside_what_was_reported_before(ground: Ground) -> None:
    ground.state.report(C1, INFO.epoch, None, error("w"))
    ground.commit()
    assert ground.position(C1) == TaskPosition(warning=error("w"))
    ground.state.report(C1, INFO.epoch, error("e"), None)
    ground.commit()
    assert ground.position(C1) == TaskPosition(error=error("e"), warning=error("w"))


@pytest.mark.parametrize("which", ["error", "warning"])
def test_reports_are_cleared_once_they_were_seen_one_of_each_code(
    ground: Ground, which: Literal["error", "warning"]
) -> None:
    ground.report(C2, TaskPosition(count=7, **{which: error("E1", "of c2")}))  # type: ignore[arg-type]
    ground.report(C1, TaskPosition(**{which: error("E1", "of c1")}))  # type: ignore[arg-type]
    ground.report(CaptureID("c3"), TaskPosition(**{which: error("E2")}))  # type: ignore[arg-type]
    assert ground.state.reported(which) == [error("E1", "of c1"), error("E2")]
    ground.state.clear_reports()
    ground.commit()
    assert ground.position(C1) == TaskPosition()
    assert ground.position(C2) == TaskPosition(count=7)


def test_a_report_that_came_after_the_look_is_not_cleared(ground: Ground) -> None:
    """TiCDC clears whatever is there by then."""
    ground.report(C1, TaskPosition(error=error("old"), warning=error("w")))
    newer = TaskPosition(error=error("new"), warning=error("w"))
    ground.etcd.put(keys.task_position_key(CLUSTER, C1, SHOP), dump(newer))
    ground.state.clear_reports()
    ground.commit()
    assert ground.position(C1) == TaskPosition(error=error("new"))


def test_what_was_reported_is_known_after_it_was_cleared(ground: Ground) -> None:
    """The owner may clear it before its reporter has seen that it was written."""
    ground.report(C1, TaskPosition(error=error("e")))
    ground.report(C1, TaskPosition())
    assert ground.state.last_reports == {C1: TaskPosition(error=error("e"))}


@pytest.mark.parametrize(
    ("state", "epoch"), [*((each, 0) for each in FeedState), (FeedState.NORMAL, 1)]
)
def test_a_report_of_an_epoch_is_dropped_if_it_is_over(
    ground: Ground, state: FeedState, epoch: int
) -> None:
    info = replace(INFO, state=state, epoch=epoch)
    ground.put(INFO_KEY, info)
    ground.state.report(C1, INFO.epoch, error("e"), None)
    ground.commit()
    runs = known_state(info).is_running and epoch == INFO.epoch
    assert (ground.position(C1) is not None) is runs


def test_what_counts_is_the_info_at_the_commit_and_each_time_anew(ground: Ground) -> None:
    """TiCDC remembers that it saw it stopped; here the resumed one is written."""
    ground.put(INFO_KEY, replace(INFO, state=FeedState.STOPPED))
    ground.state.report(C1, INFO.epoch, error("e"), None)
    groups = ground.cluster.take_patches()
    commit_once(ground.etcd, groups, COUNTER)
    assert ground.position(C1) is None
    ground.etcd.put(INFO_KEY, dump(INFO))
    commit_once(ground.etcd, groups, COUNTER)
    assert ground.position(C1) is not None
    info = get(ground.etcd, INFO_KEY)
    assert info is not None
    assert info.value == dump(INFO)  # the gate only reads it


@pytest.mark.parametrize("value", [None, b"{"])
def test_what_is_gone_or_not_understood_is_in_no_epoch_and_ends_no_worker(
    ground: Ground, value: bytes | None
) -> None:
    ground.state.report(C1, INFO.epoch, error("e"), None)
    commit_once(ground.etcd, [(Patch(INFO_KEY, lambda _old: value),)], COUNTER)
    ground.commit()
    assert ground.position(C1) is None


def test_hundreds_of_stale_positions_go_in_transactions_that_fit(ground: Ground) -> None:
    """More than 128 of them blocked TiCDC's owner for good (tiflow #7131)."""
    for number in range(300):
        ground.report(CaptureID(f"dead-{number:03}"), TaskPosition(error=error("e")))
    ground.report(C1, TaskPosition())
    ground.state.remove_stale_positions({C1, C2})
    assert ground.commit() == 6
    prefix = keys.task_position_key(CLUSTER, CaptureID(""), SHOP).removesuffix("/shop")
    assert len(ground.etcd.range(prefix, prefix=True).kvs) == 1
    assert ground.position(C1) == TaskPosition()


def test_groups_come_as_they_were_added_and_once(ground: Ground) -> None:
    for key in ("/b", "/a"):
        ground.state.add_group((Patch(key, lambda _old: b"1"),))
    groups = ground.state.take_patches()
    assert [[patch.key for patch in group] for group in groups] == [["/b"], ["/a"]]
    assert ground.state.take_patches() == []


def test_a_value_that_cannot_be_read_stays_and_the_rest_of_its_group_is_written() -> None:
    etcd = FakeEtcd(FakeClock())
    etcd.put(STATUS_KEY, b"{")
    update = record_patch(STATUS_KEY, ChangefeedStatus, lambda _old: ChangefeedStatus())
    after = Patch("/after", lambda _old: b"1")
    with pytest.raises(BrokenValue):
        commit_once(etcd, [(update, after)], COUNTER)
    commit_once(etcd, [(unless_broken(update), after)], COUNTER)
    assert (etcd.range(STATUS_KEY).kvs[0].value, get(etcd, "/after") is not None) == (b"{", True)


def test_what_one_group_refuses_leaves_what_another_wants() -> None:
    ground = Ground()
    ground.put(STATUS_KEY, ChangefeedStatus())
    refusing = record_patch(INFO_KEY, ChangefeedInfo, _refuse)
    ground.state.add_group((refusing, Patch("/after", lambda _old: b"1")))
    ground.state.add_group((Patch("/other", lambda _old: b"1"),))
    ground.commit()
    assert [get(ground.etcd, key) is not None for key in ("/after", "/other")] == [False, True]


def _refuse(info: ChangefeedInfo | None) -> ChangefeedInfo:
    if info is None:
        raise ChangefeedNotFound("gone")
    return info


def test_what_lasts_on_a_capture_stays_until_it_says_otherwise(ground: Ground) -> None:
    """The owner takes reports, and not that; what was of an epoch that is over does not count."""
    lasting = error("CDC:ErrKafkaSend", "the broker has not answered").lasting()
    ground.report(C1, TaskPosition(error=error("e"), warning=lasting, unknown={"newer": 1}))
    ground.state.report_concern(C1, INFO.epoch, lasting)
    ground.commit()
    stored = ground.position(C1)
    assert stored is not None
    ground.report(C1, stored)
    assert ground.state.concerns() == [lasting]
    assert stored.concern(INFO.epoch + 1) is None
    ground.state.clear_reports()
    ground.commit()
    cleared = ground.position(C1)
    assert cleared == TaskPosition(unknown={"newer": 1}).with_concern(INFO.epoch, lasting)
    ground.state.report_concern(C1, INFO.epoch + 1, None)  # a run that is not the present one
    ground.commit()
    assert ground.position(C1) == cleared
    ground.state.report_concern(C1, INFO.epoch, None)
    ground.commit()
    assert ground.position(C1) == TaskPosition(unknown={"newer": 1})
