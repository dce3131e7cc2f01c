"""Groups that wait for the coordination thread: who gets which answer, and when."""

from __future__ import annotations

import threading
import time

import pytest

from coordination.errors import TryAgain
from coordination.etcd.client import Compare
from coordination.metadata.committer import PostedCommitter, TickCommitter
from coordination.metadata.errors import ChangefeedExists
from coordination.orchestrator.patch import Patch, PatchGroup
from coordination.orchestrator.transaction import fold

GUARD = Compare("/guard", "create", "=", 7)


def puts(key: str, value: bytes = b"1") -> Patch:
    return Patch(key, lambda _old: value)


def refuses(key: str) -> Patch:
    def change(_old: bytes | None) -> bytes | None:
        raise ChangefeedExists("it is there")

    return Patch(key, change)


class Caller:
    """Somebody on another thread who waits for an answer."""

    def __init__(self, posted: PostedCommitter, *groups: PatchGroup, guards=()) -> None:
        self.answer: BaseException | str | None = None
        self._arguments = (posted, groups, guards)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        posted, groups, guards = self._arguments
        try:
            posted.commit(groups, guards)
            self.answer = "written"
        except (TryAgain, ChangefeedExists) as error:
            self.answer = error

    def wait(self) -> BaseException | str | None:
        self._thread.join(5)
        return self.answer


class Ticks:
    """The coordination thread's side, and a store that takes what it is told to."""

    def __init__(self, answer_s: float = 5.0) -> None:
        self.woken = threading.Semaphore(0)
        self.posted = PostedCommitter(self.woken.release, lambda: (GUARD,), answer_s)
        self.values: dict[str, bytes | None] = {}

    def tick(self, *, is_dropped: bool = False, runs: int = 1) -> int:
        """How many groups it took."""
        self.posted.settle()
        groups = self.posted.take_groups()
        for _ in range(runs):
            folded = fold(groups, self.values.get, 100)
        if not is_dropped:
            self.values.update(folded.changes)
            for key, value in folded.changes.items():
                self.posted.observe(key, value)
        return len(groups)

    def call(self, *groups: PatchGroup, guards=()) -> Caller:
        caller = Caller(self.posted, *groups, guards=guards)
        assert self.woken.acquire(timeout=5)
        return caller


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.mark.parametrize("runs", [1, 3])
def test_a_caller_is_answered_once_its_write_has_come_back(ticks: Ticks, runs: int) -> None:
    caller = ticks.call((puts("/a"), puts("/b")), guards=[GUARD])
    assert ticks.tick(runs=runs) == 1
    assert caller.answer is None  # not before the tick that follows
    ticks.tick()
    assert caller.wait() == "written"
    assert ticks.values == {"/a": b"1", "/b": b"1"}


def test_a_refusal_reaches_the_caller_and_not_the_worker(ticks: Ticks) -> None:
    caller = ticks.call((refuses("/a"), puts("/b")))
    other = ticks.call((puts("/c"),))
    assert ticks.tick(runs=2) == 2
    ticks.tick()
    assert isinstance(caller.wait(), ChangefeedExists)
    assert other.wait() == "written"
    assert ticks.values == {"/c": b"1"}


def test_what_changes_nothing_is_written(ticks: Ticks) -> None:
    ticks.values["/a"] = b"1"
    caller = ticks.call((puts("/a"),))
    ticks.tick()
    ticks.tick()
    assert caller.wait() == "written"


def test_of_what_was_dropped_nobody_says_that_it_was_written(ticks: Ticks) -> None:
    """EtcdWorker drops its patches when etcd does not say whether it took them."""
    caller = ticks.call((puts("/a"),))
    ticks.tick(is_dropped=True)
    ticks.tick()
    answer = caller.wait()
    assert isinstance(answer, TryAgain)
    assert "look again" in str(answer)


def test_two_changes_of_a_key_go_into_two_ticks_in_their_order(ticks: Ticks) -> None:
    callers = [ticks.call((puts("/a", b"1"),)), ticks.call((puts("/a", b"2"), puts("/b")))]
    assert ticks.tick() == 1
    assert ticks.values == {"/a": b"1"}
    assert ticks.tick() == 1
    ticks.tick()
    assert [each.wait() for each in callers] == ["written", "written"]
    assert ticks.values == {"/a": b"2", "/b": b"1"}


def test_groups_of_one_call_are_written_one_after_the_other(ticks: Ticks) -> None:
    caller = ticks.call((puts("/a"),), (refuses("/b"),), (puts("/c"),))
    for _ in range(3):
        ticks.tick()
        time.sleep(0.02)  # the caller posts its next group
    ticks.tick()
    assert isinstance(caller.wait(), ChangefeedExists)
    assert ticks.values == {"/a": b"1"}


def test_nobody_waits_for_a_thread_that_does_not_answer_or_has_ended() -> None:
    ticks = Ticks(answer_s=0.05)
    assert isinstance(ticks.call((puts("/a"),)).wait(), TryAgain)
    assert ticks.tick() == 0  # the caller is gone: nothing is done behind its back
    ticks = Ticks()
    callers = [ticks.call((puts("/a"),)), ticks.call((puts("/a"),))]
    ticks.tick()
    ended = TryAgain("it has ended")
    ticks.posted.close(ended)
    assert [each.wait() for each in callers] == [ended, ended]
    with pytest.raises(TryAgain, match="ended"):
        ticks.posted.commit([(puts("/b"),)])


def test_a_guard_that_the_worker_does_not_have_is_a_mistake(ticks: Ticks) -> None:
    with pytest.raises(ValueError, match="guard"):
        ticks.posted.commit([(puts("/a"),)], [Compare("/other", "create", "=", 7)])


def test_a_tick_takes_groups_as_they_come_and_only_behind_its_own_guards() -> None:
    taken: list[PatchGroup] = []
    committer = TickCommitter(lambda *groups: taken.extend(groups), lambda: (GUARD,))
    first, second = (puts("/a"),), (puts("/b"), puts("/c"))
    committer.commit((first,), (GUARD,))
    committer.commit((second,))
    assert taken == [first, second]
    with pytest.raises(ValueError, match="guard"):
        committer.commit((first,), (Compare("/other", "create", "=", 7),))
