"""What is to be sent to one capture, until that capture says that it has it.

    offer ──► waiting ──batch──► under way, numbered ──answered──► gone
                 │                    ▲        │
      over the limit: the oldest      └────────┘ failed, or not all has arrived: the same numbers
      heartbeats first, then the rest            again, after a pause that doubles

Only what has no number yet is dropped, so numbers have no gaps and the receiver can keep the order.
Everything that is dropped here is sent again by the layers above, when they still want it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from coordination.scheduler.envelope import Frame

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """TiCDC's ``[debug.messages]`` where it has such a limit. An outbox is one peer's."""

    client_max_batch_count: int = 1024
    # TiCDC: 64 MB. A batch is held, and sent again as a whole, for every peer that is away.
    client_max_batch_bytes: int = 8 * MIB
    client_max_outbox_count: int = 8192
    client_max_outbox_bytes: int = 32 * MIB
    client_retry_min_s: float = 0.05
    client_retry_max_s: float = 1.0  # client-retry-rate-limit
    max_recv_msg_bytes: int = 256 * MIB
    server_max_pending_message_count: int = 102_400
    server_max_pending_bytes: int = 256 * MIB
    forget_s: float = 30.0  # peers without an address, and outboxes without messages


DEFAULT_LIMITS: Final = TransportLimits()


@dataclass(frozen=True, slots=True)
class _Waiting:
    data: bytes
    is_heartbeat: bool


class Outbox:
    """See the module's picture. At most one batch is under way; one thread."""

    def __init__(self, session: int, limits: TransportLimits, now_s: float) -> None:
        self.session = session
        self.is_under_way = False
        self.dropped = 0
        self.used_s = now_s  # when something was last offered
        self.unresolved_since_s: float | None = None
        self._limits = limits
        # by the order in which they were offered; a dict is slow at giving its first key
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        self._heartbeats: deque[int] = deque()  # keys of `_waiting`
        self._numbered: deque[Frame] = deque()
        self._offered = 0
        self._last_number = 0
        self._bytes = self._numbered_bytes = 0
        self._retry_at_s = now_s
        self._pause_s = limits.client_retry_min_s

    def __len__(self) -> int:
        return len(self._waiting) + len(self._numbered)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def offer(self, data: bytes, *, is_heartbeat: bool, now_s: float) -> None:
        self.used_s = now_s
        self._offered += 1
        self._waiting[self._offered] = _Waiting(data, is_heartbeat)
        if is_heartbeat:
            self._heartbeats.append(self._offered)
        self._bytes += len(data)
        while self._waiting and self._is_over:
            oldest = self._heartbeats[0] if self._heartbeats else next(iter(self._waiting))
            self._bytes -= len(self._take(oldest))
            self.dropped += 1

    @property
    def due_s(self) -> float | None:
        """From when on `batch` gives one; None while one is under way, or nothing is here."""
        return None if self.is_under_way or not len(self) else self._retry_at_s

    def batch(self, now_s: float) -> tuple[Frame, ...]:
        """What is to be sent now, which is under way then; empty if nothing is due."""
        if self.due_s is None or now_s < self.due_s:
            return ()
        while self._waiting:
            key = next(iter(self._waiting))
            if self._numbered and not self._fits(self._waiting[key]):
                break
            data = self._take(key)
            self._last_number += 1
            self._numbered.append(Frame(self._last_number, data))
            self._numbered_bytes += len(data)
        self.is_under_way = True
        return tuple(self._numbered)

    def answered(self, received: int, now_s: float) -> None:
        """All numbers up to ``received`` have arrived; none new is a reason to wait."""
        before = len(self._numbered)
        while self._numbered and self._numbered[0].number <= received:
            size = len(self._numbered.popleft().data)
            self._bytes -= size
            self._numbered_bytes -= size
        if len(self._numbered) == before:
            return self.failed(now_s)
        self.is_under_way = False
        self._retry_at_s = now_s
        self._pause_s = self._limits.client_retry_min_s
        return None

    def failed(self, now_s: float) -> None:
        """What was under way has perhaps arrived: it is sent again after a pause."""
        self.is_under_way = False
        self._retry_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._limits.client_retry_max_s)

    def clear(self, session: int, now_s: float) -> None:
        """The peer is not who these messages were for: drop them, begin another session."""
        self.dropped += len(self)
        self._waiting.clear()
        self._heartbeats.clear()
        self._numbered.clear()
        self._last_number = self._bytes = self._numbered_bytes = 0
        self.session = session
        self.failed(now_s)

    @property
    def _is_over(self) -> bool:
        limits = self._limits
        return (
            len(self) > limits.client_max_outbox_count
            or self._bytes > limits.client_max_outbox_bytes
        )

    def _fits(self, waiting: _Waiting) -> bool:
        size = self._numbered_bytes + len(waiting.data)
        return (
            len(self._numbered) < self._limits.client_max_batch_count
            and size <= self._limits.client_max_batch_bytes
        )

    def _take(self, key: int) -> bytes:
        waiting = self._waiting.pop(key)
        if waiting.is_heartbeat:
            assert self._heartbeats[0] == key
            self._heartbeats.popleft()
        return waiting.data
