"""What the topic may hold, and what becomes of it: one life or two per test (``one_process``)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings
from streaming.operations.progress_report import without_watermark
from streaming.source.contract import SourceAway
from streaming.source.kafka.source import KafkaSource
from tests.acceptance.one_process import Feed, shop_feed
from tests.acceptance.small_tables import (
    IDLE,
    PARTITIONS,
    A,
    B,
    MakeLives,
    key_only,
    made,
    marks,
    row,
    values,
)
from tests.own_lines import own_lines, own_text
from tests.shop.canal_json import (
    Ddl,
    encode_watermark,
)
from tests.shop.feed import CLEAN, Message, messages
from tests.shop.history import Event, SchemaChange
from tests.shop.model import Model, table_difference
from tests.shop.tables import ORDER_LINES, PAYMENTS

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def feed() -> Feed:
    return shop_feed(transactions=50)


# Duplicates, watermarks, partitions.


def one_row(sent: Sequence[Message], dice: random.Random) -> list[Message]:
    return [dice.choice([each for each in sent if b'"INSERT"' in each[2]])]


def a_tail(sent: Sequence[Message], dice: random.Random) -> list[Message]:
    partition = dice.randrange(PARTITIONS)
    return [each for each in sent if each[0] == partition][-30:]


def the_whole_topic(sent: Sequence[Message], dice: random.Random) -> list[Message]:
    del dice
    return list(sent)


def partitions_apart(sent: Sequence[Message], dice: random.Random) -> list[Message]:
    """One partition from the start, then another's tail, then the third's middle."""
    parts = [[each for each in sent if each[0] == p] for p in range(PARTITIONS)]
    dice.shuffle(parts)
    return [*parts[0], *parts[1][-40:], *parts[2][20:60]]


def test_duplicates_of_any_kind_leave_tables_and_versions_as_they_are(
    new_lives_on_spark: MakeLives, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    lives = new_lives_on_spark()
    dice = random.Random(1)
    lives.produce(feed.messages)
    with caplog.at_level(logging.DEBUG, logger="streaming.stream.applying"):
        lives.finish(target_ts=feed.last_ts, first_messages=40)
    cycles = [m for m in own_lines(caplog) if m.startswith("cycle")]
    small, rest = (int(m.split("messages=")[1].split()[0]) for m in cycles)
    assert small == pytest.approx(40, abs=PARTITIONS)
    assert rest == len(feed.messages) - small
    found = lives.changefeed()
    assert found is not None
    assert (found.messages_behind, found.time_left_s) == (0, 0)
    lives.assert_is(feed.events)
    versions, target = lives.versions(), feed.last_ts + 1_000_000
    for again in (one_row, a_tail, the_whole_topic, partitions_apart):
        lives.produce(again(feed.messages, dice))
    lives.produce(marks(target + 1))
    lives.finish(target_ts=target, max_messages=800)
    assert lives.versions() == versions
    lives.assert_is(feed.events)
    assert lives.ledger()[-1]["primary_ts"] == target
    assert not lives.dead_letters()


def test_a_partition_without_a_watermark_holds_everything_back(
    new_lives_on_spark: MakeLives,
) -> None:
    lives = new_lives_on_spark()
    lives.produce([*made(10, A), (1, None, row(20, 1, "x"))])
    lives.produce([mark for mark in marks(50) if mark[0] != 2])
    life = lives.begin(target_ts=40)
    two_spoke = [f"{lives.topics[0]}/2"]
    life.wait_until(
        lambda: (row := lives.changefeed()) is not None and without_watermark(row) == two_spoke
    )
    held_back = lives.changefeed()
    assert held_back is not None
    assert held_back.checkpoint_ts == 0
    assert lives.versions() == {}
    assert lives.progress() == {}

    lives.produce([(2, None, encode_watermark(41, 0))])

    assert life.join() is None
    assert values(lives, "a") == {1: "x"}


def test_several_topics_of_any_number_of_partitions(new_lives_on_spark: MakeLives) -> None:
    lives = new_lives_on_spark(PARTITIONS, 2)
    default, other = lives.topics
    lives.produce([*made(10, A, B), (1, None, row(20, 1, "x")), *marks(50)], default)
    lives.produce([(1, None, row(20, 7, "y", table=B)), *marks(50, 2)], other)
    lives.finish(target_ts=40)
    assert values(lives, "a") == {1: "x"}
    assert values(lives, "b") == {7: "y"}
    (cut,) = [cut for cut in lives.ledger() if cut["primary_ts"] == 40]
    assert sorted(cut["tables"]) == ["shop.a", "shop.b"]


def test_a_feed_that_ended_at_its_target_finishes_when_it_is_quiet(
    new_lives_on_spark: MakeLives,
) -> None:
    """W = T everywhere; the last DDL comes behind the watermark of its own ts."""
    lives = new_lives_on_spark(quiet_s=0.5)
    lives.produce([*made(10, A), (1, None, row(40, 1, "x")), *marks(40), *made(40, B)])
    lives.finish(target_ts=40)
    assert values(lives, "a") == {1: "x"}
    assert values(lives, "b") == {}
    assert lives.ledger()[-1]["primary_ts"] == 40


def test_a_broker_that_is_away_for_a_moment_is_waited_for(
    new_lives_on_spark: MakeLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a batch, and again when the stream starts anew."""
    lives = new_lives_on_spark()
    lives.produce([*made(10, A), (1, None, row(20, 1, "x")), *marks(50)])
    calls = {"check_unchanged": 0, "check": 0}

    def missing_at(name: str, nth: int) -> Callable[[KafkaSource, Any], None]:
        ask = getattr(KafkaSource, name)

        def answer(source: KafkaSource, *what: Any, **options: Any) -> None:
            calls[name] += 1
            if calls[name] == nth:
                raise SourceAway("no answer from the Kafka broker")
            ask(source, *what, **options)

        return answer

    monkeypatch.setattr(KafkaSource, "check_unchanged", missing_at("check_unchanged", 1))
    monkeypatch.setattr(KafkaSource, "check", missing_at("check", 2))
    lives.finish(target_ts=40)
    assert values(lives, "a") == {1: "x"}
    assert calls["check_unchanged"] >= 2
    assert calls["check"] >= 3


# DDLs.


def test_a_ddl_wall_stops_above_all_that_lies_below_and_a_filter_goes_past(
    new_lives_on_spark: MakeLives, feed: Feed
) -> None:
    lives = new_lives_on_spark()
    query = "ALTER TABLE `shop`.`customers` EXCHANGE PARTITION `p` WITH TABLE `shop`.`x`"
    middle = len(feed.events) // 3
    wall_ts = feed.events[middle].commit_ts + 1
    wall = SchemaChange(wall_ts, Ddl("shop", "customers", "ALTER", query))
    at = next(n for n, event in enumerate(feed.events) if event.commit_ts > wall_ts)
    events: list[Event] = [*feed.events[:at], wall, *feed.events[at:]]
    lives.produce(messages(events, CLEAN))

    error = lives.live(target_ts=feed.last_ts)

    assert error is not None
    assert query in str(error)
    assert str(wall_ts) in str(error)
    lives.assert_is(events, up_to=wall_ts - 1)
    stopped = lives.changefeed()
    assert stopped is not None
    assert (stopped.state, stopped.error) == ("failed", str(error))
    again = lives.live(target_ts=feed.last_ts)
    assert str(again) == str(error)
    ignored = EventFilter(matcher=("shop.customers",), ignore_event=("exchange table partition",))
    lives.finish(target_ts=feed.last_ts, filter=FilterSettings(event_filters=(ignored,)))
    lives.assert_is(events)
    finished = lives.changefeed()
    assert finished is not None
    assert (finished.state, finished.error) == ("finished", None)


def test_a_start_behind_create_table_takes_the_types_of_the_rows(
    new_lives_on_spark: MakeLives, caplog: pytest.LogCaptureFixture
) -> None:
    feed = shop_feed(transactions=40, later_ddls=False)
    start_ts = max(event.commit_ts for event in feed.events if isinstance(event, SchemaChange))
    lives = new_lives_on_spark()
    sent = messages(feed.events, CLEAN)
    lives.produce([each for each in sent if b'"isDdl":true' not in each[2]])
    with caplog.at_level(logging.WARNING, logger="streaming"):
        lives.finish(start_ts=start_ts, target_ts=feed.last_ts)
    wanted = Model.of(feed.events).tables
    assert (
        table_difference(ORDER_LINES, wanted["order_lines"].values(), lives.rows("order_lines"))
        is None
    )
    payments = [{**found, "amount": Decimal(found["amount"])} for found in lives.rows("payments")]
    assert table_difference(PAYMENTS, wanted["payments"].values(), payments) is None
    orders = {found["id"]: found for found in lives.rows("orders")}
    names = {"1": "new", "2": "paid", "3": "refunded"}
    for (key,), order in wanted["orders"].items():
        assert orders[key]["amount"] == format(order["amount"], "f")
        assert names[orders[key]["status"]] == order["status"]
    assert len(orders) == len(wanted["orders"])
    said = own_text(caplog)
    assert "column amount: the rows do not tell the precision of its decimal" in said
    assert "column status: the rows do not tell the elements of its enum" in said
    assert list(lives.rows("payments")[0]) == [column.name for column in PAYMENTS.columns]


def test_a_table_without_a_ddl_is_made_with_its_first_whole_row(
    new_lives_on_spark: MakeLives,
) -> None:
    """What is cut to its key does not tell the columns: of A only DELETEs come, of B large rows."""
    lives = new_lives_on_spark()
    cut = key_only(row(20, 1, "large", table=B), onlyHandleKey=True)
    gone = key_only(row(25, 1, "large", table=B, op="DELETE"))
    lives.produce([(1, None, key_only(row(20, 1, "x", op="DELETE"))), (1, None, cut)])
    lives.produce([(1, None, gone), *marks(50)])
    lives.finish(target_ts=40)
    assert lives.versions() == {}
    states = {name: (p.state, p.dead_letters) for name, p in lives.progress().items()}
    assert states == {"shop.a": ("replicating", 0), "shop.b": ("warning", 2)}
    assert [letter["error_class"] for letter in lives.dead_letters()] == [
        "handle-key-only",
        "no-table",
    ]

    lives.produce([(1, None, row(60, n, "y", table=table)) for table in (A, B) for n in (1, 2)])
    large = key_only(row(65, 2, "y", op="DELETE"), onlyHandleKey=True)
    lives.produce([(1, None, large), *marks(80)])
    lives.finish(target_ts=70)

    assert lives.rows("a") == [{"id": 1, "n": 0, "v": "y"}]
    assert values(lives, "b") == {1: "y", 2: "y"}
    states = {name: (p.state, p.dead_letters) for name, p in lives.progress().items()}
    assert states == {"shop.a": ("replicating", 0), "shop.b": ("warning", 2)}


# What a batch costs.


@pytest.mark.parametrize(
    ("engine", "most_jobs_per_table"),
    # make test counts the Spark engine's own jobs in its contract
    [("merge-on-write", 0), pytest.param("spark", 13, marks=pytest.mark.soak)],
)
def test_jobs_and_commits_of_one_batch_are_counted(
    new_lives_on_spark: MakeLives, spark: SparkSession, engine: str, most_jobs_per_table: int
) -> None:
    """A job for the counts and one for the rows, of the tables' reader and of the owner's; one
    commit per table."""
    lives = new_lives_on_spark(engine=engine)
    rows = [(1, None, row(20, n, "x", table=table)) for table in (A, B, IDLE) for n in range(9)]
    lives.produce([*made(10, A, B, IDLE), *rows, *marks(50)])
    lives.finish(target_ts=40)
    before = lives.versions()
    changes = [(1, None, row(60, n, "y", table=t, op="UPDATE")) for t in (A, B) for n in range(5)]
    changes += [(1, None, row(60, n, "x", table=t, op="DELETE")) for t in (A, B) for n in (6, 7)]
    lives.produce([*changes, *marks(80)])
    jobs_before = jobs_of(spark)

    lives.finish(target_ts=70)

    jobs = jobs_of(spark) - jobs_before
    moved = {name: version - before[name] for name, version in lives.versions().items()}
    assert moved == {"a": 1, "b": 1, "idle": 0}
    assert values(lives, "a") == {**dict.fromkeys(range(5), "y"), 5: "x", 8: "x"}
    if most_jobs_per_table:
        assert 1 < jobs <= 1 + 2 * most_jobs_per_table
    else:
        assert jobs <= 4
    print(f"{engine}: {jobs} Spark jobs for one batch of two tables")


def jobs_of(spark: SparkSession) -> int:
    """How many Spark jobs this process has run."""
    context = spark.sparkContext._jsc
    assert context is not None
    return int(context.sc().dagScheduler().numTotalJobs())
