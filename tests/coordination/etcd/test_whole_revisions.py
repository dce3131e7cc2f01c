"""Whole moments of two watches, however their events come and whatever etcd says of progress."""

from __future__ import annotations

import random

import pytest

from coordination.etcd.client import KeyValue, WatchEvent
from coordination.etcd.whole_revisions import WholeRevisions
from coordination.model import Revision

Moment = tuple[int, tuple[int, ...]]  # a revision, and the watches that see it
LAST = 60


def event(watch: int, revision: int) -> WatchEvent:
    at = Revision(revision)
    return WatchEvent(
        "put", KeyValue(key=f"/{watch}", value=b"", create_revision=at, mod_revision=at)
    )


def history(random_: random.Random) -> list[Moment]:
    return [(at, random_.choice([(0,), (1,), (0, 1), ()])) for at in range(1, LAST)]


def begun() -> WholeRevisions:
    moments = WholeRevisions(2)
    moments.created(0, Revision(0))
    moments.created(1, Revision(0))
    return moments


def test_an_event_of_one_watch_waits_until_the_other_is_known_to_have_none() -> None:
    moments = begun()
    assert moments.add(0, [event(0, 5)])
    assert (moments.take(), moments.is_waiting) == ((), True)
    moments.progress(1, Revision(4))
    assert moments.take() == ()
    moments.progress(-1, Revision(7))
    assert (moments.take(), moments.is_waiting) == ((event(0, 5),), False)


def test_nothing_is_told_before_all_watches_are_made() -> None:
    moments = WholeRevisions(2)
    moments.created(0, Revision(0))
    moments.add(0, [event(0, 5)])
    moments.progress(-1, Revision(7))
    assert moments.take() == ()


@pytest.mark.seeds(50)
@pytest.mark.parametrize("is_honest", [True, False])
def test_no_moment_is_told_by_half_and_none_is_lost_without_a_word(
    seed: int, *, is_honest: bool
) -> None:
    """An etcd that is not honest speaks of progress while events are still under way."""
    random_ = random.Random(seed)
    moments, truth = begun(), history(random_)
    queues = [[at for at, watches in truth if watch in watches] for watch in (0, 1)]
    told: list[WatchEvent] = []
    while any(queues) or moments.is_waiting:
        if random_.random() < 0.3 or not any(queues):
            left = [queue[0] for queue in queues if queue]
            upto = min(left, default=LAST) - 1
            moments.progress(-1, Revision(upto if is_honest else min(upto + 3, LAST)))
        else:
            watch = random_.choice([each for each in (0, 1) if queues[each]])
            count = random_.randint(1, 4)
            batch, queues[watch] = queues[watch][:count], queues[watch][count:]
            if not moments.add(watch, [event(watch, at) for at in batch]):
                assert not is_honest
                return  # it is said, and read again
        told += moments.take()
        whole = [event(w, at) for at, watches in truth for w in watches]
        seen = {each.kv.mod_revision for each in told}
        if is_honest:
            expected = [each for each in whole if each.kv.mod_revision in seen]
            assert sorted(told, key=str) == sorted(expected, key=str)
        assert [e.kv.mod_revision for e in told] == sorted(e.kv.mod_revision for e in told)
    assert len(told) == sum(len(watches) for _, watches in truth)
