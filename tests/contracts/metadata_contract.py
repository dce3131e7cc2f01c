"""What every store of metadata does: run over etcd, real and fake, and by an EtcdWorker.

A subclass has the fixture `cluster`. Nothing here knows where the metadata are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import pytest

from coordination.metadata.errors import (
    CaptureNotFound,
    ChangefeedExists,
    ChangefeedNotFound,
    InvalidSchedule,
    InvalidTransition,
    MetadataError,
    NotLaunched,
)
from coordination.metadata.model import (
    ChangefeedIdent,
    ChangefeedInfo,
    ChangefeedStatus,
    ChangefeedUUID,
    FeedState,
    RunningError,
)
from coordination.metadata.observation import (
    CaptureObservation,
    ControllerObservation,
    OwnerObservation,
)
from coordination.metadata.querier import Querier
from coordination.metadata.schedule import SchedState, ScheduledChangefeed
from coordination.model import ChangefeedID, Ts

START_TS = Ts(400)
SHOP = ChangefeedInfo(
    id=ChangefeedID("shop"), sink_uri="delta:///w", start_ts=START_TS, config={"filter": {}}
)
ERROR = RunningError(time="t", addr="a", code="CDC:ErrKafkaSend", message="no broker")
NO_SUCH = ChangefeedUUID(999_999_999)


class Done(Exception):
    """Ends an election that the test has seen enough of."""


def stop_waiting(_timeout_s: float) -> None:
    raise Done


class MetadataCluster(Protocol):
    """One cluster with its store."""

    querier: Querier

    def capture(self, name: str) -> CaptureObservation:
        """A registered capture."""
        ...

    def kill(self, capture: CaptureObservation) -> None:
        """Its lease ends."""
        ...

    def operator(self) -> ControllerObservation: ...

    def operate(self, ident: ChangefeedIdent) -> OwnerObservation: ...


def launched(ident: ChangefeedIdent, capture: CaptureObservation) -> ScheduledChangefeed:
    return ScheduledChangefeed(
        changefeed_uuid=ident.uuid,
        owner=capture.self_info().id,
        owner_state=SchedState.LAUNCHED,
    )


def removing(ident: ChangefeedIdent, capture: CaptureObservation) -> ScheduledChangefeed:
    return ScheduledChangefeed(
        changefeed_uuid=ident.uuid,
        owner=capture.self_info().id,
        owner_state=SchedState.REMOVING,
    )


def lead(capture: CaptureObservation, body: Callable[[ControllerObservation], None]) -> None:
    """Have the capture elected, and do it while it leads."""

    def take_control(controller: ControllerObservation) -> None:
        body(controller)
        raise Done

    with pytest.raises(Done):
        capture.run(take_control, stop_waiting)


def set_owner(capture: CaptureObservation, target: ScheduledChangefeed) -> None:
    lead(capture, lambda controller: controller.set_owner(target))


class MetadataContract:
    @pytest.fixture
    def ident(self, cluster: MetadataCluster) -> ChangefeedIdent:
        return cluster.operator().create_changefeed(SHOP)

    @pytest.fixture
    def c1(self, cluster: MetadataCluster) -> CaptureObservation:
        return cluster.capture("c1")

    @pytest.fixture
    def c2(self, cluster: MetadataCluster) -> CaptureObservation:
        return cluster.capture("c2")

    @pytest.fixture
    def owner(self, ident: ChangefeedIdent, c1: CaptureObservation) -> OwnerObservation:
        set_owner(c1, launched(ident, c1))
        return c1.on_owner_launched(ident.uuid)

    @staticmethod
    def state(cluster: MetadataCluster) -> FeedState:
        (found,) = cluster.querier.get_changefeed_state()
        return found.state

    @staticmethod
    def info(cluster: MetadataCluster) -> ChangefeedInfo:
        (found,) = cluster.querier.get_changefeed()
        return found.info

    @staticmethod
    def schedule(cluster: MetadataCluster, ident: ChangefeedIdent) -> ScheduledChangefeed:
        return cluster.operator().get_changefeed_schedule(ident.uuid)

    # the life of a changefeed

    def test_a_new_changefeed_is_normal_at_its_start_and_nobodys(
        self, cluster: MetadataCluster, ident: ChangefeedIdent
    ) -> None:
        (found,) = cluster.querier.get_changefeed(ident.uuid)
        assert found.ident == ident
        assert (found.info.sink_uri, found.info.config) == (SHOP.sink_uri, SHOP.config)
        assert found.info.epoch > 0
        assert self.state(cluster) is FeedState.NORMAL
        assert cluster.querier.get_changefeed_progress()[ident.uuid].checkpoint_ts == START_TS
        schedule = self.schedule(cluster, ident)
        assert (schedule.owner, schedule.owner_state) == (None, SchedState.REMOVED)
        assert schedule.task_position.checkpoint_ts == START_TS

    def test_a_name_is_taken_once_in_its_namespace(
        self, cluster: MetadataCluster, ident: ChangefeedIdent
    ) -> None:
        with pytest.raises(ChangefeedExists, match="shop"):
            cluster.operator().create_changefeed(SHOP)
        other = ChangefeedInfo(id=SHOP.id, namespace="team-a", start_ts=START_TS)
        assert cluster.operator().create_changefeed(other).uuid != ident.uuid
        assert len(cluster.querier.get_changefeed()) == 2

    def test_of_many_who_create_the_same_one_succeeds(self, cluster: MetadataCluster) -> None:
        results: list[ChangefeedIdent | MetadataError] = []

        def create() -> None:
            try:
                results.append(cluster.operator().create_changefeed(SHOP))
            except ChangefeedExists as error:
                results.append(error)

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(each, ChangefeedIdent) for each in results) == 1
        assert len(results) == 4

    def test_what_is_not_there_is_not_in_the_answer(
        self, cluster: MetadataCluster, ident: ChangefeedIdent
    ) -> None:
        assert cluster.querier.get_changefeed(NO_SUCH) == []
        assert cluster.querier.get_changefeed_state(NO_SUCH) == []
        assert cluster.querier.get_changefeed_progress(NO_SUCH) == {}
        assert len(cluster.querier.get_changefeed(NO_SUCH, ident.uuid)) == 1
        for action in (
            cluster.operator().remove_changefeed,
            cluster.operator().cleanup_changefeed,
            cluster.operator().get_changefeed_schedule,
        ):
            with pytest.raises(ChangefeedNotFound):
                action(NO_SUCH)

    def test_a_removed_changefeed_keeps_its_name_until_it_is_cleaned_up(
        self, cluster: MetadataCluster, ident: ChangefeedIdent
    ) -> None:
        operator = cluster.operator()
        with pytest.raises(MetadataError, match="not removed"):
            operator.cleanup_changefeed(ident.uuid)
        first_epoch = self.info(cluster).epoch
        operator.remove_changefeed(ident.uuid)
        assert self.state(cluster) is FeedState.REMOVED
        with pytest.raises(InvalidTransition):
            operator.remove_changefeed(ident.uuid)
        with pytest.raises(ChangefeedExists):
            operator.create_changefeed(SHOP)
        operator.cleanup_changefeed(ident.uuid)
        assert cluster.querier.get_changefeed() == []
        again = operator.create_changefeed(SHOP)
        assert again.uuid != ident.uuid
        assert self.info(cluster).start_epoch == self.info(cluster).epoch > first_epoch
        with pytest.raises(ChangefeedNotFound):
            operator.remove_changefeed(ident.uuid)

    def test_a_write_for_an_earlier_life_does_not_touch_the_present_one(
        self,
        cluster: MetadataCluster,
        ident: ChangefeedIdent,
        c1: CaptureObservation,
        owner: OwnerObservation,
    ) -> None:
        operator, mine = cluster.operator(), cluster.operate(ident)
        operator.remove_changefeed(ident.uuid)
        c1.post_owner_removed(ident.uuid, ChangefeedStatus())
        operator.cleanup_changefeed(ident.uuid)
        again = operator.create_changefeed(SHOP)
        set_owner(c1, launched(again, c1))
        for action in (
            mine.pause_changefeed,
            owner.pause_changefeed,
            owner.set_changefeed_finished,
        ):
            with pytest.raises(ChangefeedNotFound):
                action()
        assert self.state(cluster) is FeedState.NORMAL

    # the schedule

    def test_a_launch_reaches_its_capture_once(
        self,
        cluster: MetadataCluster,
        ident: ChangefeedIdent,
        c1: CaptureObservation,
        c2: CaptureObservation,
    ) -> None:
        assert list(c1.owner_changes()) == []
        set_owner(c2, launched(ident, c1))
        (change,) = c1.owner_changes()
        assert (change.changefeed_uuid, change.owner_state) == (ident.uuid, SchedState.LAUNCHED)
        assert change.row_revision > 0
        assert list(c1.owner_changes()) == []
        assert list(c2.owner_changes()) == []
        assert c1.on_owner_launched(ident.uuid).self_uuid() == ident.uuid
        with pytest.raises(NotLaunched):
            c2.on_owner_launched(ident.uuid)
        assert self.schedule(cluster, ident).owner == c1.self_info().id

    def test_an_owner_that_is_launched_is_not_launched_elsewhere(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, owner: OwnerObservation
    ) -> None:
        c2 = cluster.capture("c2")
        with pytest.raises(InvalidSchedule):
            set_owner_raising(c2, launched(ident, c2))
        owner.pause_changefeed()  # still the owner

    def test_two_controllers_at_once_launch_it_at_one_capture(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, c1: CaptureObservation
    ) -> None:
        c2, outcomes = cluster.capture("c2"), []

        def body(controller: ControllerObservation) -> None:
            def launch(capture: CaptureObservation) -> None:
                try:
                    controller.set_owner(launched(ident, capture))
                    outcomes.append(capture.self_info().id)
                except InvalidSchedule:
                    pass

            threads = [threading.Thread(target=launch, args=(each,)) for each in (c1, c2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        lead(c1, body)
        assert outcomes == [self.schedule(cluster, ident).owner]

    def test_only_registered_captures_and_living_changefeeds_are_launched(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, c1: CaptureObservation
    ) -> None:
        c2 = cluster.capture("c2")
        cluster.kill(c2)
        with pytest.raises(CaptureNotFound):
            set_owner_raising(c1, launched(ident, c2))
        with pytest.raises(InvalidSchedule):
            set_owner_raising(c1, removing(ident, c1))  # it has no owner to be stopped
        released = ScheduledChangefeed(changefeed_uuid=ident.uuid)
        with pytest.raises(InvalidSchedule):
            set_owner_raising(c1, released)  # only the capture says that it has ended
        cluster.operator().remove_changefeed(ident.uuid)
        with pytest.raises(InvalidSchedule):
            set_owner_raising(c1, launched(ident, c1))

    def test_an_owner_is_stopped_and_hands_over_what_it_reached(
        self,
        cluster: MetadataCluster,
        ident: ChangefeedIdent,
        c1: CaptureObservation,
        owner: OwnerObservation,
    ) -> None:
        c2 = cluster.capture("c2")
        list(c1.owner_changes())
        set_owner(c2, removing(ident, c1))
        (change,) = c1.owner_changes()
        assert change.owner_state is SchedState.REMOVING
        with pytest.raises(NotLaunched):
            owner.set_changefeed_finished()
        with pytest.raises(InvalidSchedule):
            set_owner_raising(c2, launched(ident, c2))  # not before the old one has ended
        with pytest.raises(NotLaunched):
            c2.post_owner_removed(ident.uuid, ChangefeedStatus(checkpoint_ts=Ts(1)))
        c1.post_owner_removed(ident.uuid, ChangefeedStatus(checkpoint_ts=Ts(450)))
        schedule = self.schedule(cluster, ident)
        assert (schedule.owner, schedule.owner_state) == (None, SchedState.REMOVED)
        assert schedule.task_position.checkpoint_ts == 450
        set_owner(c2, launched(ident, c2))
        c2.on_owner_launched(ident.uuid).pause_changefeed()
        (gone,) = c1.owner_changes()
        assert (gone.changefeed_uuid, gone.owner_state) == (ident.uuid, SchedState.REMOVED)

    def test_an_earlier_launch_at_the_same_capture_is_over_for_ever(
        self,
        cluster: MetadataCluster,
        ident: ChangefeedIdent,
        c1: CaptureObservation,
        owner: OwnerObservation,
    ) -> None:
        c1.post_owner_removed(ident.uuid, ChangefeedStatus())
        set_owner(c1, launched(ident, c1))
        with pytest.raises(NotLaunched):
            owner.set_changefeed_failed(ERROR)
        assert self.state(cluster) is FeedState.NORMAL

    def test_a_removed_changefeed_waits_for_its_owner(
        self,
        cluster: MetadataCluster,
        ident: ChangefeedIdent,
        c1: CaptureObservation,
        owner: OwnerObservation,
    ) -> None:
        cluster.operator().remove_changefeed(ident.uuid)
        assert self.schedule(cluster, ident).owner_state is SchedState.REMOVING
        with pytest.raises(InvalidSchedule, match="owner"):
            cluster.operator().cleanup_changefeed(ident.uuid)
        c1.post_owner_removed(ident.uuid, ChangefeedStatus())
        cluster.operator().cleanup_changefeed(ident.uuid)
        assert owner.self_uuid() == ident.uuid
        assert cluster.querier.get_changefeed() == []

    def test_a_snapshot_has_every_schedule_and_every_capture(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, c1: CaptureObservation
    ) -> None:
        second = cluster.operator().create_changefeed(ChangefeedInfo(id=ChangefeedID("b")))
        set_owner(c1, launched(second, c1))
        schedule, captures = cluster.operator().schedule_snapshot()
        assert [each.changefeed_uuid for each in schedule] == [ident.uuid, second.uuid]
        assert [each.owner for each in schedule] == [None, c1.self_info().id]
        assert captures == [c1.self_info()]


def set_owner_raising(capture: CaptureObservation, target: ScheduledChangefeed) -> None:
    """As `set_owner`; what is raised comes through."""
    capture.run(lambda controller: controller.set_owner(target), stop_waiting)
