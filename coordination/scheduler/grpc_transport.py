"""The messages between captures, and the calls from outside, over gRPC: one server per capture.

    send ─► exchange ─► sender thread ─► a channel per address ─► Messages/Deliver of the peer
    Messages/Deliver ─► exchange ─► wake ─► receive
    Owner/Call ─► handle

Requests and replies are bytes that `envelope` and `owner_calls` make: no stubs, no protobuf. The
sender thread never waits for a peer; the server's threads decode before they take the lock.
"""

from __future__ import annotations

from coordination.etcd import grpc_environment  # noqa: F401 - before anything imports grpc

# isort: split

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import grpc

from conf.settings import TransportSettings
from coordination.clock import Clock, SystemClock
from coordination.errors import ConfigError, TryAgain
from coordination.model import CaptureID
from coordination.scheduler.address import check_free
from coordination.scheduler.envelope import dump_answer, load_answer, unpack
from coordination.scheduler.messages import MalformedMessage, Message
from coordination.scheduler.outbox import DEFAULT_LIMITS, MIB, TransportLimits
from coordination.scheduler.owner_calls import (
    CallRefused,
    Handle,
    answer_call,
    dump_call,
    load_reply,
    no_calls,
)
from coordination.scheduler.peer_tls import check_own, is_reachable_from_elsewhere, why_no_answer
from coordination.scheduler.transport import MessageExchange, Parcel, TransportCounts

logger = logging.getLogger(__name__)

MESSAGES_SERVICE: Final = "tidelake.Messages"
OWNER_SERVICE: Final = "tidelake.Owner"
DELIVER: Final = f"/{MESSAGES_SERVICE}/Deliver"
CALL: Final = f"/{OWNER_SERVICE}/Call"
SERVER_WORKERS: Final = 8  # server-worker-pool-size
MAX_CALLS: Final = 2  # calls wait for the coordination thread: messages must still find a worker
TIMEOUT_S: Final = 3.0  # of a delivery: below a third of the default lease, as for etcd
BYTES_PER_S: Final = 4 * MIB  # and so much longer for a large one
STOP_GRACE_S: Final = 0.2
MAX_REFUSED: Final = 100  # common names that are told
IDLE_LINE_S: Final = 60.0
NO_TLS: Final = TransportSettings()
Resolve = Callable[[CaptureID], str | None]


def options(limits: TransportLimits = DEFAULT_LIMITS) -> tuple[tuple[str, int], ...]:
    """Of channels and servers."""
    return (
        ("grpc.max_receive_message_length", limits.max_recv_msg_bytes),
        ("grpc.max_send_message_length", limits.max_recv_msg_bytes),
        # TiCDC: 30 s and 10 s. A line that died without a word must not outlive a session.
        ("grpc.keepalive_time_ms", 6000),
        ("grpc.keepalive_timeout_ms", 3000),
        ("grpc.http2.min_ping_interval_without_data_ms", 3000),  # what the server puts up with
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.enable_http_proxy", 0),
        ("grpc.so_reuseport", 0),  # a second server on a port is an error, not a lottery
        ("grpc.use_local_subchannel_pool", 1),
    )


def open_channel(
    address: str, tls: TransportSettings, limits: TransportLimits = DEFAULT_LIMITS
) -> grpc.Channel:
    """Opened lazily: nothing is sent before the first call."""
    if tls.ca_path is None:
        return grpc.insecure_channel(address, options=options(limits))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_content("ca-path", tls.ca_path),
        private_key=_content("key-path", tls.key_path),
        certificate_chain=_content("cert-path", tls.cert_path),
    )
    return grpc.secure_channel(address, credentials, options=options(limits))


def listen(server: grpc.Server, settings: TransportSettings) -> str:
    """Bind the server; returns where others find it. Raises ConfigError."""
    check_free(settings.addr)
    try:
        if settings.ca_path is None:
            port = server.add_insecure_port(settings.addr)
        else:
            port = server.add_secure_port(settings.addr, _server_credentials(settings))
    except RuntimeError as error:
        raise ConfigError(f"cannot listen at addr {settings.addr!r}: {error}") from None
    host, _, wanted = (settings.advertise_addr or settings.addr).rpartition(":")
    return f"{host}:{int(wanted) or port}"


def _server_credentials(settings: TransportSettings) -> grpc.ServerCredentials:
    key = _content("key-path", settings.key_path)
    if key is None:
        raise ConfigError("ca-path is given: a capture needs cert-path and key-path too")
    return grpc.ssl_server_credentials(
        [(key, _content("cert-path", settings.cert_path))],
        root_certificates=_content("ca-path", settings.ca_path),
        require_client_auth=settings.mtls,
    )


def _content(name: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"cannot read {name} {path!r}: {error.strerror}") from None


def generic_handlers(
    methods: Mapping[str, Callable[[bytes, grpc.ServicerContext], bytes]],
) -> tuple[grpc.GenericRpcHandler, ...]:
    """Of methods by their full path; what comes and goes stays bytes."""
    handlers = []
    for path, method in methods.items():
        _, service, name = path.split("/")
        handler = grpc.unary_unary_rpc_method_handler(method)
        handlers.append(grpc.method_handlers_generic_handler(service, {name: handler}))
    return tuple(handlers)


def call_owner(
    address: str,
    method: str,
    params: Mapping[str, Any],
    *,
    timeout_s: float,
    tls: TransportSettings = NO_TLS,
) -> dict[str, Any]:
    """Ask the capture at ``address``. Raises CallRefused with its sentence, or TryAgain when no
    answer came: the request may have been followed all the same."""
    with open_channel(address, tls) as channel:
        try:
            reply = channel.unary_unary(CALL)(dump_call(method, params), timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                raise CallRefused(f"the capture at {address} refuses: {error.details()}") from None
            reason = _reason(error, address, tls)
            raise TryAgain(f"no answer from the capture at {address}: {reason}") from None
    return load_reply(reply)


def _reason(error: Any, address: str, tls: TransportSettings) -> str:
    """Takes seconds where the other side is there, and does not answer."""
    if error.code() is grpc.StatusCode.PERMISSION_DENIED:
        return f"it refuses: {error.details()}"
    is_away = error.code() is grpc.StatusCode.UNAVAILABLE
    problem = why_no_answer(address, tls) if is_away else None
    return problem or f"{error.code().name.lower()} ({error.details()})"


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
        capture_id: CaptureID | None,
        resolve: Resolve,
        wake: Callable[[], None],
        handle: Handle = no_calls,
        limits: TransportLimits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._resolve = resolve
        self._wake = wake
        self._handle = handle
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._exchange = MessageExchange(capture_id, limits=limits, session=time.time_ns())
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
            options=options(self._limits),
        )
        address = listen(self._server, self._settings)
        open_channel(address, self._settings, self._limits).close()  # are the files all right?
        check_own(settings)
        self._exchange.address = address
        self._server.start()
        self._sender.start()
        return address

    @property
    def counts(self) -> TransportCounts:
        with self._changed:
            return replace(self._exchange.counts)

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
            channel = open_channel(address, self._settings, self._limits)
            line = self._lines[address] = _Line(channel, channel.unary_unary(DELIVER), now_s)
        line.used_s = now_s
        return line

    def _done(self, parcel: Parcel, address: str, under_way: Any) -> None:
        """On a thread of the channel: an answer has come, or none will."""
        now_s = self._clock.monotonic()
        try:
            answer = load_answer(under_way.result())
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
            self._exchange.settle(parcel, answer, now_s)
            self._changed.notify()
            is_back = parcel.to in self._away
            self._away.discard(parcel.to)
        if answer.is_rejected:
            logger.info(
                "a capture is no longer at its address peer_id=%s address=%s", parcel.to, address
            )
        elif is_back:
            logger.info("a capture answers again peer_id=%s address=%s", parcel.to, address)

    def _tell_away(self, peer_id: CaptureID, address: str, error: Exception) -> None:
        is_call = isinstance(error, grpc.Call)
        reason = _reason(error, address, self._settings) if is_call else repr(error)
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
            delivery = unpack(request)
        except MalformedMessage as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        with self._changed:
            received = self._exchange.counts.received
            answer = self._exchange.accept(delivery)
            is_news = self._exchange.counts.received > received
        if is_news:
            self._wake()
        return dump_answer(answer)

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
