"""What is wrong with a changefeed is found before anything starts, by a real broker and folder."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from conf.load import load_settings
from conf.settings import Changefeed
from coordination.errors import ConfigError
from coordination.model import (
    TSO_LOGICAL_BITS,
    CaptureID,
    Ownership,
    ProcessorEpoch,
    Revision,
    time_tso,
)
from sinks.control.changefeeds import Changefeeds
from streaming.changefeed.preflight import (
    check_beginning,
    check_changefeed,
    end_of_copy,
    has_finished,
)
from streaming.owner.start_point import first_row
from streaming.source.contract import SourceLost
from streaming.source.kafka.deleted_messages import CLOCKS_MS
from tests.acceptance.small_tables import advised_ts, marks, row
from tests.services.kafka_broker import KafkaBroker

PARTITIONS = 2


def changefeed(
    sink_uri: str, at: str = "127.0.0.1:9", topic: str = "shop", more: str = "", **keys: object
) -> Changefeed:
    source = f"kafka://{at}/{topic}?protocol=canal-json&enable-tidb-extension=true{more}"
    arguments = {"source-uri": source, "sink-uri": sink_uri, **keys}
    return load_settings(config=None, environment={}, arguments=arguments).changefeed


@pytest.mark.kafka
def test_topic_and_partitions_are_asked_of_the_broker(broker: KafkaBroker, tmp_path: Path):
    topic = f"preflight-{uuid4().hex[:8]}"
    broker.create_topic(topic, PARTITIONS)
    sink, at = f"delta://{tmp_path}/not/there/yet", broker.bootstrap
    check_changefeed(changefeed(sink, at, topic))
    check_changefeed(changefeed(sink, at, topic, f"&partition-num={PARTITIONS}"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="topic nothing-here does not exist"):
        check_changefeed(changefeed(sink, at, "nothing-here"))
    with pytest.raises(ConfigError, match=f"has {PARTITIONS} partitions, .* partition-num=3"):
        check_changefeed(changefeed(sink, at, topic, "&partition-num=3"))


@pytest.mark.kafka
def test_a_new_changefeed_is_told_where_kafka_begins(broker: KafkaBroker, tmp_path: Path):
    topic = f"preflight-{uuid4().hex[:8]}"
    broker.create_topic(topic, PARTITIONS)
    # TiCDC sends a row of commit-ts 40 before the watermark 30.
    broker.produce(topic, [(1, None, row(40, 1, "ahead")), *marks(30, PARTITIONS)])
    wanted = changefeed(f"delta://{tmp_path}", broker.bootstrap, topic)
    check_beginning(wanted)
    broker.delete_records(topic, {1: 1})
    with pytest.raises(
        SourceLost, match=r"partition 1 begins at offset 1: .* above 30 may have been"
    ):
        check_beginning(replace(wanted, start_ts=30))
    now_ts = time_tso(datetime.now(UTC))
    with pytest.raises(SourceLost, match="--start-ts") as refused:
        check_beginning(replace(wanted, start_ts=now_ts))
    safe_ts = advised_ts(refused.value)
    assert now_ts < safe_ts <= now_ts + (CLOCKS_MS << TSO_LOGICAL_BITS)
    check_beginning(replace(wanted, start_ts=safe_ts))
    broker.delete_records(topic, {1: 2})
    with pytest.raises(SourceLost, match=r"partition 1 begins at offset 2: .*no message is left"):
        check_beginning(replace(wanted, start_ts=safe_ts))


def test_a_warehouse_where_no_folder_can_be_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    for below in ("file", "file/lake"):
        with pytest.raises(ConfigError, match=f"{tmp_path}/file is no folder"):
            check_changefeed(changefeed(f"delta://{tmp_path}/{below}"))


def test_a_warehouse_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)  # root may all
    with pytest.raises(ConfigError, match=f"no permission to write to {tmp_path}: "):
        check_changefeed(changefeed(f"delta://{tmp_path}/lake"))


def test_commits_that_could_be_lost_are_refused_before_storage_is_asked():
    with pytest.raises(ConfigError, match="can lose commits on s3://"):
        check_changefeed(changefeed("delta+s3://bucket/x", **{"apply-engine": "spark"}))


def test_what_has_finished_wants_no_spark(tmp_path: Path):
    wanted = replace(changefeed(f"delta://{tmp_path}"), start_ts=5)
    assert not has_finished(wanted)
    ownership = Ownership(
        capture_id=CaptureID("c"),
        epoch=ProcessorEpoch("e"),
        etcd_cluster_id="etcd",
        election_revision=Revision(1),
    )
    tables = Changefeeds(str(tmp_path))
    row = tables.claim(first_row(wanted), ownership, ttl_s=1, stop=threading.Event())
    tables.save(replace(row, checkpoint_ts=9))
    assert has_finished(replace(wanted, target_ts=9))
    assert not has_finished(replace(wanted, target_ts=10))
    assert not has_finished(wanted)
    assert not has_finished(replace(wanted, target_ts=9, overwrite_checkpoint_ts=7))


@pytest.mark.parametrize(
    ("checkpoint", "published", "target", "end"),
    [
        (10, 10, None, 11),  # loaded, from an idle log
        (10, 20, None, 21),  # loaded
        (15, 20, 21, 21),  # a start has gone on from there
        (21, 20, 21, 21),  # killed before its snapshot
        (21, 21, 21, 21),  # it has finished
        (15, 20, None, 21),  # mode `all` has gone on
        (15, 20, 900, 21),  # with a target of its own
        (30, 30, None, 30),  # mode `all` has published snapshots
        (30, 25, None, 30),
    ],
)
def test_a_copy_ends_behind_what_it_has_read(
    checkpoint: int, published: int, target: int | None, end: int
) -> None:
    feed = changefeed("delta:///lake")
    stored = replace(
        first_row(feed),
        start_ts=10,
        checkpoint_ts=checkpoint,
        max_published_ts=published,
        target_ts=target,
        source_positions={"binlog": 4},
    )
    assert end_of_copy(stored) == end
    assert end_of_copy(replace(stored, source_positions={})) is None
