"""A topic for each table, and what came of their messages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.acceptance.one_process import Life, Lives
from tests.acceptance.reported import ddl, row
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import Message

TYPES = {"id": "bigint"}


class Topics:
    """Topics of one changefeed, whose names have a beginning of their own."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.head = f"e{uuid4().hex[:8]}"
        self.made: list[str] = []

    def make(self, name: str, *messages: Message, partitions: int = 1) -> str:
        topic = f"{self.head}-{name}"
        if topic not in self.made:
            self.broker.create_topic(topic, partitions=partitions)
            self.made.append(topic)
        self.broker.produce(topic, messages)
        return topic

    def uri(self, parameters: str, more: str = "") -> str:
        of_tables = f"topics={self.head}-{{schema}}_{{table}}{more}"
        return f"kafka://{self.broker.bootstrap}/{self.head}-default?{parameters}&{of_tables}"


def create(ts: int, table: str) -> Message:
    return ddl(ts, table, f"CREATE TABLE `shop`.`{table}` (`id` BIGINT PRIMARY KEY)", kind="CREATE")


def added(ts: int, table: str, id: int, partition: int = 0) -> Message:
    return row(ts, table, {"id": f"{id}"}, TYPES, partition=partition)


def ids(lives: Lives, table: str) -> list[Any]:
    return sorted(each["id"] for each in read_rows(Path(lives.uri, "shop", table)))


def wait_for(life: Life, lives: Lives, ts: int) -> None:
    def is_there() -> bool:
        found = lives.changefeed()
        return found is not None and found.checkpoint_ts >= ts

    life.wait_until(is_there)


def assert_cuts(lives: Lives, events: Iterable[tuple[str, int, int]]) -> None:
    """Each published cut has each event (table, id, commit-ts) up to its ts once."""
    rows = lives.ledger()
    assert rows
    for cut in rows:
        for name, version in cut["tables"].items():
            table = name.partition(".")[2]
            found = read_rows(Path(lives.uri, "shop", table), version)
            told = [id for name, id, ts in events if name == table and ts <= cut["primary_ts"]]
            assert sorted(each["id"] for each in found) == sorted(told), (cut["primary_ts"], table)


EXACT = "protocol=canal-json&enable-tidb-extension=true"
