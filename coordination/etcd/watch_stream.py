"""A watch that opens a new stream when its stream breaks, is silent, or has lost history.

connecting ──created──► following ──compacted──► connecting, from the compact revision
    ▲                      │
    └── stream broke, or nothing received for `silence_s` ───┘ from the last revision seen

After each new stream the watch delivers a batch with `missed`: the etcd that answers now may have
been restored from a backup, and then its revisions mean something else.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import grpc

from coordination.etcd.client import WatchBatch, WatchEvent
from coordination.etcd.whole_revisions import WholeRevisions
from coordination.model import Revision

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S: Final = 3.0  # how often an idle watch asks etcd for progress
WAITING_S: Final = 0.05  # ... and how often a watch does that holds events back
RECONNECT_S: Final = 0.5


class WatchSource(Protocol):
    """What a watch asks of the client that opened it. Requests and replies are etcd's messages."""

    endpoint: int  # the number of the one that calls go to now

    def open_watch(self, requests: Iterator[Any], endpoint: int) -> Any: ...

    def watch_create(self, key: str, prefix: bool, start_revision: Revision) -> Any: ...

    def watch_progress(self) -> Any: ...

    def watch_event(self, event: Any) -> WatchEvent: ...

    def forget_watch(self, watch: FollowedWatch) -> None: ...

    def leave_endpoint(self, endpoint: int) -> None: ...


class FollowedWatch:
    """A watch of one key or several: a thread reads its stream, and opens a new one when the stream
    breaks or is silent."""

    def __init__(
        self,
        source: WatchSource,
        keys: Sequence[str],
        callback: Callable[[WatchBatch], None],
        *,
        prefix: bool,
        start_revision: Revision,
        silence_s: float,
    ) -> None:
        self._source = source
        self._keys = keys
        self._key = ",".join(keys)  # for the log
        self._moments = WholeRevisions(len(keys))
        self._prefix = prefix
        self._callback = callback
        # The next stream begins here. Only events raise it: progress may run ahead of events.
        self._next_revision = start_revision
        self._silence_s = silence_s
        self._cancelled = threading.Event()
        self._stream: Any = None
        self._is_remade = False
        self._thread = threading.Thread(
            target=self._run, name=f"etcd-watch {self._key}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        self._cancelled.set()
        self._source.forget_watch(self)
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def _run(self) -> None:
        while not self._cancelled.is_set():
            pulse, self._stream = _StreamPulse(), None
            endpoint = self._source.endpoint
            self._moments = WholeRevisions(len(self._keys))
            try:
                self._stream = self._source.open_watch(self._requests(pulse), endpoint)
                if self._cancelled.is_set():  # it was cancelled while the stream was being opened
                    return
                for reply in self._stream:
                    pulse.beat()
                    if not self._receive(reply):
                        break
                    if self._moments.is_waiting:
                        pulse.orders.put(_ASK)
            except grpc.RpcError as error:
                if not self._cancelled.is_set():
                    logger.info("watch broke, made again key=%s code=%s", self._key, error.code())
                    self._source.leave_endpoint(endpoint)
            except ValueError:  # grpc: the channel was closed
                return
            finally:
                pulse.orders.put(_END)
                self._is_remade = True
                if self._stream is not None:
                    self._stream.cancel()
            self._cancelled.wait(RECONNECT_S)

    def _receive(self, reply: Any) -> bool:
        """Handle one reply of the stream; returns whether to go on reading it."""
        if self._cancelled.is_set():
            return False
        revision = Revision(reply.header.revision)
        if reply.compact_revision:
            logger.info("watch lost history key=%s compacted=%s", self._key, reply.compact_revision)
            self._next_revision = Revision(max(reply.compact_revision, self._next_revision))
            self._deliver(WatchBatch(missed=True))
            return False
        if reply.canceled:
            logger.info("watch was cancelled by etcd key=%s: %s", self._key, reply.cancel_reason)
            return False
        if reply.created:
            self._next_revision = self._next_revision or Revision(revision + 1)
            self._moments.created(reply.watch_id, Revision(self._next_revision - 1))
            if self._is_remade:
                self._deliver(WatchBatch(missed=True))
        elif reply.events:
            new = [self._source.watch_event(event) for event in reply.events]
            if not self._moments.add(reply.watch_id, new):
                logger.info("etcd told a moment in two, read again key=%s", self._key)
                self._deliver(WatchBatch(missed=True))
        else:
            self._moments.progress(reply.watch_id, revision)
        if events := self._moments.take():
            self._next_revision = Revision(events[-1].kv.mod_revision + 1)
            self._deliver(WatchBatch(events=events))
        return True

    def _deliver(self, batch: WatchBatch) -> None:
        try:
            self._callback(batch)
        except Exception:  # the watch must go on
            logger.exception("a callback of a watch failed key=%s", self._key)

    def _requests(self, pulse: _StreamPulse) -> Iterator[Any]:
        """The requests of one stream. gRPC runs this in a thread of its own, so that it notices
        the silence of a stream while the watch's thread waits for a reply."""
        for key in self._keys:
            yield self._source.watch_create(key, self._prefix, self._next_revision)
        idle_s = min(PROGRESS_INTERVAL_S, self._silence_s / 3)
        while pulse.order(WAITING_S if self._moments.is_waiting else idle_s) is not _END:
            if pulse.silent_s() > self._silence_s and self._stream is not None:
                logger.info("watch is silent, made again key=%s", self._key)
                self._stream.cancel()
                return
            if pulse.has_begun:
                yield self._source.watch_progress()


_ASK: Final = "ask for progress"
_END: Final = "end"


class _StreamPulse:
    """When the last reply of a stream came, and orders for the thread that sends its requests."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.has_begun = False
        self._at = time.monotonic()

    def order(self, wait_s: float) -> str:
        try:
            return self.orders.get(timeout=wait_s)
        except queue.Empty:
            return _ASK

    def beat(self) -> None:
        self.has_begun = True
        self._at = time.monotonic()

    def silent_s(self) -> float:
        return time.monotonic() - self._at
