"""``kill -9``, one life after the other: each restart is the next victim, the last one finishes."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.failpoint import Failpoint
from tests.acceptance.processes import Life, Stage, identities
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history

pytestmark = pytest.mark.acceptance

BATCH_MESSAGES = 600
LATEST_S = 3.0  # after its first batch
SOAK_SEEDS = range(1, 6)
ENGINES = ("delta-rs", "spark")
ONCE = frozenset({Failpoint.BEFORE_CLAIM, Failpoint.AFTER_CLAIM, Failpoint.BEFORE_STREAM})


@dataclass(frozen=True)
class Victim:
    """How a life ends: at the nth passage of a step, or ``step`` None: at a random moment.

    At a step the Python driver kills itself, and its JVM is left alone.
    """

    step: Failpoint | None = None
    nth: int = 1
    engine: str = "auto"
    group: bool = False
    jvm: bool = False  # it alone; its driver must say so

    @property
    def settings(self) -> dict[str, str]:
        chosen = {"apply_engine": self.engine}
        return chosen | ({"failpoints": f"{self.step}=kill:{self.nth}"} if self.step else {})


CHAIN = (
    Victim(Failpoint.AFTER_APPLY_ONE, engine="spark"),
    Victim(group=True),
    Victim(jvm=True),
    Victim(Failpoint.AFTER_CHANGEFEED, nth=2),
)


def run_chain(stage: Stage, broker: KafkaBroker, chain: tuple[Victim, ...], seed: int) -> None:
    dice = random.Random(seed)
    shop = HistorySettings(seed=seed, transactions=500 * len(chain))
    events = list(history(shop))
    target_ts = events[-1].commit_ts
    broker.produce(stage.topic, messages(events, FeedSettings(seed=seed)))
    lives = []
    for victim in chain:
        life = stage.start(
            str(victim.step or "moment"),
            target_ts=target_ts,
            max_batch_messages=BATCH_MESSAGES,
            **victim.settings,
        )
        lives.append(life)
        end(life, victim, dice)
    last = stage.start("last", target_ts=target_ts)
    lives.append(last)
    assert last.await_exit() == 0, last.tail()
    stage.assert_equal(events)
    seen = list(identities(lives))
    assert len({capture for capture, _ in seen}) == len(seen)
    assert len({epoch for _, epoch in seen}) == len(seen)


def end(life: Life, victim: Victim, dice: random.Random) -> None:
    if victim.step is None:
        life.await_line("applied a batch")
        time.sleep(dice.random() * LATEST_S)
        if victim.jvm:
            life.kill_jvm()
            assert life.await_exit() == 1, life.tail()
            assert life.lines()[-1].startswith("tidelake: Spark's JVM has ended"), life.tail()
            return
        life.kill(group=victim.group)
    code = life.await_exit()
    assert code == -signal.SIGKILL, f"{victim}: exit code {code}\n{life.tail()}"


def test_each_restart_is_the_next_victim(broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path):
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        run_chain(stage, broker, CHAIN, seed=11)
        assert stage.watch.state == "finished"


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_every_step_and_many_moments(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path, seed: int
):
    dice = random.Random(seed)
    chain: list[Victim] = []
    for step in Failpoint:
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
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        run_chain(stage, broker, tuple(chain), seed)
