"""The messages between captures, and operators' requests, over gRPC: one server per capture.

    send ─► queue of the peer ─► Messages/Deliver of the peer ─► its inbox ─► wake ─► receive
    Owner/Call ─► handle

One batch at a time is under way to a peer. Messages that come meanwhile wait until the batch was
answered or has failed. A batch that failed is not sent again (`transport.py` says why that is
enough). Nothing here blocks on a peer; the server's threads decode before they take the lock.
"""

from __future__ import annotations

from coordination.etcd import grpc_environment  # noqa: F401 - before anything imports grpc

# isort: split

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import grpc

from conf.settings import TransportSettings
from coordination.errors import ConfigError
from coordination.model import CaptureID
from coordination.scheduler.messages import MalformedMessage
from coordination.transport.grpc_calls import (
    CALL,
    DELIVER,
    OPTIONS,
    Handle,
    answer_call,
    generic_handlers,
    listen,
    no_calls,
    open_channel,
    reason_of,
)
from coordination.transport.peer_tls import check_own, is_reachable_from_elsewhere
from coordination.transport.transport import (
    MAX_BATCH_BYTES,
    MAX_BATCH_COUNT,
    MAX_INBOX_BYTES,
    MAX_INBOX_COUNT,
    MAX_WAITING_BYTES,
    MAX_WAITING_COUNT,
    MIB,
    Batch,
    PeerMessage,
    dump_answer,
    dump_batch,
    dump_message,
    is_rejected,
    load_batch,
    load_messages,
)

logger = logging.getLogger(__name__)

SERVER_WORKERS: Final = 8  # server-worker-pool-size
MAX_CALLS: Final = 2  # a call blocks a worker until it is done; messages must still find a worker
TIMEOUT_S: Final = 3.0  # of a delivery: below a third of the default lease, as for etcd
BYTES_PER_S: Final = 4 * MIB  # a delivery has 1 s more for each so many bytes
STOP_GRACE_S: Final = 0.2
MAX_REFUSED: Final = 100  # common names that are logged
IDLE_LINE_S: Final = 60.0  # a connection that was not used for so long is closed
Resolve = Callable[[CaptureID], str | None]


@dataclass(slots=True)
class _Line:
    channel: grpc.Channel
    deliver: Any
    used_s: float


@dataclass(slots=True)
class _Peer:
    """The encoded messages that wait to be sent to one capture."""

    waiting: deque[bytes] = field(default_factory=deque)
    size: int = 0  # in bytes
    is_under_way: bool = False  # whether a batch was sent whose answer has not come

    def offer(self, data: bytes) -> None:
        """Add a message; the oldest ones are dropped if there are too many."""
        self.waiting.append(data)
        self.size += len(data)
        while len(self.waiting) > MAX_WAITING_COUNT or self.size > MAX_WAITING_BYTES:
            self.size -= len(self.waiting.popleft())

    def take(self) -> list[bytes]:
        """Take the messages of the next batch; one above the limit is a batch of its own."""
        taken, size = [self.waiting.popleft()], 0
        while self.waiting and len(taken) < MAX_BATCH_COUNT:
            size += len(taken[-1])
            if size + len(self.waiting[0]) > MAX_BATCH_BYTES:
                break
            taken.append(self.waiting.popleft())
        self.size -= sum(map(len, taken))
        return taken


class GrpcTransport:
    """`Transport` between processes. ``resolve`` returns the address of a capture, or None; it is
    called often and on any thread, so it must not block. Without ``handle``, calls are refused."""

    def __init__(
        self,
        settings: TransportSettings,
        *,
        capture_id: CaptureID | None = None,
        resolve: Resolve,
        wake: Callable[[], None],
        handle: Handle = no_calls,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._settings = settings
        self._resolve = resolve
        self._wake = wake
        self._handle = handle
        self._timeout_s = timeout_s
        self._address = ""  # where this capture listens
        self._lock = threading.Lock()  # guards what follows, up to `_refused`
        self._self = capture_id
        self._inbox: list[PeerMessage] = []
        self._inbox_bytes = 0
        self._peers: dict[CaptureID, _Peer] = {}  # those with messages waiting or under way
        self._is_closed = False
        self._away: set[CaptureID] = set()  # peers that do not answer; logged already
        self._lines: dict[str, _Line] = {}  # by address
        self._calls = 0  # that are being handled
        self._refused: set[str] = set()  # common names that were refused; logged already
        self._workers = ThreadPoolExecutor(SERVER_WORKERS, thread_name_prefix="transport-server")
        self._server: grpc.Server | None = None

    def start(self) -> str:
        """Listen; returns the address for ``CaptureInfo``. Raises ConfigError."""
        settings = self._settings
        if is_reachable_from_elsewhere(settings.addr) and not (settings.ca_path and settings.mtls):
            logger.warning(
                "everybody who reaches this capture may move and drain its tables: give ca-path, "
                "cert-path and key-path addr=%s",
                settings.addr,
            )
        self._server = grpc.server(
            self._workers,
            handlers=generic_handlers({DELIVER: self._deliver, CALL: self._call}),
            options=OPTIONS,
        )
        self._address = listen(self._server, self._settings)
        open_channel(self._address, self._settings).close()  # raises if a file cannot be read
        check_own(settings)
        self._server.start()
        return self._address

    def send(self, messages: Sequence[PeerMessage]) -> None:
        has_own = False
        with self._lock:
            if self._is_closed:
                return
            for message in messages:
                if message.sender != self._self:
                    continue
                if message.to != self._self:
                    self._peers.setdefault(message.to, _Peer()).offer(dump_message(message))
                elif self._has_room:
                    self._inbox.append(message)
                    has_own = True
            peers = list(self._peers)
        for peer_id in peers:
            self._send_next(peer_id)
        if has_own:
            self._wake()

    def receive(self) -> list[PeerMessage]:
        with self._lock:
            inbox, self._inbox, self._inbox_bytes = self._inbox, [], 0
            return inbox

    def set_self(self, capture_id: CaptureID) -> None:
        with self._lock:
            self._away.clear()
            if capture_id != self._self:
                self._self = capture_id
                self._peers.clear()
                self._inbox, self._inbox_bytes = [], 0

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        for line in self._lines.values():
            line.channel.close()
        if self._server is not None:
            self._server.stop(STOP_GRACE_S).wait()
        # A call that is being handled may wait for the very thread that closes: do not wait for it.
        self._workers.shutdown(wait=not self._calls, cancel_futures=True)

    @property
    def _has_room(self) -> bool:
        return len(self._inbox) < MAX_INBOX_COUNT and self._inbox_bytes < MAX_INBOX_BYTES

    def _send_next(self, peer_id: CaptureID) -> None:
        """Send the next batch to that peer, unless one is under way. Called on any thread."""
        address = self._address_of(peer_id)
        with self._lock:
            peer = self._peers.get(peer_id)
            if self._is_closed or peer is None or peer.is_under_way:
                return
            if address is None:
                self._away.discard(peer_id)
            if address is None or not peer.waiting:
                del self._peers[peer_id]
                return
            try:
                line = self._line(address)
            except ConfigError as error:  # a file of the certificate is being replaced
                del self._peers[peer_id]
                self._goes_away(peer_id, address, error)
                return
            messages = tuple(peer.take())
            sender = self._self or CaptureID("")
            data = dump_batch(
                Batch(sender=sender, address=self._address, to=peer_id, messages=messages)
            )
            peer.is_under_way = True
            timeout_s = self._timeout_s + len(data) / BYTES_PER_S
            call = line.deliver.future(data, timeout=timeout_s)
        call.add_done_callback(partial(self._done, peer_id, peer, address))

    def _address_of(self, capture_id: CaptureID) -> str | None:
        try:
            return self._resolve(capture_id)
        except Exception:
            logger.exception("cannot look up a capture peer_id=%s", capture_id)
            return None

    def _line(self, address: str) -> _Line:
        now_s = time.monotonic()
        line = self._lines.get(address)
        if line is None:
            for idle in [a for a, ln in self._lines.items() if now_s - ln.used_s > IDLE_LINE_S]:
                self._lines.pop(idle).channel.close()
            channel = open_channel(address, self._settings)
            line = self._lines[address] = _Line(channel, channel.unary_unary(DELIVER), now_s)
        line.used_s = now_s
        return line

    def _done(self, peer_id: CaptureID, peer: _Peer, address: str, call: Any) -> None:
        """Called on a thread of the channel when a batch was answered or has failed."""
        failure: Exception | None = None
        is_elsewhere = False
        try:
            is_elsewhere = is_rejected(call.result())
        except (grpc.RpcError, grpc.FutureCancelledError, MalformedMessage) as error:
            failure = error
        with self._lock:
            peer.is_under_way = False
            was_away = peer_id in self._away
            if failure is not None:
                self._goes_away(peer_id, address, failure)
            else:
                self._away.discard(peer_id)
        if is_elsewhere:
            logger.info(
                "a capture is no longer at its address peer_id=%s address=%s", peer_id, address
            )
        elif was_away and failure is None:
            logger.info("a capture answers again peer_id=%s address=%s", peer_id, address)
        self._send_next(peer_id)

    def _goes_away(self, peer_id: CaptureID, address: str, failure: Exception) -> None:
        """The peer does not answer; told once."""
        if peer_id not in self._away and not self._is_closed:
            if isinstance(failure, grpc.Call):
                reason = reason_of(failure)
            else:
                reason = str(failure) if isinstance(failure, ConfigError) else repr(failure)
            logger.warning(
                "a capture does not answer peer_id=%s address=%s: %s", peer_id, address, reason
            )
        self._away.add(peer_id)

    def _admit(self, context: grpc.ServicerContext, what: str, names: Collection[str]) -> None:
        """Abort unless the caller's certificate has one of these common names."""
        if not self._settings.cert_allowed_cn:
            return  # any certificate is allowed that the CA has signed; without TLS, any caller
        found = context.auth_context().get("x509_common_name", [])
        name = found[0].decode(errors="replace") if found else ""
        if name in names:
            return
        with self._lock:
            is_news = name not in self._refused and len(self._refused) < MAX_REFUSED
            self._refused.add(name)
        if is_news:
            logger.warning(
                "a caller is refused common_name=%r peer=%s: it is not allowed to %s",
                *(name, context.peer(), what),
            )
        reason = f"common name {name!r} of your certificate is not allowed to {what}"
        context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)

    def _deliver(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._admit(context, "send messages", self._settings.cert_allowed_cn)
        try:
            batch = load_batch(request)
        except MalformedMessage as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        messages = load_messages(batch)
        with self._lock:
            if batch.to != self._self:
                return dump_answer(is_rejected=True)
            is_taken = bool(batch.messages) and self._has_room
            if is_taken:
                self._inbox += messages
                self._inbox_bytes += len(request)
        if is_taken:
            self._wake()
        return dump_answer(is_rejected=False)

    def _call(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        allowed = (*self._settings.cert_allowed_cn, *self._settings.operator_allowed_cn)
        self._admit(context, "call captures", allowed)
        with self._lock:
            is_busy = self._calls >= MAX_CALLS
            self._calls += not is_busy
        if is_busy:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "other calls are being handled")
        try:
            return answer_call(self._handle, request)
        finally:
            with self._lock:
                self._calls -= 1
