"""A start resumes, rewinds or begins; it never skips anything in silence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from conf.route_rules import RouteRule
from conf.settings import Changefeed, DeltaSink, FilterSettings, TableRule
from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TSO_LOGICAL_BITS, TableName
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from streaming.changefeed.earlier_filters import refuse_left_out_tables
from streaming.owner.start_point import first_row, settled_row
from streaming.source.contract import SourceLost, SourceShape
from streaming.source.kafka.broker import TopicsShape
from streaming.source.kafka.deleted_messages import CLOCKS_MS
from streaming.source.kafka.source import KafkaSource
from streaming.source.kafka.topic_partition import TopicPartition
from tests.own_lines import own_text

P0, P1 = "shop/0", "shop/1"
SHAPE = SourceShape({P0: "id-1", P1: "id-1"})
CHANGEFEED = Changefeed(
    id="shop",
    source=KafkaSettings(
        brokers=("b:1",), topic="shop", topics=("shop",), protocol="canal-json", partition_num=2
    ),
    sink=DeltaSink(warehouse="/w"),
)


class FakeBroker:
    """A topic that begins at the same offset everywhere."""

    def __init__(self, begins: int, first_ms: int | None) -> None:
        self._begins = begins
        self._first_ms = first_ms  # the time of each partition's first message; None: it is empty

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._begins)

    def newest_ms(self) -> float:
        return 1_900_000_000_000.0  # the broker's clock: later than any start here

    def shape(self) -> TopicsShape:
        there = frozenset(map(TopicPartition.parse, SHAPE.parts))
        return TopicsShape({"shop": "id-1"}, there)

    def times_ms(self, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert set(first.values()) <= {self._begins}
        return {} if self._first_ms is None else dict.fromkeys(first, self._first_ms)


def log_of(begins: int, first_ms: int | None) -> KafkaSource:
    source = KafkaSource(CHANGEFEED.source)
    source._broker = FakeBroker(begins, first_ms)  # type: ignore[assignment]
    return source


LOG = log_of(0, None)  # nothing was ever deleted


def certain_ts(first_ms: int) -> int:
    """Above this ts nothing is missing if the first message left is of this time."""
    return (first_ms + CLOCKS_MS) << TSO_LOGICAL_BITS


def ran_to(checkpoint: int, changefeed: Changefeed = CHANGEFEED) -> ChangefeedRow:
    return replace(
        first_row(changefeed),
        state="running",
        term=3,
        checkpoint_ts=checkpoint,
        source_positions={"shop/0": 40, "shop/1": 50},
        watermarks={"shop/0": RecordedWatermark(ts=checkpoint + 1, position=39)},
        source_identities={"shop/0": "id-1"},
    )


def test_a_first_start_begins_where_kafka_begins() -> None:
    for begins, start_ts in ((0, 0), (5, certain_ts(70))):
        started = replace(CHANGEFEED, start_ts=start_ts)
        row = settled_row(first_row(started), started, SHAPE, log_of(begins, 70))
        assert row.source_positions == {"shop/0": begins, "shop/1": begins}
        assert (row.incarnation, row.state, row.checkpoint_ts) == (1, "running", start_ts)


def test_a_restart_resumes_whatever_start_ts_says() -> None:
    row = settled_row(ran_to(100), replace(CHANGEFEED, start_ts=7), SHAPE, LOG)

    assert row.checkpoint_ts == 100
    assert row.source_positions == {"shop/0": 40, "shop/1": 50}
    assert row.incarnation == 1


def test_a_reached_target_is_finished_before_reading_and_a_later_one_goes_on() -> None:
    assert settled_row(ran_to(100), replace(CHANGEFEED, target_ts=100), SHAPE, LOG).state == (
        "finished"
    )
    assert settled_row(ran_to(100), replace(CHANGEFEED, target_ts=101), SHAPE, LOG).state == (
        "running"
    )


def test_a_rewind_is_a_new_incarnation_that_reads_from_kafkas_beginning() -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)
    row = settled_row(ran_to(100), rewound, SHAPE, LOG)

    assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 60, "rewinding")
    assert row.max_published_ts == 100
    assert row.source_positions == {"shop/0": 0, "shop/1": 0}


def test_who_drops_unknown_columns_is_another_writer() -> None:
    drops = replace(CHANGEFEED, on_unknown_column="drop")
    assert settled_row(ran_to(100), CHANGEFEED, SHAPE, LOG).incarnation == 1
    assert settled_row(ran_to(100), drops, SHAPE, LOG).incarnation == 2


def test_a_configuration_that_changes_while_tables_load_rewinds_nothing() -> None:
    loaded = replace(ran_to(100), max_published_ts=130, loaded_ts=130)
    assert settled_row(loaded, CHANGEFEED, SHAPE, LOG).state == "loading"
    changed = replace(CHANGEFEED, on_unknown_column="drop")
    row = settled_row(loaded, changed, SHAPE, LOG)
    assert (row.incarnation, row.state) == (2, "loading")
    behind = settled_row(replace(row, checkpoint_ts=130), changed, SHAPE, LOG)
    assert behind.state == "running"
    rewound = settled_row(row, replace(changed, overwrite_checkpoint_ts=60), SHAPE, LOG)
    assert (rewound.incarnation, rewound.state) == (3, "rewinding")


def test_a_database_s_left_out_table_is_to_be_copied() -> None:
    wide = replace(CHANGEFEED, filter=FilterSettings(rules=("*.*",)))
    narrow = replace(CHANGEFEED, filter=FilterSettings(rules=("shop.a",)))
    row = settled_row(ran_to(100, narrow), wide, SHAPE, LOG)
    of_database = replace(row, row_rules=json.dumps({"protocol": "binlog"}))
    with pytest.raises(TidelakeError, match="start with `tidelake run` with task-mode=all, which"):
        refuse_left_out_tables(of_database, [TableName("shop", "b")])
    with pytest.raises(TidelakeError, match="--overwrite-checkpoint-ts 1, which reads all from"):
        refuse_left_out_tables(row, [TableName("shop", "b")])


def test_the_same_rewind_again_resumes() -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)
    done = replace(settled_row(ran_to(100), rewound, SHAPE, LOG), checkpoint_ts=80)

    again = settled_row(done, rewound, SHAPE, LOG)

    assert (again.incarnation, again.checkpoint_ts, again.state) == (2, 80, "rewinding")


def test_the_same_rewind_again_is_said_to_be_none(caplog: pytest.LogCaptureFixture) -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)
    done = replace(settled_row(ran_to(100), rewound, SHAPE, LOG), checkpoint_ts=120)
    settled_row(done, rewound, SHAPE, LOG)
    assert "the rewind to 60 was made already checkpoint_ts=120: it goes on" in own_text(caplog)


def test_of_a_cluster_each_word_about_the_start_begins_anew_once() -> None:
    started = replace(CHANGEFEED, start_ts=60)
    first = first_row(started, "etcd/1/60")
    settled = settled_row(first, started, SHAPE, LOG, "etcd/1/60")
    assert (settled.incarnation, settled.start_id) == (1, "etcd/1/60")
    ran = replace(settled, checkpoint_ts=100, source_positions={"shop/0": 40, "shop/1": 50})
    assert settled_row(ran, started, SHAPE, LOG, "etcd/1/60").checkpoint_ts == 100

    for said in ("etcd/7/60", "other-etcd/1/60"):  # made anew, or resumed from there; etcd is new
        row = settled_row(ran, started, SHAPE, LOG, said)
        assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 60, "rewinding")
        assert row.start_id == said
        assert row.source_positions == {"shop/0": 0, "shop/1": 0}
        further = replace(row, checkpoint_ts=80)
        assert settled_row(further, started, SHAPE, LOG, said).checkpoint_ts == 80


def test_a_cluster_takes_up_what_a_run_has_begun() -> None:
    started = replace(CHANGEFEED, start_ts=60)
    ran = ran_to(100, started)
    row = settled_row(ran, started, SHAPE, LOG, "etcd/7/60")
    assert (row.incarnation, row.checkpoint_ts, row.start_id) == (1, 100, "etcd/7/60")
    elsewhere = replace(CHANGEFEED, start_ts=70)
    row = settled_row(ran, elsewhere, SHAPE, LOG, "etcd/7/70")
    assert (row.incarnation, row.checkpoint_ts) == (2, 70)


def test_a_changed_filter_is_a_new_incarnation_that_goes_on() -> None:
    filtered = replace(CHANGEFEED, filter=FilterSettings(rules=("shop.*",)))
    row = settled_row(ran_to(100), filtered, SHAPE, LOG)

    assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 100, "running")
    assert row.source_positions == {"shop/0": 40, "shop/1": 50}


def test_a_topic_that_was_made_again_is_refused() -> None:
    other = SourceShape(dict.fromkeys(SHAPE.parts, "id-2"))

    with pytest.raises(SourceLost, match="topic shop was deleted and made again"):
        settled_row(ran_to(100), CHANGEFEED, other, LOG)


def test_a_new_partition_is_read_from_its_beginning() -> None:
    grown = SourceShape({**SHAPE.identities, "shop/2": "id-1"})

    assert settled_row(ran_to(100), CHANGEFEED, grown, LOG).source_positions["shop/2"] == 0


def test_a_rewind_to_where_it_first_started_is_a_rewind() -> None:
    started = replace(CHANGEFEED, start_ts=60)
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)

    row = settled_row(ran_to(100, started), rewound, SHAPE, LOG)

    assert (row.incarnation, row.checkpoint_ts, row.state) == (2, 60, "rewinding")


def test_a_first_start_with_a_rewind_is_not_rewound_when_it_is_retried() -> None:
    rewound = replace(CHANGEFEED, overwrite_checkpoint_ts=60)

    row = settled_row(ran_to(100, rewound), rewound, SHAPE, LOG)

    assert (row.incarnation, row.checkpoint_ts) == (1, 100)


NEW_TOPIC = SourceShape({**SHAPE.identities, "more/0": "id-9"})


REWIND = {"overwrite_checkpoint_ts": certain_ts(60)}


@pytest.mark.parametrize(
    ("stored", "wanted", "shape", "first_ms", "says"),
    [
        (first_row(CHANGEFEED), {}, SHAPE, 70, f"--start-ts {certain_ts(70)} at least"),
        (first_row(CHANGEFEED), {}, SHAPE, None, "no message is left. Let TiCDC send one"),
        *(
            (first_row(CHANGEFEED), {}, SHAPE, no_time, f"{no_time}, is no time in milliseconds")
            for no_time in (0, 1_790_000_000_000_000, 1_790_000_000_000_000_000)  # none, µs, ns
        ),
        (
            ran_to(certain_ts(100)),
            REWIND,
            SHAPE,
            70,
            f"rewound to {certain_ts(70)} at the earliest",
        ),
        (ran_to(certain_ts(100)), REWIND, SHAPE, 170, "to a new topic"),
        (
            ran_to(certain_ts(100)),
            {},
            NEW_TOPIC,
            170,
            f"out until the changefeed's checkpoint-ts has passed {certain_ts(170)}",
        ),
    ],
)
def test_where_kafka_begins_too_late_is_refused(
    stored: ChangefeedRow,
    wanted: dict[str, int],
    shape: SourceShape,
    first_ms: int | None,
    says: str,
) -> None:
    changefeed = replace(CHANGEFEED, **wanted)
    checkpoint_ts = wanted.get("overwrite_checkpoint_ts", stored.checkpoint_ts)
    topic = "shop" if shape is SHAPE else "more"
    with pytest.raises(
        SourceLost, match=f"topic {topic} partition 0 begins at offset 5"
    ) as refused:
        settled_row(stored, changefeed, shape, log_of(5, first_ms))
    assert f"changes above {checkpoint_ts} may have been deleted" in str(refused.value)
    assert says in str(refused.value)


def test_the_age_of_kafkas_first_message_decides_and_no_watermark() -> None:
    """TiCDC sends rows above a watermark before it, and they may be deleted with what is older."""
    minute_ms, now_ms = 60_000, 1_700_000_000_000
    week_ms = 7 * 24 * 60 * minute_ms
    five_minutes_ago = replace(CHANGEFEED, start_ts=(now_ms - 5 * minute_ms) << TSO_LOGICAL_BITS)
    first = first_row(five_minutes_ago)
    assert settled_row(first, five_minutes_ago, SHAPE, log_of(5, now_ms - week_ms)).source_positions
    with pytest.raises(
        SourceLost, match=r"sent before its first message \(2023-11-14 22:09:20 UTC"
    ):
        settled_row(
            first, five_minutes_ago, SHAPE, log_of(5, now_ms - 4 * minute_ms)
        )  # as in a replay
    limit = replace(CHANGEFEED, start_ts=certain_ts(now_ms))
    assert settled_row(first_row(limit), limit, SHAPE, log_of(5, now_ms)).source_positions
    below = replace(CHANGEFEED, start_ts=certain_ts(now_ms) - 1)
    with pytest.raises(SourceLost, match=f"--start-ts {certain_ts(now_ms)} at least"):
        settled_row(first_row(below), below, SHAPE, log_of(5, now_ms))


def test_what_a_topic_lost_comes_by_another_one() -> None:
    """As SourceLost advises: where the changefeed is, from the new topic's beginning."""
    other = SourceShape({"again/0": "id-7"})
    advised = replace(CHANGEFEED, overwrite_checkpoint_ts=100)
    row = settled_row(ran_to(100), advised, other, LOG)
    assert (row.checkpoint_ts, row.incarnation) == (100, 2)
    assert (row.source_positions, row.source_identities) == ({"again/0": 0}, {"again/0": "id-7"})


def test_who_reads_nothing_more_may_have_lost_everything() -> None:
    ended = replace(CHANGEFEED, target_ts=100)
    assert settled_row(ran_to(100), ended, NEW_TOPIC, log_of(5, 170)).state == "finished"


def test_a_finished_one_keeps_the_identities_of_its_positions() -> None:
    """A retried job finds it finished; a later target-ts must not read on in another topic."""
    other = SourceShape(dict.fromkeys(SHAPE.parts, "OTHER"))
    ended = settled_row(ran_to(100), replace(CHANGEFEED, target_ts=100), other, LOG)
    assert ended.state == "finished"
    assert ended.source_identities == ran_to(100).source_identities
    with pytest.raises(SourceLost, match="topic shop was deleted and made again"):
        settled_row(ended, replace(CHANGEFEED, target_ts=200), other, LOG)


def test_a_refused_first_start_may_begin_elsewhere() -> None:
    claimed = replace(first_row(replace(CHANGEFEED, start_ts=60)), term=1, state="failed")
    for start_ts, incarnation in ((80, 1), (40, 2)):
        row = settled_row(claimed, replace(CHANGEFEED, start_ts=start_ts), SHAPE, LOG)
        assert (row.start_ts, row.checkpoint_ts, row.incarnation) == (
            start_ts,
            start_ts,
            incarnation,
        )


def filtered(*rules: str) -> Changefeed:
    return replace(CHANGEFEED, filter=FilterSettings(rules=rules))


def settled(stored: ChangefeedRow, changefeed: Changefeed) -> ChangefeedRow:
    return settled_row(stored, changefeed, SHAPE, LOG)


def test_a_table_whose_rows_were_passed_over_is_refused_until_a_rewind() -> None:
    a, b = TableName("shop", "a"), TableName("shop", "b")
    narrow, wide = filtered("shop.a"), filtered("shop.*")
    row = settled(first_row(narrow), narrow)
    refuse_left_out_tables(row, [a, b])  # nothing has been passed yet
    row = settled(row, wide)
    refuse_left_out_tables(row, [a, b])
    row = settled(row, narrow)
    row = settled(replace(row, checkpoint_ts=100), wide)
    for _ in range(2):
        refuse_left_out_tables(row, [a])
        with pytest.raises(TidelakeError, match=r"table shop.b is wanted now.*up to 100"):
            refuse_left_out_tables(row, [a, b])
        row = settled(replace(row, checkpoint_ts=200), wide)  # and the next start knows it still
    rewound = settled(row, replace(wide, overwrite_checkpoint_ts=1))
    refuse_left_out_tables(rewound, [a, b])


def test_filters_are_kept_once_each() -> None:
    row = first_row(filtered("shop.a"))
    for ts in range(100, 110):
        rules = ("shop.a",) if ts % 2 else ("shop.*",)
        row = settled(
            replace(row, checkpoint_ts=ts, source_positions={"shop/0": 1}), filtered(*rules)
        )
    assert json.loads(row.filters or "") == [
        {"rules": ["shop.*"], "case-sensitive": False, "until-ts": 109},
        {"rules": ["shop.a"], "case-sensitive": False},
    ]


def test_rules_of_how_tables_are_written_are_configuration() -> None:
    """A table that comes later is made by them: another incarnation, as for any other change."""
    logs = DeltaSink(warehouse="/w", tables=(TableRule(matcher=("a.*",), write_mode="append"),))
    changed = replace(CHANGEFEED, sink=logs)
    assert settled_row(ran_to(100), changed, SHAPE, LOG).incarnation == 2
    assert settled_row(ran_to(100, changed), changed, SHAPE, LOG).incarnation == 1
    (rule,) = logs.tables
    by_all = replace(changed, sink=replace(logs, tables=(replace(rule, write_mode="upsert"),)))
    keyed = replace(rule, write_mode="upsert", key="all-columns")
    chosen = replace(changed, sink=replace(logs, tables=(keyed,)))
    assert settled_row(ran_to(100, by_all), chosen, SHAPE, LOG).incarnation == 2


def test_a_changefeed_that_has_begun_keeps_its_routes() -> None:
    """But for the word that keys are disjoint, which only widens what is taken."""
    rule = RouteRule(matcher=("a.*",), target_schema="b")

    def routed(*rules: RouteRule) -> Changefeed:
        return replace(CHANGEFEED, sink=DeltaSink(warehouse="/w", routes=rules))

    row = replace(first_row(routed(rule)), checkpoint_ts=100, source_positions={"shop/0": 1})
    assert settled_row(row, routed(rule), SHAPE, LOG).incarnation == 1
    disjoint = settled_row(row, routed(replace(rule, disjoint_keys=True)), SHAPE, LOG)
    assert disjoint.incarnation == 2
    for other in (routed(), routed(replace(rule, target_schema="c"))):
        with pytest.raises(ConfigError, match="others than those with which this changefeed"):
            settled_row(row, other, SHAPE, LOG)
