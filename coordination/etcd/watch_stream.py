"""A watch that outlives its stream: made again when the stream breaks, is silent, or lost history.

connecting ──created──► following ──compacted──► connecting, from the compact revision
    ▲                      │
    └── stream broke, or nothing was heard for `silence_s` ──┘ from the last seen one

One that was made again says `missed`: what answers now may have been restored from a backup, whose
revisions mean something else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import grpc

from coordination.etcd.client import WatchBatch, WatchEvent
from coordination.model import Revision

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S: Final = 1.0  # an idle watch asks etcd how far it is this often (as TiCDC does)
RECONNECT_S: Final = 0.5


class WatchSource(Protocol):
    """The client that opens the streams; it alone knows the messages."""

    def open_watch(self, requests: Iterator[Any]) -> Any: ...

    def watch_create(self, key: str, prefix: bool, start_revision: Revision) -> Any: ...

    def watch_progress(self) -> Any: ...

    def watch_event(self, event: Any) -> WatchEvent: ...

    def forget_watch(self, watch: FollowedWatch) -> None: ...

    def next_endpoint(self) -> None: ...


class FollowedWatch:
    """One watch: a thread that follows a stream, and opens the next when it breaks or is silent."""

    def __init__(
        self,
        source: WatchSource,
        key: str,
        callback: Callable[[WatchBatch], None],
        *,
        prefix: bool,
        start_revision: Revision,
        silence_s: float,
    ) -> None:
        self._source = source
        self._key = key
        self._prefix = prefix
        self._callback = callback
        self._next_revision = start_revision  # only events move it: progress may run ahead of them
        self._silence_s = silence_s
        self._cancelled = threading.Event()
        self._stream: Any = None
        self._is_remade = False
        self._thread = threading.Thread(target=self._run, name=f"etcd-watch {key}", daemon=True)

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
            heard, self._stream = _LastHeard(), None
            try:
                self._stream = self._source.open_watch(self._requests(heard))
                if self._cancelled.is_set():  # while the stream was being opened
                    return
                for reply in self._stream:
                    heard.now()
                    if not self._receive(reply):
                        break
            except grpc.RpcError as error:
                if not self._cancelled.is_set():
                    logger.info("watch broke, made again key=%s code=%s", self._key, error.code())
                    self._source.next_endpoint()
            except ValueError:  # grpc: the channel was closed
                return
            finally:
                heard.finished.set()
                self._is_remade = True
                if self._stream is not None:
                    self._stream.cancel()
            self._cancelled.wait(RECONNECT_S)

    def _receive(self, reply: Any) -> bool:
        """Whether the stream goes on."""
        if self._cancelled.is_set():
            return False
        revision = Revision(reply.header.revision)
        if reply.compact_revision:
            logger.info("watch lost history key=%s compacted=%s", self._key, reply.compact_revision)
            self._next_revision = Revision(max(reply.compact_revision, self._next_revision))
            self._tell(WatchBatch(revision=revision, missed=True))
            return False
        if reply.canceled:
            logger.info("watch was cancelled by etcd key=%s: %s", self._key, reply.cancel_reason)
            return False
        if reply.created and not self._next_revision:
            self._next_revision = Revision(revision + 1)
        if reply.created and self._is_remade:
            self._tell(WatchBatch(revision=revision, missed=True))
        if reply.events:
            events = tuple(self._source.watch_event(event) for event in reply.events)
            self._next_revision = Revision(events[-1].kv.mod_revision + 1)
            self._tell(WatchBatch(revision=revision, events=events))
        return True

    def _tell(self, batch: WatchBatch) -> None:
        try:
            self._callback(batch)
        except Exception:  # the watch must live on
            logger.exception("a callback of a watch failed key=%s", self._key)

    def _requests(self, heard: _LastHeard) -> Iterator[Any]:
        """Run by gRPC in a thread of its own: that is what notices the silence."""
        yield self._source.watch_create(self._key, self._prefix, self._next_revision)
        while not heard.finished.wait(min(PROGRESS_INTERVAL_S, self._silence_s / 3)):
            if heard.ago_s() > self._silence_s and self._stream is not None:
                logger.info("watch is silent, made again key=%s", self._key)
                self._stream.cancel()
                return
            if heard.anything:
                yield self._source.watch_progress()


class _LastHeard:
    def __init__(self) -> None:
        self.finished = threading.Event()
        self.anything = False
        self._at = time.monotonic()

    def now(self) -> None:
        self.anything = True
        self._at = time.monotonic()

    def ago_s(self) -> float:
        return time.monotonic() - self._at
