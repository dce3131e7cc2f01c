"""A start resumes, rewinds or begins; it never skips anything in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from conf.settings import Changefeed, DeltaSink, FilterSettings, KafkaSource
from sinks.changefeeds import ChangefeedRow, Watermark
from streaming.events import TopicPartition
from streaming.source import SourceLost, SourceShape
from streaming.start_point import first_row, settle

P0, P1 = TopicPartition("shop", 0), TopicPartition("shop", 1)
SHAPE = SourceShape({"shop": "id-1"}, frozenset({P0, P1}))
CHANGEFEED = Changefeed(
    id="shop",
    source=KafkaSource(
        brokers=("b:1",), topic="shop", topics=("shop",), protocol="canal-json", partition_num=2
    ),
    sink=DeltaSink(warehouse="/w"),
)


def beginnings(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, 5)


def ran_to(checkpoint: int, changefeed: Changefeed = CHANGEFEED) -> ChangefeedRow:
    return replace(
        first_row(changefeed),
        state="running",
        term=3,
        checkpoint_ts=checkpoint,
        source_offsets={"shop/0": 40, "shop/1": 50},
        watermarks={"shop/0": Watermark(ts=checkpoint + 1, offset=39)},
        topic_ids={"shop": "id-1"},
    )


def test_a_first_start_begins_where_kafka_begins() -> None:
    row = settle(first_row(CHANGEFEED), CHANGEFEED, SHAPE, beginnings)

    assert row.source_offsets == {"shop/0": 5, "shop/1": 5}
    assert (row.incarnation, row.state, row.checkpoint_ts) == (1, "running", 0)


def test_a_restart_resumes_whatever_start_ts_says() -> None:
    row = settle(ran_to(100), replace(CHANGEFEED, start_ts=7), SHAPE, beginnings)

    assert row.checkpoint_ts == 100
    assert row.source_offsets == {"shop/0": 40, "shop/1": 50}
    assert row.incarnation == 1


def test_a_reached_target_is_finished_before_reading_and_a_later_one_goes_on() -> None:
    assert settle(ran_to(100), replace(CHANGEFEED, target_ts=100), SHAPE, beginnings).state == (
        "finished"
    )
    assert settle(ran_to(100), replace(CHANGEFEED, target_ts=101), SHAPE, beginnings).state == (
        "running"
    )


def test_a_rewind_is_a_new_incarnation_that_reads_from_kafkas_beginning() -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)
    row = settle(ran_to(100), rewound, SHAPE, beginnings)

    assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 60, "rewinding")
    assert row.max_published_ts == 100
    assert row.source_offsets == {"shop/0": 5, "shop/1": 5}


def test_the_same_rewind_again_resumes() -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)
    done = replace(settle(ran_to(100), rewound, SHAPE, beginnings), checkpoint_ts=80)

    again = settle(done, rewound, SHAPE, beginnings)

    assert (again.incarnation, again.checkpoint_ts, again.state) == (2, 80, "rewinding")


def test_the_same_rewind_again_is_said_to_be_none(caplog: pytest.LogCaptureFixture) -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)
    done = replace(settle(ran_to(100), rewound, SHAPE, beginnings), checkpoint_ts=120)
    settle(done, rewound, SHAPE, beginnings)
    assert "the rewind to 60 was made already: resuming at checkpoint_ts=120" in caplog.text


def test_of_a_cluster_each_word_about_the_start_begins_anew_once() -> None:
    started = replace(CHANGEFEED, start_ts=60)
    first = first_row(started, "etcd/1/60")
    settled = settle(first, started, SHAPE, beginnings, "etcd/1/60")
    assert (settled.incarnation, settled.start_id) == (1, "etcd/1/60")
    ran = replace(settled, checkpoint_ts=100, source_offsets={"shop/0": 40, "shop/1": 50})
    assert settle(ran, started, SHAPE, beginnings, "etcd/1/60").checkpoint_ts == 100

    for said in ("etcd/7/60", "other-etcd/1/60"):  # made anew, or resumed from there; etcd is new
        row = settle(ran, started, SHAPE, beginnings, said)
        assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 60, "rewinding")
        assert row.start_id == said
        assert row.source_offsets == {"shop/0": 5, "shop/1": 5}
        further = replace(row, checkpoint_ts=80)
        assert settle(further, started, SHAPE, beginnings, said).checkpoint_ts == 80


def test_a_cluster_takes_up_what_a_run_has_begun() -> None:
    started = replace(CHANGEFEED, start_ts=60)
    ran = ran_to(100, started)
    row = settle(ran, started, SHAPE, beginnings, "etcd/7/60")
    assert (row.incarnation, row.checkpoint_ts, row.start_id) == (1, 100, "etcd/7/60")
    elsewhere = replace(CHANGEFEED, start_ts=70)
    row = settle(ran, elsewhere, SHAPE, beginnings, "etcd/7/70")
    assert (row.incarnation, row.checkpoint_ts) == (2, 70)


def test_a_changed_filter_is_a_new_incarnation_that_goes_on() -> None:
    filtered = replace(CHANGEFEED, filter=FilterSettings(rules=("shop.*",)))
    row = settle(ran_to(100), filtered, SHAPE, beginnings)

    assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 100, "running")
    assert row.source_offsets == {"shop/0": 40, "shop/1": 50}


def test_a_topic_that_was_made_again_is_refused() -> None:
    other = SourceShape({"shop": "id-2"}, SHAPE.partitions)

    with pytest.raises(SourceLost, match="topic shop was deleted and made again"):
        settle(ran_to(100), CHANGEFEED, other, beginnings)


def test_a_new_partition_is_read_from_its_beginning() -> None:
    grown = SourceShape({"shop": "id-1"}, SHAPE.partitions | {TopicPartition("shop", 2)})

    assert settle(ran_to(100), CHANGEFEED, grown, beginnings).source_offsets["shop/2"] == 5


def test_a_rewind_to_where_it_first_started_is_a_rewind() -> None:
    started = replace(CHANGEFEED, start_ts=60)
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)

    row = settle(ran_to(100, started), rewound, SHAPE, beginnings)

    assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 60, "rewinding")


def test_a_first_start_with_a_rewind_is_not_rewound_when_it_is_retried() -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)

    row = settle(ran_to(100, rewound), rewound, SHAPE, beginnings)

    assert (row.incarnation, row.checkpoint_ts) == (1, 100)
