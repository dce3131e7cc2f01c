"""The part of a run that the applying thread owns: the roles' work. And how reads are handed to it.

reading thread ──put──► one read at most ──take──► applying thread: every role takes it, and
                                                   does what can be done now
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from coordination.failpoint import Failpoint, failpoint
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Limits
from streaming.stream.backlog_watch import BacklogWatch
from streaming.stream.read import Read
from streaming.stream.role import StreamContext, StreamRole

logger = logging.getLogger(__name__)

HELD_WAIT_S = 0.2  # between two looks at a table that could not be committed
REST_S = 1.0  # between two looks when nothing wakes it; then a target-ts may be reached
PUT_WAIT_S = 0.1


class Handover:
    """The values that the threads of a run share: a read that waits, wake-ups, and the end.
    Thread-safe."""

    def __init__(self) -> None:
        self._reads: queue.Queue[Read] = queue.Queue(1)
        self._work = threading.Event()  # for the applying thread
        self._news = threading.Event()  # for the reading thread
        self.stopping = threading.Event()

    def put(self, read: Read, waiting: Callable[[], None]) -> None:
        """Hand a read over; until the read before is taken ``waiting`` is called again and again.
        If the run ends meanwhile, the read is dropped."""
        while not self.stopping.is_set():
            waiting()
            with suppress(queue.Full):
                self._reads.put(read, timeout=PUT_WAIT_S)
                self._work.set()
                return

    def take(self, wait_s: float) -> Read | None:
        """The read that waits, or None after ``wait_s`` or a wake-up."""
        self._work.wait(wait_s)
        self._work.clear()
        with suppress(queue.Empty):
            return self._reads.get_nowait()
        return None

    def look_again(self) -> None:
        """After a `take`: there may be a read already, whose wake-up was cleared."""
        if not self._reads.empty():
            self._work.set()

    def pause(self, wait_s: float) -> None:
        """A pause of the reading thread."""
        self._news.wait(wait_s)
        self._news.clear()

    def wake(self) -> None:
        self._work.set()
        self._news.set()


class Applying:
    """For the applying thread; ``position``, ``watermarks`` and ``owner`` may be read by any."""

    def __init__(
        self,
        context: StreamContext,
        *,
        roles: Callable[[], tuple[StreamRole, ...]],
        busy: threading.Lock,
        backlog: BacklogWatch,
        position: Positions,
        watermarks: Limits,
    ) -> None:
        """``busy`` is held while roles are at work. ``position``: how far the roles have taken the
        reads."""
        self._context = context
        self._roles = roles
        self._busy = busy
        self._backlog = backlog
        self.position: Positions = dict(position)
        self.watermarks = watermarks
        self.owner: object | None = None  # see `Read`; of the last one
        self.step = context.watch(f"applying of {context.name}")

    def run(self, handover: Handover, fail: Callable[[BaseException], None]) -> None:
        while not handover.stopping.is_set():
            is_held = any(each.is_held for each in self._roles())
            read = handover.take(HELD_WAIT_S if is_held else REST_S)
            with self._busy:
                if handover.stopping.is_set():
                    return
                try:
                    with self.step:
                        self._give(read)
                except BaseException as error:  # noqa: BLE001 - every role gets it
                    fail(error)
            handover.look_again()

    def _give(self, read: Read | None) -> None:
        begun_s = time.monotonic()
        roles = self._roles()
        if read is not None:
            self._backlog.batch_begins()
            self.position, self.watermarks = read.position, read.watermarks
            self.owner = read.owner
        for role in roles:
            try:
                if read is not None:
                    role.take(read)
                role.apply_due()
            except BaseException as error:  # noqa: BLE001 - the role's own
                role.failed(error)
        if read is not None:
            failpoint(Failpoint.BATCH_END)
            self._backlog.batch_ends(read.position)
            logger.debug(
                "cycle name=%s messages=%d ends_ms=%.1f job_ms=%.1f apply_ms=%.1f",
                self._context.name,
                read.messages,
                read.ends_ms,
                read.job_ms,
                (time.monotonic() - begun_s) * 1e3,
            )
