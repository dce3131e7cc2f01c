"""A rewind of a changefeed whose reader numbers the messages: each gets the number that it had."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from conf.settings import TableRule
from conf.sources.source_uri import parse_source_uri
from coordination.model import TSO_LOGICAL_BITS
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.acceptance.test_numbered_kills import message
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]

TABLES = ("t", "log")
IDLE = 2_000 << TSO_LOGICAL_BITS


class Shop:
    def __init__(self, broker: KafkaBroker, topic: str, lives: Lives) -> None:
        self._broker, self._topic, self._lives = broker, topic, lives
        for name in TABLES:
            sql = f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, at BIGINT)"
            self._send(message(name, "CREATE", {}, now_ms(), isDdl=True, data=None, sql=sql))

    def insert(self, n: int, *, late_ms: int = 0) -> None:
        for name in TABLES:
            self._send(message(name, "INSERT", {"id": n, "at": n}, now_ms() - late_ms))

    def _send(self, value: bytes) -> None:
        self._broker.produce(self._topic, [(0, None, value)])

    def has(self, n: int) -> bool:
        folders = (self._lives.warehouse / "shop" / name / "_delta_log" for name in TABLES)
        is_made = all(any(each.glob("*.json")) for each in folders)
        return is_made and all(n in {r["id"] for r in self._lives.rows(name)} for name in TABLES)


def now_ms() -> int:
    return int(time.time() * 1e3)


def test_a_rewind_numbers_a_late_change_as_before(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was numbered above a time at which nothing had come. By its own time alone it would be
    below the rewind, and a change log would lack it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    topic = "numbered-rewinds"
    broker.create_topic(topic, partitions=1)
    uri = f"kafka://{broker.bootstrap}/{topic}?protocol=canal-json&at-least-once=true"
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri))
    shop = Shop(broker, topic, lives)
    shop.insert(1)
    rules = (TableRule(matcher=("shop.log",), write_mode="append"),)
    sink = replace(lives.settings.changefeed.sink, tables=rules)

    def checkpoint() -> int:
        row = lives.changefeed()
        return 0 if row is None else row.checkpoint_ts

    def numbers() -> dict[int, int]:
        return {each["id"]: each["_commit_ts"] for each in lives.rows("log")}

    life = lives.begin(sink=sink)
    life.wait_until(lambda: shop.has(1))
    (first,) = numbers().values()
    life.wait_until(lambda: checkpoint() > first + IDLE)
    shop.insert(2, late_ms=3_600_000)
    life.wait_until(lambda: shop.has(2))
    shop.insert(3)
    life.wait_until(lambda: shop.has(3))
    before, end = numbers(), checkpoint()
    life.stop()
    to_ts = before[2] - 1
    assert first < to_ts
    life = lives.begin(sink=sink, overwrite_checkpoint_ts=to_ts)
    life.wait_until(lambda: checkpoint() > end)
    life.stop()
    assert numbers() == before
    assert [each["id"] for each in lives.rows("t")] == [1, 2, 3]
