"""What a stream does while nothing comes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block
from streaming.source.contract import SourceShape
from streaming.source.positions import counted
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream import shared_stream, stream_run
from streaming.stream.applying import Handover
from streaming.stream.lasting_warnings import STREAM, LastingWarnings
from streaming.stream.reading import Place
from streaming.stream.shared_stream import SharedStream
from streaming.stream.stream_run import StreamRun
from tests.streaming.stream.one_turn import one_turn

ONE, OTHER = "orders/0", "orders/1"


class Asked(Exception):
    """The JVM was asked."""


class Reader:
    def read(self, *_: object, **__: object) -> list[Block]:
        raise Asked


class Mute:
    """A source to which nothing comes."""

    has_end = False

    def keep_to(self, _identities: object) -> None: ...

    def ends(self, partitions: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(partitions, 7)

    def settled(
        self, _shape: object, limits: Watermarks, _position: object, _stored: object
    ) -> Watermarks:
        return limits

    is_numbered = False
    distance = staticmethod(counted)

    def reach(self, ends: Any, _stored: object) -> Any:
        return ends


NO_BACKLOG: Any = SimpleNamespace()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> StreamRun:
    monkeypatch.setattr(stream_run, "open_source", lambda *_: Mute())
    monkeypatch.setattr(stream_run, "told_columns", lambda _: {})
    context: Any = SimpleNamespace(
        name="a",
        changefeed=SimpleNamespace(source=None, sink=SimpleNamespace(storage_options=())),
        batch=SimpleNamespace(max_messages=10, first_messages=0),
        watch=lambda _: None,
        trust=SimpleNamespace(check=lambda: None),
        check_jvm=lambda: None,
        concerns=LastingWarnings(),
    )
    shape = SourceShape(dict.fromkeys([ONE, OTHER], "id"))
    return StreamRun(
        context,
        backlog=NO_BACKLOG,
        roles=tuple,
        busy=threading.Lock(),
        begin=Place(shape=shape, position={ONE: 7, OTHER: 7}, limits=Watermarks(parts=shape.parts)),
    )


def test_where_nothing_lies_between_the_jvm_is_not_asked(run: StreamRun) -> None:
    """It would be five times a second."""
    reader: Any = Reader()
    place = replace(run._reading.place, position={ONE: 7, OTHER: 3})
    assert run._reading._read(reader, place, {ONE: 7, OTHER: 3}, {}) is None
    with pytest.raises(Asked):
        run._reading._read(reader, place, {ONE: 7, OTHER: 4}, {})


def test_failures_of_a_mute_topic_that_lie_far_apart_do_not_add_up(
    run: StreamRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is started anew each night, and nothing is sent to it for a week."""
    monkeypatch.setattr(Handover, "pause", lambda *_: None)
    reader: Any = Reader()
    run._reading._reader = reader
    run._ticks.set()
    for _ in range(10):
        waits = [run._backoff.next_s(ConnectionError("no broker")) for _ in range(4)]
        run._context.concerns.say(STREAM, "the stream fails")
        one_turn(run)
        assert run._context.concerns.first is None
        assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_target_ts_is_reached_where_looks_find_nothing_beyond_what_is_taken(
    run: StreamRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No watermark passes it. Where nobody has looked for a while, since the broker is away or a
    commit takes long, rows of that very ts may be there."""
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    monkeypatch.setattr(Handover, "pause", lambda *_: None)
    monkeypatch.setattr(run._handover.stopping, "wait", lambda _: None)
    monkeypatch.setattr(shared_stream, "open_source", lambda _: Mute())
    context: Any = SimpleNamespace(
        name="a",
        concerns=LastingWarnings(),
        changefeed=SimpleNamespace(source=None, target_ts=50),
        batch=SimpleNamespace(quiet_s=10.0),
    )
    stream = SharedStream(context)
    marks = dict.fromkeys((ONE, OTHER), RecordedWatermark(ts=50, position=6))
    stream._run, run._reading._reader = run, Reader()  # type: ignore[assignment]
    run._applying.watermarks = run.taken_watermarks.advance(marks, {})
    run._ticks.set()
    now_s += 20.0
    assert stream.resolved_ts() == 49  # Spark has started meanwhile
    one_turn(run)
    assert stream.resolved_ts() == 49
    now_s += 20.0
    one_turn(run)
    assert stream.resolved_ts() == 50
    run._applying.position = {ONE: 6, OTHER: 7}  # a read waits for a long commit
    assert stream.resolved_ts() == 49
    run._applying.position = {ONE: 7, OTHER: 7}
    run._wait_after(ConnectionError("no broker"))
    one_turn(run)
    assert stream.resolved_ts() == 49
