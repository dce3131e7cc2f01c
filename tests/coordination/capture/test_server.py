"""Captures that serve a cluster, step by step in virtual time: what is to happen, by name."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from coordination.capture.owner.operator_jobs import NotOwner, OwnerJob, R
from coordination.capture.server import Phase
from coordination.etcd import keys
from coordination.etcd.client import KeyValue, delete
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.errors import MetadataError
from coordination.metadata.lookup import read_captures
from coordination.metadata.records import ChangefeedInfo, FeedState, load
from coordination.model import CaptureID, Revision, TableName
from coordination.ports import ShownState
from tests.fakes.fake_source import ts_at
from tests.own_lines import own_lines
from tests.simulation.feeds import CLUSTER, NAME
from tests.simulation.instruments import instruments
from tests.simulation.invariants import Watchman
from tests.simulation.world import STEP_S, SimCapture, World

PATIENCE = 120  # steps


class Cluster:
    """A world without faults; the invariants are checked after each step."""

    def __init__(self, captures: int, seed: int = 1) -> None:
        self.world = World(seed, captures=captures, changefeeds=1, may_end=False)
        pace = self.world.pace
        pace.slow_s, pace.commit_s, pace.batch_s = 0.6, 0.5, None
        self.watchman = Watchman(self.world)

    def until(self, reached: Callable[[], object], steps: int = PATIENCE) -> None:
        for _ in range(steps):
            if reached():
                return
            self.step()
        raise AssertionError(f"not within {steps * STEP_S:g} s")

    def step(self, steps: int = 1) -> None:
        with instruments():
            for _ in range(steps):
                self.world.step()
                self.watchman.check()

    def settle(self) -> None:
        """Everything of the next seconds is applied, and each span is at rest."""
        since_ts = ts_at(self.world.clock.now_s + 3)
        self.until(lambda: not self.watchman.unsettled(since_ts))

    @property
    def owner(self) -> SimCapture:
        assert self.world.owner is not None
        return self.world.owner

    @property
    def info(self) -> ChangefeedInfo | None:
        value = self.world.value(keys.changefeed_info_key(CLUSTER, NAME))
        return None if value is None else load(ChangefeedInfo, value)

    @property
    def operator(self) -> ChangefeedOperator:
        return ChangefeedOperator(self.world.etcd, CLUSTER)

    def ask(self, job: OwnerJob[R]) -> R:
        future = self.owner.server.jobs.post(job)
        self.until(future.done)
        return future.result()

    @property
    def draining(self) -> set[CaptureID]:
        """As `capture list` shows it."""
        captures = read_captures(self.world.etcd, CLUSTER)
        return {each.id for each in captures if each.is_draining}

    def take_back(self, capture: SimCapture) -> None:
        """As `capture drain --undo` does."""
        self.ask(lambda owner: owner.keep(life_id(capture)))
        future = capture.server.serve_again(life_id(capture))
        self.until(future.done)
        assert future.result()

    def where(self) -> dict[int, CaptureID | None]:
        assert self.owner.coordinator is not None
        return {t: made.primary for t, made in self.owner.coordinator.replication.sets.items()}


def life_id(capture: SimCapture) -> CaptureID:
    assert capture.server.capture is not None
    return capture.server.capture.id


def test_a_lone_capture_replicates_at_once() -> None:
    cluster = Cluster(1)
    cluster.until(lambda: any(r.writers() for r in cluster.world.captures[0].plane.replicas))
    assert cluster.world.clock.now_s - 1000 < 5, "nobody was there before: no grace to wait for"
    cluster.settle()
    assert set(cluster.where().values()) == {life_id(cluster.owner)}


def test_three_captures_share_the_tables() -> None:
    cluster = Cluster(3)
    cluster.settle()
    assert len(set(cluster.where().values())) == 3


def test_a_dead_captures_tables_go_to_others_after_lease_and_grace() -> None:
    cluster = Cluster(3)
    cluster.settle()
    victim = next(each for each in cluster.world.captures if each is not cluster.owner)
    victim_id = life_id(victim)
    cluster.world.captures.remove(victim)
    victim.crash()
    died_at = cluster.world.clock.now_s
    cluster.until(lambda: victim_id not in cluster.where().values())
    assert cluster.world.clock.now_s - died_at >= 5.0
    cluster.settle()


def test_a_new_owner_takes_over_and_agents_keep_their_streams() -> None:
    cluster = Cluster(3)
    cluster.settle()
    owner = cluster.owner
    kept = {t: c for t, c in cluster.where().items() if c != life_id(owner)}
    replicas = [each.plane.replicas for each in cluster.world.captures if each is not owner]
    cluster.world.captures.remove(owner)
    owner.crash()
    cluster.until(lambda: cluster.world.owner is not None and kept.keys() <= cluster.where().keys())
    now = cluster.where()
    assert kept == {table: now[table] for table in kept}  # balance comes later
    cluster.settle()
    others = [each.plane.replicas for each in cluster.world.captures]
    assert all(any(now is then for now in others) for then in replicas)
    assert cluster.world.warehouse.term == 2


def test_an_owner_whose_key_is_deleted_hands_over_and_lives_on() -> None:
    cluster = Cluster(2)
    cluster.settle()
    owner = cluster.owner
    before = life_id(owner)
    found = cluster.world.etcd.range(keys.election_prefix(CLUSTER), prefix=True).kvs
    delete(cluster.world.etcd, min(found, key=lambda kv: kv.create_revision).key)
    cluster.until(lambda: cluster.world.owner is not None and cluster.owner is not owner)
    cluster.settle()
    assert life_id(owner) == before


def test_an_owner_ceases_when_a_restored_etcd_has_an_earlier_election_key_again() -> None:
    """Its key was in the backup too, behind the other one: nothing that it had read has changed."""
    cluster = Cluster(1)
    cluster.settle()
    owner, etcd = cluster.owner, cluster.world.etcd
    earlier = KeyValue(
        key=f"{keys.election_prefix(CLUSTER)}1",
        value=b"",
        create_revision=Revision(1),
        mod_revision=Revision(1),
    )
    cluster.world.put_back(lambda: etcd._kvs.__setitem__(earlier.key, earlier))
    cluster.until(lambda: owner.owner is None)
    delete(etcd, earlier.key)
    cluster.settle()
    assert cluster.owner is owner


def test_a_lost_session_makes_a_new_capture_of_the_same_process() -> None:
    cluster = Cluster(2)
    cluster.settle()
    capture = cluster.owner
    before = life_id(capture)
    capture.link.cut()
    cluster.until(lambda: capture.server.capture is None)
    capture.link.heal_if_cut()
    cluster.until(lambda: capture.server.capture is not None)
    assert life_id(capture) != before
    cluster.settle()


def test_an_outage_of_etcd_beyond_the_lease_is_survived_by_all() -> None:
    cluster = Cluster(3)
    cluster.settle()
    cluster.world.etcd.down = True
    cluster.step(round(6 / STEP_S))
    cluster.world.etcd.down = False
    cluster.step(4)
    cluster.settle()


def test_a_stopping_capture_hands_over_first() -> None:
    cluster = Cluster(3)
    cluster.settle()
    owner = cluster.owner
    owner.server.request_stop()
    cluster.until(lambda: owner.server.phase is Phase.STOPPED)
    assert not [replica for replica in owner.plane.replicas if replica.get_table_span_count()]
    cluster.settle()


def test_the_last_capture_stops_without_waiting_for_anybody() -> None:
    cluster = Cluster(1)
    cluster.settle()
    capture = cluster.owner
    capture.server.request_stop()
    cluster.until(lambda: capture.server.phase is Phase.STOPPED, steps=20)
    left = cluster.world.etcd.range(keys.capture_prefix(CLUSTER), prefix=True).kvs
    assert left == ()


def test_captures_that_all_stop_do_not_wait_for_each_other() -> None:
    cluster = Cluster(3)
    cluster.settle()
    for capture in cluster.world.captures:
        capture.server.request_stop()
    stopped = [lambda capture=capture: capture.is_stopped for capture in cluster.world.captures]
    cluster.until(lambda: all(is_so() for is_so in stopped), steps=24)  # they may drain for 40


def test_pause_and_resume_reach_the_data_plane_under_a_new_epoch() -> None:
    cluster = Cluster(2)
    cluster.settle()
    cluster.operator.pause(NAME)
    captures = cluster.world.captures
    cluster.until(lambda: all(not r.writers() for c in captures for r in c.plane.replicas))
    cluster.until(
        lambda: all(control.is_closed() for c in captures for control in c.plane.controls)
    )
    cluster.operator.resume(NAME)
    cluster.step(4)
    cluster.settle()
    assert cluster.info is not None
    assert cluster.info.epoch == 2


def test_what_an_operator_moved_is_there_again_after_a_pause() -> None:
    cluster = Cluster(2)
    cluster.settle()
    dest = next(life_id(each) for each in cluster.world.captures if each is not cluster.owner)
    coordinator = cluster.owner.coordinator
    assert coordinator is not None
    names = [span.name for span in coordinator.replication.tables.values()]
    cluster.ask(lambda owner: [owner.move_table(NAME, name, dest) for name in names])
    cluster.until(lambda: {*cluster.where().values()} == {dest})
    cluster.operator.pause(NAME)
    controls = [each for capture in cluster.world.captures for each in capture.plane.controls]
    cluster.until(lambda: all(each.is_closed() for each in controls))
    cluster.operator.resume(NAME)
    cluster.step(4)
    cluster.settle()
    assert {*cluster.where().values()} == {dest}


def test_a_failing_write_pends_the_changefeed_which_comes_back() -> None:
    cluster = Cluster(2)
    cluster.settle()
    cluster.owner.plane.fails_at = cluster.world.clock.now_s
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.PENDING)
    assert cluster.info is not None
    assert cluster.info.error is not None
    assert cluster.info.error.code == "CDC:ErrKafkaSend"
    warehouse, told = cluster.world.warehouse, cluster.info.error
    error = {"code": told.code, "message": told.message}
    pending = ShownState(state=FeedState.PENDING, **error)
    cluster.until(lambda: warehouse.shown == pending)
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.WARNING)
    warned = ShownState(state=FeedState.WARNING, **error)
    cluster.until(lambda: warehouse.shown == warned)
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.NORMAL)
    cluster.until(lambda: warehouse.shown == ShownState())
    cluster.settle()


def test_a_removed_changefeed_is_stopped_and_nothing_of_it_stays() -> None:
    cluster = Cluster(2)
    cluster.settle()
    cluster.operator.remove(NAME)
    cluster.until(lambda: cluster.info is None)
    cluster.step(8)
    assert all(replica.is_closed() for c in cluster.world.captures for replica in c.plane.replicas)
    assert cluster.world.value(keys.schedule_key(CLUSTER, NAME)) is None


class TestJobs:
    def test_move_a_table(self) -> None:
        cluster = Cluster(3)
        cluster.settle()
        table_id, holder = next(iter(cluster.where().items()))
        dest = next(i for i in map(life_id, cluster.world.captures) if i != holder)
        name = TableName("shop", f"t{table_id}")
        cluster.ask(lambda owner: owner.move_table(NAME, name, dest))
        cluster.until(lambda: cluster.where()[table_id] == dest)
        cluster.settle()

    def test_drain_a_capture_and_be_told_when_it_is_empty(self) -> None:
        cluster = Cluster(3)
        cluster.settle()
        target = next(each for each in cluster.world.captures if each is not cluster.owner)
        cluster.until(lambda: cluster.ask(lambda owner: owner.drain(life_id(target))) == 0)
        assert life_id(target) not in cluster.where().values()
        assert cluster.draining == {life_id(target)}

    def test_a_drain_is_taken_back(self) -> None:
        cluster = Cluster(3)
        cluster.settle()
        target = next(each for each in cluster.world.captures if each is not cluster.owner)
        cluster.ask(lambda owner: owner.drain(life_id(target)))
        cluster.until(lambda: target.is_stopping)  # it still has spans
        cluster.take_back(target)
        cluster.step(40)
        assert not target.is_stopping
        assert cluster.draining == set()
        cluster.until(lambda: life_id(target) in cluster.where().values())

    def test_a_drained_owner_leads_again(self) -> None:
        cluster = Cluster(2)
        cluster.settle()
        first = cluster.owner
        other = next(each for each in cluster.world.captures if each is not first)
        cluster.ask(lambda owner: owner.drain(life_id(first)))
        cluster.until(lambda: cluster.world.owner is other)
        cluster.take_back(first)
        cluster.until(lambda: cluster.draining == set())
        other.server.request_stop()
        cluster.until(lambda: cluster.world.owner is first)

    def test_the_only_capture_that_serves_is_not_drained(self) -> None:
        cluster = Cluster(1)
        cluster.settle()
        with pytest.raises(MetadataError, match="no other capture serves the cluster"):
            cluster.ask(lambda owner: owner.drain(life_id(cluster.owner)))
        cluster.step(8)
        assert cluster.owner.coordinator is not None
        assert not cluster.owner.is_stopping
        cluster.settle()

    def test_the_last_one_beside_a_drained_one_is_not_drained(self) -> None:
        cluster = Cluster(2)
        cluster.settle()
        other = next(each for each in cluster.world.captures if each is not cluster.owner)
        cluster.ask(lambda owner: owner.drain(life_id(other)))
        with pytest.raises(MetadataError, match="no other capture serves"):  # at once
            cluster.ask(lambda owner: owner.drain(life_id(cluster.owner)))
        cluster.until(lambda: cluster.draining == {life_id(other)})
        with pytest.raises(MetadataError, match="no other capture serves"):
            cluster.ask(lambda owner: owner.drain(life_id(cluster.owner)))

    def test_drains_and_moves_are_told_on_both_sides(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        cluster = Cluster(3)
        cluster.settle()
        target = next(each for each in cluster.world.captures if each is not cluster.owner)
        leaver = life_id(target)
        cluster.until(lambda: cluster.ask(lambda owner: owner.drain(leaver)) == 0)
        said = own_lines(caplog)
        assert said.count(f"drain asked for capture_id={leaver}") == 1
        assert any(leaver in line for line in said if line.startswith("this capture hands over"))
        assert f"drained capture_id={leaver}" in said
        moves = [line for line in said if line.startswith("tables move")]
        taken = [line for line in said if line.startswith("table taken")]
        given = [line for line in said if line.startswith("table given up")]
        assert any(f"why=drain from={leaver}" in line for line in moves)
        assert given
        for line in given:
            name = line.split("table=")[1].split()[0]
            assert sum(f"table={name} " in line for line in taken) == 2

    def test_draining_the_owner_makes_it_resign_first(self) -> None:
        cluster = Cluster(3)
        cluster.settle()
        first = cluster.owner
        assert cluster.ask(lambda owner: owner.drain(life_id(first))) == 1
        cluster.until(lambda: cluster.world.owner is not None and cluster.owner is not first)
        cluster.until(lambda: cluster.ask(lambda owner: owner.drain(life_id(first))) == 0)

    def test_processors_are_listed_by_table(self) -> None:
        cluster = Cluster(2)
        cluster.settle()
        rows = cluster.ask(lambda owner: owner.list_processors(NAME))
        where = {f"shop.t{table_id}": capture for table_id, capture in cluster.where().items()}
        assert {row["table"]: row["capture"] for row in rows} == where

    def test_who_does_not_lead_says_so(self) -> None:
        cluster = Cluster(2)
        cluster.settle()
        other = next(each for each in cluster.world.captures if each is not cluster.owner)
        future = other.server.jobs.post(lambda owner: owner.rebalance(NAME))
        cluster.until(future.done)
        with pytest.raises(NotOwner):
            future.result()
