"""Patches from outside of any worker."""

from __future__ import annotations

import pytest

from coordination.errors import TidelakeError, TryAgain
from coordination.etcd.client import Compare, delete
from coordination.orchestrator.commit_once import TRIES, commit_once
from coordination.orchestrator.snapshot import GuardLost
from coordination.orchestrator.transaction import ChangeRefused, Patch, TransactionTooLarge
from tests.coordination.orchestrator.ground import FaultyClient, Ground, Ticks, once
from tests.coordination.orchestrator.key_values import adds, becomes, group


def test_each_group_is_one_transaction_on_top_of_the_one_before(ground: Ground):
    before = ground.put("a", b"1")
    groups = [group(adds(ground.root + "a", 2)), group(adds(ground.root + "a", 4))]
    groups.append(group(adds(ground.root + "a", 8), becomes(ground.root + "b", b"")))
    commit_once(ground.client, groups, ground.counter_key)
    assert ground.revision == before + 3
    assert ground.values() == {"a": b"15", "b": b""}


def test_a_group_that_refuses_holds_back_those_after_it(ground: Ground):
    def refuse(_old: bytes | None) -> bytes:
        raise TidelakeError("no")

    groups = [group(Patch(ground.root + each, refuse if each == "b" else _one)) for each in "abc"]
    with pytest.raises(TidelakeError, match="no"):
        commit_once(ground.client, groups, ground.counter_key)
    assert ground.values() == {"a": b"1"}


def _one(_old: bytes | None) -> bytes:
    return b"1"


def test_nothing_to_change_writes_nothing(ground: Ground):
    before = ground.put("a", b"1")
    same = [group(becomes(ground.root + "a", b"1"), becomes(ground.root + "b", None))]
    commit_once(ground.client, same, ground.counter_key)
    assert ground.revision == before


def test_a_delete_is_counted_for_the_workers(ground: Ground):
    ground.put("a", b"1")
    for _ in range(2):
        for value in (b"x", None):
            commit_once(
                ground.client, [group(becomes(ground.root + "a", value))], ground.root + "count"
            )
    assert ground.values() == {"count": b"2"}


def test_a_worker_hears_of_it(ground: Ground):
    reactor = Ticks()
    worker = ground.worker(reactor)
    ground.drive(worker, until=lambda: len(reactor.seen) > 0)
    commit_once(ground.client, [group(adds(ground.root + "a", 2))], ground.counter_key)
    ground.drive(worker, until=lambda: reactor.seen[-1] == {"a": b"2"})


def test_a_collision_is_tried_again_on_the_newer_value(ground: Ground, faulty: FaultyClient):
    faulty.before_txn = once(lambda: ground.put("a", b"40"))
    commit_once(faulty, [group(adds(ground.root + "a", 2))], ground.counter_key)  # type: ignore[arg-type]
    assert ground.value("a") == b"42"


def test_it_does_not_try_for_ever(ground: Ground, faulty: FaultyClient):
    faulty.before_txn = lambda: ground.put("a", b"40")
    with pytest.raises(TryAgain, match=f"{TRIES} times"):
        commit_once(faulty, [group(adds(ground.root + "a", 2))], ground.counter_key)  # type: ignore[arg-type]


def test_guards_are_compared_and_a_lost_one_is_told(ground: Ground, faulty: FaultyClient):
    guard = Compare(ground.root + "owner", "create", ground.put("owner", b"me"))
    change = [group(adds(ground.root + "a", 2))]
    commit_once(ground.client, change, ground.counter_key, (guard,))
    faulty.before_txn = once(lambda: delete(ground.client, guard.key))
    with pytest.raises(GuardLost):
        commit_once(faulty, change, ground.counter_key, (guard,))  # type: ignore[arg-type]
    assert ground.value("a") == b"2"


def test_what_does_not_fit_and_what_is_refused_is_said(ground: Ground):
    def refuse(_old: bytes | None) -> bytes:
        raise ChangeRefused("not so")

    many = [group(*(becomes(f"{ground.root}{n}", b"x") for n in range(128)))]
    with pytest.raises(TransactionTooLarge, match="128 keys"):
        commit_once(ground.client, many, ground.counter_key)
    with pytest.raises(ChangeRefused, match="so"):
        commit_once(ground.client, [group(Patch(ground.root + "a", refuse))], ground.counter_key)
    assert ground.values() == {}
