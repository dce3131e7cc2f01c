"""A changefeed into S3: the lives of ``one_process``, whose Spark has no file system for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from coordination.failpoint import Failpoint
from sinks.merge_on_write.log.pause import set_paused
from tests.acceptance.one_process import Feed, Lives, Sleep, on_spark, shop_feed
from tests.acceptance.processes import await_
from tests.services.kafka_broker import KafkaBroker
from tests.services.s3_server import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

AT_ONCE = 10_000  # messages


@pytest.fixture(scope="module")
def feed() -> Feed:
    return shop_feed(transactions=30)


@pytest.fixture
def lives(
    spark: SparkSession,
    broker: KafkaBroker,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lives]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, value in s3.options.items():
        monkeypatch.setenv(name, value)
    topic = f"lives-{uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=3)
    store = f"s3://{s3.bucket}/{topic}"
    yield Lives(
        on_spark(spark), broker, tmp_path, topics=[topic], store=store, max_messages=AT_ONCE
    )
    broker.delete_topic(topic)


@pytest.mark.more  # on a disk: test_failpoints; commits on S3: tests/sinks/test_object_store.py
def test_failures_zombies_a_pause_and_a_rewind_on_s3(
    lives: Lives, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives.produce(feed.messages)
    for point in (Failpoint.AFTER_CREATE_TABLE, Failpoint.AFTER_FENCE_CHECK):
        error = lives.live(f"{point}=raise", target_ts=feed.ts_at(0.5))
        assert "failpoint" in str(error), repr(error)
    lives.finish(target_ts=feed.ts_at(0.5))

    sleep = Sleep(monkeypatch, "capture-4")
    zombie = lives.begin(target_ts=feed.last_ts)
    assert sleep.asleep.wait(120), "no commit came"
    zombie.line.is_cut = True  # as if all of it were asleep: its lease ends
    lives.finish_beside(overwrite_checkpoint_ts=feed.ts_at(0.2), target_ts=feed.ts_at(0.7))
    before = lives.control_rows()
    sleep.wake.set()
    zombie.stop()  # its tables are sealed
    assert lives.control_rows() == before

    orders = f"{lives.uri}/shop/orders"
    assert set_paused(orders, {}, paused=True)
    last = lives.begin(target_ts=feed.last_ts)
    await_("orders is paused", lambda: lives.progress()["shop.orders"].state == "paused")
    assert set_paused(orders, {}, paused=False)
    assert last.join() is None
    lives.assert_is(feed.events)
    engines = {row.engine for row in lives.progress().values()}
    assert engines - {None} == {"merge-on-write"}  # None: nothing came for that table since
    assert not lives.dead_letters()
    assert not lives.warehouse.exists()
