"""The captures as the owner of a changefeed sees them: which are alive, have answered, are ending.

    (in etcd) ─► Uninitialized ──first full list──► Initialized ──liveness──► Stopping
                                                         ▲                       │
                                                         └── a drain taken back ─┘
    (gone from etcd) ─► removed

A capture's processor epoch is that of its first answer, and stays the same for this owner: a
capture makes one agent for a changefeed epoch, and the agent takes another processor epoch only
when the owner changes. A capture that was reset has another ID.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from coordination.model import CaptureID, ProcessorEpoch
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    DispatchTableResponse,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
)
from coordination.scheduler.reports import ReportView
from coordination.scheduler.table_status import Statuses

REST_HEARTBEAT_S: Final = 1.0  # between two heartbeats while nothing is awaited of the captures
SILENT_TICKS: Final = 60  # 3 s: a capture that has not answered by then may never do


class CaptureState(IntEnum):
    """The numbers are TiCDC's."""

    UNINITIALIZED = 1
    INITIALIZED = 2
    STOPPING = 3


@dataclass(slots=True)
class CaptureStatus:
    """One capture, as its answers and etcd show it."""

    id: CaptureID
    is_owner: bool = False
    met_at: int = 0  # the tick in which it was first seen
    is_gone: bool = False  # its key is gone from etcd; it may still write until its grace is over
    state: CaptureState = CaptureState.UNINITIALIZED
    epoch: ProcessorEpoch | None = None  # None until it has answered
    view: ReportView = field(default_factory=ReportView)
    read_positions: Mapping[str, int] | None = None


News = tuple[CaptureID, Statuses]  # a capture, and its statuses that have changed


class CaptureManager:
    """Mutable; one thread. Time is counted in ticks while anything is awaited of the captures."""

    def __init__(self, *, owner_id: CaptureID, heartbeat_tick: int) -> None:
        self.captures: dict[CaptureID, CaptureStatus] = {}
        self._owner_id = owner_id
        self._heartbeat_tick = heartbeat_tick
        self._ticks = 0
        self._sent_at = float("-inf")
        self._sent_barrier: Barrier | None = None
        self._unreached: Collection[CaptureID] = ()  # no owner has reached them: they have no spans

    @property
    def is_all_initialized(self) -> bool:
        """Whether every capture that may have spans has answered; False without any capture.

        A capture that no owner has ever reached has no spans. It is waited for only
        ``SILENT_TICKS``, since it may be about to answer."""
        states = [each.state for each in self.captures.values() if not self._is_silent(each)]
        return bool(states) and CaptureState.UNINITIALIZED not in states

    @property
    def is_at_rest(self) -> bool:
        """Whether every capture lives, has answered, and is to go on."""
        found = self.captures.values()
        return all(each.state is CaptureState.INITIALIZED and not each.is_gone for each in found)

    @property
    def initialized(self) -> dict[CaptureID, CaptureStatus]:
        """The captures that have answered, by ID."""
        found = self.captures.items()
        return {each: c for each, c in found if c.state is not CaptureState.UNINITIALIZED}

    def _is_silent(self, capture: CaptureStatus) -> bool:
        is_waited_for = self._ticks < capture.met_at + SILENT_TICKS
        return capture.epoch is None and capture.id in self._unreached and not is_waited_for

    def handle_messages(self, messages: Iterable[Message]) -> list[News]:
        """Take the agents' answers, in the order in which they came; returns the statuses that are
        new."""
        return [news for message in messages if (news := self._handle(message)) is not None]

    def handle_alive_captures(
        self,
        alive: Iterable[CaptureID],
        unreached: Collection[CaptureID] = (),
        gone: Collection[CaptureID] = (),
    ) -> list[CaptureID]:
        """Take over etcd's list of captures; returns the captures whose grace is over.
        ``unreached``: no owner has ever reached them; ``gone``: they are dead and within their
        grace."""
        named = set(alive)
        self._unreached = unreached
        removed = sorted(self.captures.keys() - named)
        for capture_id in removed:
            del self.captures[capture_id]
        for capture_id in sorted(named - self.captures.keys()):
            is_owner = capture_id == self._owner_id
            self.captures[capture_id] = CaptureStatus(capture_id, is_owner, self._ticks)
        for capture_id, capture in self.captures.items():
            capture.is_gone = capture_id in gone
        return removed

    def next_heartbeats(
        self,
        asked: Mapping[CaptureID, Sequence[int]],
        draining: Collection[CaptureID],
        barrier: Barrier,
        now_s: float,
        *,
        is_awaiting: bool,
    ) -> list[tuple[CaptureID, Heartbeat]]:
        """The heartbeats to send in this tick; ``asked`` are spans to report even if unchanged.

        They are due every ``heartbeat_tick`` ticks while anything is awaited of the captures, else
        every ``REST_HEARTBEAT_S``; and at once when the barrier has moved, since rows wait for it.
        Each carries the barrier. ``now_s`` is monotonic."""
        self._ticks += 1
        is_news = self._sent_barrier is not None and barrier != self._sent_barrier
        if is_awaiting:
            is_due = not self._ticks % self._heartbeat_tick
        else:
            is_due = now_s - self._sent_at >= REST_HEARTBEAT_S
        if not is_due and not is_news:
            return []
        self._sent_at = now_s
        self._sent_barrier = barrier
        return [
            (
                capture_id,
                Heartbeat(
                    seen=capture.view.seen,
                    table_ids=tuple(asked.get(capture_id, ())),
                    is_stopping=capture_id in draining,
                    barrier=barrier,
                ),
            )
            for capture_id, capture in self.captures.items()
        ]

    def _handle(self, message: Message) -> News | None:
        capture = self.captures.get(message.sender)
        if capture is None or message.processor_epoch != (capture.epoch or message.processor_epoch):
            return None
        match message.body:
            case HeartbeatResponse() as response:
                return self._handle_heartbeat(capture, response, message.processor_epoch)
            case DispatchTableResponse() as dispatched if capture.epoch is not None:
                is_news = capture.view.apply_dispatched(dispatched)
                return (capture.id, Statuses.of([dispatched.status])) if is_news else None
            case _:
                return None

    def _handle_heartbeat(
        self, capture: CaptureStatus, response: HeartbeatResponse, epoch: ProcessorEpoch
    ) -> News | None:
        statuses = capture.view.apply(response)
        if statuses is None:
            return None
        capture.epoch = epoch
        if response.read_positions is not None:
            capture.read_positions = response.read_positions
        is_ending = response.liveness is Liveness.STOPPING
        capture.state = CaptureState.STOPPING if is_ending else CaptureState.INITIALIZED
        return capture.id, statuses
