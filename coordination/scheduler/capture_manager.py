"""The captures as the owner of a changefeed sees them: who is alive, who has answered, who ends.

    (in etcd) ─► Uninitialized ──first full list──► Initialized ──liveness──► Stopping
                      ▲                                  │                       │
                      └── another processor epoch ───────┴───────────────────────┤
                                                         ▲                       │
                                                         └── a drain taken back ─┘
    (gone from etcd) ─► removed

A processor epoch that changes means that the capture's agent was made anew: it is shut down and
initialised again (the original ignores such a capture for ever). Epochs have no order, and answers
of an agent that is no more may come late, even under an epoch that was never heard of. So an epoch
takes the place of another only with the answer to a heartbeat that was sent after the last sign of
life of the other: that one must be over, as a capture has one agent at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from coordination.model import CaptureID, ProcessorEpoch
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    DispatchTableResponse,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    Scan,
    TableStatus,
)
from coordination.scheduler.reports import ReportView


class CaptureState(IntEnum):
    """The numbers are TiCDC's."""

    UNINITIALIZED = 1
    INITIALIZED = 2
    STOPPING = 3


class CaptureStatus:
    """One capture."""

    __slots__ = ("epoch", "id", "is_owner", "proven", "scan", "state", "view")

    def __init__(self, capture_id: CaptureID, *, is_owner: bool) -> None:
        self.id = capture_id
        self.is_owner = is_owner
        self.state = CaptureState.UNINITIALIZED
        self.epoch: ProcessorEpoch | None = None  # None until it has answered
        self.proven = 0  # the last heartbeat that was sent before its epoch's last sign of life
        self.view = ReportView()
        self.scan: Scan | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """News of one capture. ``is_restart``: its agent is a new one, and this is all that it has."""

    capture_id: CaptureID
    statuses: Sequence[TableStatus]
    is_restart: bool = False


class CaptureManager:
    """Mutable; one thread. Time is counted in ticks."""

    def __init__(
        self, *, owner_id: CaptureID, heartbeat_tick: int, collect_stats_tick: int
    ) -> None:
        self.captures: dict[CaptureID, CaptureStatus] = {}
        self._owner_id = owner_id
        self._heartbeat_tick = heartbeat_tick
        self._collect_stats_tick = collect_stats_tick
        self._ticks = 0
        self._sent = 0  # the number of the last heartbeats

    @property
    def is_all_initialized(self) -> bool:
        """Every capture that is alive has answered; without captures, none has."""
        states = [capture.state for capture in self.captures.values()]
        return bool(states) and CaptureState.UNINITIALIZED not in states

    def handle_messages(self, messages: Iterable[Message]) -> list[Report]:
        """Take answers, in the order in which they came; what they say that is new."""
        return [report for message in messages if (report := self._handle(message)) is not None]

    def handle_alive_captures(self, alive: Iterable[CaptureID]) -> list[CaptureID]:
        """Follow etcd's list; return who is gone."""
        named = set(alive)
        gone = sorted(self.captures.keys() - named)
        for capture_id in gone:
            del self.captures[capture_id]
        for capture_id in sorted(named - self.captures.keys()):
            is_owner = capture_id == self._owner_id
            self.captures[capture_id] = CaptureStatus(capture_id, is_owner=is_owner)
        return gone

    def tick(
        self,
        asked: Mapping[CaptureID, Sequence[int]],
        draining: Collection[CaptureID],
        barrier: Barrier,
    ) -> list[tuple[CaptureID, Heartbeat]]:
        """The heartbeats to send now; ``asked`` are the spans whose status is wanted by all means.

        Always with the barrier."""
        self._ticks += 1
        if self._ticks % self._heartbeat_tick:
            return []
        self._sent += 1
        return [
            (
                capture_id,
                Heartbeat(
                    number=self._sent,
                    seen=capture.view.seen,
                    table_ids=tuple(asked.get(capture_id, ())),
                    is_stopping=capture_id in draining,
                    collect_stats=self._ticks % self._collect_stats_tick == 0,
                    barrier=barrier,
                ),
            )
            for capture_id, capture in self.captures.items()
        ]

    def _handle(self, message: Message) -> Report | None:
        capture = self.captures.get(message.sender)
        if capture is None:
            return None
        epoch = message.header.processor_epoch
        match message.body:
            case HeartbeatResponse() as response:
                return self._handle_heartbeat(capture, response, epoch)
            case DispatchTableResponse() as dispatched if epoch == capture.epoch:
                capture.proven = self._sent
                is_news = capture.view.apply_dispatched(dispatched)
                return Report(capture.id, (dispatched.status,)) if is_news else None
            case _:
                return None

    def _handle_heartbeat(
        self, capture: CaptureStatus, response: HeartbeatResponse, epoch: ProcessorEpoch
    ) -> Report | None:
        is_restart = epoch != capture.epoch and capture.epoch is not None
        if epoch != capture.epoch:
            if response.since or (is_restart and response.answers <= capture.proven):
                return None
            capture.epoch, capture.view, capture.scan = epoch, ReportView(), None
            capture.state = CaptureState.UNINITIALIZED
        capture.proven = self._sent
        news = capture.view.apply(response)
        if news is None:
            return None
        if response.scan is not None:
            capture.scan = response.scan
        is_ending = response.liveness is Liveness.STOPPING
        capture.state = CaptureState.STOPPING if is_ending else CaptureState.INITIALIZED
        return Report(capture.id, news, is_restart)
