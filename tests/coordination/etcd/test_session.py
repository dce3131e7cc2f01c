from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conf.settings import SessionSettings
from coordination.errors import TryAgain
from coordination.etcd.client import EtcdClient, Lease, delete
from coordination.etcd.session import Session
from coordination.model import LeaseID
from coordination.trust.clock import Clock, SystemClock
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd
from tests.own_lines import own_text


class TestDecision:
    """What a session makes of what becomes known; begun at 100 s, trusted until 108 s."""

    def session(self) -> tuple[FakeClock, Session, list[float], list[str]]:
        clock, until, lost = FakeClock(100.0), list[float](), list[str]()
        session = Session(
            FakeEtcd(clock),
            SessionSettings(ttl_s=10, safety_margin_s=2.0),
            clock,
            extended=until.append,
            lost=lost.append,
            is_driven=True,
        )
        session.start()
        return clock, session, until, lost

    def test_trust_is_counted_from_before_the_request(self) -> None:
        _, session, _, _ = self.session()
        assert session.trusted_until == 108.0

    def test_a_shorter_ttl_does_not_move_trust_back(self) -> None:
        _, session, until, _ = self.session()
        for renewed_until in (111.0, 105.0):
            session.update(renewed_until=renewed_until)
        assert session.trusted_until == 111.0
        assert until == [111.0]

    @pytest.mark.parametrize("news", [{}, {"renewed_until": 115.0}])
    def test_trust_that_ran_out_is_lost_whatever_comes(self, news: dict[str, float]) -> None:
        clock, session, until, lost = self.session()
        clock.advance(8.0)
        session.update(**news)  # type: ignore[arg-type]
        assert not session.is_alive
        assert session.done.is_set()
        assert "trust lapsed" in session.reason
        assert (until, lost) == ([], [session.reason])

    def test_time_within_trust_changes_nothing(self) -> None:
        clock, session, until, lost = self.session()
        clock.advance(7.999)
        session.update()
        assert session.is_alive
        assert (until, lost) == ([], [])

    def test_a_loss_is_for_ever_and_told_once(self) -> None:
        _, session, until, lost = self.session()
        session.update(loss="it hangs")
        session.update(loss="it hangs still")
        session.update(renewed_until=200.0)
        assert (until, lost, session.reason) == ([], ["it hangs"], "it hangs")

    def test_closed_is_the_end_and_no_loss(self) -> None:
        clock, session, until, lost = self.session()
        session.close()
        clock.advance(999.0)
        session.update(loss="too late", renewed_until=2000.0)
        assert (until, lost, session.reason, session.is_alive) == ([], [], "", False)

    def test_in_any_order_of_events_trust_is_true_and_loss_is_final(self) -> None:
        rng = random.Random(4)
        for _ in range(2000):
            clock, session, _, _ = self.session()
            was_lost = False
            for _ in range(12):
                clock.advance(rng.random() * 4)
                now = clock.monotonic()
                renewed_until = now - rng.random() * 3 + 8
                session.update(
                    **rng.choice(
                        [{}, {"renewed_until": renewed_until}, {"renewed_until": renewed_until}]
                    )
                )
                assert session.trusted_until <= now + 8
                assert not (was_lost and session.is_alive)
                was_lost = not session.is_alive
                assert was_lost or now < session.trusted_until


class Told:
    """What a session says."""

    def __init__(self) -> None:
        self.until: list[float] = []
        self.lost: list[str] = []
        self.changed = threading.Condition()

    def extended(self, until: float) -> None:
        with self.changed:
            self.until.append(until)
            self.changed.notify_all()

    def was_lost(self, reason: str) -> None:
        with self.changed:
            self.lost.append(reason)
            self.changed.notify_all()

    def wait(self, ready: Callable[[], bool], timeout_s: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(ready, timeout_s)


SETTINGS = SessionSettings(ttl_s=2, safety_margin_s=0.5)


class Hanging(FakeEtcd):
    """Keep-alives that are answered by nobody until they are released."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.answer = threading.Event()

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:
        if not self.answer.wait(30):
            raise TryAgain("never released")
        return super().keep_alive(lease, timeout_s=timeout_s)


class Slow(FakeEtcd):
    """Answers, but late; writes down when it was asked."""

    DELAY_S = 0.5

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.asked: list[float] = []

    def grant(self, ttl_s: int) -> Lease:
        self._be_slow()
        return super().grant(ttl_s)

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:
        self._be_slow()
        return super().keep_alive(lease, timeout_s=timeout_s)

    def _be_slow(self) -> None:
        self.asked.append(SystemClock().monotonic())
        time.sleep(self.DELAY_S)


class TestThreads:
    @pytest.fixture
    def told(self) -> Told:
        return Told()

    @pytest.fixture
    def etcd(self) -> FakeEtcd:
        return FakeEtcd(SystemClock())

    @pytest.fixture
    def session(self, etcd: FakeEtcd, told: Told) -> Iterator[Session]:
        session = open_session(etcd, told)
        yield session
        session.close()

    def test_it_is_kept_alive_beyond_its_ttl(self, session: Session, told: Told) -> None:
        told.wait(lambda: len(told.until) >= 5)  # at half a second each: longer than the ttl
        assert session.is_alive
        assert told.until == sorted(told.until)
        assert told.lost == []

    def test_a_revoked_lease_is_reported_once(
        self, etcd: FakeEtcd, session: Session, told: Told
    ) -> None:
        etcd.revoke(session.lease)
        assert session.done.wait(30)
        assert told.lost == ["the lease has expired or was revoked"]
        assert session.reason == told.lost[0]
        session.close()
        assert len(told.lost) == 1

    def test_an_outage_beyond_trust_is_a_loss_in_time(
        self, etcd: FakeEtcd, session: Session, told: Told
    ) -> None:
        etcd.down = True
        assert session.done.wait(30)
        late_s = SystemClock().monotonic() - session.trusted_until
        assert 0 <= late_s < 10.0  # on a busy machine
        assert "no keep-alive was answered" in told.lost[0]

    def test_a_short_outage_changes_nothing(self, etcd: FakeEtcd, told: Told) -> None:
        session = open_session(etcd, told, SessionSettings(ttl_s=5, safety_margin_s=1.0))
        etcd.down = True
        assert not session.done.wait(1.5)
        etcd.down = False
        before = len(told.until)
        told.wait(lambda: len(told.until) > before)
        assert session.is_alive
        session.close()

    def test_the_watchdog_needs_no_answer(self, told: Told) -> None:
        etcd = Hanging()
        session = open_session(etcd, told)
        assert session.done.wait(30)
        assert "no keep-alive was answered" in told.lost[0]
        etcd.answer.set()  # the answer that comes too late
        session.close()
        assert told.until == []

    def test_slow_answers_are_trusted_from_when_they_were_asked_for(self, told: Told) -> None:
        etcd = Slow()
        settings = SessionSettings(ttl_s=5, safety_margin_s=1.0)
        session = open_session(etcd, told, settings)
        window_s = settings.ttl_s - settings.safety_margin_s
        assert etcd.asked[0] + window_s >= session.trusted_until
        told.wait(lambda: len(told.until) >= 1)
        assert etcd.asked[0] + window_s < told.until[0] <= etcd.asked[1] + window_s
        session.close()

    def test_closing_revokes_and_is_no_loss(
        self, etcd: FakeEtcd, session: Session, told: Told
    ) -> None:
        session.close()
        session.close()
        assert etcd.time_to_live(session.lease) == -1
        assert session.done.is_set()
        assert told.lost == []

    def test_closing_without_etcd_says_so_and_does_not_raise(
        self, etcd: FakeEtcd, session: Session, caplog: pytest.LogCaptureFixture
    ) -> None:
        etcd.down = True
        session.close()
        assert "could not revoke the lease" in own_text(caplog)

    def test_no_session_without_etcd(self, etcd: FakeEtcd, told: Told) -> None:
        etcd.down = True
        with pytest.raises(TryAgain):
            open_session(etcd, told)

    def test_the_clock_that_slept_is_noticed_before_any_answer(self, told: Told) -> None:
        clock = FakeClock()
        etcd = FakeEtcd(clock)
        session = open_session(etcd, told, clock=clock)
        clock.advance(3600)
        assert session.done.wait(30)
        assert len(told.lost) == 1
        session.close()


@pytest.mark.etcd
def test_on_a_real_etcd_a_revoked_lease_is_noticed(real_client: EtcdClient) -> None:
    told = Told()
    session = open_session(real_client, told)
    key = f"/test/session/{session.lease:x}"
    real_client.put(key, b"", session.lease)
    told.wait(lambda: len(told.until) >= 1)
    real_client.revoke(session.lease)
    assert session.done.wait(30)
    assert told.lost == ["the lease has expired or was revoked"]
    session.close()
    delete(real_client, key)


def open_session(
    client: EtcdClient,
    told: Told,
    settings: SessionSettings = SETTINGS,
    clock: Clock | None = None,
    **more: Any,
) -> Session:
    session = Session(
        client,
        settings,
        clock or SystemClock(),
        extended=told.extended,
        lost=told.was_lost,
        **more,
    )
    session.start()
    return session


class TestDriven:
    """Without threads: whoever drives it does the work of both."""

    def session(self) -> tuple[FakeClock, FakeEtcd, Session, list[str]]:
        clock = FakeClock()
        etcd, lost = FakeEtcd(clock), list[str]()
        session = Session(
            etcd,
            SessionSettings(ttl_s=8, safety_margin_s=2.0),
            clock,
            extended=lambda _until: None,
            lost=lost.append,
            is_driven=True,
        )
        session.start()
        return clock, etcd, session, lost

    def test_it_renews_when_that_is_due_and_only_then(self) -> None:
        clock, _, session, lost = self.session()
        before = session.trusted_until
        assert session.renew_when_due() == 2.0
        assert session.trusted_until == before
        for _ in range(20):
            clock.advance(2.0)
            session.renew_when_due()
        assert session.trusted_until == before + 40
        assert not lost

    def test_who_was_not_driven_in_time_is_lost_whatever_etcd_says(self) -> None:
        clock, _, session, lost = self.session()
        clock.advance(6.0)
        session.renew_when_due()
        assert not session.is_alive
        assert len(lost) == 1

    def test_an_unanswered_renewal_is_tried_again_soon(self) -> None:
        clock, etcd, session, _ = self.session()
        etcd.down = True
        clock.advance(2.0)
        assert session.renew_when_due() == 0.25
        etcd.down = False
        clock.advance(0.25)
        session.renew_when_due()
        assert session.trusted_until == clock.monotonic() + 6.0

    def test_closing_revokes_the_lease(self) -> None:
        _, etcd, session, _ = self.session()
        assert session.close()
        assert etcd.time_to_live(session.lease) == -1


class TestWatchdog:
    """While something hangs no keep-alive is sent, and the lease is for others."""

    def test_who_hangs_is_lost_before_the_next_keep_alive(self) -> None:
        clock = FakeClock()
        etcd, lost = FakeEtcd(clock), list[str]()
        hanging = [""]
        session = Session(
            etcd,
            SessionSettings(ttl_s=8, safety_margin_s=2.0),
            clock,
            extended=lambda _until: None,
            lost=lost.append,
            overdue=lambda: hanging[0],
            is_driven=True,
        )
        session.start()
        clock.advance(2.0)
        session.renew_when_due()
        until = session.trusted_until
        hanging[0] = "the loop hangs"
        clock.advance(2.0)
        session.renew_when_due()
        assert lost == ["the loop hangs"]
        assert session.trusted_until == until, "it was renewed"
        hanging[0] = ""  # it came to itself: too late
        clock.advance(2.0)
        session.renew_when_due()
        assert not session.is_alive
        etcd.expire_leases()
        assert etcd.time_to_live(session.lease) == 4, "not revoked: what is under way may end"
        clock.advance(5.0)
        etcd.expire_leases()
        assert etcd.time_to_live(session.lease) == -1

    def test_its_own_thread_finds_it_while_nobody_turns(self) -> None:
        hanging, told = threading.Event(), Told()
        session = open_session(
            FakeEtcd(SystemClock()),
            told,
            overdue=lambda: "Spark's JVM hangs" if hanging.is_set() else "",
        )
        told.wait(lambda: len(told.until) >= 1)
        hanging.set()
        told.wait(lambda: told.lost == ["Spark's JVM hangs"])
        session.close()
