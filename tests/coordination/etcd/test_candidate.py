from __future__ import annotations

import pytest

from coordination.errors import LeaseGone, TryAgain
from coordination.etcd.client import delete
from coordination.etcd.election import REREAD_S, Candidate
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd

PREFIX = "/owner/"


class Poll:
    """Candidates on one etcd; `woken` counts."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.etcd = FakeEtcd(self.clock)
        self.woken = 0

    def candidate(self, ttl_s: int = 60) -> Candidate:
        lease = self.etcd.grant(ttl_s).id
        return Candidate(self.etcd, PREFIX, lease, f"{lease}".encode(), self._wake)

    def turn(self, candidate: Candidate) -> bool:
        candidate.campaign(self.clock.monotonic())
        return candidate.leads

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def poll() -> Poll:
    return Poll()


def test_the_first_one_leads_at_once_and_the_next_waits_for_it(poll: Poll) -> None:
    first, second = poll.candidate(), poll.candidate()
    assert poll.turn(first)
    assert not poll.turn(second)
    woken = poll.woken
    first.resign()
    assert poll.woken > woken
    assert poll.turn(second)
    assert second.revision > 0


def test_without_news_nothing_is_asked_until_it_is_time(poll: Poll) -> None:
    candidate = poll.candidate()
    poll.turn(candidate)
    poll.etcd.down = True
    poll.clock.advance(REREAD_S - 0.1)
    assert poll.turn(candidate)
    poll.clock.advance(0.2)
    with pytest.raises(TryAgain):
        poll.turn(candidate)
    assert candidate.leads, "an answer that did not come says nothing"


def test_a_key_deleted_by_hand_ends_it_and_it_stands_again_at_the_end(poll: Poll) -> None:
    first, second = poll.candidate(), poll.candidate()
    poll.turn(first)
    poll.turn(second)
    before = first.revision
    delete(poll.etcd, first.key)
    assert not poll.turn(first)
    assert poll.turn(second)
    assert not poll.turn(first)
    assert first.revision > before


def test_without_a_lease_it_cannot_stand(poll: Poll) -> None:
    candidate = poll.candidate(ttl_s=5)
    poll.turn(candidate)
    poll.clock.advance(6)
    assert not poll.turn(candidate)
    with pytest.raises(LeaseGone):
        poll.turn(candidate)


def test_a_resigned_one_may_stand_again(poll: Poll) -> None:
    candidate = poll.candidate()
    poll.turn(candidate)
    candidate.resign()
    assert not candidate.leads
    assert candidate.revision == 0
    assert poll.turn(candidate)


def test_one_between_that_goes_moves_nobody_to_the_lead(poll: Poll) -> None:
    first, second, third = (poll.candidate() for _ in range(3))
    assert [poll.turn(each) for each in (first, second, third)] == [True, False, False]
    second.resign()
    assert not poll.turn(third)
    first.resign()
    assert poll.turn(third)


def test_resigning_twice_or_before_standing_is_fine(poll: Poll) -> None:
    candidate = poll.candidate()
    candidate.resign()
    assert poll.turn(candidate)
    candidate.resign()
    candidate.resign()
    assert poll.etcd.range(PREFIX, prefix=True).kvs == ()


def test_an_outage_keeps_the_place(poll: Poll) -> None:
    first, second, third = (poll.candidate() for _ in range(3))
    for each in (first, second):
        poll.turn(each)
    poll.etcd.down = True
    poll.clock.advance(REREAD_S)
    with pytest.raises(TryAgain):
        poll.turn(second)
    poll.etcd.down = False
    poll.turn(third)
    first.resign()
    poll.clock.advance(REREAD_S)
    assert [poll.turn(each) for each in (second, third)] == [True, False]
