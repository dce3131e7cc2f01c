"""What a worker has seen of etcd, and what it plans on it: without any etcd."""

from __future__ import annotations

import itertools
import random

import pytest

from coordination.errors import CaptureSuicide, TidelakeError
from coordination.etcd.client import Compare, Delete, Put, WatchEvent
from coordination.model import Revision
from coordination.orchestrator.snapshot import GuardLost, Snapshot
from coordination.orchestrator.transaction import TransactionTooLarge
from tests.coordination.orchestrator.key_values import (
    COUNTER,
    ROOT,
    adds,
    becomes,
    found,
    gone,
    group,
    kv,
    put,
)

A, B = ROOT + "a", ROOT + "b"
NO_DELETES = Compare(COUNTER, "create", 0)


@pytest.fixture
def guards() -> list[Compare]:
    return []


@pytest.fixture
def snapshot(guards: list[Compare]) -> Snapshot:
    """At revision 10: a = 1 (since 4), no b, nothing deleted so far."""
    made = Snapshot((ROOT,), COUNTER, lambda: guards)
    made.read(found(10, kv(A, b"1", 4)))
    assert made.take_updates() == [(A, kv(A, b"1", 4))]
    return made


def told(snapshot: Snapshot) -> list[tuple[str, bytes | None]]:
    return [
        (key.removeprefix(ROOT), kv.value if kv is not None else None)
        for key, kv in snapshot.take_updates()
    ]


def commit(snapshot: Snapshot, revision: int, *patches) -> None:
    plan = snapshot.plan([group(*patches)])
    assert plan.ops
    snapshot.committed(Revision(revision))


def compares(snapshot: Snapshot, *patches) -> set[Compare]:
    return set(snapshot.plan([group(*patches)]).compares)


# reads and events


def test_the_scope_is_the_clusters_own_and_no_key_of_others():
    snapshot = Snapshot(("/tidb/cdc/x/", "/tidelake/x/"), "/tidb/cdc/x/count")
    assert snapshot.scope == ("/tidb/cdc/x/", "/tidelake/x/")
    snapshot.read(found(5, kv("/tidb/cdc/x/a", b"1", 1), kv("/tidb/cdc/xy/a", b"1", 2)))
    snapshot.apply([put("/tidelake/x/b", b"2", 6), put("/tidelake/other/b", b"2", 6)])
    assert [key for key, _ in snapshot.take_updates()] == ["/tidb/cdc/x/a", "/tidelake/x/b"]


def test_the_delete_counter_is_no_business_of_the_reactor(snapshot: Snapshot):
    assert snapshot.apply([put(COUNTER, b"1", 11), put(B, b"2", 11)])
    assert told(snapshot) == [("b", b"2")]


def test_empty_is_a_value_and_a_delete_is_none(snapshot: Snapshot):
    snapshot.apply([put(B, b"", 11), gone(A, 11)])
    assert told(snapshot) == [("b", b""), ("a", None)]


def test_foreign_events_move_the_revision_and_are_no_news(snapshot: Snapshot):
    assert not snapshot.apply([put("/elsewhere", b"1", 12)])
    assert snapshot.revision == 12
    assert not snapshot.take_updates()


def test_all_events_of_one_revision_count_and_none_of_them_twice(snapshot: Snapshot):
    batch = [put(A, b"2", 11, 4), put(B, b"2", 11)]
    assert snapshot.apply(batch)
    assert not snapshot.apply(batch)
    assert told(snapshot) == [("a", b"2"), ("b", b"2")]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("again", range(3))
def test_batches_that_come_again_never_bring_old_values_back(order: tuple[int, ...], again: int):
    """A watch that was made again may tell what is known, in whatever pieces: state never falls."""
    history = [put(A, b"%d" % n, n) for n in range(11, 17)]
    batches = [history[0:2], history[2:4], history[4:6]]
    snapshot = Snapshot((ROOT,), COUNTER)
    snapshot.read(found(10))
    for n in (*order, again):
        snapshot.apply(batches[n])
    values = [int(kv.value) for _, kv in snapshot.take_updates() if kv is not None]
    assert values == sorted(set(values))
    assert values[-1] == snapshot.revision == 16


def test_a_gap_is_closed_by_a_read_that_makes_up_deletes(snapshot: Snapshot):
    snapshot.apply([put(B, b"2", 11)])
    told(snapshot)
    snapshot.read(found(20, kv(ROOT + "c", b"3", 15)))
    assert sorted(told(snapshot)) == [("a", None), ("b", None), ("c", b"3")]
    assert snapshot.revision == 20


def test_a_key_that_was_created_anew_in_a_gap_was_deleted_before(snapshot: Snapshot):
    snapshot.read(found(20, kv(A, b"1", 15)))
    assert told(snapshot) == [("a", None), ("a", b"1")]


def test_a_read_tells_nothing_that_was_told(snapshot: Snapshot):
    snapshot.read(found(20, kv(A, b"1", 4)))
    assert told(snapshot) == []


def test_late_events_of_before_a_read_change_nothing(snapshot: Snapshot):
    snapshot.read(found(20, kv(A, b"9", 18, 4)))
    told(snapshot)
    assert not snapshot.apply([put(A, b"5", 12, 4), gone(A, 20)])
    assert not snapshot.take_updates()
    assert snapshot.revision == 20


def test_an_etcd_that_went_back_is_another_etcd(snapshot: Snapshot):
    with pytest.raises(CaptureSuicide, match="from revision 10 to 9"):
        snapshot.read(found(9))
    commit(snapshot, 15, becomes(A, b"2"))
    with pytest.raises(CaptureSuicide, match="from revision 15 to 14"):
        snapshot.read(found(14))


def test_an_etcd_that_went_back_and_has_come_further_since_is_another_one_too():
    fresh = Snapshot((ROOT,), COUNTER)
    fresh.read(found(10, kv(A, b"1", 4)))
    with pytest.raises(CaptureSuicide, match="restored"):
        fresh.read(found(25, kv(A, b"0", 3)))


def test_one_revision_with_two_values_of_a_key_is_another_etcd_too(snapshot: Snapshot):
    """Whose revisions have passed the old ones by the time of the read."""
    snapshot.read(found(57, kv(ROOT + "a", b"before", mod=57)))
    with pytest.raises(CaptureSuicide, match="restored"):
        snapshot.read(found(69, kv(ROOT + "a", b"after", mod=57)))


def test_what_a_torn_moment_lacked_comes_with_the_next_read():
    """Of revision 10 the watch told one key; etcd before 3.5.8 may say that this was all of it."""
    fresh = Snapshot((ROOT,), COUNTER)
    fresh.read(found(9, kv(A, b"1", 4)))
    fresh.apply([WatchEvent("put", kv(A, b"2", 10))])
    fresh.take_updates()
    fresh.read(found(10, kv(A, b"2", 10), kv(ROOT + "new", b"1", 10)))
    assert [key for key, _ in fresh.take_updates()] == [ROOT + "new"]


@pytest.mark.seeds(100)
def test_any_cut_of_a_history_into_batches_and_reads_ends_the_same(seed: int):
    random_ = random.Random(seed)
    snapshot, mirror, truth = Snapshot((ROOT,), COUNTER), {}, {}
    snapshot.read(found(1))
    unsent: list[WatchEvent] = []
    for revision in range(2, 80):
        for key in random_.sample("abcdef", random_.randint(1, 3)):
            unsent.append(_random_event(random_, truth, ROOT + key, revision))
        if random_.random() < 0.1:  # what is unsent is lost
            snapshot.read(found(revision, *truth.values()))
            unsent = random_.choice([[], unsent])  # or comes late
        elif random_.random() < 0.5:
            snapshot.apply(unsent)
            unsent = []
        for key, value in snapshot.take_updates():
            mirror[key] = None if value is None else value.value
        if not unsent:
            assert _present(mirror) == {key: each.value for key, each in truth.items()}


def _random_event(random_: random.Random, truth: dict, key: str, revision: int) -> WatchEvent:
    if key in truth and random_.random() < 0.4:
        del truth[key]
        return gone(key, revision)
    created = truth[key].create_revision if key in truth else revision
    truth[key] = kv(key, b"%d" % revision, revision, created)
    return WatchEvent("put", truth[key])


def _present(mirror: dict[str, bytes | None]) -> dict[str, bytes]:
    return {key: value for key, value in mirror.items() if value is not None}


# plans


def test_every_changed_key_is_compared_and_so_is_the_counter(snapshot: Snapshot):
    plan = snapshot.plan([group(adds(A, 1), adds(B, 2))])
    assert set(plan.compares) == {
        NO_DELETES,
        Compare(A, "mod", 4),
        Compare(B, "mod", 0),
    }
    assert set(plan.ops) == {Put(A, b"2"), Put(B, b"2")}


def test_a_delete_counts_up_and_is_compared_by_value_from_then_on(snapshot: Snapshot):
    plan = snapshot.plan([group(becomes(A, None))])
    assert plan.ops == (Delete(A), Put(COUNTER, b"1"))
    snapshot.apply([gone(A, 11), put(COUNTER, b"1", 11)])
    plan = snapshot.plan([group(becomes(B, b"x"))])
    assert Compare(COUNTER, "value", b"1") in plan.compares
    assert plan.ops == (Put(B, b"x"),)


def test_a_deleted_counter_begins_anew(snapshot: Snapshot):
    snapshot.apply([put(COUNTER, b"7", 11)])
    snapshot.apply([gone(COUNTER, 12)])
    assert NO_DELETES in compares(snapshot, becomes(A, b"2"))


@pytest.mark.parametrize("value", [b"", b"0", b"-1", b"x", b"01", b"\xff"])
def test_an_unreadable_counter_is_an_error(snapshot: Snapshot, value: bytes):
    snapshot.apply([put(COUNTER, value, 11)])
    with pytest.raises(TidelakeError, match="delete counter"):
        compares(snapshot, becomes(A, b"2"))


def test_nothing_to_change_is_no_transaction_and_no_barrier(snapshot: Snapshot):
    plan = snapshot.plan([group(becomes(A, b"1")), group(becomes(B, None)), group()])
    assert (plan.taken, plan.ops) == (3, ())
    assert snapshot.caught_up


def test_guards_take_the_place_of_keys(snapshot: Snapshot, guards: list[Compare]):
    guards += [Compare(A, "create", 4), Compare(A, "create", 4)]
    keys = [becomes(f"{ROOT}{n}", b"x") for n in range(126)]
    full = snapshot.plan([group(*keys[:125])])
    assert len(full.compares) == 128
    assert set(guards) < set(full.compares)
    with pytest.raises(TransactionTooLarge, match="126 keys"):
        snapshot.plan([group(*keys)])


def test_deletes_leave_room_for_the_counter(snapshot: Snapshot):
    snapshot.apply([put(f"{ROOT}{n}", b"x", 11) for n in range(128)])
    stale = [group(becomes(f"{ROOT}{n}", None)) for n in range(128)]
    plan = snapshot.plan(stale)
    assert (plan.taken, len(plan.ops), len(plan.compares)) == (127, 128, 128)


def test_keys_that_are_not_watched_cannot_be_patched(snapshot: Snapshot):
    for key in ("/elsewhere", COUNTER):
        with pytest.raises(ValueError, match="outside of the watched keys"):
            snapshot.plan([group(becomes(key, b"1"))])


# own writes


def test_an_own_write_holds_the_reactor_back_until_it_returns(snapshot: Snapshot):
    commit(snapshot, 13, becomes(A, b"2"))
    assert not snapshot.caught_up
    snapshot.apply([put(B, b"other", 12)])
    assert not snapshot.caught_up
    snapshot.apply([put(A, b"2", 13, 4)])
    assert snapshot.caught_up
    assert told(snapshot) == [("b", b"other"), ("a", b"2")]


def test_a_read_before_the_watch_returned_an_own_write_tells_it(snapshot: Snapshot):
    commit(snapshot, 13, becomes(A, b"2"))
    snapshot.read(found(13, kv(A, b"2", 13, 4)))
    assert told(snapshot) == [("a", b"2")]
    assert snapshot.caught_up


# guards


def test_a_guard_is_lost_when_its_key_is_gone_or_another(snapshot: Snapshot, guards: list[Compare]):
    guards.append(guard := Compare(A, "create", 4))
    snapshot.check_guards()
    snapshot.apply([gone(A, 11)])
    with pytest.raises(GuardLost, match=guard.key):
        snapshot.check_guards()
    snapshot.apply([put(A, b"1", 12)])
    with pytest.raises(GuardLost, match=guard.key):
        snapshot.check_guards()


def test_a_guard_that_is_newer_than_what_was_seen_is_not_lost(
    snapshot: Snapshot, guards: list[Compare]
):
    guards.append(guard := Compare(B, "create", 12))
    snapshot.check_guards()
    snapshot.apply([put(A, b"x", 12, 4)])
    with pytest.raises(GuardLost, match=guard.key):
        snapshot.check_guards()


def test_a_guard_outside_of_what_is_watched_is_an_error(snapshot: Snapshot, guards: list[Compare]):
    guards.append(Compare("/elsewhere", "create", 4))
    with pytest.raises(ValueError, match="outside of the watched keys"):
        snapshot.check_guards()
