"""The capture on the fake etcd: every way in which a life ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conf.settings import SessionSettings
from coordination.errors import ConfigError, Fenced, TermRefused, TidelakeError
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, KeyValue, delete
from coordination.etcd.identity import etcd_identity
from coordination.model import ChangefeedID, LeaseID, Ownership
from coordination.reset_limit import ResetLimit
from tests.coordination.running_capture import CALM, SHORT, RunningCapture
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd

OWNERS = keys.owner_prefix("test", ChangefeedID("shop"))
CAPTURES = keys.run_capture_prefix("test", ChangefeedID("shop"))


@pytest.fixture
def etcd() -> FakeEtcd:
    """Its leases end only by hand."""
    return FakeEtcd(FakeClock())


def candidates(client: EtcdClient) -> tuple[KeyValue, ...]:
    return client.range(OWNERS, prefix=True).kvs


def await_candidates(client: EtcdClient, count: int) -> None:
    deadline = time.monotonic() + 5
    while len(candidates(client)) != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lease_of(client: EtcdClient, owner: Ownership) -> LeaseID:
    return next(
        each.lease for each in candidates(client) if each.value == owner.capture_id.encode()
    )


@contextmanager
def leader_and_standby(
    client: EtcdClient, session: SessionSettings = SHORT
) -> Iterator[tuple[RunningCapture, RunningCapture]]:
    with RunningCapture(client, session=session) as one:
        one.replication.await_owner()
        with RunningCapture(client, session=session) as two:
            await_candidates(client, 2)
            yield one, two


class TestLeading:
    def test_the_owner_is_who_etcd_says(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            owner = one.replication.await_owner()
            (key,) = candidates(etcd)
            assert key.value.decode() == owner.capture_id
            assert key.create_revision == owner.owner_revision
            assert key.key == keys.owner_key("test", ChangefeedID("shop"), key.lease)
            assert one.fence.check() == owner

    def test_who_is_not_admitted_does_not_stand_for_election(self, etcd: FakeEtcd) -> None:
        def refuse() -> None:
            raise ConfigError("not here")

        with RunningCapture(etcd, admitted=refuse) as one:
            one.join()
            assert isinstance(one.error, ConfigError)
            assert one.replication.owners == []

    def test_it_registers_where_no_cluster_counts_it(self, etcd: FakeEtcd) -> None:
        """An owner schedules nothing while a capture that is registered has not answered."""
        with RunningCapture(etcd) as one:
            owner = one.replication.await_owner()
            (kv,) = etcd.range(CAPTURES, prefix=True).kvs
            info = keys.load_capture_info(kv.value)
            assert kv.key == CAPTURES + owner.capture_id
            assert kv.lease == lease_of(etcd, owner)
            assert (info.id, info.address) == (owner.capture_id, "127.0.0.1:8300")
            assert etcd.range(keys.base_prefix("test"), prefix=True).kvs == ()
            assert owner.etcd_cluster_id == f"{etcd_identity(etcd, 'test')}/run-shop"
            assert abs(info.start_timestamp - time.time()) < 60

    def test_an_emptied_etcd_is_told_from_the_one_before(self, etcd: FakeEtcd) -> None:
        identities = []
        for client in (etcd, etcd, FakeEtcd(FakeClock())):  # the third has the same cluster ID
            with RunningCapture(client) as one:
                identities.append(one.replication.await_owner().etcd_cluster_id)
        assert identities[0] == identities[1] != identities[2]

    def test_another_changefeed_and_another_cluster_are_no_rivals(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one, RunningCapture(etcd, cluster_id="other") as two:
            one.replication.await_owner()
            two.replication.await_owner()


class TestStopping:
    def test_a_stop_finishes_the_batch_and_leaves_nothing_in_etcd(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            one.replication.await_owner()
            one.replication.on_stop = lambda: one.fence.check() and None  # it may still commit
            one.stop()
            assert one.error is None
            assert one.replication.stops == [False]
            assert candidates(etcd) == etcd.range(CAPTURES, prefix=True).kvs == ()
            assert etcd.watches == set()
            with pytest.raises(Fenced):
                one.fence.check()

    def test_stopping_twice_is_fine(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            one.replication.await_owner()
            one.capture.request_stop()
            one.stop()
            assert one.error is None

    def test_a_stop_before_the_start_returns_without_a_session(self, etcd: FakeEtcd) -> None:
        one = RunningCapture(etcd)
        one.capture.request_stop()
        with one:
            one.join()
        assert one.error is None
        assert one.replication.owners == []
        assert etcd.range("/", prefix=True).revision == 1

    def test_who_waits_for_another_is_told_so(self, etcd: FakeEtcd) -> None:
        with leader_and_standby(etcd) as (one, two):
            assert two.stands_by.wait(5)
            assert not one.stands_by.is_set()

    def test_a_standby_stops_while_it_waits(self, etcd: FakeEtcd) -> None:
        with leader_and_standby(etcd) as (_one, two):
            two.stop()
            assert len(candidates(etcd)) == 1
            assert two.replication.stops == []

    def test_a_stop_is_heard_in_an_outage(self, etcd: FakeEtcd) -> None:
        etcd.down = True
        with RunningCapture(etcd) as one:
            time.sleep(0.3)
            one.stop()
        assert one.error is None


class TestTakeover:
    def test_one_runs_and_the_other_takes_over_at_once_after_a_stop(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            first = one.replication.await_owner()
            with RunningCapture(etcd) as two:
                await_candidates(etcd, 2)
                assert two.replication.owners == []
                stopped_first = []
                one.replication.on_stop = lambda: stopped_first.append(not two.replication.owners)
                one.stop()
                second = two.replication.await_owner(timeout_s=1)
                assert stopped_first == [True]
                assert second.owner_revision > first.owner_revision

    def test_a_dead_one_is_followed_when_its_lease_ends(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as two:
            dead = two.replication.await_owner()
            with RunningCapture(etcd) as three:
                await_candidates(etcd, 2)
                etcd.revoke(lease_of(etcd, dead))
                assert three.replication.await_owner().capture_id != dead.capture_id


class TestSuicide:
    def test_a_revoked_lease_makes_a_new_capture_with_a_new_epoch(
        self, etcd: FakeEtcd, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        with RunningCapture(etcd) as one:
            before = one.replication.await_owner()
            etcd.revoke(lease_of(etcd, before))
            assert one.replication.await_stop() is True
            after = one.replication.await_owner(2)
            assert after.capture_id != before.capture_id
            assert after.epoch != before.epoch
            assert after.owner_revision > before.owner_revision
            assert one.fence.check() == after
        lines = [record.getMessage() for record in caplog.records]
        died = next(line for line in lines if line.startswith("capture dies by suicide"))
        back = next(line for line in lines if line.startswith("capture is back as a new one"))
        assert f"capture_id={before.capture_id} epoch={before.epoch}" in died
        assert f"capture_id={after.capture_id} epoch={after.epoch}" in back

    def test_the_fence_is_shut_before_the_replication_is_dropped(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            owner = one.replication.await_owner()
            shut: list[str] = []
            one.replication.on_stop = lambda: shut.extend(one.replication.shut)
            etcd.revoke(lease_of(etcd, owner))
            one.replication.await_stop()
            assert len(shut) == 1

    def test_a_deleted_election_key_ends_the_life_and_frees_the_lease(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            before = one.replication.await_owner()
            lease = lease_of(etcd, before)
            delete(etcd, candidates(etcd)[0].key)
            after = one.replication.await_owner(2)
            assert one.replication.stops[0] is True
            assert after.epoch != before.epoch
            assert etcd.time_to_live(lease) == -1

    def test_a_silent_watch_does_not_hide_a_deleted_key(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            one.replication.await_owner()
            time.sleep(0.1)
            etcd.watches.clear()
            delete(etcd, candidates(etcd)[0].key)
            one.replication.await_owner(2)

    def test_a_standby_whose_lease_goes_stands_in_line_again(self, etcd: FakeEtcd) -> None:
        with leader_and_standby(etcd) as (one, two):
            owner = one.replication.await_owner()
            standby = next(kv for kv in candidates(etcd) if kv.value != owner.capture_id.encode())
            etcd.revoke(standby.lease)
            await_candidates(etcd, 2)
            assert candidates(etcd)[-1].value != standby.value
            assert two.replication.stops == []
            one.stop()
            two.replication.await_owner(timeout_s=1)

    @pytest.mark.parametrize("error", [TermRefused("term 7 is claimed"), Fenced("lapsed")])
    def test_a_refused_term_is_suicide(self, etcd: FakeEtcd, error: TidelakeError) -> None:
        with RunningCapture(etcd) as one:
            before = one.replication.await_owner()
            one.replication.end(error)
            after = one.replication.await_owner(2)
            assert after.epoch != before.epoch
            assert one.replication.stops[0] is True
            assert str(error) in one.replication.shut[0]

    def test_a_term_refused_at_the_start_is_suicide_too(self, etcd: FakeEtcd) -> None:
        one = RunningCapture(etcd)
        one.replication.refuse = TermRefused("a newer revision holds it")
        with one:
            one.replication.await_owner()
            assert one.replication.stops == [True]

    def test_an_answer_of_a_life_that_is_over_is_not_heard(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            owner = one.replication.await_owner()
            end_of_first = one.replication._ended
            etcd.revoke(lease_of(etcd, owner))
            one.replication.await_owner(2)
            assert end_of_first is not None
            end_of_first(None)
            end_of_first(RuntimeError("the first stream was cancelled"))
            time.sleep(0.3)
            assert not one.has_returned

    def test_resets_are_limited_and_a_stop_is_heard_meanwhile(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd, reset_limit=ResetLimit(interval_s=60.0, burst=2)) as one:
            for number in (1, 2):
                etcd.revoke(lease_of(etcd, one.replication.await_owner(number)))
                one.replication.await_stop(number)
            time.sleep(0.3)
            assert len(one.replication.owners) == 2
            assert candidates(etcd) == ()
            one.stop()
            assert one.error is None


class TestEnding:
    def test_a_finished_replication_ends_the_run(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            one.replication.await_owner()
            one.replication.end(None)
            one.join()
            assert one.error is None
            assert one.replication.stops == [False]
            assert candidates(etcd) == ()

    def test_any_other_error_is_raised_after_the_lease_is_released(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd) as one:
            one.replication.await_owner()
            error = TidelakeError("topic shop is gone")
            one.replication.end(error)
            one.join()
            assert one.error is error
            assert one.replication.stops == [True]
            assert candidates(etcd) == ()

    def test_an_error_of_the_start_is_raised(self, etcd: FakeEtcd) -> None:
        one = RunningCapture(etcd)
        one.replication.refuse = TidelakeError("no warehouse")
        with one:
            one.join()
        assert str(one.error) == "no warehouse"
        assert one.replication.stops == [True]

    def test_a_replication_that_cannot_stop_leaves_a_shut_fence(self, etcd: FakeEtcd) -> None:
        def fail() -> None:
            raise RuntimeError("no answer from the JVM")

        one = RunningCapture(etcd)
        one.replication.on_stop = fail
        one.capture.request_stop()
        with one:
            one.join()
        assert one.replication.stops == []
        one = RunningCapture(etcd)
        one.__enter__()
        one.replication.await_owner()
        one.replication.on_stop = fail
        one.stop()
        assert isinstance(one.error, RuntimeError)
        with pytest.raises(Fenced):
            one.fence.check()


class TestOutage:
    def test_a_short_one_changes_nothing(self, etcd: FakeEtcd) -> None:
        with RunningCapture(etcd, session=CALM) as one:
            owner = one.replication.await_owner()
            etcd.down = True
            time.sleep(1.5)
            etcd.down = False
            one.await_renewal()
            assert one.replication.owners == [owner]
            assert one.fence.check() == owner

    def test_a_long_one_ends_the_life_and_not_the_process(
        self, etcd: FakeEtcd, caplog: pytest.LogCaptureFixture
    ) -> None:
        with RunningCapture(etcd) as one:
            before = one.replication.await_owner()
            etcd.down = True
            assert one.replication.await_stop() is True
            time.sleep(1.0)
            assert len(one.replication.owners) == 1
            etcd.down = False
            after = one.replication.await_owner(2)
            assert after.epoch != before.epoch
        retries = [r for r in caplog.records if "etcd does not answer" in r.getMessage()]
        assert len(retries) == 1

    def test_etcd_may_come_later_than_the_capture(self, etcd: FakeEtcd) -> None:
        etcd.down = True
        with RunningCapture(etcd) as one:
            time.sleep(0.5)
            etcd.down = False
            one.replication.await_owner()

    def test_an_outage_while_standing_by_keeps_the_place(self, etcd: FakeEtcd) -> None:
        with leader_and_standby(etcd, CALM) as (one, two):
            places = [kv.create_revision for kv in candidates(etcd)]
            etcd.down = True
            time.sleep(0.6)
            etcd.down = False
            time.sleep(0.6)
            assert [kv.create_revision for kv in candidates(etcd)] == places
            one.stop()
            two.replication.await_owner()


def test_a_loss_between_winning_and_opening_leaves_the_fence_shut(etcd: FakeEtcd) -> None:
    """The session shuts a fence that is not open yet; opening it afterwards must not help."""
    one = RunningCapture(etcd)
    tries: list[Ownership] = []
    really_open = one.fence.open

    def open_late(ownership: Ownership, trusted_until: float) -> None:
        tries.append(ownership)
        if len(tries) == 1:
            etcd.revoke(lease_of(etcd, ownership))
            time.sleep(1.2)  # a keep-alive is due every half second: the loss is told meanwhile
        really_open(ownership, trusted_until)

    one.fence.open = open_late  # type: ignore[method-assign]
    with one:
        assert one.replication.await_owner().epoch != tries[0].epoch


def test_a_loss_shuts_the_fence_while_the_coordination_thread_is_busy(etcd: FakeEtcd) -> None:
    one = RunningCapture(etcd)
    shut_while_busy: list[bool] = []

    def be_busy() -> None:  # as the wait for a stale changefeed row
        if not shut_while_busy:
            etcd.revoke(lease_of(etcd, one.replication.owners[0]))
            time.sleep(1.2)
            shut_while_busy.append(bool(one.replication.shut))

    one.replication.on_start = be_busy
    with one:
        one.replication.await_owner(2)
    assert shut_while_busy == [True]
