"""A stream that cannot begin is none: the next role that comes begins it again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streaming.cluster import topic_stream
from streaming.cluster.topic_stream import TopicStream


class NoRun:
    """Of a machine that makes no thread, at first."""

    begun = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def start(self) -> None:
        NoRun.begun += 1
        if NoRun.begun == 1:
            raise RuntimeError("can't start new thread")

    def stop(self) -> None: ...

    def join(self, within_s: float) -> None: ...


def test_what_did_not_begin_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(
        shape=lambda: SimpleNamespace(partitions=frozenset()),
        check_offsets=lambda _: None,
        close=lambda: None,
    )
    monkeypatch.setattr(topic_stream, "Source", lambda _: source)
    monkeypatch.setattr(topic_stream, "StreamRun", NoRun)
    monkeypatch.setattr(topic_stream, "beginning", lambda *_: {})
    context: Any = SimpleNamespace(
        changefeed=SimpleNamespace(source=None), trust=SimpleNamespace(check=lambda: None)
    )
    stream, role = TopicStream(context), object()
    with pytest.raises(RuntimeError):
        stream.join(role, {}, {})  # type: ignore[arg-type]
    assert not stream.is_running
    stream.leave(role)  # type: ignore[arg-type]
    stream.join(role, {}, {})  # type: ignore[arg-type]
    assert stream.is_running
    stream.leave(role)  # type: ignore[arg-type]
    assert not stream.is_running
