"""``kill -9`` before, amid and behind a DROP TABLE and a RENAME TABLE: every snapshot balances.

Each life ends at some DDL, and the next one finds what it has left of it.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.failpoint import Failpoint
from tests.acceptance.books import NAMES_ALONE, Books
from tests.acceptance.books_reader import BooksReader
from tests.acceptance.processes import Life, Stage
from tests.acceptance.victims import Victim
from tests.seeds import chosen_seeds
from tests.services.kafka_broker import KafkaBroker
from tests.shop import proof
from tests.shop.feed import FeedSettings, messages

pytestmark = [pytest.mark.acceptance, pytest.mark.soak]

BATCH_MESSAGES = 60
RATE_PER_S = 0.4  # of transactions, on TiDB's clock
STEPS = (
    *(Failpoint.BEFORE_DDL, Failpoint.AMID_RENAME, Failpoint.AFTER_DDL),
    *(Failpoint.AFTER_DDL, Failpoint.AMID_RENAME, Failpoint.AFTER_PROGRESS),
    *(Failpoint.AFTER_DDL, Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL),
)


@pytest.mark.parametrize("seed", chosen_seeds(2))
def test_every_snapshot_balances(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    books = Books(
        seed,
        transactions=200,
        ddl_every=4,
        rate=RATE_PER_S,
        has_forms=False,
        least_roll=NAMES_ALONE,
    )
    settings = FeedSettings(seed=seed, watermark_every=3, replay_every=9)
    killed_at: Counter[str] = Counter()
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        broker.produce(stage.topic, messages(books.events(), settings))
        for step in STEPS:
            victim = Victim(step, dice.randint(1, 4))
            given = {"max_batch_messages": BATCH_MESSAGES, **victim.settings}
            life = stage.start(str(step), target_ts=books.last_ts, **given)
            victim.die(life, dice)
            killed_at[last_ddl(life)] += 1
        last = stage.start("last", target_ts=books.last_ts)
        assert last.await_exit() == 0, last.tail()
    print(f"seed {seed}: killed at {killed_at}")
    assert killed_at.keys() >= {"DROP", "RENAME"}, killed_at
    reader = BooksReader(books, stage.warehouse)
    reader.check_now(books.last_ts)
    reader.check_ddls(books.last_ts)
    assert reader.check(proof.ledger(stage.warehouse))


def last_ddl(life: Life) -> str:
    """What it ran last: the first word of it that tells."""
    ran = life.lines(" runs a DDL ") or ["sql= none"]
    words = ran[-1].partition("sql=")[2].split()
    return "RENAME" if "RENAME" in words and "COLUMN" not in words else words[0]
