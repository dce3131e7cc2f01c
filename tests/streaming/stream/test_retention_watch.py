"""Before the source is lost there is a warning, once, and a number."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import TidelakeError
from sinks.control.changefeeds import ChangefeedRow
from streaming.operations.progress_report import ProgressReport
from streaming.source.contract import SourceAway
from streaming.source.kafka.retention import kept
from streaming.source.kafka.topic_partition import TopicPartition
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.retention_watch import RetentionWatch
from tests.own_lines import own_records

DAY_MS = 86_400_000
ONE = TopicPartition("a", 0)


class Broker:
    """What a source asks."""

    def __init__(self) -> None:
        self.at_ms = 0.0

    def retention_ms(self, topics: set[str]) -> dict[str, int]:
        assert topics == {"a"}
        return {"a": DAY_MS}

    def times_ms(self, first: Any) -> dict[TopicPartition, int]:
        assert first == {ONE: 5}
        return {ONE: int(self.at_ms)}


def kept_by(broker: Any) -> Any:
    return SimpleNamespace(
        kept=lambda at: kept(broker, {TopicPartition.parse(p): n for p, n in at.items()})
    )


def test_it_is_said_once_and_it_is_over_when_there_is_time_again(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    broker = Broker()
    source = kept_by(broker)
    concerns = LastingWarnings()
    watch = RetentionWatch(lambda: source, lambda: {"a/0": 5}, concerns)
    for age_h in (13, 14, 15):
        broker.at_ms = (time.time() - age_h * 3600) * 1e3
        watch.look(source)
    assert watch.left_s == pytest.approx(9 * 3600, abs=60)
    assert concerns.first is not None
    assert "topic a partition 0" in concerns.first
    assert "retention.ms (24 h)" in concerns.first
    broker.at_ms = time.time() * 1e3
    watch.look(source)
    assert concerns.first is None
    assert [record.levelname for record in own_records(caplog)] == ["WARNING", "INFO"]

    broker.at_ms = 0.0
    watch.look(source)
    assert concerns.first is not None
    watch.close()  # another capture is the owner now, and watches it
    watch.look(source)
    assert concerns.first is None


def test_what_was_left_before_the_broker_went_is_not_shown_any_more():
    def away(_topics: object) -> Any:
        raise SourceAway("no answer")

    source: Any = SimpleNamespace(
        kept=away, unlogged=lambda: (), held_back=away, close=lambda: None
    )
    watch = RetentionWatch(lambda: source, lambda: {"a/0": 5}, LastingWarnings())
    watch.left_s = 3600.0
    watch.begin()
    until = time.monotonic() + 10.0
    while watch.left_s is not None:
        assert time.monotonic() < until
        time.sleep(0.01)
    watch.close()


def test_what_a_server_refuses_to_tell_of_its_foreign_keys_is_a_concern():
    def denied() -> Any:
        raise TidelakeError("SHOW VIEW command denied")

    concerns = LastingWarnings()
    watch = RetentionWatch(lambda: None, dict, concerns)  # type: ignore[arg-type, return-value]
    watch.look_at_tables(SimpleNamespace(unlogged=denied))  # type: ignore[arg-type]
    assert concerns.first is not None
    assert "cannot be known: SHOW VIEW command denied" in concerns.first
    watch.look_at_tables(SimpleNamespace(unlogged=lambda: ()))  # type: ignore[arg-type]
    assert concerns.first is None


def test_what_is_left_goes_on_falling_while_nobody_looks():
    seen = datetime(2026, 1, 1, tzinfo=UTC)
    row = ChangefeedRow(
        changefeed_id="shop",
        start_ts=0,
        checkpoint_ts=0,
        resolved_ts=0,
        state="stopped",
        source_left_s=3600.0,
        updated_at=seen,
    )

    def left_s(after_s: float, row: ChangefeedRow = row) -> float | None:
        now = seen + timedelta(seconds=after_s)
        return ProgressReport(changefeeds=(row,), spans=(), now=now).source_left_s(row)

    assert left_s(600.0) == 3000.0
    assert left_s(7200.0) == 0.0
    assert left_s(0.0, replace(row, source_left_s=None)) is None


def test_what_the_source_holds_back_is_a_concern_until_it_is_given() -> None:
    concerns, said = LastingWarnings(), ["a transaction is open", None]
    watch = RetentionWatch(lambda: source, lambda: {"a/0": 5}, concerns)
    source: Any = SimpleNamespace(held_back=lambda at: said.pop(0) if at == {"a/0": 5} else None)
    watch.look_behind(source)
    assert concerns.first == "a transaction is open"
    watch.look_behind(source)
    assert concerns.first is None
