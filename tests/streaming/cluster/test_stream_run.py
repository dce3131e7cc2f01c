"""What a stream does while nothing comes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.cluster import stream_run
from streaming.cluster.stream_run import StreamRun
from streaming.source.kafka import SourceShape
from streaming.source.ranges import TopicPartition
from streaming.watermark import Watermarks

ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Asked(Exception):
    """The JVM was asked."""


class Reader:
    @property
    def messages(self) -> int:
        raise Asked


def test_where_nothing_lies_between_the_jvm_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be five times a second."""
    monkeypatch.setattr(stream_run, "Source", lambda _: None)
    context: Any = SimpleNamespace(
        name="a",
        changefeed=SimpleNamespace(source=None),
        batch=SimpleNamespace(max_messages=10),
        watch=lambda _: None,
    )
    shape = SourceShape(partitions=frozenset({ONE, OTHER}), topic_ids={"orders": "id"})
    run = StreamRun(
        context,
        roles=tuple,
        busy=threading.Lock(),
        shape=shape,
        begin={},
        watermarks=Watermarks(partitions=shape.partitions),
    )
    reader: Any = Reader()
    assert run._read(reader, {ONE: 7, OTHER: 3}, {ONE: 7, OTHER: 3}, {}) is None
    with pytest.raises(Asked):
        run._read(reader, {ONE: 7, OTHER: 3}, {ONE: 7, OTHER: 4}, {})
