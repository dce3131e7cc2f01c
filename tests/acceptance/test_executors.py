"""Executors in other processes, with another Python and none of the driver's environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import STOP_WITHIN_S, Stage, await_
from tests.services.kafka_broker import KafkaBroker
from tests.services.spark_cluster import EXECUTORS, SparkCluster
from tests.services.wheel import build_wheel, make_python

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]

STANDS_STILL_S = 3.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as running:
        yield running


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def freeze(pids: list[int]) -> None:
    """Reads of theirs go on for ever."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(STANDS_STILL_S)  # a live feed: a read has begun


def test_killed_executors_and_pythons_lose_and_double_nothing(
    cluster: SparkCluster, wheel: Path, broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    given = cluster.environment(make_python(tmp_path, wheel))
    with (
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=11) as feed,
    ):
        life = stage.start("on-a-cluster", given=given)
        stage.await_checkpoint(1, life)
        first = cluster.executors()
        assert len(first) == EXECUTORS
        assert cluster.pythons()

        freeze(cluster.pythons())  # in mid-read
        kill(cluster.pythons())
        stage.await_progress(life)

        freeze(cluster.pythons())
        kill([*first, *cluster.pythons()])
        stage.await_progress(life)
        second = cluster.executors()
        assert not set(first) & set(second)

        kill(second[:1])  # at any moment, most likely between two reads
        stage.await_progress(life)
        await_("another executor", lambda: len(cluster.executors()) == EXECUTORS)
        stage.await_progress(life)

        last_ts = feed.close()
        stage.await_checkpoint(last_ts, life)
        life.signal(signal.SIGTERM)
        assert life.await_exit(STOP_WITHIN_S) == 0, life.tail()
        stage.assert_equal(feed.events)
        assert life.lines("ERROR") == []
