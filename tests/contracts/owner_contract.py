"""What the owner of a changefeed, and an operator, may do to it; as `metadata_contract.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.metadata.errors import (
    ChangefeedNotFound,
    ChangefeedUpdateRefused,
    InvalidTransition,
    NotLaunched,
)
from coordination.metadata.model import (
    AdminJobType,
    ChangefeedIdent,
    ChangefeedInfo,
    ChangefeedProgress,
    ChangefeedUUID,
    FeedState,
    RunningError,
)
from coordination.metadata.observation import OwnerObservation
from coordination.model import Ts
from tests.contracts.metadata_contract import ERROR, SHOP, START_TS, MetadataCluster

GC_ERROR = replace(ERROR, code="CDC:ErrGCTTLExceeded")


class OwnerContract:
    """The fixtures are `MetadataContract`'s: mix it in behind this one."""

    @staticmethod
    def info(cluster: MetadataCluster) -> ChangefeedInfo:
        (found,) = cluster.querier.get_changefeed()
        return found.info

    @staticmethod
    def progress(cluster: MetadataCluster, ident: ChangefeedIdent) -> ChangefeedProgress:
        return cluster.querier.get_changefeed_progress()[ChangefeedUUID(ident.uuid)]

    def test_paused_and_resumed_it_runs_with_a_new_epoch(
        self, cluster: MetadataCluster, owner: OwnerObservation
    ) -> None:
        before = self.info(cluster)
        owner.pause_changefeed()
        paused = self.info(cluster)
        assert (paused.state, paused.admin_job_type) == (FeedState.STOPPED, AdminJobType.STOP)
        assert paused.epoch == before.epoch
        with pytest.raises(InvalidTransition):
            owner.pause_changefeed()
        owner.resume_changefeed()
        resumed = self.info(cluster)
        assert (resumed.state, resumed.admin_job_type) == (FeedState.NORMAL, AdminJobType.NONE)
        assert resumed.epoch > before.epoch
        with pytest.raises(InvalidTransition):
            owner.resume_changefeed()

    def test_an_operator_pauses_resumes_and_updates_but_reports_nothing(
        self, cluster: MetadataCluster, ident: ChangefeedIdent
    ) -> None:
        operator = cluster.operate(ident)
        assert operator.self_uuid() == ident.uuid
        operator.pause_changefeed()
        operator.update_changefeed(replace(SHOP, sink_uri="delta:///other"))
        operator.resume_changefeed()
        assert self.info(cluster).sink_uri == "delta:///other"
        for action in (
            operator.set_changefeed_finished,
            operator.set_changefeed_removed,
            operator.set_changefeed_normal,
            operator.retry_changefeed,
            lambda: operator.set_changefeed_failed(ERROR),
            lambda: operator.set_changefeed_pending(ERROR),
            lambda: operator.set_changefeed_warning(ERROR),
            lambda: operator.advance_changefeed(Ts(999), Ts(999), epoch=1),
        ):
            with pytest.raises(NotLaunched):
                action()

    def test_resumed_from_another_point_it_begins_there(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, owner: OwnerObservation
    ) -> None:
        epoch = self.info(cluster).epoch
        owner.advance_changefeed(Ts(500), Ts(510), epoch=epoch)
        owner.set_changefeed_failed(ERROR)
        owner.resume_changefeed(overwrite_checkpoint_ts=Ts(450))
        info, progress = self.info(cluster), self.progress(cluster, ident)
        assert (info.start_ts, info.error, info.state) == (450, None, FeedState.NORMAL)
        assert (progress.checkpoint_ts, progress.min_table_barrier_ts) == (450, 450)
        owner.advance_changefeed(Ts(520), Ts(520), epoch=epoch)  # of the run before: too late
        assert self.progress(cluster, ident).checkpoint_ts == 450

    def test_each_word_about_the_start_has_an_epoch_of_its_own(
        self, cluster: MetadataCluster, owner: OwnerObservation
    ) -> None:
        """To be told from the one before, also where the ts is the same."""
        made = self.info(cluster)
        assert made.start_epoch == made.epoch > 0
        owner.pause_changefeed()
        owner.resume_changefeed()
        assert self.info(cluster).start_epoch == made.start_epoch
        owner.pause_changefeed()
        owner.resume_changefeed(overwrite_checkpoint_ts=made.start_ts)
        resumed = self.info(cluster)
        assert resumed.start_ts == made.start_ts
        assert resumed.start_epoch == resumed.epoch > made.start_epoch

    def test_only_a_paused_changefeed_is_changed_and_stays_what_it_is(
        self, cluster: MetadataCluster, owner: OwnerObservation
    ) -> None:
        wanted = ChangefeedInfo(
            id=SHOP.id,
            sink_uri="delta:///other",
            target_ts=Ts(900),
            config={"filter": {"rules": ["a.*"]}},
            state=FeedState.FINISHED,
            epoch=1_000_000,
        )
        with pytest.raises(ChangefeedUpdateRefused, match="pause"):
            owner.update_changefeed(wanted)
        owner.pause_changefeed()
        before = self.info(cluster)
        owner.update_changefeed(wanted)
        after = self.info(cluster)
        assert (after.sink_uri, after.target_ts) == ("delta:///other", 900)
        assert after.config == wanted.config
        assert (after.state, after.epoch) == (FeedState.STOPPED, before.epoch)
        assert (after.start_ts, after.create_time) == (before.start_ts, before.create_time)

    def test_an_error_has_it_wait_and_a_retry_runs_it_anew(
        self, cluster: MetadataCluster, owner: OwnerObservation
    ) -> None:
        epoch = self.info(cluster).epoch
        owner.set_changefeed_pending(ERROR)
        info = self.info(cluster)
        assert (info.state, info.error, info.epoch) == (FeedState.PENDING, ERROR, epoch)
        assert info.admin_job_type is AdminJobType.STOP
        owner.retry_changefeed()
        info = self.info(cluster)
        assert (info.state, info.admin_job_type) == (FeedState.WARNING, AdminJobType.NONE)
        assert info.epoch > epoch
        owner.set_changefeed_normal()
        info = self.info(cluster)
        assert (info.state, info.error, info.warning) == (FeedState.NORMAL, None, None)

    def test_a_warning_stands_beside_the_error(
        self, cluster: MetadataCluster, owner: OwnerObservation
    ) -> None:
        owner.set_changefeed_warning(ERROR)
        info = self.info(cluster)
        assert (info.state, info.warning, info.error) == (FeedState.WARNING, ERROR, None)

    @pytest.mark.parametrize(
        ("error", "from_paused"), [(ERROR, False), (GC_ERROR, False), (GC_ERROR, True)]
    )
    def test_it_fails_also_while_paused_if_its_history_is_gone(
        self,
        cluster: MetadataCluster,
        owner: OwnerObservation,
        error: RunningError,
        from_paused: bool,
    ) -> None:
        if from_paused:
            owner.pause_changefeed()
            with pytest.raises(InvalidTransition):
                owner.set_changefeed_failed(ERROR)
        owner.set_changefeed_failed(error)
        info = self.info(cluster)
        assert (info.state, info.error) == (FeedState.FAILED, error)
        assert info.admin_job_type is AdminJobType.STOP

    def test_finished_is_the_end_unless_it_is_resumed(
        self, cluster: MetadataCluster, owner: OwnerObservation
    ) -> None:
        owner.set_changefeed_finished()
        info = self.info(cluster)
        assert (info.state, info.admin_job_type) == (FeedState.FINISHED, AdminJobType.FINISH)
        with pytest.raises(InvalidTransition):
            owner.pause_changefeed()
        with pytest.raises(InvalidTransition):
            owner.set_changefeed_pending(ERROR)
        owner.resume_changefeed()

    def test_removed_is_the_end(self, cluster: MetadataCluster, owner: OwnerObservation) -> None:
        owner.set_changefeed_removed()
        info = self.info(cluster)
        assert (info.state, info.admin_job_type) == (FeedState.REMOVED, AdminJobType.REMOVE)
        for action in (owner.resume_changefeed, owner.pause_changefeed, owner.retry_changefeed):
            with pytest.raises(InvalidTransition):
                action()

    def test_progress_goes_up_and_never_back(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, owner: OwnerObservation
    ) -> None:
        epoch = self.info(cluster).epoch
        owner.advance_changefeed(Ts(500), Ts(520), epoch=epoch)
        owner.advance_changefeed(Ts(490), Ts(530), epoch=epoch)
        progress = self.progress(cluster, ident)
        assert (progress.checkpoint_ts, progress.min_table_barrier_ts) == (500, 520)

    def test_nothing_advances_that_does_not_run(
        self, cluster: MetadataCluster, ident: ChangefeedIdent, owner: OwnerObservation
    ) -> None:
        epoch = self.info(cluster).epoch
        owner.advance_changefeed(Ts(500), Ts(500), epoch=epoch + 1)
        owner.advance_changefeed(Ts(500), Ts(500), epoch=epoch - 1)
        owner.pause_changefeed()
        owner.advance_changefeed(Ts(500), Ts(500), epoch=epoch)
        assert self.progress(cluster, ident).checkpoint_ts == START_TS

    def test_an_operator_of_a_changefeed_that_is_gone(
        self, cluster: MetadataCluster, ident: ChangefeedIdent
    ) -> None:
        mine = cluster.operate(ident)
        cluster.operator().remove_changefeed(ident.uuid)
        cluster.operator().cleanup_changefeed(ident.uuid)
        with pytest.raises(ChangefeedNotFound):
            mine.pause_changefeed()
        with pytest.raises(ChangefeedNotFound):
            cluster.operate(ident)
