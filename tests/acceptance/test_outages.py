"""What the program stands on goes away: etcd, the lease, the broker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conf.settings import EtcdSettings
from coordination.etcd import keys
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import Etcd3Client, connect
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
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

TTL_S = 7
SHORT_OUTAGE_S = 1.0  # trust lasts 6 s and is renewed at least every 2.4 s
SUICIDE, BACK, CLAIMED = "dies by suicide", "capture starts", "claimed the changefeed"


@contextmanager
def client_of(etcd: EmbeddedEtcd) -> Iterator[Etcd3Client]:
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    assert isinstance(client, Etcd3Client)
    yield client
    client.close()


def await_new_life(stage: Stage, life: Life, *, deaths: int) -> None:
    """It died, came back as another capture, claimed a new term and goes on."""
    life.await_line(SUICIDE, nth=deaths)
    life.await_line(BACK, nth=deaths + 1)
    life.await_line(CLAIMED, nth=deaths + 1)
    await_("its new term", lambda: stage.watch.term > deaths)
    stage.await_progress(life)


def outages_that_pass(stage: Stage, life: Life, etcd: EmbeddedEtcd, broker: KafkaBroker) -> None:
    """None of them ends the capture's life."""
    os.kill(etcd.pid, signal.SIGSTOP)
    time.sleep(SHORT_OUTAGE_S)
    os.kill(etcd.pid, signal.SIGCONT)
    stage.await_progress(life)
    with client_of(etcd) as client:
        client.compact(client.put("/some/key", b"1"))
    stage.await_progress(life)
    stage.await_progress(life)
    broker.kill()  # a batch reads, or asks for metadata
    time.sleep(1)
    broker.restart()
    stage.await_progress(life)
    stage.await_progress(life)
    assert life.lines(SUICIDE) == []
    assert stage.watch.term == 1


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
def test_etcd_and_broker_go_and_come_back_and_another_etcd_takes_their_place(
    tmp_path: Path, program: str
) -> None:
    with (
        EmbeddedEtcd() as etcd,
        EmbeddedEtcd() as empty,
        KafkaBroker() as broker,
        Stage(broker, etcd.endpoint, tmp_path, ttl_s=TTL_S, program=program) as stage,
        LiveFeed(broker, stage.topic, seed=5) as feed,
    ):
        life = stage.start("outages")
        stage.await_checkpoint(1, life)
        outages_that_pass(stage, life, etcd, broker)
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


@pytest.mark.soak  # the claim's own tests have this case too, without processes
def test_two_etcds_on_one_warehouse_are_found_out(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    """The second program ends with a line; the first one goes on as if nothing had been."""
    with (
        EmbeddedEtcd() as stranger,
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=6) as feed,
    ):
        owner = stage.start("owner")
        stage.await_checkpoint(1, owner)
        intruder = stage.start("intruder", etcd_endpoint=stranger.endpoint)
        assert intruder.await_exit() == 1
        assert "two etcds on one warehouse" in intruder.lines()[-1]
        assert intruder.lines("Traceback") == []
        last_ts = feed.close()
        stage.await_checkpoint(last_ts, owner)
        assert stage.watch.term == 1
        owner.signal(signal.SIGTERM)
        assert owner.await_exit(STOP_WITHIN_S) == 0, owner.tail()
        stage.assert_equal(feed.events)
