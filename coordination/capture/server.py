"""A capture that serves whatever changefeeds the cluster has: the core of `tidelake server`.

    WAITING ──grant a lease, a new ID──► SERVING ──stop asked: resign, drain──► ENDING ──► STOPPED
       ▲                                    │  session lost, guard lost            │
       └── all closed, lease revoked ◄──────┴───────── suicide: drop ──────────────┘

`run_once` is one pass and blocks only for calls to etcd: session, registration, election, messages
in, processor, owner, messages out. The thread that calls it (in `run`, or in the simulation) is the
coordination thread. All roles share one trust: the fence opens when the lease is granted, each
renewal extends it, and a lost session shuts it at once, on the session's own thread. The fence is
not the only check on writes: spans have their fences, owners their terms. A call that etcd does not
answer is made again; at most it ends this capture, not the process.

Closing has deadlines. A loop that hangs stops the keep-alive (`watchdog.py`), which ends the
capture. An orderly end that takes too long becomes a suicide. A suicide after which something still
hangs ends the process, which its supervisor starts again. If the coordination loop itself hangs,
`end_with` ends the process. No capture begins while something hangs."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from typing import Final

from coordination.capture.capture import Capture
from coordination.capture.context import CaptureContext
from coordination.capture.owner.operator_jobs import OwnerJobs
from coordination.capture.reset_limit import ResetLimit
from coordination.errors import TidelakeError
from coordination.metadata.errors import MetadataError
from coordination.model import CaptureID, LeaseID
from coordination.trust.clock import Clock
from coordination.trust.watchdog import end_with

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5  # after a call that etcd did not answer
CLOSING_S: Final = 0.1  # between two passes while the capture closes
DRAIN_S: Final = 30.0  # how long a stopping capture waits for others to take its tables
STOP_S: Final = 60.0  # how long its own work may then take to end
STOP_AFTER_SUICIDE_S: Final = 10.0  # the same after a suicide: its work does not count any more


class Phase(StrEnum):
    WAITING = "waiting"
    SERVING = "serving"
    ENDING = "ending"
    STOPPED = "stopped"


class CaptureServer:
    """See the module's picture. `request_stop` and the jobs may be used from any thread."""

    def __init__(
        self,
        context: CaptureContext,
        *,
        reset_limit: ResetLimit | None = None,
        drain_s: float = DRAIN_S,
        on_reset: Callable[[Capture], None] = lambda _capture: None,
        on_pass: Callable[[Capture], None] = lambda _capture: None,
    ) -> None:
        """`on_reset` is called with each new capture, for log lines; `on_pass` with the capture
        after each of its passes. Both on the coordination thread."""
        self.phase = Phase.WAITING
        self.capture: Capture | None = None
        self.jobs = OwnerJobs(context.woken.set)
        self.is_stopping = False  # a stop was asked for
        self._context = context
        self._clock: Clock = context.clock
        self._woken = context.woken
        self._reset_limit = reset_limit or ResetLimit()
        self._drain_s = drain_s
        self._drain_until: float | None = None
        self._on_reset = on_reset
        self._on_pass = on_pass
        self._is_silent = False  # no session could be begun; logged already
        self._begin_at: float | None = None  # None: the reset limit has not been asked yet
        self._ends_since = float("-inf")
        self._is_dropped = False  # whether the capture that closes ended by suicide
        self._loop = context.watchdog.watch(
            "the coordination loop", context.session.answer_timeout_s
        )
        self._recalls: queue.SimpleQueue[tuple[CaptureID, Future[bool]]] = queue.SimpleQueue()
        self._unrevoked: list[LeaseID] = []  # of sessions that ended while etcd was away

    def request_stop(self) -> None:
        """Ask to end: resign, hand over, close. Returns at once; any thread and signal handlers."""
        self.is_stopping = True
        self._woken.set()

    def serve_again(self, capture_id: CaptureID) -> Future[bool]:
        """Take a drain back. The result says whether this capture was being drained; it fails with
        ``MetadataError`` if the capture is stopping or has another ID. Any thread."""
        future: Future[bool] = Future()
        self._recalls.put((capture_id, future))
        self._woken.set()
        return future

    def address_of(self, capture_id: CaptureID) -> str | None:
        """The address of another capture, as last seen in etcd, or None. Any thread; does not
        block."""
        capture = self.capture
        info = capture.captures.get(capture_id) if capture is not None else None
        return info.address if info is not None else None

    def wake(self) -> None:
        """Have the next pass begin at once. Any thread."""
        self._woken.set()

    def run(self) -> None:
        """Run passes until stopped; blocks. Raises TidelakeError if something hangs and the process
        has to end because of it. If this loop itself hangs, a watchdog thread ends the process."""
        is_over = threading.Event()
        threading.Thread(
            target=end_with,
            args=(self._loop, self._gives_up_after_s, is_over),
            name="loop-watchdog",
            daemon=True,
        ).start()
        try:
            while True:
                self._woken.clear()
                with self._loop:
                    wait_s = self.run_once()
                if wait_s is None:
                    return
                self._clock.wait(self._woken, wait_s)
        finally:
            is_over.set()

    def _gives_up_after_s(self) -> float:
        """How many seconds a capture may take to close after its suicide, before the process
        ends."""
        limit_s = self._context.session.stall_timeout_s
        return min(STOP_AFTER_SUICIDE_S, limit_s) if self.is_stopping else limit_s

    def run_once(self) -> float | None:
        """One pass; returns in how many seconds the next one is due, unless `wake` comes first.
        None: stopped."""
        self._answer_recalls()
        match self.phase:
            case Phase.WAITING:
                return self._begin()
            case Phase.SERVING:
                return self._serve()
            case Phase.ENDING:
                return self._end()
            case Phase.STOPPED:
                return None

    def _answer_recalls(self) -> None:
        while not self._recalls.empty():
            capture_id, future = self._recalls.get()
            if not future.set_running_or_notify_cancel():
                continue
            capture = self.capture if self.phase is Phase.SERVING else None
            if self.is_stopping:
                refusal = "it was asked to stop, and ends: start another one"
            elif capture is None or capture.id != capture_id:
                refusal = (
                    f"it is another one by now ({capture.id if capture else 'without a session'})"
                )
            else:
                future.set_result(capture.serve_again())
                continue
            future.set_exception(MetadataError(f"capture {capture_id} cannot serve: {refusal}"))

    def _begin(self) -> float | None:
        self.jobs.carry_out(None)
        now = self._clock.monotonic()
        if self.is_stopping:
            self.phase = Phase.STOPPED
            return None
        if self._begin_at is None:
            self._begin_at = now + self._reset_limit.take(now)
        if now < self._begin_at:
            return self._begin_at - now
        problem = self._context.watchdog.overdue() or self._open()
        if problem:
            level = logging.DEBUG if self._is_silent else logging.WARNING  # once in an outage
            logger.log(level, "no session, and tries again every half a second: %s", problem)
            self._is_silent = True
            self._begin_at = now + RETRY_S
            return RETRY_S
        self._begin_at = None
        self._is_silent = False
        self.phase = Phase.SERVING
        return 0.0

    def _open(self) -> str:
        """Begin a capture with a session; returns why that failed, or an empty text."""
        try:
            while self._unrevoked:  # else the election keys of its last sessions would come first
                self._context.client.revoke(self._unrevoked[-1])
                self._unrevoked.pop()
            self.capture = capture = Capture.begin(self._context, self.jobs)
        except TidelakeError as error:
            return str(error)
        self._on_reset(capture)
        logger.info("capture starts capture_id=%s epoch=%s", capture.id, capture.epoch)
        return ""

    def _serve(self) -> float:
        capture = self.capture
        assert capture is not None
        try:
            wait_s = capture.run_once()
            self._on_pass(capture)
        except TidelakeError as error:
            logger.warning("capture dies by suicide capture_id=%s: %s", capture.id, error)
            return self._leave(capture, drop=True, reason=str(error))
        except Exception as error:
            logger.exception("capture failed, it starts again capture_id=%s", capture.id)
            return self._leave(capture, drop=True, reason=repr(error))
        if self.is_stopping:  # leaves when all is handed over, or others take too long
            now = self._clock.monotonic()
            is_first = self._drain_until is None
            self._drain_until = self._drain_until or now + self._drain_s
            capture.stop()
            if is_first and not capture.is_drained:
                logger.info(
                    "stops: waits for up to %.0f s until others have taken its tables "
                    "capture_id=%s",
                    *(self._drain_s, capture.id),
                )
            if capture.is_drained or now >= self._drain_until:
                return self._leave(capture, drop=False, reason="this capture has stopped")
        return wait_s

    def _leave(self, capture: Capture, *, drop: bool, reason: str) -> float:
        if drop:  # the lease must end even if something of the capture hangs
            self._context.fence.shut(reason)
            capture.session.update(loss=reason)
        capture.close(drop=drop)
        self.phase = Phase.ENDING
        self._ends_since, self._is_dropped = self._clock.monotonic(), drop
        return 0.0

    def _end(self) -> float | None:
        capture = self.capture
        assert capture is not None
        self.jobs.carry_out(None)
        if not capture.is_closed:
            capture.session.renew_when_due()  # an orderly end still commits
            self._hurry(capture)
            return CLOSING_S
        self._context.fence.shut("this capture has stopped")
        if not capture.session.close():
            self._unrevoked.append(capture.session.lease)
        logger.info("capture is released capture_id=%s", capture.id)
        self.capture = None
        self.phase = Phase.STOPPED if self.is_stopping else Phase.WAITING
        return None if self.phase is Phase.STOPPED else 0.0

    def _hurry(self, capture: Capture) -> None:
        """Turn an orderly end that takes too long into a suicide. Raises TidelakeError if the end
        after a suicide takes too long as well."""
        limit_s = self._gives_up_after_s()
        if self.is_stopping and not self._is_dropped:
            limit_s = min(STOP_S, self._context.session.stall_timeout_s)
        is_late = self._clock.monotonic() - self._ends_since > limit_s
        if self._is_dropped and is_late:
            raise TidelakeError(
                f"work of capture {capture.id} hangs: it has not ended {limit_s:g} s after the "
                "capture's suicide, so the process ends. Start it again: it goes on where the "
                "tables are"
            )
        if not self._is_dropped and (is_late or not capture.session.is_alive):
            reason = capture.session.reason or f"its end takes longer than {limit_s:g} s"
            level = logging.ERROR if is_late else logging.WARNING
            logger.log(level, "capture dies by suicide capture_id=%s: %s", capture.id, reason)
            self._leave(capture, drop=True, reason=reason)
