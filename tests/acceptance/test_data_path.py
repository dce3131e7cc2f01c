"""What the topic may hold, and what becomes of it: one life or two per test (``one_process``)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from conf.settings import EventFilter, FilterSettings
from coordination.errors import TidelakeError
from sinks.snapshots import Snapshots
from streaming.plan import DdlNotSupported
from streaming.source import Source, SourceAway
from tests.acceptance.one_process import CHANGEFEED, Feed, Lives, shop_feed
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import (
    Change,
    Column,
    Ddl,
    Op,
    Row,
    Table,
    encode_change,
    encode_ddl,
    encode_watermark,
)
from tests.shop.feed import CLEAN, Message, messages
from tests.shop.history import Event, SchemaChange
from tests.shop.model import Model, table_difference
from tests.shop.tables import ORDER_LINES, PAYMENTS, create_table

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 3
MakeLives = Callable[..., Lives]


@pytest.fixture
def make_lives(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeLives]:
    """Lives over new topics of so many partitions each."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made: list[str] = []

    def make(*counts: int, **settings: Any) -> Lives:
        topics = [f"path-{uuid4().hex[:8]}" for _ in counts or (PARTITIONS,)]
        for topic, partitions in zip(topics, counts or (PARTITIONS,), strict=True):
            broker.create_topic(topic, partitions=partitions)
        made.extend(topics)
        return Lives(spark, broker, tmp_path, topics=topics, **settings)

    yield make
    for topic in made:
        broker.delete_topic(topic)


@pytest.fixture(scope="module")
def feed() -> Feed:
    return shop_feed(transactions=50)


def small_table(name: str) -> Table:
    columns = (Column("id", "bigint"), Column("n", "int"), Column("v", "varchar(20)"))
    return Table(schema="shop", name=name, columns=columns, primary_key=("id",), handle_key=("id",))


A, B, IDLE = small_table("a"), small_table("b"), small_table("idle")


def row(ts: int, id: int, v: str, *, table: Table = A, op: Op = "INSERT", n: int = 0) -> bytes:
    data: Row = {"id": id, "n": n, "v": v}
    old = data if op == "UPDATE" else None
    return encode_change(Change(table=table, op=op, row=data, old=old), ts, 0)


def made(ts: int, *tables: Table) -> list[Message]:
    return [(0, None, encode_ddl(create_table(table), ts + n, 0)) for n, table in enumerate(tables)]


def marks(ts: int, partitions: int = PARTITIONS) -> list[Message]:
    return [(partition, None, encode_watermark(ts, 0)) for partition in range(partitions)]


def values(lives: Lives, table: str) -> dict[int, str]:
    return {found["id"]: found["v"] for found in lives.rows(table)}


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
    make_lives: MakeLives, feed: Feed
) -> None:
    lives = make_lives()
    dice = random.Random(1)
    lives.produce(feed.messages)
    lives.finish(target_ts=feed.last_ts)
    lives.assert_is(feed.events)
    versions, target = lives.versions(), feed.last_ts
    for again in (one_row, a_tail, the_whole_topic, partitions_apart):
        target += 1_000_000
        lives.produce([*again(feed.messages, dice), *marks(target + 1)])
        lives.finish(target_ts=target, max_messages=400)
        assert lives.versions() == versions, again.__name__
    lives.assert_is(feed.events)
    assert lives.ledger()[-1]["primary_ts"] == target
    assert not lives.dead_letters()


def test_a_partition_without_a_watermark_holds_everything_back(make_lives: MakeLives) -> None:
    lives = make_lives()
    lives.produce([*made(10, A), (1, None, row(20, 1, "x"))])
    lives.produce([mark for mark in marks(50) if mark[0] != 2])
    life = lives.begin(target_ts=40)
    batch = life.wait_until(lambda b: sum(b.position.offsets.values()) == 4)
    with batch.lock:
        assert batch.position.checkpoint == 0
        assert [p.partition for p in batch.position.watermarks.holding_back] == [2]
        assert batch.metrics()["carry_rows"] == 1
    assert lives.versions() == {}
    assert lives.progress() == {}

    lives.produce([(2, None, encode_watermark(41, 0))])

    assert life.join() is None
    assert values(lives, "a") == {1: "x"}


def test_surplus_partitions_are_ignored(make_lives: MakeLives) -> None:
    lives = make_lives(5)
    lives.produce([*made(10, A), (2, None, row(20, 1, "x")), *marks(50)])
    lives.produce([(3, None, b"garbage"), (4, None, row(30, 2, "not ours"))])
    lives.finish(target_ts=40)
    assert values(lives, "a") == {1: "x"}
    assert not lives.dead_letters()
    found = lives.changefeed()
    assert found is not None
    assert sorted(found.source_offsets) == [f"{lives.topics[0]}/{n}" for n in range(3)]


def test_several_topics_of_any_number_of_partitions(make_lives: MakeLives) -> None:
    lives = make_lives(PARTITIONS, 2)
    default, other = lives.topics
    lives.produce([*made(10, A, B), (1, None, row(20, 1, "x")), *marks(50)], default)
    lives.produce([(1, None, row(20, 7, "y", table=B)), *marks(50, 2)], other)
    lives.finish(target_ts=40)
    assert values(lives, "a") == {1: "x"}
    assert values(lives, "b") == {7: "y"}
    (cut,) = [cut for cut in lives.ledger() if cut["primary_ts"] == 40]
    assert sorted(cut["tables"]) == ["shop.a", "shop.b"]


def test_a_feed_that_ended_at_its_target_finishes_when_it_is_quiet(make_lives: MakeLives) -> None:
    """W = T everywhere; the last DDL comes behind the watermark of its own ts."""
    lives = make_lives(quiet_s=0.5)
    lives.produce([*made(10, A), (1, None, row(40, 1, "x")), *marks(40), *made(40, B)])
    lives.finish(target_ts=40)
    assert values(lives, "a") == {1: "x"}
    assert values(lives, "b") == {}
    assert lives.ledger()[-1]["primary_ts"] == 40


def test_a_broker_that_is_away_for_a_moment_is_waited_for(
    make_lives: MakeLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a batch, and again when the stream starts anew."""
    lives = make_lives()
    lives.produce([*made(10, A), (1, None, row(20, 1, "x")), *marks(50)])
    calls = {"check_unchanged": 0, "check_offsets": 0}

    def missing_at(name: str, nth: int) -> Callable[[Source, Any], None]:
        ask = getattr(Source, name)

        def answer(source: Source, what: Any) -> None:
            calls[name] += 1
            if calls[name] == nth:
                raise SourceAway("no answer from the Kafka broker")
            ask(source, what)

        return answer

    monkeypatch.setattr(Source, "check_unchanged", missing_at("check_unchanged", 1))
    monkeypatch.setattr(Source, "check_offsets", missing_at("check_offsets", 2))
    lives.finish(target_ts=40)
    assert values(lives, "a") == {1: "x"}
    assert calls == {"check_unchanged": 2, "check_offsets": 3}


# DDLs.


def test_a_ddl_wall_stops_above_all_that_lies_below_and_a_filter_goes_past(
    make_lives: MakeLives, feed: Feed
) -> None:
    lives = make_lives()
    query = "ALTER TABLE `shop`.`customers` ADD COLUMN `vip` BOOL"
    middle = len(feed.events) // 3
    wall_ts = feed.events[middle].commit_ts + 1
    wall = SchemaChange(wall_ts, Ddl("shop", "customers", "ALTER", query))
    at = next(n for n, event in enumerate(feed.events) if event.commit_ts > wall_ts)
    events: list[Event] = [*feed.events[:at], wall, *feed.events[at:]]
    lives.produce(messages(events, CLEAN))

    error = lives.live(target_ts=feed.last_ts)

    assert isinstance(error, DdlNotSupported)
    assert query in str(error)
    assert str(wall_ts) in str(error)
    lives.assert_is(events, up_to=wall_ts - 1)
    stopped = lives.changefeed()
    assert stopped is not None
    assert (stopped.state, stopped.error) == ("failed", str(error))
    again = lives.live(target_ts=feed.last_ts)
    assert str(again) == str(error)
    ignored = EventFilter(matcher=("shop.customers",), ignore_event=("add column",))
    lives.finish(target_ts=feed.last_ts, filter=FilterSettings(event_filters=(ignored,)))
    lives.assert_is(events)
    finished = lives.changefeed()
    assert finished is not None
    assert (finished.state, finished.error) == ("finished", None)


def test_a_table_that_a_filter_leaves_out_stays_where_it_was(make_lives: MakeLives) -> None:
    """Its progress would otherwise say that changes are in it which were never applied."""
    lives = make_lives()
    without_b = FilterSettings(rules=("*.*", "!shop.b"))
    lives.produce(
        [*made(10, A, B), (1, None, row(20, 1, "x")), (1, None, row(20, 1, "x", table=B))]
    )
    lives.produce([*marks(50), (1, None, row(60, 2, "y")), (1, None, row(60, 2, "y", table=B))])
    lives.produce([*marks(80)])
    lives.finish(target_ts=40)

    lives.finish(target_ts=70, filter=without_b)

    assert values(lives, "a") == {1: "x", 2: "y"}
    assert values(lives, "b") == {1: "x"}
    at = {name: found.checkpoint_ts for name, found in lives.progress().items()}
    assert at == {"shop.a": 70, "shop.b": 40}
    assert sorted(lives.ledger()[-1]["tables"]) == ["shop.a"]
    error = lives.live(target_ts=75)
    assert isinstance(error, TidelakeError)
    assert "table shop.b is at checkpoint-ts 40 and the changefeed at 70" in str(error)
    error = lives.live(target_ts=75, overwrite_checkpoint_ts=60)  # not far enough
    assert "table shop.b is at checkpoint-ts 40 and the changefeed at 60" in str(error)
    lives.finish(target_ts=75, overwrite_checkpoint_ts=40)
    assert values(lives, "b") == {1: "x", 2: "y"}


def test_a_start_behind_create_table_takes_the_types_of_the_rows(
    make_lives: MakeLives, caplog: pytest.LogCaptureFixture
) -> None:
    feed = shop_feed(transactions=40, later_ddls=False)
    start_ts = max(event.commit_ts for event in feed.events if isinstance(event, SchemaChange))
    lives = make_lives()
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
    said = caplog.text
    assert "column amount: the rows do not tell the precision of its decimal" in said
    assert "column status: the rows do not tell the elements of its enum" in said
    assert list(lives.rows("payments")[0]) == [column.name for column in PAYMENTS.columns]


# Dead letters.


def test_what_cannot_be_applied_is_kept_with_its_bytes(make_lives: MakeLives) -> None:
    lives = make_lives()
    keyless = Table(
        schema="shop", name="log", columns=(Column("x", "int"),), primary_key=(), handle_key=()
    )
    ddl = Ddl("shop", "log", "CREATE", "CREATE TABLE `shop`.`log` (`x` INT)")
    bad_cast = row(30, 1, "bad", op="UPDATE", n=77).replace(b'"n":"77"', b'"n":"seven"')
    cut = row(35, 2, "cut").replace(b'"commitTs"', b'"onlyHandleKey":true,"commitTs"')
    logged = encode_change(Change(table=keyless, op="INSERT", row={"x": 1}), 36, 0)
    lives.produce([*made(10, A, B), (0, None, encode_ddl(ddl, 15, 0))])
    lives.produce([(1, None, row(20, 1, "good")), (1, None, bad_cast), (1, None, cut)])
    lives.produce([(2, None, b"\xff garbage"), (2, None, None), (2, None, logged)])  # type: ignore[list-item]
    lives.produce([(1, None, row(38, 3, "good too")), *marks(50)])
    lives.finish(target_ts=40)

    assert values(lives, "a") == {1: "good", 3: "good too"}
    found = [
        (each["partition"], each["offset"], each["error_class"], each["value"])
        for each in lives.dead_letters()
    ]
    assert found == [
        (1, 1, "cast", bad_cast),
        (1, 2, "handle-key-only", cut),
        (2, 0, "malformed", b"\xff garbage"),
        (2, 1, "empty", None),
        (2, 2, "no-key", logged),
    ]
    letter = lives.dead_letters()[0]
    assert (letter["schema_name"], letter["table_name"], letter["commit_ts"]) == ("shop", "a", 30)
    assert "cannot read 'seven' as int" in letter["message"]
    counts = {name: (p.state, p.dead_letters) for name, p in lives.progress().items()}
    assert counts == {
        "shop.a": ("replicating", 2),
        "shop.b": ("replicating", 0),
        "shop.log": ("warning", 1),
    }
    assert "log" not in lives.versions()
    cut_row = Snapshots(str(lives.warehouse)).latest(CHANGEFEED)
    assert cut_row is not None
    assert cut_row.dead_letters == 5
    lives.produce([(1, None, row(60, 1, "mended", op="UPDATE")), *marks(80)])
    lives.finish(target_ts=70)
    assert values(lives, "a")[1] == "mended"
    assert len(lives.dead_letters()) == 5


def test_ignored_events_of_a_table_without_a_key_are_no_dead_letters(
    make_lives: MakeLives,
) -> None:
    lives = make_lives()
    table = Table(
        schema="shop", name="log", columns=(Column("x", "int"),), primary_key=(), handle_key=()
    )
    ddl = Ddl("shop", "log", "CREATE", "CREATE TABLE `shop`.`log` (`x` INT)")
    lives.produce([(0, None, encode_ddl(ddl, 10, 0))])
    changes = [Change(table=table, op=op, row={"x": 1}) for op in ("INSERT", "DELETE")]
    lives.produce([*((1, None, encode_change(change, 20, 0)) for change in changes), *marks(50)])
    rule = EventFilter(matcher=("shop.log",), ignore_event=("delete",))
    lives.finish(target_ts=40, filter=FilterSettings(event_filters=(rule,)))
    assert [letter["offset"] for letter in lives.dead_letters()] == [0]


def test_on_error_fail_stops_instead_and_names_the_message(make_lives: MakeLives) -> None:
    lives = make_lives()
    bad_cast = row(30, 1, "bad", n=77).replace(b'"n":"77"', b'"n":"seven"')
    lives.produce([*made(10, A), (1, None, bad_cast), *marks(50)])
    error = lives.live(target_ts=40, on_error="fail")
    assert isinstance(error, TidelakeError)
    assert f"topic {lives.topics[0]} partition 1 offset 0" in str(error)
    assert not lives.dead_letters()
    lives.finish(target_ts=40)
    assert len(lives.dead_letters()) == 1


# What a batch costs.


@pytest.mark.parametrize(("engine", "most_jobs_per_table"), [("delta-rs", 0), ("spark", 13)])
def test_jobs_and_commits_of_one_batch_are_counted(
    make_lives: MakeLives, spark: SparkSession, engine: str, most_jobs_per_table: int
) -> None:
    """One job for the counts, one for the rows of a group of tables, one commit per table."""
    lives = make_lives(engine=engine)
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
        assert jobs == 2
    print(f"{engine}: {jobs} Spark jobs for one batch of two tables")


def jobs_of(spark: SparkSession) -> int:
    """How many Spark jobs this process has run."""
    context = spark.sparkContext._jsc
    assert context is not None
    return int(context.sc().dagScheduler().numTotalJobs())
