"""The parts together, as an owner has them: EtcdWorker, states, feed states, writes."""

from __future__ import annotations

import pytest

from coordination.etcd import keys
from coordination.metadata.feed_state import FeedStateManager
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.records import FeedState, RunningError, TaskPosition, dump
from coordination.model import Ts
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import Snapshot
from tests.coordination.metadata.cluster import C1, NAME, SHOP, Cluster
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd

TICK_S = 0.05


class Owner:
    """A reactor with nothing but the feed state; its checkpoint is set by the test."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.etcd = FakeEtcd(self.clock)
        self.cluster = Cluster(self.etcd)
        self.checkpoint_ts = 400
        self.manager = FeedStateManager(random=lambda: 0.5)
        self.cluster.operator.create(SHOP)
        self.cluster.launch()
        self.worker = EtcdWorker(
            client=self.etcd,
            clock=self.clock,
            snapshot=Snapshot(
                (keys.base_prefix(self.cluster.id), keys.own_prefix(self.cluster.id)),
                keys.delete_counter_key(self.cluster.id),
            ),
            reactor=self,
            state=GlobalReactorState(self.cluster.id, removal_grace_s=5.0),
            tick_interval_s=TICK_S,
            wake=lambda: None,
        )

    def tick(self, state: GlobalReactorState, now_s: float) -> None:
        changefeed = state.changefeeds[NAME]
        assert changefeed.info is not None
        decision = self.manager.decide(
            changefeed.info,
            changefeed.status,
            changefeed.reported("error"),
            changefeed.reported("warning"),
            now_s,
        )
        writes = changefeed.writes(by_owner=True)
        if decision is not None:
            changefeed.add_group(writes.feed_event(decision))
        changefeed.clear_reports()
        checkpoint = Ts(self.checkpoint_ts)
        changefeed.add_group(
            writes.advance_checkpoint(checkpoint, checkpoint, changefeed.info.epoch)
        )

    def turn(self, seconds: float = 2 * TICK_S) -> FeedState:
        """Let time pass in ticks, and look."""
        for _ in range(max(1, round(seconds / TICK_S))):
            self.clock.advance(TICK_S)
            self.worker.run_once()
        return self.cluster.info.state

    def report(self, position: TaskPosition) -> None:
        self.etcd.put(keys.task_position_key(self.cluster.id, C1, NAME), dump(position))

    @property
    def epoch(self) -> int:
        return self.cluster.info.epoch

    @property
    def stored_checkpoint(self) -> int:
        return self.cluster.status.checkpoint_ts


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_from_an_error_over_its_back_off_to_normal_again(owner: Owner) -> None:
    assert owner.turn() is FeedState.NORMAL
    owner.report(TaskPosition(error=RunningError(code="CDC:ErrKafkaSend", message="no broker")))
    assert owner.turn() is FeedState.PENDING
    epoch = owner.epoch
    owner.checkpoint_ts = 450
    assert owner.turn(9.5) is FeedState.PENDING
    assert owner.stored_checkpoint == 400  # nothing advances that does not run
    owner.checkpoint_ts = 400
    assert owner.turn(0.6) is FeedState.WARNING
    assert owner.epoch > epoch
    owner.checkpoint_ts = 450
    assert owner.turn() is FeedState.NORMAL
    assert owner.stored_checkpoint == 450


def test_an_operators_pause_and_resume_reach_the_owner_through_etcd(owner: Owner) -> None:
    owner.turn()
    operator = owner.cluster.operator
    operator.pause(NAME)
    owner.checkpoint_ts = 470
    assert owner.turn() is FeedState.STOPPED
    assert not owner.manager.should_run
    assert owner.stored_checkpoint == 400
    owner.checkpoint_ts = 420
    operator.resume(NAME, Ts(410))
    assert owner.turn() is FeedState.NORMAL
    assert owner.manager.should_run
    assert owner.stored_checkpoint == 420


def test_a_removal_under_way_stops_the_owners_writes_and_not_its_worker(owner: Owner) -> None:
    owner.turn()
    owner.cluster.operator.remove(NAME)
    owner.checkpoint_ts = 500
    assert owner.turn() is FeedState.REMOVED
    assert not owner.manager.should_run
    assert owner.stored_checkpoint == 400
    owner.worker.run_once()
