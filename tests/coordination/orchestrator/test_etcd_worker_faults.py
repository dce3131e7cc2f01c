"""What a worker does when etcd, its watch or its session fails it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from coordination.errors import CaptureSuicide, Fenced, TryAgain
from coordination.etcd.client import Compare, Op, Put, TxnResult, delete
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import Etcd3Client
from coordination.etcd.watch_stream import FollowedWatch
from coordination.orchestrator import etcd_worker
from coordination.orchestrator.snapshot import GuardLost
from tests.coordination.orchestrator.ground import (
    PATIENCE_S,
    FaultyClient,
    Ground,
    MapState,
    Ticks,
    no_answer,
    once,
    real_ground,
)
from tests.coordination.orchestrator.test_etcd_worker import plus
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd
from tests.own_lines import own_lines


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubt comes sooner, so that a test on a real clock need not wait for it."""
    for name, seconds in (("SILENCE_S", 0.6), ("OWED_S", 0.3), ("RETRY_S", 0.05)):
        monkeypatch.setattr(etcd_worker, name, seconds)


def transfer_once(state: MapState) -> None:
    """Moves 5 from a to b, unless its mark is there: the two accounts cannot tell by themselves."""
    if "mark" not in state.values:
        state.patch(("a", plus(-5)), ("b", plus(5)), ("mark", lambda _old: b"done"))


# a transaction without an answer


def test_what_happened_without_an_answer_does_not_happen_again(
    ground: Ground, faulty: FaultyClient
):
    faulty.after_txn = once(no_answer)
    reactor = Ticks(always=transfer_once)
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: reactor.seen[-1:] != [{}])
    ground.drive(worker, until=lambda: len(reactor.seen) > 4)
    assert ground.values() == {"a": b"-5", "b": b"5", "mark": b"done", "count": b"1"}


def test_what_did_not_happen_without_an_answer_is_asked_for_again(
    ground: Ground, faulty: FaultyClient
):
    faulty.before_txn = once(no_answer)
    worker = ground.worker(Ticks(always=transfer_once), client=faulty)
    ground.drive(worker, until=lambda: ground.value("mark") is not None)
    assert (ground.value("a"), ground.value("b")) == (b"-5", b"5")


def test_what_might_still_happen_after_the_read_is_made_impossible_first(
    ground: Ground, faulty: FaultyClient
):
    """The request is on its way while the worker reads again; then it arrives."""
    late: list[Callable[[], object]] = []

    def txn(compares: list[Compare], then: list[Op]) -> None:
        late.append(lambda: ground.client.txn(compares, then))
        raise TryAgain("no answer in time")

    reactor = Ticks(transfer_once)
    worker = ground.worker(reactor, client=faulty)
    faulty.txn = txn  # type: ignore[method-assign,assignment]
    ground.drive(worker, until=lambda: len(late) == 1)
    del faulty.txn
    ground.drive(worker, until=lambda: len(reactor.seen) == 2)  # it does not see the transfer …
    late[0]()
    assert ground.values() == {"count": b"1"}  # … and rightly so
    reactor.next(transfer_once)
    ground.drive(worker, until=lambda: ground.value("mark") is not None)
    assert (ground.value("a"), ground.value("b")) == (b"-5", b"5")


def test_what_is_pending_behind_it_is_asked_for_again_too(ground: Ground, faulty: FaultyClient):
    def tick(state: MapState) -> None:
        for n in range(300):
            if f"{n}" not in state.values:
                state.set(**{f"{n}": b"x"})

    faulty.after_txn = once(no_answer)
    worker = ground.worker(Ticks(always=tick), client=faulty)
    ground.drive(worker, until=lambda: len(ground.values()) == 301)


# the watch


@pytest.mark.usefixtures("quick")
def test_a_watch_that_went_silent_is_noticed(ground: Ground, faulty: FaultyClient):
    ground.put("a", b"1")
    ground.put("b", b"1")
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    faulty.is_silent = True
    ground.put("a", b"2")
    delete(ground.client, ground.root + "b")
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"a": b"2"})
    revision = worker.revision
    ground.put("a", b"3")
    faulty.release()  # what the first watch had to say comes late
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"a": b"3"})
    values = [value for name, value in worker._state.history if name == "a"]
    assert values == [b"1", b"2", b"3"], "no old value comes back"
    assert faulty.watched_from == sorted(faulty.watched_from)
    assert worker.revision > revision


def test_an_own_write_that_does_not_come_back_is_noticed_sooner(
    ground: Ground, faulty: FaultyClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(etcd_worker, "OWED_S", 0.2)
    reactor = Ticks(lambda state: state.set(a=b"1"))
    worker = ground.worker(reactor, client=faulty)
    faulty.is_silent = True
    began = ground.clock.monotonic()
    ground.drive(worker, until=lambda: reactor.seen[-1:] == [{"a": b"1"}])
    assert ground.clock.monotonic() - began < etcd_worker.SILENCE_S


def test_a_collision_with_what_the_watch_does_not_tell_is_noticed_sooner(
    ground: Ground, faulty: FaultyClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(etcd_worker, "OWED_S", 0.2)
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    faulty.is_silent = True
    ground.put("a", b"1")
    reactor.next(lambda state: state.patch(("a", plus(1))))
    began = ground.clock.monotonic()
    ground.drive(worker, until=lambda: ground.value("a") == b"2")
    assert ground.clock.monotonic() - began < etcd_worker.SILENCE_S


def test_an_idle_worker_reads_again_every_ten_seconds_and_not_more_often():
    clock = FakeClock()
    etcd = FakeEtcd(clock)
    ground = Ground(client=etcd, clock=clock, compact=etcd.compact)
    faulty = FaultyClient(etcd)
    worker = ground.worker(Ticks(), client=faulty, tick_interval_s=1.0)
    ground.drive(worker, until=lambda: clock.monotonic() >= 1065.0, patience_s=100.0)
    assert len(faulty.watched_from) == 7


def test_history_lost_to_a_compaction_is_read_again(ground: Ground, faulty: FaultyClient):
    for name in ("kept", "gone", "anew"):
        ground.put(name, b"1")

    def meanwhile() -> None:
        delete(ground.client, ground.root + "gone")
        delete(ground.client, ground.root + "anew")
        ground.put("anew", b"2")
        ground.put("new", b"2")
        ground.compact(ground.revision)

    faulty.before_watch = once(meanwhile)
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty)
    after = {"kept": b"1", "anew": b"2", "new": b"2"}
    ground.drive(worker, until=lambda: reactor.seen[-1:] == [after])
    made_up = worker._state.history[3:]
    assert sorted(made_up[:2]) == [("anew", None), ("gone", None)]
    assert sorted(made_up[2:]) == [("anew", b"2"), ("new", b"2")]
    ground.put("kept", b"3")  # the new watch follows
    ground.drive(worker, until=lambda: reactor.seen[-1]["kept"] == b"3")


def test_a_long_history_that_comes_in_pieces_loses_nothing(
    ground: Ground, faulty: FaultyClient, monkeypatch: pytest.MonkeyPatch
):
    """etcd sends 1,000 revisions at a time, and each answer's header says where it is *now*: who
    takes the header for what has been told throws the rest away, as TiCDC does."""
    monkeypatch.setattr(etcd_worker, "SILENCE_S", PATIENCE_S)  # to write it takes seconds

    def meanwhile() -> None:
        for n in range(2_400):
            ground.client.txn((), (Put(f"{ground.root}{n:04}", b"x"),))

    faulty.before_watch = once(meanwhile)
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: len(reactor.seen[-1:] and reactor.seen[-1]) == 2_400)
    assert len(faulty.watched_from) == 1, "by the watch alone"


def test_a_watch_that_is_ended_tells_nothing_any_more(ground: Ground, faulty: FaultyClient):
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    faulty.is_silent = True
    ground.put("a", b"1")
    ground.drive(until=lambda: len(faulty.held) > 0)
    worker.close()
    worker.close()
    faulty.release()
    worker.run_once()
    assert worker._state.history == []


# etcd


def test_an_outage_is_survived(caplog: pytest.LogCaptureFixture):
    clock = FakeClock()
    etcd = FakeEtcd(clock)
    ground = Ground(client=etcd, clock=clock, compact=etcd.compact)
    etcd.down = True
    reactor = Ticks()
    worker = ground.worker(reactor)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            ground.pause(worker.run_once())
    assert [each for each in own_lines(caplog) if "does not answer" in each][1:] == []
    etcd.down = False
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    reactor.next(lambda state: state.patch(("a", plus(1))))
    etcd.down = True
    for _ in range(100):
        ground.pause(worker.run_once())
    ticks = len(reactor.seen)
    etcd.down = False
    ground.drive(worker, until=lambda: len(reactor.seen) > ticks)
    assert ground.value("a") is None, "dropped: the reactor may ask again"


def test_a_silent_watch_of_an_unreachable_etcd_does_not_stop_the_ticks():
    clock = FakeClock()
    etcd = FakeEtcd(clock)
    ground = Ground(client=etcd, clock=clock, compact=etcd.compact)
    reactor = Ticks()
    worker = ground.worker(reactor, tick_interval_s=0.5)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    etcd.down = True
    ground.drive(worker, until=lambda: len(reactor.seen) > 60, patience_s=40.0)
    etcd.down = False
    ground.put("a", b"1")
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"a": b"1"}, patience_s=40.0)


def test_an_etcd_that_went_back_ends_the_capture():
    clock = FakeClock()
    etcd = FakeEtcd(clock)
    ground = Ground(client=etcd, clock=clock, compact=etcd.compact)
    for n in range(5):
        ground.put("a", b"%d" % n)
    faulty = FaultyClient(etcd)
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    faulty._client = FakeEtcd(clock)
    with pytest.raises(CaptureSuicide, match="went back"):
        ground.drive(worker, until=lambda: False, patience_s=20.0)


@pytest.mark.etcd
def test_a_read_larger_than_grpc_likes_by_itself(real_client: Etcd3Client):
    ground = real_ground(real_client)
    for n in range(5):
        ground.put(f"{n}", b"x" * 1_200_000)
    reactor = Ticks()
    worker = ground.worker(reactor)
    ground.drive(worker, until=lambda: len(reactor.seen[-1:] and reactor.seen[-1]) == 5)
    ground.close()
    for n in range(5):
        delete(real_client, f"{ground.root}{n}")


# the session and the owner key


def test_a_deleted_owner_key_ends_the_worker(ground: Ground):
    guard = Compare(ground.root + "owner", "create", ground.put("owner", b"me"))
    reactor = Ticks()
    worker = ground.worker(reactor, guards=(guard,))
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    ground.put("owner", b"still me")
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"owner": b"still me"})
    delete(ground.client, ground.root + "owner")
    with pytest.raises(GuardLost, match="owner is no longer there") as caught:
        ground.drive(worker, until=lambda: False)
    assert caught.value.key == guard.key
    assert isinstance(caught.value, Fenced)


def test_a_revoked_lease_ends_the_worker_and_a_new_key_of_the_same_name_is_not_ours(
    ground: Ground,
):
    lease = ground.client.grant(60).id
    created = ground.client.put(ground.root + "capture", b"me", lease)
    reactor = Ticks()
    worker = ground.worker(reactor, guards=(Compare(ground.root + "capture", "create", created),))
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    ground.client.revoke(lease)
    ground.put("capture", b"somebody else")
    with pytest.raises(GuardLost):
        ground.drive(worker, until=lambda: False)


@pytest.mark.usefixtures("quick")
def test_who_has_not_heard_of_its_end_writes_nothing_any_more(ground: Ground, faulty: FaultyClient):
    guard = Compare(ground.root + "owner", "create", ground.put("owner", b"me"))
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty, guards=(guard,))
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    faulty.is_silent = True
    delete(ground.client, ground.root + "owner")
    reactor.next(lambda state: state.set(a=b"from the grave"))
    with pytest.raises(GuardLost):
        ground.drive(worker, until=lambda: False)
    assert faulty.results == [False]
    assert ground.value("a") is None


@pytest.mark.etcd
@pytest.mark.usefixtures("quick")
def test_a_frozen_connection_is_no_end(own_etcd: EmbeddedEtcd, monkeypatch: pytest.MonkeyPatch):
    """The stream is open, and nothing comes: only a read tells."""
    client = Etcd3Client((own_etcd.endpoint.removeprefix("http://"),))
    ground = real_ground(client)
    monkeypatch.setattr(FollowedWatch, "_deliver", lambda *_: None)
    reactor = Ticks()
    worker = ground.worker(reactor)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    ground.put("a", b"1")
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"a": b"1"})
    ground.close()
    client.close()


def test_writes_that_are_not_carried_out_are_told_until_they_are(
    ground: Ground, faulty: FaultyClient, monkeypatch: pytest.MonkeyPatch
):
    """An etcd that is full answers reads and keep-alives."""
    told: list[str | None] = []
    txn = faulty.txn

    def refused(*_: object) -> TxnResult:
        raise TryAgain("its database is full")

    reactor = Ticks(lambda state: state.set(a=b"1"))
    worker = ground.worker(reactor, client=faulty)
    monkeypatch.setattr(worker, "_unanswered", told.append)
    monkeypatch.setattr(faulty, "txn", refused)
    ground.drive(worker, until=lambda: "its database is full" in told)
    told.clear()
    monkeypatch.setattr(faulty, "txn", txn)
    reactor.next(lambda state: state.set(a=b"1"))
    ground.drive(worker, until=lambda: ground.value("a") == b"1")
    assert None in told
