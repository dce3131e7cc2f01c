"""Who controls a cluster, and what only the controller may do; as `metadata_contract.py`."""

from __future__ import annotations

import pytest

from coordination.metadata.errors import (
    CaptureNotFound,
    MetadataError,
    NotController,
    NotLaunched,
    OwnerNotFound,
)
from coordination.metadata.model import ChangefeedIdent, ChangefeedStatus, FeedState
from coordination.metadata.observation import (
    CaptureObservation,
    ControllerObservation,
    OwnerObservation,
)
from coordination.metadata.schedule import SchedState
from coordination.model import Ts
from tests.contracts.metadata_contract import NO_SUCH, MetadataCluster, launched, lead, set_owner


class ControllerContract:
    """The fixtures are `MetadataContract`'s: mix it in behind this one."""

    def test_the_controller_is_who_leads(
        self, cluster: MetadataCluster, c1: CaptureObservation, c2: CaptureObservation
    ) -> None:
        with pytest.raises(OwnerNotFound):
            c1.get_controller()
        lead(c1, lambda _controller: assert_equal(c2.get_controller(), c1.self_info()))
        with pytest.raises(OwnerNotFound):
            c2.get_controller()
        assert list(c1.get_captures()) == [c1.self_info(), c2.self_info()]
        assert list(c1.get_captures(c2.self_info().id)) == [c2.self_info()]
        cluster.kill(c2)
        assert list(c1.get_captures()) == [c1.self_info()]

    def test_who_does_not_lead_schedules_nothing(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, c1: CaptureObservation
    ) -> None:
        with pytest.raises(NotController):
            cluster.operator().set_owner(launched(ident, c1))
        kept: list[ControllerObservation] = []
        lead(c1, kept.append)
        with pytest.raises(NotController):
            kept[0].set_owner(launched(ident, c1))
        assert self.schedule(cluster, ident).owner is None

    def test_a_controller_whose_lease_has_ended_writes_nothing_more(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, c1: CaptureObservation
    ) -> None:
        c2 = cluster.capture("c2")

        def body(controller: ControllerObservation) -> None:
            cluster.kill(c1)  # it has not noticed
            for _ in range(2):
                with pytest.raises(NotController):
                    controller.set_owner(launched(ident, c2))
                with pytest.raises(NotController):
                    controller.remove_changefeed(ident.uuid)

        lead(c1, body)
        assert self.schedule(cluster, ident).owner is None
        assert self.state(cluster) is FeedState.NORMAL

    def test_a_refresh_says_whether_captures_came_or_went(
        self, cluster: MetadataCluster, c1: CaptureObservation
    ) -> None:
        """TiCDC's never says so."""
        operator = cluster.operator()
        seen = operator.refresh_captures()
        assert (seen.infos, seen.changed) == ((c1.self_info(),), True)
        assert not operator.refresh_captures().changed
        cluster.kill(c1)
        seen = operator.refresh_captures()
        assert (seen.infos, seen.changed) == ((), True)

    def test_what_a_dead_capture_owned_goes_on_from_what_it_last_reported(
        self,
        cluster: MetadataCluster,
        ident: ChangefeedIdent,
        c1: CaptureObservation,
        owner: OwnerObservation,
    ) -> None:
        c2, c1_id = cluster.capture("c2"), c1.self_info().id
        c1.advance({ident.uuid: ChangefeedStatus(checkpoint_ts=Ts(470))})
        c1.advance({NO_SUCH: ChangefeedStatus(checkpoint_ts=Ts(1))})  # keeps the other

        def body(controller: ControllerObservation) -> None:
            with pytest.raises(MetadataError, match="alive"):
                controller.post_capture_offline(c1_id)
            cluster.kill(c1)
            controller.post_capture_offline(c1_id)

        lead(c2, body)
        schedule = self.schedule(cluster, ident)
        assert (schedule.owner, schedule.owner_state) == (None, SchedState.REMOVED)
        assert schedule.task_position.checkpoint_ts == 470
        with pytest.raises(NotLaunched):
            owner.pause_changefeed()
        with pytest.raises(CaptureNotFound):
            c1.advance({ident.uuid: ChangefeedStatus(checkpoint_ts=Ts(480))})
        set_owner(c2, launched(ident, c2))


def assert_equal(left: object, right: object) -> None:
    assert left == right
