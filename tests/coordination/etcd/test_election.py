from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from coordination.errors import LeaseGone, Stop, TryAgain
from coordination.etcd.client import EtcdClient, KeyValue, Lease, delete, get
from coordination.etcd.election import Election, predecessor
from coordination.model import Revision
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd

PREFIX = "/tidelake/test/default/owner/shop/"


def candidate(revision: int) -> KeyValue:
    return KeyValue(
        key=f"{PREFIX}{revision}",
        value=b"",
        create_revision=Revision(revision),
        mod_revision=Revision(revision + 100),
    )


def test_the_predecessor_is_the_nearest_earlier_one() -> None:
    candidates = [candidate(9), candidate(3), candidate(5)]
    assert predecessor(candidates, Revision(3)) is None
    assert predecessor(candidates, Revision(9)) == candidate(5)
    assert predecessor([], Revision(1)) is None


class Candidate:
    """An election with an inbox of its own, run in a thread."""

    def __init__(self, client: EtcdClient, ttl_s: int = 60) -> None:
        self._woken: queue.Queue[bool] = queue.Queue()
        self.lease: Lease = client.grant(ttl_s)
        self.election = Election(client, PREFIX, self.lease.id, lambda: self._woken.put(True))
        self.led = threading.Event()
        self.waits = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._campaign, daemon=True)

    def start(self) -> Candidate:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._woken.put(False)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def wait(self, timeout_s: float) -> None:
        self.waits += 1
        try:
            if not self._woken.get(timeout=timeout_s):
                raise Stop("asked to stop")
        except queue.Empty:
            pass

    def _campaign(self) -> None:
        try:
            self.election.campaign(b"me", self.wait)
            self.led.set()
        except (Stop, LeaseGone) as error:
            self.error = error


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.etcd)])
def client(request: pytest.FixtureRequest) -> Iterator[EtcdClient]:
    if request.param == "fake":
        yield FakeEtcd(FakeClock())
        return
    real: EtcdClient = request.getfixturevalue("real_client")
    yield real
    for kv in real.range(PREFIX, prefix=True).kvs:
        delete(real, kv.key)


def test_leaders_follow_in_the_order_of_their_keys(client: EtcdClient) -> None:
    first = Candidate(client).start()
    assert first.led.wait(5)
    second, third = Candidate(client), Candidate(client)
    second.start()
    while len(client.range(PREFIX, prefix=True).kvs) < 2:
        second.led.wait(0.01)
    third.start()
    assert not second.led.wait(0.2)
    first.election.resign()
    assert second.led.wait(1)  # by the watch: the re-read comes only every two seconds
    assert not third.led.is_set()
    client.revoke(second.lease.id)
    assert third.led.wait(1)
    assert first.election.revision < second.election.revision < third.election.revision


def test_a_candidate_between_that_goes_moves_nobody_to_the_lead(client: EtcdClient) -> None:
    first = Candidate(client).start()
    assert first.led.wait(5)
    second = Candidate(client).start()
    while len(client.range(PREFIX, prefix=True).kvs) < 2:
        second.led.wait(0.01)
    third = Candidate(client).start()
    while len(client.range(PREFIX, prefix=True).kvs) < 3:
        third.led.wait(0.01)
    client.revoke(second.lease.id)
    assert not third.led.wait(0.3)
    first.election.resign()
    assert third.led.wait(3)
    second.stop()


def test_a_campaign_can_be_interrupted(client: EtcdClient) -> None:
    first = Candidate(client).start()
    assert first.led.wait(5)
    second = Candidate(client).start()
    second.stop()
    assert isinstance(second.error, Stop)


def test_a_candidate_whose_lease_ends_stops_campaigning(client: EtcdClient) -> None:
    first = Candidate(client).start()
    assert first.led.wait(5)
    second = Candidate(client)
    client.revoke(second.lease.id)
    second.start()
    second.stop()
    assert isinstance(second.error, LeaseGone)


def test_the_revision_is_the_create_revision_of_the_key(client: EtcdClient) -> None:
    only = Candidate(client)
    revision = only.election.campaign(b"c1", only.wait)
    kv = get(client, f"{PREFIX}{only.lease.id:x}")
    assert kv is not None
    assert (kv.create_revision, kv.value, kv.lease) == (revision, b"c1", only.lease.id)


def test_leading_ends_with_the_key(client: EtcdClient) -> None:
    only = Candidate(client)
    only.election.campaign(b"c1", only.wait)
    cancel = only.election.watch_own_key()
    assert only.election.leads()
    delete(client, f"{PREFIX}{only.lease.id:x}")
    assert only._woken.get(timeout=5)
    assert not only.election.leads()
    client.put(f"{PREFIX}{only.lease.id:x}", b"put again by hand")
    assert not only.election.leads()
    cancel()


def test_resigning_twice_or_before_campaigning_is_fine(client: EtcdClient) -> None:
    only = Candidate(client)
    only.election.resign()
    only.election.campaign(b"c1", only.wait)
    only.election.resign()
    only.election.resign()
    assert client.range(PREFIX, prefix=True).kvs == ()


def test_a_lost_watch_event_is_made_up_for_by_reading_again() -> None:
    etcd = FakeEtcd(FakeClock())
    first, second = Candidate(etcd), Candidate(etcd)
    first.election.campaign(b"1", first.wait)

    def wait(timeout_s: float) -> None:
        assert timeout_s <= 5
        etcd.watches.clear()  # a silent watch
        first.election.resign()

    assert second.election.campaign(b"2", wait) == second.election.revision


def test_a_campaign_goes_on_after_an_outage_with_its_place_kept() -> None:
    etcd = FakeEtcd(FakeClock())
    first, second = Candidate(etcd), Candidate(etcd)
    first.election.campaign(b"1", first.wait)

    def outage(_timeout_s: float) -> None:
        etcd.down = True

    with pytest.raises(TryAgain):
        second.election.campaign(b"2", outage)
    etcd.down = False
    place = second.election.revision
    first.election.resign()
    assert second.election.campaign(b"2", second.wait) == place
