"""The shop's feed is what TiCDC may send, and its history keeps its promises."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.services.child_process import end_child, start_child
from tests.services.kafka_broker import REPOSITORY, KafkaBroker
from tests.shop.feed import CLEAN, FeedSettings, Message, messages
from tests.shop.history import Event, HistorySettings, SchemaChange, Transaction, history
from tests.shop.model import Model, table_difference
from tests.shop.produce import command
from tests.shop.tables import ORDER_LINES

SETTINGS = HistorySettings(seed=5, transactions=1500)
FEED = FeedSettings(seed=6)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(history(SETTINGS))


@pytest.fixture(scope="module")
def sent(events: list[Event]) -> list[Message]:
    return messages(events, FEED)


def decoded(sent: list[Message]) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((partition, json.loads(value)) for partition, _, value in sent)


def rows_of(sent: list[Message]) -> Counter[str]:
    """Every row event, without what differs between a message and its replay."""
    found: Counter[str] = Counter()
    for _, message in decoded(sent):
        if message["data"]:
            found[json.dumps({**message, "ts": 0}, sort_keys=True)] += 1
    return found


def test_settings_are_the_history(events: list[Event]):
    assert [repr(event) for event in history(SETTINGS)] == [repr(event) for event in events]
    assert [repr(event) for event in history(replace(SETTINGS, seed=6))] != list(map(repr, events))


def test_paid_orders_are_the_payments_after_every_transaction(events: list[Event]):
    model, seen = Model(), set()
    for event in events:
        model.apply(event)
        if isinstance(event, Transaction):
            paid, payments = model.paid_and_payments()
            assert paid == payments
            seen.add(paid)
    assert len(seen) > 100


def test_the_sums_differ_at_a_mixed_cut(events: list[Event]):
    early, late = Model.of(events[:700]), Model.of(events)
    assert early.paid_and_payments()[0] != late.paid_and_payments()[1]


def test_every_kind_of_change_happens(events: list[Event]):
    kinds = Counter(
        (change.table.name, change.op)
        for event in events
        if isinstance(event, Transaction)
        for change in event.changes
    )
    assert len(kinds) == 13
    assert sum(isinstance(event, SchemaChange) for event in events) == 7


def test_one_transaction_deletes_and_inserts_a_key(events: list[Event]):
    def has_both(event: Event) -> bool:
        if not isinstance(event, Transaction):
            return False
        lines = [change for change in event.changes if change.table is ORDER_LINES]
        deleted = {change.key for change in lines if change.op == "DELETE"}
        return bool(deleted & {change.key for change in lines if change.op == "INSERT"})

    assert sum(map(has_both, events)) > 10


def test_transactions_share_a_commit_ts_but_no_row(events: list[Event]):
    by_ts: dict[int, list[set[Any]]] = defaultdict(list)
    for event in events:
        touched = (
            {(change.table.name, change.key) for change in event.changes}
            if isinstance(event, Transaction)
            else {"DDL"}
        )
        by_ts[event.commit_ts].append(touched)
    shared = [sets for sets in by_ts.values() if len(sets) > 1]
    assert len(shared) > 20
    assert all(len(set.union(*sets)) == sum(map(len, sets)) for sets in shared)


def test_a_clean_feed_has_every_row_once_in_order(events: list[Event]):
    sent = messages(events, CLEAN)
    assert set(rows_of(sent).values()) == {1}
    in_order = [m["_tidb"].get("commitTs") for _, m in decoded(sent) if m["data"]]
    per_partition: dict[int, list[int]] = defaultdict(list)
    for partition, message in decoded(sent):
        if message["data"]:
            per_partition[partition].append(message["_tidb"]["commitTs"])
    assert all(list_ == sorted(list_) for list_ in per_partition.values())
    assert len(in_order) == sum(len(e.changes) for e in events if isinstance(e, Transaction))


def test_a_troubled_feed_has_every_row_at_least_once(events: list[Event], sent: list[Message]):
    assert rows_of(sent).keys() == rows_of(messages(events, CLEAN)).keys()
    assert max(rows_of(sent).values()) > 1


def test_a_watermark_lies_behind_every_row_it_speaks_of(sent: list[Message]):
    """In each partition, a row's first coming is before the first watermark at or above it."""
    highest: dict[int, int] = defaultdict(int)
    seen: set[tuple[int, str]] = set()
    for partition, message in decoded(sent):
        if message["type"] == "TIDB_WATERMARK":
            highest[partition] = max(highest[partition], message["_tidb"]["watermarkTs"])
            continue
        identity = (partition, json.dumps({**message, "ts": 0}, sort_keys=True))
        commit_ts, bound = message["_tidb"]["commitTs"], highest[partition]
        if identity not in seen:
            assert commit_ts >= bound if message["isDdl"] else commit_ts > bound
        seen.add(identity)


def test_watermarks_and_commit_ts_go_back(sent: list[Message]):
    marks: dict[int, list[int]] = defaultdict(list)
    rows: dict[int, list[int]] = defaultdict(list)
    for partition, message in decoded(sent):
        if message["type"] == "TIDB_WATERMARK":
            marks[partition].append(message["_tidb"]["watermarkTs"])
        else:
            rows[partition].append(message["_tidb"]["commitTs"])
    for partition in range(3):
        assert marks[partition] != sorted(marks[partition])
        assert rows[partition] != sorted(rows[partition])
        assert max(marks[partition]) > max(max(values) for values in rows.values())


def test_ddls_come_before_and_after_their_watermark(sent: list[Message]):
    first: dict[int, list[str]] = defaultdict(list)
    for partition, message in decoded(sent):
        if partition == 0 and not message["data"]:
            tidb = message["_tidb"]
            kind = "watermark" if message["type"] == "TIDB_WATERMARK" else "ddl"
            first[tidb.get("commitTs") or tidb["watermarkTs"]].append(kind)
    orders = {tuple(dict.fromkeys(kinds)) for kinds in first.values() if "ddl" in kinds}
    assert orders == {("ddl", "watermark"), ("watermark", "ddl")}


def test_the_model_finds_a_wrong_cell(events: list[Event]):
    rows = Model.of(events).tables["order_lines"].values()
    actual = [dict(row) for row in rows]
    assert table_difference(ORDER_LINES, rows, actual) is None
    actual[7]["quantity"] += 1
    assert "quantity is" in (table_difference(ORDER_LINES, rows, actual) or "")


@pytest.mark.kafka
def test_the_load_generator_sends_what_its_arguments_say(broker: KafkaBroker):
    settings = HistorySettings(seed=9, transactions=200)
    broker.create_topic("generated", partitions=3)
    generator = start_child(
        command(broker.bootstrap, "generated", settings, "--unpaced"), cwd=str(REPOSITORY)
    )
    try:
        assert generator.wait(180) == 0
    finally:
        end_child(generator)
    read = [(m.partition, m.key, m.value) for m in broker.read("generated")]
    wanted = messages(history(settings), FeedSettings(seed=9))
    for partition in range(3):
        assert [m for m in read if m[0] == partition] == [m for m in wanted if m[0] == partition]
