"""An owner that comes to a running stream, or goes from it: changes get the numbers that the
changefeed's row tells (rule 2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block, Kind
from streaming.source.contract import SourceMoved, SourceShape
from streaming.source.positions import counted
from streaming.source.resolved.commit_clock import Pin, to_token
from streaming.source.resolved.limits import Limits, Marks, Stored
from streaming.source.resolved.pinned_limits import PinnedLimits, limited
from streaming.stream import shared_stream, stream_run
from streaming.stream.applying import Handover
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.shared_stream import SharedStream
from streaming.stream.stream_run import StreamRun
from tests.streaming.stream.one_turn import one_turn

PART = "orders/0"
IDLE = Pin(200, 50, above_ts=90, is_needed=True)
BEFORE = RecordedWatermark(ts=51, position=200, token=to_token([Pin(200, 50)]))
NOW = RecordedWatermark(ts=91, position=200, token=to_token([IDLE]))


class Numbered:
    """A source whose readers give the commit-ts."""

    is_numbered = True
    has_end = False
    distance = staticmethod(counted)
    end = 200

    def __init__(self) -> None:
        self.idle_ts: Ts | None = None

    def keep_to(self, _identities: object) -> None: ...
    def check(self, _positions: object) -> None: ...
    def check_unchanged(self, _shape: object) -> None: ...
    def close(self) -> None: ...

    def shape(self) -> SourceShape:
        return SourceShape({PART: "id"})

    def begin_at(self, _shape: object, low_water: Any) -> dict[str, int]:
        return dict(low_water)

    def ends(self, parts: Any) -> dict[str, int]:
        return dict.fromkeys(parts, self.end)

    def limits(self, shape: SourceShape, recorded: Marks) -> PinnedLimits:
        return PinnedLimits.of(shape.parts, recorded)

    def settled(self, _shape: object, limits: Limits, _position: object, stored: Stored) -> Limits:
        assert isinstance(limits, PinnedLimits)
        known = limits.settled(stored)
        is_idle = stored.is_ours and self.idle_ts is not None
        return known.idle_at({PART: self.idle_ts}) if is_idle and self.idle_ts else known

    def reach(self, ends: Any, stored: Stored) -> Any:
        return limited(ends, stored)


class Reader:
    """Keeps the pins by which each read is numbered."""

    def __init__(self) -> None:
        self.pins: list[tuple[Pin, ...]] = []

    def read(self, order: Any) -> list[Block]:
        self.pins.append(order.limits.numbering(PART))
        first, end = order.begin[PART], order.ends[PART]
        return [Block(kind=Kind.DONE, part=PART, rows=0, first=first, last=end)]


class Role:
    is_behind = is_held = False

    def __init__(self, *, is_owners: bool) -> None:
        self.is_owners = is_owners

    def submit(self, _begin: object) -> dict[Any, Any]:
        return {}

    def take(self, _read: object) -> None: ...
    def apply_due(self) -> None: ...


@pytest.fixture
def source() -> Numbered:
    return Numbered()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch, source: Numbered) -> SharedStream:
    """Its threads do not run: turns are taken by hand."""
    for module in (shared_stream, stream_run):
        monkeypatch.setattr(module, "open_source", lambda *_: source)
    monkeypatch.setattr(stream_run, "told_columns", lambda _: {})
    monkeypatch.setattr(StreamRun, "start", lambda _: None)
    monkeypatch.setattr(Handover, "pause", lambda *_: None)
    backlog = SimpleNamespace(batch_begins=lambda: None, batch_ends=lambda _: None)
    monkeypatch.setattr(shared_stream, "BacklogWatch", lambda *_, **__: backlog)
    context: Any = SimpleNamespace(
        name="a",
        changefeed=SimpleNamespace(source=None, sink=SimpleNamespace(storage_options=())),
        batch=SimpleNamespace(max_messages=10, first_messages=0),
        watch=lambda _: SimpleNamespace(step=lambda: None),
        trust=SimpleNamespace(check=lambda: None),
        concerns=LastingWarnings(),
        recorded=lambda: {PART: BEFORE},
    )
    return SharedStream(context)


def turn(stream: SharedStream) -> None:
    """A read, and what it brings is taken."""
    run: Any = stream._run
    run._ticks.set()
    one_turn(run)
    run._applying._give(run._handover.take(0))


def begun(stream: SharedStream, role: Role) -> Reader:
    stream.join(role, {PART: 200}, {PART: BEFORE}, {PART: "id"})  # type: ignore[arg-type]
    run: Any = stream._run
    run._reading._reader = Reader()
    turn(stream)
    found: Reader = run._reading._reader
    return found


def test_an_owner_that_comes_numbers_by_the_row(stream: SharedStream, source: Numbered) -> None:
    """The owner before has stored an idle log's pin and brought the tables up to it, while this
    capture wrote for long and looked at nothing."""
    reader, owner = begun(stream, Role(is_owners=False)), Role(is_owners=True)
    stream.join(owner, {PART: 200}, {PART: NOW}, {PART: "id"})  # type: ignore[arg-type]
    source.end = 201
    turn(stream)
    assert reader.pins == [(IDLE,)]
    assert stream.watermarks.global_ts == 91
    assert stream.marks(owner)[PART].token == NOW.token  # type: ignore[arg-type]


def test_it_stores_nothing_before_a_read_was_numbered_for_it(
    stream: SharedStream, source: Numbered
) -> None:
    """What the roles have was numbered by an older row: the pin would be gone from there."""
    begun(stream, Role(is_owners=False))
    owner = Role(is_owners=True)
    stream.join(owner, {PART: 200}, {PART: NOW}, {PART: "id"})  # type: ignore[arg-type]
    assert stream.marks(owner) == {}  # type: ignore[arg-type]
    source.idle_ts = Ts(95)
    turn(stream)
    assert IDLE._replace(above_ts=95) in stream.watermarks.numbering(PART)  # type: ignore[attr-defined]
    assert stream.marks(owner) != {}  # type: ignore[arg-type]


@pytest.mark.parametrize("comes", [False, True])
def test_what_an_owner_numbered_that_went_is_read_anew(
    stream: SharedStream, source: Numbered, *, comes: bool
) -> None:
    """Another owner knows nothing of a pin that was not stored, and numbers lower what is behind
    it: rows that wait here would come at a time that is past."""
    owner, span = Role(is_owners=True), Role(is_owners=False)
    source.idle_ts = Ts(95)
    begun(stream, owner)
    stream.join(span, {PART: 200}, {PART: BEFORE}, {PART: "id"})  # type: ignore[arg-type]
    source.end = 201
    turn(stream)
    stream.leave(owner)  # type: ignore[arg-type]
    if comes:
        other = Role(is_owners=True)
        stream.join(other, {PART: 200}, {PART: NOW}, {PART: "id"})  # type: ignore[arg-type]
    run: Any = stream._run
    with pytest.raises(SourceMoved, match="numbered anew"):
        one_turn(run)
