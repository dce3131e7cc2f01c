"""A replication that only writes down what its capture asks of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from coordination.fence import Fence
from coordination.model import Ownership

PATIENCE_S = 15.0


class FakeReplication:
    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.owners: list[Ownership] = []
        self.stops: list[bool] = []  # drop, of each stop
        self.shut: list[str] = []
        self.refuse: BaseException | None = None  # raised by the next start
        self.on_start: Callable[[], None] = lambda: None  # after it runs, before start returns
        self.on_stop: Callable[[], None] = lambda: None
        self.is_running = False
        self._ended: Callable[[BaseException | None], None] | None = None
        self._changed = threading.Condition()
        fence.on_shut(self._was_shut)

    def start(self, ownership: Ownership, ended: Callable[[BaseException | None], None]) -> None:
        refused, self.refuse = self.refuse, None
        if refused is not None:
            raise refused
        assert self.fence.check() == ownership
        assert not self.is_running
        with self._changed:
            self._ended = ended
            self.is_running = True
            self.owners.append(ownership)
            self._changed.notify_all()
        self.on_start()

    def stop(self, *, drop: bool) -> None:
        self.on_stop()
        with self._changed:
            self.is_running = False
            self.stops.append(drop)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        assert self._ended is not None
        self._ended(error)

    def await_owner(self, number: int = 1, timeout_s: float = PATIENCE_S) -> Ownership:
        """The so-many-th ownership under which it was started."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.owners) >= number, timeout_s)
        return self.owners[number - 1]

    def await_stop(self, number: int = 1, timeout_s: float = PATIENCE_S) -> bool:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.stops) >= number, timeout_s)
        return self.stops[number - 1]

    def await_shut(self, number: int = 1, timeout_s: float = PATIENCE_S) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.shut) >= number, timeout_s)
        return self.shut[number - 1]

    def _was_shut(self, reason: str) -> None:
        with self._changed:
            self.shut.append(reason)
            self._changed.notify_all()
