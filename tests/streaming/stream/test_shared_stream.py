"""A stream that cannot begin is none: the next role that comes begins it again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import TryAgain
from streaming.source.contract import SourceMoved, SourceShape
from streaming.source.positions import counted
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream import shared_stream
from streaming.stream.shared_stream import SharedStream


class NoRun:
    """Of a machine that makes no thread, at first."""

    begun = 0
    has_ended = False

    def __init__(self, *_: Any, begin: Any, **__: Any) -> None:
        self.shape = begin.shape

    def stored(self, *_: Any) -> None: ...

    def start(self) -> None:
        NoRun.begun += 1
        if NoRun.begun == 1:
            raise RuntimeError("can't start new thread")

    def stop(self) -> None: ...

    def join(self, within_s: float) -> None: ...


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> SharedStream:
    source = SimpleNamespace(
        is_numbered=False,
        keep_to=lambda _: None,
        shape=lambda: SourceShape({}),
        begin_at=lambda *_: {},
        limits=lambda *_: Watermarks(parts=frozenset()),
        check=lambda _: None,
        distance=counted,
        close=lambda: None,
    )
    monkeypatch.setattr(shared_stream, "open_source", lambda _: source)
    monkeypatch.setattr(shared_stream, "StreamRun", NoRun)
    context: Any = SimpleNamespace(
        name="a",
        concerns=None,
        changefeed=SimpleNamespace(source=None),
        trust=SimpleNamespace(check=lambda: None),
    )
    return SharedStream(context)


def test_what_did_not_begin_is_not_waited_for(
    stream: SharedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NoRun, "begun", 0)
    role = SimpleNamespace(is_owners=False)
    with pytest.raises(RuntimeError):
        stream.join(role, {}, {})  # type: ignore[arg-type]
    assert not stream.is_running
    stream.leave(role)  # type: ignore[arg-type]
    stream.join(role, {}, {})  # type: ignore[arg-type]
    assert stream.is_running
    stream.leave(role)  # type: ignore[arg-type]
    assert not stream.is_running


def test_a_stream_that_has_failed_is_not_joined(
    stream: SharedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its roles have been told. Who comes then would wait for its reads for ever."""
    monkeypatch.setattr(NoRun, "begun", 1)
    before, late = SimpleNamespace(is_owners=False), SimpleNamespace(is_owners=False)
    stream.join(before, {}, {})  # type: ignore[arg-type]
    monkeypatch.setattr(NoRun, "has_ended", True)
    with pytest.raises(TryAgain):
        stream.join(late, {}, {})  # type: ignore[arg-type]
    stream.leave(before)  # type: ignore[arg-type]
    assert not stream.is_running
    monkeypatch.setattr(NoRun, "has_ended", False)
    stream.join(late, {}, {})  # type: ignore[arg-type]
    assert stream.is_running


def test_identities_are_those_of_the_run_and_stay_after_it(
    stream: SharedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is added while it runs, and what is under way at the end may name it in a letter."""
    monkeypatch.setattr(NoRun, "begun", 1)
    role: Any = SimpleNamespace(is_owners=False)
    stream.join(role, {}, {})
    run: Any = stream._run
    run.shape = SourceShape({"t/0": "a", "t/1": "a"})
    assert stream.identities == {"t/0": "a", "t/1": "a"}
    stream.leave(role)
    assert stream.identities == {"t/0": "a", "t/1": "a"}


def test_a_stream_that_still_reads_another_server_is_not_joined(
    stream: SharedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions of one server's log say nothing in that of another."""
    monkeypatch.setattr(NoRun, "begun", 1)
    before, late = SimpleNamespace(is_owners=False), SimpleNamespace(is_owners=False)
    stream.join(before, {}, {})  # type: ignore[arg-type]
    run: Any = stream._run
    run.shape = SourceShape({"t/0": "of another server"})
    monkeypatch.setattr(stream._source, "shape", lambda: SourceShape({"t/0": "of this one"}))
    monkeypatch.setattr(stream._source, "is_numbered", True, raising=False)
    with pytest.raises(SourceMoved):
        stream.join(late, {}, {})  # type: ignore[arg-type]
    assert stream.is_running
