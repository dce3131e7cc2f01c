"""A patch that only reads, and demands that what it read is still so at the commit."""

from __future__ import annotations

import pytest

from coordination.etcd.client import Compare, get
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import Patch, fold
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd


def becomes(key: str, value: bytes) -> Patch:
    return Patch(key, lambda _old: value)


def reads(key: str, seen: list[bytes | None] | None = None, *, is_compared: bool = True) -> Patch:
    def change(old: bytes | None) -> bytes | None:
        if seen is not None:
            seen.append(old)
        return old

    return Patch(key, change, is_compared)


def test_a_compared_read_is_a_condition_and_a_plain_one_is_not() -> None:
    group = (reads("/gate"), reads("/plain", is_compared=False), becomes("/a", b"1"))
    folded = fold([group], lambda _key: None, 10)
    assert (set(folded.changes), set(folded.reads)) == ({"/a"}, {"/gate"})


def test_compared_reads_count_as_keys_of_the_transaction() -> None:
    groups = [(reads("/gate"), becomes("/a", b"1")), (reads("/gate"), becomes("/b", b"1"))]
    assert fold(groups, lambda _key: None, 3).taken == 2  # the gate is one key, read twice
    folded = fold(groups, lambda _key: None, 2)
    assert (folded.taken, set(folded.changes)) == (1, {"/a"})


class BusyEtcd(FakeEtcd):
    """Somebody writes the gate right before our first transaction."""

    is_busy = True

    def txn(self, compares, then):
        if self.is_busy and Compare("/gate", "mod", 2) in compares:
            self.is_busy = False
            self.put("/gate", b"shut")
        return super().txn(compares, then)


@pytest.mark.parametrize(("is_compared", "seen"), [(True, [b"open", b"shut"]), (False, [b"open"])])
def test_what_was_only_read_is_read_again_when_it_changed_before_the_commit(
    is_compared: bool, seen: list[bytes]
) -> None:
    etcd = BusyEtcd(FakeClock())
    etcd.put("/gate", b"open")
    found: list[bytes | None] = []
    commit_once(etcd, [(reads("/gate", found, is_compared=is_compared), becomes("/a", b"1"))], "/n")
    assert found == seen
    assert get(etcd, "/a") is not None
