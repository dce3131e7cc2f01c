"""Captures that are frozen beyond their lease and wake up while another one is the owner.

SIGCONT lets a zombie run into everything that guards the tables: its own clock, the fence, the
transaction identities, the term. The watch sees every version of the control rows meanwhile: a term
that fell, or a row of a term by another capture, would be a zombie's.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import (
    STOP_WITHIN_S,
    Stage,
    await_,
    identities,
)
from tests.acceptance.takeover import (
    await_takeover,
    freeze_through_a_takeover,
    sleep_through_a_takeover,
    wake,
)
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history

pytestmark = [pytest.mark.acceptance, pytest.mark.soak]  # in make test: test_sleep_and_takeover


def test_a_zombie_changes_nothing_and_comes_back_as_a_new_capture(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    """Once between its last fence check and the commit, then twice anywhere."""
    with (
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=3) as feed,
    ):
        freezes = "after-fence-check=stop:20"
        one = stage.start("one", apply_engine="merge-on-write", failpoints=freezes)
        stage.await_checkpoint(1, one)
        other = stage.start("other", apply_engine="spark")  # it has tables at once

        sleep_through_a_takeover(stage, one, other, wins=1)
        freeze_through_a_takeover(stage, other, one, wins=2)
        one.signal(signal.SIGSTOP, group=True)
        await_takeover(stage, other, wins=2)
        wake(one, deaths=2, group=True)

        last_ts = feed.close()
        stage.await_checkpoint(last_ts, other)
        for life in (one, other):
            life.signal(signal.SIGTERM)
        assert [life.await_exit(STOP_WITHIN_S) for life in (one, other)] == [0, 0]
        stage.assert_equal(feed.events)
        captures = list(identities([one, other]))
        assert len(set(captures)) == len(captures) == 5


def test_a_rewind_with_the_old_owner_still_asleep_before_its_commit(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    """Its tables are sealed: what it writes when it wakes up is of an incarnation that is over."""
    events = list(history(HistorySettings(seed=8, transactions=600)))
    rewind_ts, last_ts = events[30].commit_ts, events[-1].commit_ts
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        broker.produce(stage.topic, messages(events, FeedSettings(seed=8)))
        sleeper = stage.start(
            "sleeper", max_batch_messages=600, failpoints="after-fence-check=stop:10"
        )
        await_("the owner stops itself before a commit", lambda: sleeper.is_frozen)
        assert rewind_ts < stage.watch.checkpoint < last_ts
        rewound = stage.start("rewound", target_ts=last_ts, overwrite_checkpoint_ts=rewind_ts)
        assert rewound.await_exit() == 0, rewound.tail()
        assert rewound.lines("rewinding ")
        stage.assert_equal(events)

        wake(sleeper, deaths=1, group=False)
        sleeper.await_line("claimed the changefeed", nth=2)
        sleeper.await_line("stream started", nth=2)
        sleeper.signal(signal.SIGTERM)
        assert sleeper.await_exit(STOP_WITHIN_S) == 0, sleeper.tail()
        stage.assert_equal(events)
