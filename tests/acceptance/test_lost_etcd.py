"""An etcd that goes for longer than a lease, a lease that is revoked, and another etcd that knows
nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from coordination.etcd import keys
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.model import ChangefeedID
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import (
    BOTH_PROGRAMS,
    STOP_WITHIN_S,
    Life,
    Stage,
    await_,
    identities,
    time_of,
)
from tests.acceptance.test_outages import SUICIDE, TTL_S, client_of
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

BACK, CLAIMED = "capture starts", "claimed the changefeed"


def await_new_life(stage: Stage, life: Life, *, deaths: int) -> None:
    """It died, came back as another capture, claimed a new term and goes on."""
    life.await_line(SUICIDE, nth=deaths)
    life.await_line(BACK, nth=deaths + 1)
    life.await_line(CLAIMED, nth=deaths + 1)
    await_("its new term", lambda: stage.watch.term > deaths)
    stage.await_progress(life)


def outages_that_kill(stage: Stage, life: Life, etcd: EmbeddedEtcd) -> None:
    """The capture is made anew, with a new epoch and the next term."""
    etcd.kill()
    life.await_line(SUICIDE)
    etcd.start()
    await_new_life(stage, life, deaths=1)
    with client_of(etcd) as client:
        scope = keys.run_scope(stage.cluster_id, ChangefeedID("shop"))
        prefix = keys.election_prefix(scope)
        (leader,) = client.range(prefix, prefix=True).kvs
        client.revoke(leader.lease)
    await_new_life(stage, life, deaths=2)
    epochs = {epoch for _, epoch in identities([life])}
    assert len(epochs) == 3


@BOTH_PROGRAMS
def test_a_lost_etcd_and_another_one_in_its_place(
    broker: KafkaBroker, tmp_path: Path, program: str
) -> None:
    with (
        EmbeddedEtcd() as etcd,
        EmbeddedEtcd() as empty,
        Stage(broker, etcd.endpoint, tmp_path, ttl_s=TTL_S, program=program) as stage,
        LiveFeed(broker, stage.topic, seed=5) as feed,
    ):
        life = stage.start("outages")
        stage.await_checkpoint(1, life)
        outages_that_kill(stage, life, etcd)
        life.kill(group=True)
        life.assert_gone()

        heir = stage.start("empty-etcd", etcd_endpoint=empty.endpoint)
        claimed = time_of(heir.await_line(CLAIMED))
        waited_s = claimed - time_of(heir.await_line("capture leads"))
        print(f"\nan etcd that knows nothing: waited {waited_s:.1f} s for the row to be stale")
        assert waited_s > TTL_S
        last_ts = feed.close()
        stage.await_checkpoint(last_ts, heir)
        heir.signal(signal.SIGTERM)
        assert heir.await_exit(STOP_WITHIN_S) == 0, heir.tail()
        stage.assert_equal(feed.events)
