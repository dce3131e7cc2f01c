"""Whoever dies, wherever it dies: the next life ends with the history's rows, and nothing fell.

Each test is a chain of lives over one feed (``one_process``); ``test_restarts`` kills for real.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from conf.settings import FilterSettings
from coordination.failpoint import OF_A_COPY, Failpoint
from tests.acceptance.one_process import Feed, Life, Lives, Sleep, shop_feed
from tests.acceptance.small_tables import MakeLives
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

ENGINES = ("merge-on-write", "spark")
ENGINES_IN_TIME = ("merge-on-write", pytest.param("spark", marks=pytest.mark.soak))
# Passed once per table of a batch; and one that finds a stream that has done something already.
# The shop's tables keep their shape and their names.
NOT_HERE = {
    *(Failpoint.BEFORE_DDL, Failpoint.AMID_RENAME, Failpoint.AMID_REWRITE, Failpoint.AFTER_DDL),
    *OF_A_COPY,
}
TWICE = {Failpoint.AFTER_FENCE_CHECK, Failpoint.AFTER_APPLY_ONE}


@pytest.fixture(scope="module")
def feed() -> Feed:
    return shop_feed(transactions=90)


@pytest.fixture
def lives(request: pytest.FixtureRequest) -> Lives:
    case = getattr(request.node, "callspec", None)
    is_by_spark = case is not None and case.params.get("engine") == "spark"
    make: MakeLives = request.getfixturevalue("new_lives_on_spark" if is_by_spark else "new_lives")
    return make(max_messages=60)


def victims() -> list[str]:
    """Every fail point once, in an order in which each is passed: tables are made first."""
    others = NOT_HERE | {Failpoint.AFTER_CREATE_TABLE}
    rest = [point for point in Failpoint if point not in others]
    return [
        f"{point}=raise:{2 if point in TWICE else 1}"
        for point in [Failpoint.AFTER_CREATE_TABLE, *rest]
    ]


def parted(messages: Sequence[Message], count: int) -> list[Sequence[Message]]:
    ends = [len(messages) * number // count for number in range(count + 1)]
    return [messages[begin:end] for begin, end in itertools.pairwise(ends)]


@pytest.mark.parametrize("engine", ENGINES_IN_TIME)
def test_a_failure_at_every_step_loses_and_doubles_nothing(
    lives: Lives, feed: Feed, engine: str
) -> None:
    parts = parted(feed.messages, len(victims()) + 1)
    for victim, part in zip(victims(), parts, strict=False):
        lives.produce(part)  # no life sees the end: one that finishes would hide its failure
        error = lives.live(victim, engine=engine, target_ts=feed.last_ts)
        assert f"failpoint {victim.partition('=')[0]}" in str(error), (victim, error)

    lives.produce(parts[-1])
    lives.finish(engine=engine, target_ts=feed.last_ts, max_messages=10_000)

    lives.assert_is(feed.events)
    row = lives.changefeed()
    assert row is not None
    assert (row.state, row.checkpoint_ts) == ("finished", feed.last_ts)
    assert row.term == len(victims())  # who dies before the claim has none; the last one has
    assert not lives.dead_letters()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("engine", ENGINES)
def test_failures_at_random_steps(lives: Lives, engine: str, seed: int) -> None:
    dice = random.Random(seed)
    feed = shop_feed(transactions=300, seed=seed)
    lives.produce(feed.messages)
    for _ in range(60):
        victim = f"{dice.choice(sorted(set(Failpoint) - OF_A_COPY))}=raise:{dice.randint(1, 4)}"
        error = lives.live(victim, engine=dice.choice((engine, "auto")), target_ts=feed.last_ts)
        if error is None:
            break
        assert "failpoint" in str(error), (victim, error)
    lives.finish(engine=engine, target_ts=feed.last_ts)
    lives.assert_is(feed.events)


def asleep(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, capture: str, above: int = 0, **changes: object
) -> tuple[Life, Sleep]:
    """A new capture that hangs between its last fence check and its commits."""
    sleep = Sleep(monkeypatch, capture, above=above)
    life = lives.begin(**changes)
    assert life.capture_id == capture
    assert sleep.asleep.wait(120), "no commit came"
    life.line.is_cut = True  # as if all of it were asleep: its lease ends
    return life, sleep


def wake(lives: Lives, zombie: Life, sleep: Sleep) -> None:
    """Let the zombie's commits go. Its trust is over; no control row moves."""
    before = lives.control_rows()
    sleep.wake.set()
    zombie.stop()
    assert lives.control_rows() == before


@pytest.mark.parametrize("engine", ENGINES_IN_TIME)
def test_a_zombie_that_is_behind_changes_nothing(
    lives: Lives, feed: Feed, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives.produce(feed.messages)
    lives.finish(engine=engine, target_ts=feed.ts_at(0.3), max_messages=10_000)
    zombie, sleep = asleep(lives, monkeypatch, "capture-2", engine=engine, target_ts=feed.last_ts)
    lives.finish_beside(engine=engine, target_ts=feed.last_ts, max_messages=10_000)
    versions = lives.versions()

    wake(lives, zombie, sleep)

    assert lives.versions() == versions
    lives.assert_is(feed.events)


@pytest.mark.parametrize("engine", ENGINES_IN_TIME)
def test_a_zombie_that_is_ahead_leaves_right_content(
    lives: Lives, feed: Feed, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives.produce(feed.messages)
    lives.finish(engine=engine, target_ts=feed.ts_at(0.3), max_messages=10_000)
    near, far = feed.ts_at(0.6), feed.ts_at(0.8)
    zombie, sleep = asleep(
        lives, monkeypatch, "capture-2", near, engine=engine, target_ts=far, max_messages=10_000
    )
    lives.finish_beside(engine=engine, target_ts=near, max_messages=10_000)
    before = lives.versions()

    wake(lives, zombie, sleep)

    if engine == "merge-on-write":  # it lost the race for the version, and its trust is over
        assert lives.versions() == before
    lives.finish(engine=engine, target_ts=feed.last_ts, max_messages=10_000)
    lives.assert_is(feed.events)


@pytest.mark.parametrize("engine", ENGINES_IN_TIME)
def test_a_rewind_seals_the_tables_against_an_old_zombie(
    lives: Lives, feed: Feed, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives.produce(feed.messages)
    lives.finish(engine=engine, target_ts=feed.ts_at(0.5), max_messages=10_000)
    published = lives.ledger()
    zombie, sleep = asleep(
        lives, monkeypatch, "capture-2", engine=engine, target_ts=feed.last_ts, max_messages=10_000
    )
    lives.finish_beside(
        engine=engine,
        overwrite_checkpoint_ts=feed.ts_at(0.2),
        target_ts=feed.ts_at(0.7),
        max_messages=10_000,
    )
    row = lives.changefeed()
    assert row is not None
    assert row.incarnation == 2
    versions = lives.versions()

    wake(lives, zombie, sleep)  # its limit is the greater one, and it is skipped all the same

    assert lives.versions() == versions
    lives.assert_is(feed.events, up_to=feed.ts_at(0.7))
    after = lives.ledger()
    assert after[: len(published)] == published
    assert all(cut["primary_ts"] > feed.ts_at(0.5) for cut in after[len(published) :])
    lives.finish(
        engine=engine,
        overwrite_checkpoint_ts=feed.ts_at(0.2),
        target_ts=feed.last_ts,
        max_messages=10_000,
    )  # the same arguments again: no second rewind
    row = lives.changefeed()
    assert row is not None
    assert row.incarnation == 2
    lives.assert_is(feed.events)


def test_a_changed_filter_seals_the_tables_against_an_old_zombie(
    lives: Lives, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = FilterSettings(rules=("*.*", "!shop.nothing"))
    lives.produce(feed.messages)
    lives.finish(target_ts=feed.ts_at(0.4), max_messages=10_000)
    zombie, sleep = asleep(
        lives, monkeypatch, "capture-2", target_ts=feed.last_ts, max_messages=10_000
    )
    lives.finish_beside(filter=changed, target_ts=feed.ts_at(0.7), max_messages=10_000)
    row = lives.changefeed()
    assert row is not None
    assert row.incarnation == 2
    versions = lives.versions()

    wake(lives, zombie, sleep)

    assert lives.versions() == versions
    lives.assert_is(feed.events, up_to=feed.ts_at(0.7))
    lives.finish(filter=changed, target_ts=feed.last_ts, max_messages=10_000)
    lives.assert_is(feed.events)


def test_a_first_run_ends_far_below_the_end_and_the_second_goes_on(
    lives: Lives, feed: Feed
) -> None:
    lives.produce(feed.messages)
    lives.finish(target_ts=feed.ts_at(0.25), max_messages=10_000)
    lives.assert_is(feed.events, up_to=feed.ts_at(0.25))
    versions = lives.versions()
    lives.finish(target_ts=feed.ts_at(0.25))  # once more: nothing is read, nothing is written
    assert lives.versions() == versions

    lives.finish(target_ts=feed.last_ts, max_messages=10_000)

    lives.assert_is(feed.events)


def test_who_is_stopped_in_order_leaves_a_row_that_says_so(lives: Lives, feed: Feed) -> None:
    half = len(feed.messages) // 2  # else a table may be beyond the target, which then has no cut
    lives.produce(feed.messages[:half])
    life = lives.begin()
    life.wait_until(lambda: (row := lives.changefeed()) and row.checkpoint_ts > 0)
    assert life.stop() is None
    row = lives.changefeed()
    assert row is not None
    assert row.state == "stopped"
    lives.look()
    lives.produce(feed.messages[half:])
    lives.finish(target_ts=feed.last_ts, max_messages=10_000)
    lives.assert_is(feed.events)
