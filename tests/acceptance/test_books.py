"""Books that balance in every snapshot, while tables change shape and captures fail at any step.

A seed that fails is told; it fails again with ``-k``. ``test_books_of_a_cluster`` kills for real.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coordination.failpoint import OF_A_COPY, Failpoint
from tests.acceptance.books import Books
from tests.acceptance.books_reader import BooksReader
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import MakeLives
from tests.seeds import chosen_seeds
from tests.shop.feed import FeedSettings, messages

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

BATCH_MESSAGES = 40
RATE_PER_S = 0.4  # of transactions, on TiDB's clock
SYNC_POINT_MS = 10_000  # of the same
LEAST_SNAPSHOTS = 8
ENGINES = {True: ("auto",), False: ("auto", "auto", "spark")}  # with other forms, and without


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coordination.capture.owner.term.interval_ms", lambda _config: SYNC_POINT_MS
    )


def opened(lives: Lives, seed: int, transactions: int) -> Books:
    """Books whose whole feed is in the topic, restarts of TiCDC and all; those of even seeds have
    tables in other forms, which Spark does not write."""
    books = Books(seed, transactions=transactions, rate=RATE_PER_S, has_forms=seed % 2 == 0)
    changefeed = lives.settings.changefeed
    sink = replace(changefeed.sink, tables=books.rules)
    lives.settings = replace(lives.settings, changefeed=replace(changefeed, sink=sink))
    settings = FeedSettings(seed=seed, watermark_every=3, replay_every=9)
    lives.produce(messages(books.events(), settings))
    return books


def check(lives: Lives, books: Books) -> None:
    reader, cuts = BooksReader(books, lives.warehouse), lives.ledger()
    reader.check_now(books.last_ts)
    assert reader.check(cuts) >= LEAST_SNAPSHOTS
    assert not lives.dead_letters()
    lives.assert_history()
    reader.check_ddls(books.last_ts)


@pytest.mark.soak
def test_every_snapshot_balances(new_lives_on_spark: MakeLives) -> None:
    """One dies right after a DDL and one in the middle of a batch; two share the rest."""
    lives = new_lives_on_spark(max_messages=BATCH_MESSAGES)
    books = opened(lives, seed=1, transactions=50)
    for part, victim in ((0.6, "after-ddl=raise:2"), (0.85, "after-apply-one=raise:3")):
        error = lives.live(victim, target_ts=books.ts_at(part))
        assert "failpoint" in str(error), (victim, error)
    captures = [lives.begin(target_ts=books.last_ts) for _ in range(2)]
    assert [capture.join() for capture in captures] == [None, None]
    lives.look()
    check(lives, books)


@pytest.mark.soak
@pytest.mark.parametrize("seed", chosen_seeds(10))
def test_every_snapshot_balances_whoever_fails(new_lives_on_spark: MakeLives, seed: int) -> None:
    """``SEEDS=100 FIRST=3`` for others. Captures fail at random steps, some side by side."""
    dice = random.Random(seed)
    lives = new_lives_on_spark(max_messages=dice.choice((BATCH_MESSAGES, 5 * BATCH_MESSAGES)))
    books = opened(lives, seed, transactions=150)
    for _ in range(40):
        victim = f"{dice.choice(sorted(set(Failpoint) - OF_A_COPY))}=raise:{dice.randint(1, 12)}"
        settings = {"engine": dice.choice(ENGINES[books.has_forms]), "target_ts": books.last_ts}
        errors = lives.live_together(dice.randint(1, 2), victim, **settings)
        assert all(error is None or "failpoint" in str(error) for error in errors), (seed, errors)
        if None in errors:
            break
    else:
        lives.finish(target_ts=books.last_ts)
    check(lives, books)
