"""What the program stands on goes away for a moment: etcd, the broker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conf.settings import EtcdSettings
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import Etcd3Client, connect
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import (
    BOTH_PROGRAMS,
    STOP_WITHIN_S,
    Life,
    Stage,
)
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

TTL_S = 7
SHORT_OUTAGE_S = 1.0  # trust lasts 6 s and is renewed at least every 2.4 s
SUICIDE = "dies by suicide"


@contextmanager
def client_of(etcd: EmbeddedEtcd) -> Iterator[Etcd3Client]:
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    assert isinstance(client, Etcd3Client)
    yield client
    client.close()


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


@BOTH_PROGRAMS
def test_etcd_and_broker_go_and_come_back(tmp_path: Path, program: str) -> None:
    with (
        EmbeddedEtcd() as etcd,
        KafkaBroker() as broker,
        Stage(broker, etcd.endpoint, tmp_path, ttl_s=TTL_S, program=program) as stage,
        LiveFeed(broker, stage.topic, seed=5) as feed,
    ):
        life = stage.start("outages")
        stage.await_checkpoint(1, life)
        outages_that_pass(stage, life, etcd, broker)
        last_ts = feed.close()
        stage.await_checkpoint(last_ts, life)
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
