"""``kill -9`` at every step, one life after the other: each restart is the next victim."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.failpoint import OF_A_COPY, Failpoint
from tests.acceptance.processes import Stage, identities
from tests.acceptance.victims import Victim
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history

# In make test: the chain in test_restarts, and every step without processes in test_failpoints.
pytestmark = [pytest.mark.acceptance, pytest.mark.soak]

BATCH_MESSAGES = 600
SEEDS = range(1, 6)
ENGINES = ("merge-on-write", "spark")
ONCE = frozenset({Failpoint.BEFORE_CLAIM, Failpoint.AFTER_CLAIM, Failpoint.BEFORE_STREAM})

# Tables keep their shape and their names here; test_kills_at_ddls has these.
OF_DDLS = frozenset(
    {Failpoint.BEFORE_DDL, Failpoint.AMID_RENAME, Failpoint.AMID_REWRITE, Failpoint.AFTER_DDL}
)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_step_and_many_moments(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path, seed: int
):
    dice = random.Random(seed)
    chain = chain_of(dice)
    events = list(history(HistorySettings(seed=seed, transactions=500 * len(chain))))
    target_ts = events[-1].commit_ts
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        broker.produce(stage.topic, messages(events, FeedSettings(seed=seed)))
        lives = []
        for victim in chain:
            name = str(victim.step or "moment")
            settings = {"max_batch_messages": BATCH_MESSAGES, **victim.settings}
            lives.append(stage.start(name, target_ts=target_ts, **settings))
            victim.die(lives[-1], dice)
        lives.append(stage.start("last", target_ts=target_ts))
        assert lives[-1].await_exit() == 0, lives[-1].tail()
        stage.assert_equal(events)
        seen = list(identities(lives))
        assert len({capture for capture, _ in seen}) == len(seen)
        assert len({epoch for _, epoch in seen}) == len(seen)


def chain_of(dice: random.Random) -> list[Victim]:
    chain: list[Victim] = []
    for step in Failpoint:
        if step in OF_DDLS | OF_A_COPY:
            continue
        # tables are made by the first batches alone: at least one must be left for this step
        first = step in ONCE or step is Failpoint.AFTER_CREATE_TABLE
        nth = 1 if first else dice.randint(1, 3)
        at_step = Victim(step, nth, dice.choice(ENGINES))
        if step is Failpoint.AFTER_CREATE_TABLE:
            chain.insert(len(ONCE), at_step)
        else:
            chain.append(at_step)
        if len(chain) > len(ONCE) + 1 and dice.random() < 0.5:
            moment = Victim(engine=dice.choice(ENGINES), group=dice.random() < 0.5)
            chain.append(moment)
    return chain
