"""Two captures share the shop's tables; the owner is a script. Kafka, Spark and Delta are real."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from coordination.model import TableName
from coordination.scheduler.table_status import TableState
from sinks.target.engine_port import app_id
from sinks.target.target_table import seal
from streaming.apply.carry import Carry
from streaming.owner.ddl_reader import DdlReader
from streaming.protocols.contract import Block
from streaming.stream import retry
from streaming.stream.shared_stream import SharedStream
from tests.acceptance.one_process import Feed, Sleep, shop_feed
from tests.acceptance.small_tables import A, made, marks, row
from tests.shop.model import Model
from tests.streaming.hand_owner import (
    CHANGEFEED,
    HandOwner,
    Stage,
    assert_one_writer_at_a_time,
    state,
    until,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FIRST = ("customers", "orders", "payments", "order_lines")
ALL = (*FIRST, "order_lines_archive")


@pytest.fixture(scope="module")
def feed() -> Feed:
    return shop_feed(transactions=40)


def assert_is(stage: Stage, feed: Feed, up_to: int | None = None) -> None:
    differences = Model.of(feed.events, up_to=up_to).differences(stage.warehouse)
    assert not differences, differences


def test_each_capture_decodes_and_writes_its_own_spans_and_all_stop_at_a_barrier(
    stage: Stage, feed: Feed, monkeypatch: pytest.MonkeyPatch
):
    decoded: Counter[tuple[Carry, str]] = Counter()
    add = Carry.add

    def counted(carry: Carry, block: Block) -> None:
        decoded[carry, block.name.table] += block.rows
        add(carry, block)

    monkeypatch.setattr(Carry, "add", counted)
    stage.capture("a")
    stage.capture("b")
    stage.produce(feed.messages)
    point = feed.ts_at(0.6)
    owner = HandOwner(stage)
    owner.cap_ts = owner.sync_point_ts = point
    owner.await_tables(*ALL)
    homes = dict(zip(ALL, "abbaa", strict=True))
    owner.add(**homes)
    owner.until(lambda: owner.published_ts == point)
    assert {owner.where(table) for table in ALL} == {point}
    assert_is(stage, feed, up_to=point)
    assert max(each["limit"] for t in ALL for each in stage.commits(t)) == point

    owner.cap_ts = owner.sync_point_ts = None
    owner.reached(feed.last_ts)
    assert_is(stage, feed)
    assert_one_writer_at_a_time(stage, ALL)
    sent = stage.row_messages()
    for name, replica in stage.replicas.items():
        assert replica._writer is not None
        ours = replica._writer._carry
        own = {table: rows for (carry, table), rows in decoded.items() if carry is ours}
        assert own == {t: sent[t] for t, home in homes.items() if home == name}
    for table, home in homes.items():
        assert {each["capture"] for each in stage.commits(table)} == {home}


def test_spans_move_to_and_fro_under_load(stage: Stage, feed: Feed):
    stage.capture("a")
    stage.capture("b")
    half = len(feed.messages) // 3
    stage.produce(feed.messages[:half])
    owner = HandOwner(stage)
    owner.await_tables(*FIRST)
    owner.add(**dict.fromkeys(FIRST, "a"))
    owner.outbox = feed.messages[half:]
    owner.move("orders", "b")
    owner.move("payments", "b")
    owner.move("orders", "a")
    stopped = owner.remove("customers")
    assert owner.where("customers") == stopped
    owner.add(customers="b")
    owner.until(lambda: not owner.outbox)
    owner.await_tables("order_lines_archive")
    owner.add(order_lines_archive="b")
    owner.move("payments", "a")
    owner.reached(feed.last_ts)
    assert_is(stage, feed)
    assert_one_writer_at_a_time(stage, ALL)

    for table in ("orders", "payments", "order_lines"):
        owner.remove(table)
    replica = stage.replicas["a"]
    until(lambda: not replica._stream.is_running)
    assert replica.get_table_span_count() == 0
    owner.add(orders="a")
    span = owner.tables["orders"].span
    assert state(replica, span) is TableState.REPLICATING
    assert_is(stage, feed)


def one_capture_takes_all(stage: Stage, feed: Feed) -> HandOwner:
    stage.capture("a")
    stage.produce(feed.messages)
    owner = HandOwner(stage)
    owner.await_tables(*ALL)
    owner.add(**dict.fromkeys(ALL, "a"))
    owner.reached(feed.last_ts)
    assert_is(stage, feed)
    return owner


def test_a_stream_that_keeps_failing_is_a_warning_until_it_goes_on(
    stage: Stage, feed: Feed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retry, "WORTH_A_WARNING_S", 1.0)
    join, tries = SharedStream.join, iter(range(3))

    def fails_at_first(stream: SharedStream, *arguments: object) -> object:
        if threading.current_thread().name == "replica" and next(tries, None) is not None:
            raise ConnectionError("no broker answers")
        return join(stream, *arguments)

    monkeypatch.setattr(SharedStream, "join", fails_at_first)
    owner = one_capture_takes_all(stage, feed)
    assert owner.warnings == ["the stream fails, and is tried again: no broker answers"]


def test_what_failed_goes_on_where_it_was(
    stage: Stage, feed: Feed, monkeypatch: pytest.MonkeyPatch
):
    """The owner's role and the replica's: once each, and neither needs a new epoch for it. The
    writer has lost what it was given: another one reads it again."""
    advance, add, failed = DdlReader.apply_due, Carry.add, set()

    def fails_once(name: str) -> None:
        if name not in failed:
            failed.add(name)
            raise ConnectionError(f"{name} lost its storage")

    def advances(reader: DdlReader) -> None:
        if reader.low_water:
            fails_once("DdlReader")
        advance(reader)

    def adds(carry: Carry, block: Block) -> None:
        add(carry, block)
        fails_once("SpanWriter")

    monkeypatch.setattr(DdlReader, "apply_due", advances)
    monkeypatch.setattr(Carry, "add", adds)
    tries = []
    lost = retry.RetryBackoff.next_s
    monkeypatch.setattr(
        retry.RetryBackoff,
        "next_s",
        lambda self, error: tries.append(str(error)) or lost(self, error),
    )
    one_capture_takes_all(stage, feed)
    assert sorted(tries) == ["DdlReader lost its storage", "SpanWriter lost its storage"]


def test_a_table_that_was_sealed_under_its_writer_is_an_error_and_not_a_silence(stage: Stage):
    stage.capture("a")
    stage.produce([*made(10, A), *marks(15)])
    owner = HandOwner(stage)
    owner.await_tables("a")
    owner.add(a="a")
    stage.produce([(1, None, row(25, 1, "x")), *marks(27)])
    owner.reached(26)
    writer = app_id(CHANGEFEED, 1, TableName("shop", "a"))
    uri = str(stage.warehouse / "shop" / "a")
    seal(uri, [writer], "tidelake/another", lambda reached: reached, {})
    stage.produce([(1, None, row(35, 2, "y")), *marks(37)])
    with pytest.raises(
        AssertionError, match=r"CDC:ErrChangefeedUnretryable.*a newer incarnation replicates it"
    ):
        owner.reached(36)


def test_a_writer_that_slept_through_a_move_leaves_the_content_right(
    stage: Stage, feed: Feed, monkeypatch: pytest.MonkeyPatch
):
    """It passed its last check before the span went to another capture."""
    sleep = Sleep(monkeypatch, "a")
    stage.capture("a")
    stage.capture("b")
    part = len(feed.messages) // 2
    stage.produce(feed.messages[:part])
    owner = HandOwner(stage)
    owner.await_tables(*FIRST)
    owner.add(**dict.fromkeys(FIRST[1:], "b"))
    owner.prepare("customers", "a")
    owner.write("customers", "a")
    owner.until(sleep.asleep.is_set)
    span = owner.tables["customers"].span
    a = stage.replicas["a"]
    a.remove_table_span(span.table_id)
    assert state(a, span) is TableState.STOPPING  # a commit of it is under way

    stage.fences["a"].shut("its lease is gone")  # so the owner need not wait for it
    del owner.homes["customers"]
    owner.add(customers="b")
    owner.until(lambda: stage.commits("customers"))
    stage.produce(feed.messages[part:])
    owner.await_tables("order_lines_archive")
    owner.add(order_lines_archive="b")
    sleep.wake.set()
    until(lambda: a.take_stopped(span.table_id) is not None)
    owner.reached(feed.last_ts)
    assert_is(stage, feed)
    commits = stage.commits("customers")
    assert commits[-1]["capture"] == "b"
