"""One changefeed as a reactor's state: what it takes over, and what it wants changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.etcd import keys
from coordination.etcd.client import get
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.errors import ChangefeedNotFound
from coordination.metadata.feed_state import known_state
from coordination.metadata.model import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    Record,
    RunningError,
    TaskPosition,
    dump,
    load,
)
from coordination.metadata.record_patch import record_patch, unless_refused
from coordination.metadata.schedule import ScheduleRow
from coordination.model import CaptureID, ChangefeedID, Ts
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.patch import Patch
from coordination.orchestrator.reactor import Update
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
        self.state = ChangefeedReactorState(CLUSTER, SHOP)

    def put(self, key: str, record: Record) -> None:
        self.etcd.put(key, dump(record))
        self.state.update(Update(key=key, value=dump(record)))

    def report(self, capture_id: CaptureID, position: TaskPosition) -> None:
        self.put(keys.task_position_key(CLUSTER, capture_id, SHOP), position)

    def commit(self) -> int:
        """How many transactions it took."""
        groups = self.state.take_patches()
        for group in groups:
            commit_once(self.etcd, [group], COUNTER)
        return len(groups)

    def position(self, capture_id: CaptureID) -> TaskPosition | None:
        found = get(self.etcd, keys.task_position_key(CLUSTER, capture_id, SHOP))
        return found and load(TaskPosition, found.value)


@pytest.fixture
def ground() -> Ground:
    return Ground()


def test_it_takes_over_what_is_its_own_and_forgets_what_is_deleted(ground: Ground) -> None:
    state, row = ground.state, ScheduleRow(launches=2)
    assert state.is_empty
    records: list[tuple[str, str, Record]] = [
        (INFO_KEY, "info", INFO),
        (STATUS_KEY, "status", ChangefeedStatus(checkpoint_ts=Ts(7))),
        (keys.schedule_key(CLUSTER, SHOP), "schedule", row),
    ]
    for key, name, record in records:
        state.update(Update(key=key, value=dump(record), is_init=True))
        assert getattr(state, name) == record
    position_key = keys.task_position_key(CLUSTER, C1, SHOP)
    state.update(Update(key=position_key, value=dump(TaskPosition(count=3))))
    assert state.task_positions == {C1: TaskPosition(count=3)}
    for key in (*(each[0] for each in records), position_key):
        assert not state.is_empty
        state.update(Update(key=key, value=None))
    assert state.is_empty


@pytest.mark.parametrize(
    "key",
    [
        keys.changefeed_info_key(CLUSTER, ChangefeedName(ChangefeedID("shop-2"))),
        keys.changefeed_info_key(CLUSTER, ChangefeedName(SHOP.id, "other")),
        keys.changefeed_info_key("test2", SHOP),
        keys.capture_key(CLUSTER, C1),
        "/tidb/cdc/test",
    ],
)
def test_it_passes_by_what_is_not_its_own(ground: Ground, key: str) -> None:
    ground.state.update(Update(key=key, value=dump(INFO)))
    assert ground.state.is_empty


def test_a_value_that_nobody_understands_leaves_the_last_good_one(ground: Ground) -> None:
    ground.put(INFO_KEY, INFO)
    ground.state.update(Update(key=INFO_KEY, value=b"{"))
    assert ground.state.info == INFO
    assert "JSON" in ground.state.broken[INFO_KEY]
    ground.state.update(Update(key=INFO_KEY, value=dump(INFO)))
    assert ground.state.broken == {}


def test_patches_of_a_tick_are_one_transaction_and_keep_unknown_fields(ground: Ground) -> None:
    ground.put(INFO_KEY, INFO)
    ground.state.patch(
        record_patch(INFO_KEY, ChangefeedInfo, lambda old: old and replace(old, epoch=5)),
        record_patch(STATUS_KEY, ChangefeedStatus, lambda _old: ChangefeedStatus()),
        record_patch(INFO_KEY, ChangefeedInfo, lambda old: old and replace(old, sort_dir="x")),
    )
    before = ground.etcd.range("/").revision
    assert ground.commit() == 1
    assert ground.etcd.range("/").revision == before + 1
    info = get(ground.etcd, INFO_KEY)
    assert info is not None
    assert load(ChangefeedInfo, info.value) == replace(INFO, epoch=5, sort_dir="x")
    assert ground.commit() == 0


def test_a_record_that_stays_equal_is_not_written_however_it_was_spelled() -> None:
    spelled = b'{ "changefeed-id" : "shop" }'
    patch = record_patch(INFO_KEY, ChangefeedInfo, lambda old: old)
    assert patch.change(spelled) is spelled
    assert patch.change(None) is None


def test_positions_are_made_changed_and_deleted(ground: Ground) -> None:
    ground.state.patch_task_position(C1, lambda old: old or TaskPosition(count=1))
    ground.commit()
    assert ground.position(C1) == TaskPosition(count=1)
    ground.state.patch_task_position(C1, lambda old: old and replace(old, error=error("e")))
    ground.commit()
    assert ground.position(C1) == TaskPosition(count=1, error=error("e"))
    ground.state.patch_task_position(C1, lambda _old: None)
    ground.commit()
    assert ground.position(C1) is None


@pytest.mark.parametrize("which", ["error", "warning"])
def test_reports_are_taken_once_one_of_each_code(ground: Ground, which: str) -> None:
    other = {"error": "warning", "warning": "error"}[which]
    ground.report(C2, TaskPosition(**{which: error("E1", "of c2"), other: error("other")}))
    ground.report(C1, TaskPosition(**{which: error("E1", "of c1")}))
    ground.report(CaptureID("c3"), TaskPosition(**{which: error("E2")}))
    take = getattr(ground.state, f"take_processor_{which}s")
    assert take() == [error("E1", "of c1"), error("E2")]
    ground.commit()
    assert ground.position(C1) == TaskPosition()
    assert ground.position(C2) == TaskPosition(**{other: error("other")})


def test_a_report_that_came_after_the_taking_is_not_cleared(ground: Ground) -> None:
    """TiCDC clears whatever is there by then."""
    ground.report(C1, TaskPosition(error=error("old")))
    assert ground.state.take_processor_errors() == [error("old")]
    newer = TaskPosition(error=error("new"))
    ground.etcd.put(keys.task_position_key(CLUSTER, C1, SHOP), dump(newer))
    ground.commit()
    assert ground.position(C1) == newer


@pytest.mark.parametrize(
    ("state", "epoch"), [*((each, 0) for each in FeedState), (FeedState.NORMAL, 1)]
)
def test_patches_of_an_epoch_are_dropped_if_it_is_over(
    ground: Ground, state: FeedState, epoch: int
) -> None:
    info = replace(INFO, state=state, epoch=epoch)
    ground.put(INFO_KEY, info)
    ground.state.only_in_epoch(INFO.epoch)
    ground.state.patch_task_position(C1, lambda _old: TaskPosition())
    ground.commit()
    runs = known_state(info).is_running and epoch == INFO.epoch
    assert (ground.position(C1) is not None) is runs


def test_what_counts_is_the_info_at_the_commit_and_each_time_anew(ground: Ground) -> None:
    """TiCDC remembers that it saw it stopped; here the resumed one is written."""
    ground.put(INFO_KEY, replace(INFO, state=FeedState.STOPPED))
    ground.state.only_in_epoch(INFO.epoch)
    ground.state.patch_task_position(C1, lambda _old: TaskPosition(count=1))
    (group,) = ground.state.take_patches()
    commit_once(ground.etcd, [group], COUNTER)
    assert ground.position(C1) is None
    ground.etcd.put(INFO_KEY, dump(INFO))
    commit_once(ground.etcd, [group], COUNTER)
    assert ground.position(C1) == TaskPosition(count=1)
    info = get(ground.etcd, INFO_KEY)
    assert info is not None
    assert info.value == dump(INFO)  # the gate only reads it


def test_a_changefeed_that_is_gone_is_in_no_epoch_and_the_check_is_for_one_tick(
    ground: Ground,
) -> None:
    ground.state.only_in_epoch(INFO.epoch)
    ground.state.patch_task_position(C1, lambda _old: TaskPosition())
    ground.commit()
    assert ground.position(C1) is None
    ground.state.patch_task_position(C1, lambda _old: TaskPosition())
    ground.commit()
    assert ground.position(C1) is not None


def test_hundreds_of_stale_positions_go_in_transactions_that_fit(ground: Ground) -> None:
    """More than 128 of them blocked TiCDC's owner for good (tiflow #7131)."""
    ground.put(INFO_KEY, INFO)
    for number in range(300):
        ground.report(CaptureID(f"dead-{number:03}"), TaskPosition(error=error("e")))
    ground.report(C1, TaskPosition())
    ground.state.remove_stale_positions({C1, C2})
    assert ground.commit() == 6
    prefix = keys.task_position_key(CLUSTER, CaptureID(""), SHOP).removesuffix("/shop")
    assert len(ground.etcd.range(prefix, prefix=True).kvs) == 1
    assert ground.position(C1) == TaskPosition()


def test_added_groups_stand_alone_and_come_first(ground: Ground) -> None:
    alone = (Patch("/alone", lambda _old: b"1"),)
    ground.state.patch(Patch("/a", lambda _old: b"1"), Patch("/b", lambda _old: b"1"))
    ground.state.add_group(alone)
    groups = ground.state.take_patches()
    assert [[patch.key for patch in group] for group in groups] == [["/alone"], ["/a", "/b"]]
    ground.state.update_pending_change(0.0)
    assert ground.state.take_patches() == []


def test_a_refusal_ends_no_worker_and_leaves_the_rest_of_its_group_undone(ground: Ground) -> None:
    update = record_patch(INFO_KEY, ChangefeedInfo, _refuse)
    group = unless_refused((update, Patch("/after", lambda _old: b"1")))
    commit_once(ground.etcd, [group], COUNTER)
    assert get(ground.etcd, "/after") is None
    ground.etcd.put(INFO_KEY, dump(INFO))
    commit_once(ground.etcd, [group], COUNTER)
    assert get(ground.etcd, "/after") is not None


def test_what_one_call_refuses_leaves_what_another_wants(ground: Ground) -> None:
    refusing = record_patch(INFO_KEY, ChangefeedInfo, _refuse)
    ground.state.patch(refusing, Patch("/after", lambda _old: b"1"))
    ground.state.patch(Patch("/other", lambda _old: b"1"))
    ground.state.add_group((refusing, Patch("/alone", lambda _old: b"1")))
    assert ground.commit() == 2
    left = [get(ground.etcd, key) is not None for key in ("/after", "/other", "/alone")]
    assert left == [False, True, False]


def test_a_broken_info_is_in_no_epoch_and_ends_no_worker(ground: Ground) -> None:
    ground.etcd.put(INFO_KEY, b"{")
    ground.state.only_in_epoch(INFO.epoch)
    ground.state.patch_task_position(C1, lambda _old: TaskPosition())
    ground.commit()
    assert ground.position(C1) is None


def _refuse(info: ChangefeedInfo | None) -> ChangefeedInfo:
    if info is None:
        raise ChangefeedNotFound("gone")
    return info
