"""what is written of a changefeed: keys, JSON, refusals, and lost races; on a real
etcd and on the fake one."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from coordination.etcd import keys
from coordination.etcd.client import delete, get
from coordination.metadata.errors import (
    ChangefeedExists,
    ChangefeedNotFound,
    ChangefeedUpdateRefused,
    InvalidSchedule,
    InvalidTransition,
    MetadataError,
)
from coordination.metadata.feed_state import FeedEvent
from coordination.metadata.lookup import read_changefeeds
from coordination.metadata.records import (
    AdminJobType,
    ChangefeedInfo,
    FeedState,
    RunningError,
    SchedState,
    TaskPosition,
    dump,
)
from coordination.model import CaptureID, ChangefeedID, Ts
from tests.coordination.metadata.cluster import C1, NAME, SHOP, START_TS, Cluster

ERROR = RunningError(time="t", addr="a", code="CDC:ErrKafkaSend", message="no broker")
GC_ERROR = replace(ERROR, code="CDC:ErrGCTTLExceeded")


def stored(cluster: Cluster, key: str) -> dict | None:
    found = get(cluster.client, key)
    return None if found is None else json.loads(found.value)


# the life of a changefeed


def test_a_changefeed_lies_where_ticdc_has_it_and_the_schedule_beside(shop: Cluster) -> None:
    root = f"/tidb/cdc/{shop.id}/default"
    info = stored(shop, f"{root}/changefeed/info/shop")
    assert info is not None
    assert (info["changefeed-id"], info["state"], info["epoch"]) == ("shop", "normal", 1)
    assert stored(shop, f"{root}/changefeed/status/shop") == {
        "checkpoint-ts": 400,
        "min-table-barrier-ts": 400,
        "admin-job-type": 0,
    }
    row = stored(shop, f"/tidelake/{shop.id}/default/changefeed/schedule/shop")
    assert row == {
        "owner": None,
        "owner-state": "Removed",
        "creation-epoch": 1,
        "launches": 0,
    }


def test_a_name_is_taken_once_in_its_namespace(shop: Cluster) -> None:
    with pytest.raises(ChangefeedExists, match="shop"):
        shop.operator.create(SHOP)
    shop.operator.create(ChangefeedInfo(id=SHOP.id, namespace="team-a", start_ts=START_TS))
    names = [str(each.name) for each in read_changefeeds(shop.client, shop.id)]
    assert names == ["default/shop", "team-a/shop"]


def test_of_many_who_create_the_same_one_succeeds(cluster: Cluster) -> None:
    refused: list[ChangefeedExists] = []

    def create() -> None:
        try:
            cluster.operator.create(SHOP)
        except ChangefeedExists as error:
            refused.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3


def test_a_removed_changefeed_keeps_its_name_until_it_is_cleaned_up(shop: Cluster) -> None:
    operator, before = shop.operator, shop.found
    with pytest.raises(MetadataError, match="not removed"):
        operator.cleanup(NAME)
    operator.remove(NAME)
    assert shop.info.state is FeedState.REMOVED
    with pytest.raises(InvalidTransition):
        operator.remove(NAME)
    with pytest.raises(ChangefeedExists):
        operator.create(SHOP)
    operator.cleanup(NAME)
    for action in (operator.pause, operator.resume, operator.remove, operator.cleanup):
        with pytest.raises(ChangefeedNotFound):
            action(NAME)
    operator.create(SHOP)
    assert shop.info.start_epoch == shop.info.epoch > before.known_info.epoch
    with pytest.raises(ChangefeedNotFound, match="life"):
        shop.commit(before.writes().remove())


def test_an_owner_of_an_earlier_life_does_not_touch_the_present_one(shop: Cluster) -> None:
    owner = shop.launch()
    shop.operator.remove(NAME)
    assert shop.row.owner_state is SchedState.REMOVING
    with pytest.raises(InvalidSchedule, match="owner"):
        shop.operator.cleanup(NAME)
    shop.release()
    shop.operator.cleanup(NAME)
    shop.operator.create(SHOP)
    shop.launch()
    for event in (FeedEvent.STOP, FeedEvent.FINISH):
        with pytest.raises(ChangefeedNotFound):
            owner.decide(event)
    assert shop.info.state is FeedState.NORMAL


def test_fields_of_a_newer_program_survive_every_write(cluster: Cluster) -> None:
    cluster.operator.create(replace(SHOP, unknown={"sync-mode": {"a": 1}}))
    owner = cluster.launch()
    owner.decide(FeedEvent.ERROR, ERROR)
    owner.decide(FeedEvent.RETRY)
    cluster.operator.pause(NAME)
    cluster.operator.update(NAME, replace(SHOP, sink_uri="delta:///other"))
    info = stored(cluster, keys.changefeed_info_key(cluster.id, NAME))
    assert info is not None
    assert info["sync-mode"] == {"a": 1}


def test_a_changefeed_that_ticdc_made_is_operated_and_owned_like_ours(cluster: Cluster) -> None:
    """It has no row of ours, and its epoch is a TSO: ours goes on above it."""
    epoch = 454176230809600001
    info = ChangefeedInfo(id=NAME.id, state=FeedState.STOPPED, epoch=epoch)
    cluster.client.put(keys.changefeed_info_key(cluster.id, NAME), dump(info))
    cluster.operator.resume(NAME)
    assert cluster.info.epoch == epoch + 1
    assert get(cluster.client, keys.schedule_key(cluster.id, NAME)) is None
    cluster.launch().advance(5, 6, epoch + 1)
    assert cluster.status.checkpoint_ts == 5


def test_a_cleanup_leaves_nothing_however_many_captures_reported(shop: Cluster) -> None:
    for number in range(300):
        key = keys.task_position_key(shop.id, CaptureID(f"c{number}"), NAME)
        shop.client.put(key, dump(TaskPosition(error=ERROR)))
    other = keys.ChangefeedName(ChangefeedID("shop-2"))
    neighbour = keys.task_position_key(shop.id, C1, other)
    shop.client.put(neighbour, dump(TaskPosition()))
    shop.operator.remove(NAME)
    shop.operator.cleanup(NAME)
    left = shop.client.range((keys.base_prefix(shop.id), keys.own_prefix(shop.id)), prefix=True)
    assert {each.key for each in left.kvs} == {
        neighbour,
        keys.delete_counter_key(shop.id),
        keys.epoch_key(shop.id),
    }


def test_an_info_that_nobody_understands_hides_no_other(shop: Cluster) -> None:
    broken = keys.ChangefeedName(ChangefeedID("broken"))
    shop.client.put(keys.changefeed_info_key(shop.id, broken), b"{")
    assert [each.name for each in read_changefeeds(shop.client, shop.id)] == [NAME]


def test_a_broken_status_counts_as_missing_and_one_that_is_gone_is_made_again(
    shop: Cluster,
) -> None:
    owner = shop.launch()
    shop.client.put(keys.changefeed_status_key(shop.id, NAME), b"x")
    assert shop.found.status is None
    delete(shop.client, keys.changefeed_status_key(shop.id, NAME))
    shop.operator.pause(NAME)
    shop.operator.resume(NAME)
    owner.advance(500, 500, 2)
    assert shop.status.checkpoint_ts == 500


# states


def test_paused_and_resumed_it_runs_with_a_new_epoch(shop: Cluster) -> None:
    before = shop.info
    shop.operator.pause(NAME)
    paused = shop.info
    assert (paused.state, paused.admin_job_type) == (FeedState.STOPPED, AdminJobType.STOP)
    assert paused.epoch == before.epoch
    with pytest.raises(InvalidTransition):
        shop.operator.pause(NAME)
    shop.operator.resume(NAME)
    resumed = shop.info
    assert (resumed.state, resumed.admin_job_type) == (FeedState.NORMAL, AdminJobType.NONE)
    assert resumed.epoch > before.epoch
    with pytest.raises(InvalidTransition):
        shop.operator.resume(NAME)


def test_resumed_from_another_point_it_begins_there(shop: Cluster) -> None:
    owner, epoch = shop.launch(), shop.info.epoch
    owner.advance(500, 510, epoch)
    owner.decide(FeedEvent.UNRETRYABLE_ERROR, ERROR)
    shop.operator.resume(NAME, Ts(450))
    info = shop.info
    assert (info.start_ts, info.error, info.state) == (450, None, FeedState.NORMAL)
    assert (shop.status.checkpoint_ts, shop.status.min_table_barrier_ts) == (450, 450)
    owner.advance(520, 520, epoch)  # of the run before: too late
    assert shop.status.checkpoint_ts == 450


def test_each_word_about_the_start_has_an_epoch_of_its_own(shop: Cluster) -> None:
    """To be told from the one before, also where the ts is the same."""
    made = shop.info
    assert made.start_epoch == made.epoch > 0
    shop.operator.pause(NAME)
    shop.operator.resume(NAME)
    assert shop.info.start_epoch == made.start_epoch
    shop.operator.pause(NAME)
    shop.operator.resume(NAME, made.start_ts)
    assert shop.info.start_ts == made.start_ts
    assert shop.info.start_epoch == shop.info.epoch > made.start_epoch


def test_only_a_paused_changefeed_is_changed_and_stays_what_it_is(shop: Cluster) -> None:
    wanted = ChangefeedInfo(
        id=SHOP.id,
        sink_uri="delta:///other",
        target_ts=Ts(900),
        config={"filter": {"rules": ["a.*"]}},
        state=FeedState.FINISHED,
        epoch=1_000_000,
    )
    with pytest.raises(ChangefeedUpdateRefused, match="pause"):
        shop.operator.update(NAME, wanted)
    shop.operator.pause(NAME)
    before = shop.info
    shop.operator.update(NAME, wanted)
    after = shop.info
    assert (after.sink_uri, after.target_ts) == ("delta:///other", 900)
    assert after.config == wanted.config
    assert (after.state, after.epoch) == (FeedState.STOPPED, before.epoch)
    assert (after.start_ts, after.create_time) == (before.start_ts, before.create_time)


def test_an_error_has_it_wait_and_a_retry_runs_it_anew(shop: Cluster) -> None:
    owner, epoch = shop.launch(), shop.info.epoch
    owner.decide(FeedEvent.ERROR, ERROR)
    info = shop.info
    assert (info.state, info.error, info.epoch) == (FeedState.PENDING, ERROR, epoch)
    assert info.admin_job_type is AdminJobType.STOP
    owner.decide(FeedEvent.RETRY)
    info = shop.info
    assert (info.state, info.admin_job_type) == (FeedState.WARNING, AdminJobType.NONE)
    assert info.epoch > epoch
    owner.decide(FeedEvent.ADVANCED)
    info = shop.info
    assert (info.state, info.error, info.warning) == (FeedState.NORMAL, None, None)


def test_a_warning_stands_beside_the_error(shop: Cluster) -> None:
    shop.launch().decide(FeedEvent.WARNING, ERROR)
    info = shop.info
    assert (info.state, info.warning, info.error) == (FeedState.WARNING, ERROR, None)


@pytest.mark.parametrize("from_paused", [False, True])
def test_it_fails_also_while_paused_if_its_history_is_gone(
    shop: Cluster, from_paused: bool
) -> None:
    owner = shop.launch()
    if from_paused:
        shop.operator.pause(NAME)
        with pytest.raises(InvalidTransition):
            owner.decide(FeedEvent.UNRETRYABLE_ERROR, ERROR)
    owner.decide(FeedEvent.GC_ERROR, GC_ERROR)
    info = shop.info
    assert (info.state, info.error) == (FeedState.FAILED, GC_ERROR)
    assert info.admin_job_type is AdminJobType.STOP


def test_finished_is_the_end_unless_it_is_resumed(shop: Cluster) -> None:
    owner = shop.launch()
    owner.decide(FeedEvent.WARNING, ERROR)
    owner.decide(FeedEvent.FINISH)
    info = shop.info
    assert (info.state, info.admin_job_type) == (FeedState.FINISHED, AdminJobType.FINISH)
    assert (info.error, info.warning) == (None, None)  # nothing is wrong with it any more
    with pytest.raises(InvalidTransition):
        shop.operator.pause(NAME)
    shop.operator.resume(NAME)


def test_progress_goes_up_and_never_back_and_only_while_it_runs(shop: Cluster) -> None:
    owner, epoch = shop.launch(), shop.info.epoch
    owner.advance(500, 500, epoch + 1)
    owner.advance(500, 500, epoch - 1)
    assert shop.status.checkpoint_ts == START_TS
    owner.advance(500, 520, epoch)
    owner.advance(490, 530, epoch)
    assert (shop.status.checkpoint_ts, shop.status.min_table_barrier_ts) == (500, 520)
    shop.operator.pause(NAME)
    owner.advance(600, 600, epoch)
    assert shop.status.checkpoint_ts == 500
