"""The messages between captures, and the calls from outside, over gRPC: one server per capture.

    send ─► exchange ─► sender thread ─► a channel per address ─► Messages/Deliver of the peer
    Messages/Deliver ─► exchange ─► wake ─► receive
    Owner/Call ─► handle

The sender thread never waits for a peer; the server's threads decode before they take the lock.
"""

from __future__ import annotations

from coordination.etcd import grpc_environment  # noqa: F401 - before anything imports grpc

# isort: split

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc

from conf.settings import TransportSettings
from coordination.clock import SystemClock
from coordination.model import CaptureID
from coordination.scheduler.grpc_calls import (
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
from coordination.scheduler.messages import MalformedMessage, Message
from coordination.scheduler.peer_tls import check_own, is_reachable_from_elsewhere
from coordination.scheduler.transport import (
    MIB,
    MessageExchange,
    Parcel,
    dump_answer,
    load_answer,
    load_batch,
    load_messages,
)

logger = logging.getLogger(__name__)

SERVER_WORKERS: Final = 8  # server-worker-pool-size
MAX_CALLS: Final = 2  # calls wait for the coordination thread: messages must still find a worker
TIMEOUT_S: Final = 3.0  # of a delivery: below a third of the default lease, as for etcd
BYTES_PER_S: Final = 4 * MIB  # and so much longer for a large one
STOP_GRACE_S: Final = 0.2
MAX_REFUSED: Final = 100  # common names that are told
IDLE_LINE_S: Final = 60.0
Resolve = Callable[[CaptureID], str | None]


@dataclass(slots=True)
class _Line:
    channel: grpc.Channel
    deliver: Any
    used_s: float


class GrpcTransport:
    """`Transport` between processes. ``resolve`` says where a capture listens: called on the sender
    thread, often, so it answers from memory. Without ``handle``, calls are refused."""

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
        self._clock = SystemClock()
        self._timeout_s = timeout_s
        self._exchange = MessageExchange(capture_id, session=time.time_ns())
        self._changed = threading.Condition()  # and the lock of all that follows
        self._is_closed = False
        self._away: set[CaptureID] = set()  # peers of which it was logged that they do not answer
        self._lines: dict[str, _Line] = {}  # by address; the sender thread's own
        self._calls = 0  # that are being handled
        self._refused: set[str] = set()  # common names of which it was logged
        self._workers = ThreadPoolExecutor(SERVER_WORKERS, thread_name_prefix="transport-server")
        self._server: grpc.Server | None = None
        self._sender = threading.Thread(target=self._run, name="transport-sender", daemon=True)

    def start(self) -> str:
        """Listen and begin to send; returns the address for CaptureInfo. Raises ConfigError."""
        settings = self._settings
        if is_reachable_from_elsewhere(settings.addr) and not (settings.ca_path and settings.mtls):
            logger.warning(
                "whoever reaches this capture may move and drain its tables: give ca-path, "
                "cert-path and key-path addr=%s",
                settings.addr,
            )
        self._server = grpc.server(
            self._workers,
            handlers=generic_handlers({DELIVER: self._deliver, CALL: self._call}),
            options=OPTIONS,
        )
        address = listen(self._server, self._settings)
        open_channel(address, self._settings).close()  # are the files all right?
        check_own(settings)
        self._exchange.address = address
        self._server.start()
        self._sender.start()
        return address

    def send(self, messages: Sequence[Message]) -> None:
        with self._changed:
            if self._is_closed:
                return
            has_own = self._exchange.post(messages, self._clock.monotonic())
            self._changed.notify()
        if has_own:
            self._wake()

    def receive(self) -> list[Message]:
        with self._changed:
            return self._exchange.take()

    def set_self(self, capture_id: CaptureID) -> None:
        with self._changed:
            self._exchange.set_self(capture_id)
            self._away.clear()

    def close(self) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify()
        if self._sender.ident is not None:
            self._sender.join()
        for line in self._lines.values():
            line.channel.close()
        if self._server is not None:
            self._server.stop(STOP_GRACE_S).wait()
        # a call may be waiting for the very thread that closes: its worker then ends by itself
        self._workers.shutdown(wait=not self._calls, cancel_futures=True)

    def _run(self) -> None:
        """The sender thread: give what is due to the channels, and wait for more."""
        while True:
            with self._changed:
                if self._is_closed:
                    return
                now_s = self._clock.monotonic()
                parcels = self._exchange.take_due(now_s)
                if not parcels:
                    due_s = self._exchange.next_due_s()
                    self._changed.wait(None if due_s is None else max(0.0, due_s - now_s))
                    continue
            for parcel in parcels:
                self._dispatch(parcel, now_s)

    def _dispatch(self, parcel: Parcel, now_s: float) -> None:
        address = self._address_of(parcel.to)
        if address is None:
            with self._changed:
                self._exchange.fail(parcel, now_s, has_address=False)
                self._away.discard(parcel.to)
            return
        timeout_s = self._timeout_s + len(parcel.data) / BYTES_PER_S
        under_way = self._line(address, now_s).deliver.future(parcel.data, timeout=timeout_s)
        under_way.add_done_callback(partial(self._done, parcel, address))

    def _address_of(self, capture_id: CaptureID) -> str | None:
        try:
            return self._resolve(capture_id)
        except Exception:  # or no message would be sent any more
            logger.exception("cannot look up a capture peer_id=%s", capture_id)
            return None

    def _line(self, address: str, now_s: float) -> _Line:
        line = self._lines.get(address)
        if line is None:
            for idle in [a for a, ln in self._lines.items() if now_s - ln.used_s > IDLE_LINE_S]:
                self._lines.pop(idle).channel.close()
            channel = open_channel(address, self._settings)
            line = self._lines[address] = _Line(channel, channel.unary_unary(DELIVER), now_s)
        line.used_s = now_s
        return line

    def _done(self, parcel: Parcel, address: str, under_way: Any) -> None:
        """On a thread of the channel: an answer has come, or none will."""
        now_s = self._clock.monotonic()
        try:
            received = load_answer(under_way.result())
        except (grpc.RpcError, grpc.FutureCancelledError, MalformedMessage) as error:
            with self._changed:
                self._exchange.fail(parcel, now_s)
                self._changed.notify()
                is_news = not self._is_closed and parcel.to not in self._away
                self._away.add(parcel.to)
            if is_news:
                threading.Thread(
                    target=self._tell_away, args=(parcel.to, address, error), daemon=True
                ).start()
            return
        with self._changed:
            self._exchange.settle(parcel, received, now_s)
            self._changed.notify()
            is_back = parcel.to in self._away
            self._away.discard(parcel.to)
        if received is None:
            logger.info(
                "a capture is no longer at its address peer_id=%s address=%s", parcel.to, address
            )
        elif is_back:
            logger.info("a capture answers again peer_id=%s address=%s", parcel.to, address)

    def _tell_away(self, peer_id: CaptureID, address: str, error: Exception) -> None:
        is_call = isinstance(error, grpc.Call)
        reason = reason_of(error, address, self._settings) if is_call else repr(error)
        logger.warning(
            "a capture does not answer peer_id=%s address=%s: %s", peer_id, address, reason
        )

    def _admit(self, context: grpc.ServicerContext, what: str, names: Collection[str]) -> None:
        """Abort unless the caller's certificate has one of these common names."""
        if not self._settings.cert_allowed_cn:
            return  # whatever the CA has signed, where there is one
        found = context.auth_context().get("x509_common_name", [])
        name = found[0].decode(errors="replace") if found else ""
        if name in names:
            return
        with self._changed:
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
        with self._changed:
            received = self._exchange.accept(batch, messages)
            is_news = bool(self._exchange.inbox)
        if is_news:
            self._wake()
        return dump_answer(received)

    def _call(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        allowed = (*self._settings.cert_allowed_cn, *self._settings.operator_allowed_cn)
        self._admit(context, "call captures", allowed)
        with self._changed:
            is_busy = self._calls >= MAX_CALLS
            self._calls += not is_busy
        if is_busy:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "other calls are being handled")
        try:
            return answer_call(self._handle, request)
        finally:
            with self._changed:
                self._calls -= 1
