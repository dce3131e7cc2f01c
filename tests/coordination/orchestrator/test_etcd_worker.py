"""One worker or two on an etcd, turn by turn: what a reactor sees, and what becomes of patches."""

from __future__ import annotations

import math

import pytest

from coordination.etcd.client import Compare, delete
from coordination.orchestrator.etcd_worker import REST_S
from coordination.orchestrator.transaction import (
    MAX_TXN_BYTES,
    ChangeRefused,
    Patch,
    TransactionTooLarge,
)
from tests.coordination.orchestrator.ground import FaultyClient, Ground, MapState, Ticks


def plus(amount: int):
    return lambda old: str(int(old or b"0") + amount).encode()


def test_a_reactor_first_sees_what_is_there_and_then_what_comes(ground: Ground):
    ground.put("a", b"1")
    ground.put("b", b"")
    reactor = Ticks()
    worker = ground.worker(reactor)
    ground.drive(worker, until=lambda: reactor.seen == [{"a": b"1", "b": b""}])
    assert worker._state.history == [("a", b"1"), ("b", b"")]
    ground.put("a", b"2")
    delete(ground.client, ground.root + "b")
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"a": b"2"})
    assert worker._state.history[2:] == [("a", b"2"), ("b", None)]


def test_empty_is_a_value_and_not_a_delete(ground: Ground):
    reactor = Ticks(lambda state: state.set(a=b"", b=b"1"))
    worker = ground.worker(reactor)
    ground.drive(worker, until=lambda: reactor.seen[-1:] == [{"a": b"", "b": b"1"}])
    assert ("a", b"") in worker._state.history
    reactor.next(lambda state: state.set(a=None, b=b""))
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"b": b""})
    assert ground.value("a") is None
    assert ground.value("b") == b""


def test_a_tick_without_changes_writes_nothing_and_holds_nothing_up(
    ground: Ground, faulty: FaultyClient
):
    ground.put("a", b"1")
    before = ground.revision
    reactor = Ticks(always=lambda state: state.patch(("a", lambda old: old), ("x", lambda _: None)))
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: len(reactor.seen) > 5)
    assert faulty.results == []
    assert ground.revision == before


def test_patches_of_one_tick_are_one_write_and_nobody_sees_values_in_between(ground: Ground):
    def tick(state: MapState) -> None:
        for _ in range(5):
            state.patch(("a", plus(1)), ("b", plus(2)))

    writer, watcher = Ticks(tick), Ticks()
    ground.drive(
        ground.worker(writer),
        ground.worker(watcher),
        until=lambda: watcher.seen[-1:] == [{"a": b"5", "b": b"10"}],
    )
    assert {tuple(seen.items()) for seen in watcher.seen + writer.seen} == {
        (),
        (("a", b"5"), ("b", b"10")),
    }


def test_a_reactor_never_ticks_on_a_state_older_than_its_own_write(
    ground: Ground, faulty: FaultyClient
):
    """Without the barrier it would add again and again to what it cannot see yet."""

    def raise_to_one(state: MapState) -> None:
        if "a" not in state.values:
            state.patch(("a", plus(1)))

    reactor = Ticks(always=raise_to_one)
    worker = ground.worker(reactor, client=faulty, tick_interval_s=0.001)
    faulty.is_silent = True
    ground.drive(worker, until=lambda: len(faulty.held) > 0)
    ticks = len(reactor.seen)
    for _ in range(20):
        worker.run_once()
        ground.pause(0.01)
    assert (len(reactor.seen), ground.value("a")) == (ticks, b"1")
    faulty.release()
    ground.drive(worker, until=lambda: len(reactor.seen) > ticks)
    assert reactor.seen[-1] == {"a": b"1"}


def test_patches_that_collide_are_run_again_on_the_newer_value(
    ground: Ground, faulty: FaultyClient
):
    ground.put("a", b"1")
    reactor = Ticks(lambda state: state.patch(("a", plus(10))))
    faulty.before_txn = lambda: faulty.results or ground.put("a", b"5")
    ground.drive(ground.worker(reactor, client=faulty), until=lambda: ground.value("a") == b"15")
    assert faulty.results == [False, True]


def test_a_collision_is_not_tried_again_before_there_is_news(ground: Ground, faulty: FaultyClient):
    ground.put("a", b"1")
    reactor = Ticks()
    worker = ground.worker(reactor, client=faulty)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    faulty.is_silent = True
    ground.put("a", b"5")
    reactor.next(lambda state: state.patch(("a", plus(10))))
    ground.drive(worker, until=lambda: faulty.results == [False])
    ticks = len(reactor.seen)
    for _ in range(5):
        worker.run_once()
        ground.pause(0.02)
    assert faulty.results == [False]
    assert len(reactor.seen) == ticks, "no tick while something is pending"
    faulty.release()
    ground.drive(worker, until=lambda: ground.value("a") == b"15")


def test_a_delete_is_noticed_by_who_saw_the_key_absent(ground: Ground, faulty: FaultyClient):
    """Created and deleted behind its back: the key looks untouched, the delete counter does not."""
    late = Ticks(lambda _state: None)
    slow = ground.worker(late, client=faulty)
    ground.drive(slow, until=lambda: len(late.seen) > 0)
    faulty.is_silent = True
    other = Ticks(lambda state: state.set(a=b"1"), lambda state: state.set(a=None))
    ground.drive(ground.worker(other), until=lambda: ground.value("count") == b"1")
    late.next(lambda state: state.patch(("a", lambda old: old or b"made")))
    ground.drive(slow, until=lambda: len(faulty.results) > 0)
    assert faulty.results == [False]
    faulty.release()
    ground.drive(slow, until=lambda: ground.value("a") == b"made")


def test_a_modifier_with_an_old_view_does_not_bring_a_deleted_key_back(
    ground: Ground, faulty: FaultyClient
):
    ground.put("a", b"1")
    late = Ticks()
    slow = ground.worker(late, client=faulty)
    ground.drive(slow, until=lambda: len(late.seen) > 0)
    faulty.is_silent = True
    ground.drive(
        ground.worker(Ticks(lambda state: state.set(a=None))), until=lambda: not ground.value("a")
    )
    late.next(lambda state: state.patch(("a", lambda old: old and old + b"!")))
    ground.drive(slow, until=lambda: faulty.results == [False])
    faulty.release()
    ground.drive(slow, until=lambda: late.seen[-1] == {})
    assert ground.values() == {"count": b"1"}


def test_a_worker_does_not_collide_with_its_own_delete(ground: Ground, faulty: FaultyClient):
    """TiCDC does, until the watch has told it of the counter."""
    ground.put("a", b"1")
    large = b"x" * (MAX_TXN_BYTES // 2)

    def tick(state: MapState) -> None:
        state.set(a=None, b=large)
        state.set(b=None, c=large)
        state.set(c=None, a=b"2")

    ground.drive(ground.worker(Ticks(tick), client=faulty), until=lambda: ground.value("a") == b"2")
    assert all(faulty.results)
    assert ground.value("b") is ground.value("c") is None


def test_a_refused_group_is_dropped_and_asked_for_again(ground: Ground):
    def if_ready(old: bytes | None) -> bytes:
        if old != b"ready":
            raise ChangeRefused("not yet")
        return b"done"

    def tick(state: MapState) -> None:
        state.patch(("before", lambda _old: b"1"), ("a", if_ready))
        state.set(after=b"1")

    worker = ground.worker(Ticks(always=tick))
    ground.drive(worker, until=lambda: ground.value("after") == b"1")
    assert ground.value("before") is None
    ground.put("a", b"ready")
    ground.drive(worker, until=lambda: ground.value("before") == b"1")
    assert ground.value("a") == b"done"


def test_a_tick_that_fills_several_transactions_is_written_before_the_next(
    ground: Ground, faulty: FaultyClient
):
    def much(state: MapState) -> None:
        state.set(a=b"fin", b=None)
        for n in range(200):
            state.set(**{f"key{n}": b"x"})

    ground.put("a", b"abc")
    ground.put("b", b"abc")
    faulty.before_txn = lambda: faulty.results or ground.put("a", b"in between")
    reactor = Ticks(much)
    ground.drive(ground.worker(reactor, client=faulty), until=lambda: len(reactor.seen) > 1)
    values = ground.values()
    assert (values["a"], "b" in values, len(values)) == (b"fin", False, 202)
    assert faulty.results == [False, True, True]


def test_an_error_of_a_tick_or_of_a_patch_ends_it(ground: Ground):
    for tick in (lambda _state: 1 / 0, lambda state: state.patch(("a", lambda _old: 1 / 0))):
        with pytest.raises(ZeroDivisionError):
            ground.drive(ground.worker(Ticks(tick)), until=lambda: False)


# limits


def guard_of(ground: Ground) -> Compare:
    return Compare(ground.root + "guard", "create", ground.put("guard", b"here"))


def test_exactly_as_many_keys_as_fit_with_their_guards(ground: Ground, faulty: FaultyClient):
    guards = (guard_of(ground),)
    reactor = Ticks(lambda state: state.set(**{f"{n:03}": b"x" for n in range(126)}))
    worker = ground.worker(reactor, client=faulty, guards=guards)
    ground.drive(worker, until=lambda: len(ground.values()) == 127)
    reactor.next(lambda state: state.set(**{f"{n:03}": None for n in range(126)}))
    ground.drive(worker, until=lambda: len(ground.values()) == 2)
    assert faulty.results == [True, True]
    reactor.next(lambda state: state.set(**{f"{n:03}": b"x" for n in range(127)}))
    with pytest.raises(TransactionTooLarge, match="127 keys"):
        ground.drive(worker, until=lambda: False)
    assert len(ground.values()) == 2


def test_groups_that_fill_a_transaction_exactly_are_not_tried_for_ever(
    ground: Ground, faulty: FaultyClient
):
    def tick(state: MapState) -> None:
        for first in (0, 127, 254):
            state.set(**{f"{n:03}": b"x" for n in range(first, first + 127)})

    worker = ground.worker(Ticks(tick), client=faulty)
    ground.drive(worker, until=lambda: len(ground.values()) == 381)
    assert faulty.results == [True] * 3


def test_exactly_as_many_bytes_as_fit(ground: Ground, faulty: FaultyClient):
    guards = (guard_of(ground),)
    most = MAX_TXN_BYTES - 2 * len(ground.root + "a")
    reactor = Ticks(lambda state: state.set(a=b"x" * most))
    worker = ground.worker(reactor, client=faulty, guards=guards)
    ground.drive(worker, until=lambda: len(ground.value("a") or b"") == most)
    reactor.next(lambda state: state.set(a=b"x" * (most + 1)))
    with pytest.raises(TransactionTooLarge, match=f"{MAX_TXN_BYTES + 1} bytes"):
        ground.drive(worker, until=lambda: False)


def test_many_stale_keys_of_one_changefeed_go_in_several_transactions(
    ground: Ground, faulty: FaultyClient
):
    """tiflow #7131: more than 128 of them as one group blocked the owner for good."""
    names = [f"task/position/capture-{n}/shop" for n in range(300)]
    for name in names:
        ground.put(name, b"{}")

    def tick(state: MapState) -> None:
        for name in sorted(state.values.keys() & set(names)):
            state.set(**{name: None})

    worker = ground.worker(Ticks(always=tick), client=faulty)
    ground.drive(worker, until=lambda: ground.values().keys() == {"count"})
    assert faulty.results == [True] * 3


# the rate


def test_ticks_keep_to_their_rate_however_much_happens(ground: Ground):
    reactor = Ticks(always=lambda state: state.patch(("a", plus(1))))
    worker = ground.worker(reactor, tick_interval_s=0.05)
    began = ground.clock.monotonic()
    ground.drive(worker, until=lambda: ground.clock.monotonic() > began + 1.0)
    assert 5 <= len(reactor.seen) <= 23


def test_a_reactor_rests_until_it_has_news(ground: Ground):
    reactor = Ticks()
    worker = ground.worker(reactor, due_at=lambda: math.inf)
    ground.drive(worker, until=lambda: len(reactor.seen) == 1)
    assert worker.run_once() > REST_S / 2
    worker.news()
    worker.run_once()
    assert len(reactor.seen) == 2
    ground.put("a", b"1")
    ground.drive(worker, until=lambda: len(reactor.seen) == 3, patience_s=REST_S / 2)


def test_a_wake_up_that_is_lost_costs_a_rest_and_no_more(ground: Ground):
    reactor = Ticks()
    worker = ground.worker(reactor, due_at=lambda: math.inf)
    ground.drive(worker, until=lambda: len(reactor.seen) == 1)
    ground.drive(worker, until=lambda: len(reactor.seen) == 2, patience_s=REST_S + 0.5)


def test_what_a_reactor_waits_for_ends_its_rest(ground: Ground):
    reactor, due_at = Ticks(), [math.inf]
    worker = ground.worker(reactor, due_at=lambda: due_at[0])
    ground.drive(worker, until=lambda: len(reactor.seen) == 1)
    due_at[0] = -math.inf
    ground.drive(worker, until=lambda: len(reactor.seen) == 2, patience_s=REST_S / 2)


def test_a_patch_may_come_from_anywhere_but_must_be_of_a_watched_key(ground: Ground):
    reactor = Ticks(lambda state: state.groups.append((Patch("/elsewhere", lambda _: b"x"),)))
    with pytest.raises(ValueError, match="outside of the watched keys"):
        ground.drive(ground.worker(reactor), until=lambda: False)
