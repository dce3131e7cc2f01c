"""A bad line in front of a capture's gRPC port: it loses messages by a seeded dice, and can be cut.

    capture a ──► the proxy of b (what b advertises) ──► capture b

It reads the batches and takes single messages out of them, and keeps some answers to itself after
the batch was delivered. Calls to the owner pass unharmed. One proxy in front of each capture, and
the pair (a, b) is cut by cutting a at the proxy of b, and b at that of a.
"""

from __future__ import annotations

from coordination.etcd import grpc_environment  # noqa: F401 - before anything imports grpc

# isort: split

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc

from conf.settings import TransportSettings
from coordination.transport.grpc_calls import (
    CALL,
    DELIVER,
    NO_TLS,
    generic_handlers,
    listen,
    open_channel,
)
from coordination.transport.transport import Batch, dump_batch, load_batch

WORKERS = 16


class MessageProxy:
    """`start` gives the address to advertise; ``target`` need not listen yet."""

    def __init__(
        self,
        target: str,
        *,
        addr: str = "127.0.0.1:0",
        loss: float = 0.2,
        answer_loss: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.target = target
        self.loss = loss  # of each message; may be changed
        self.answer_loss = answer_loss
        self.forwarded = 0
        self.lost = 0
        self.refused = 0  # batches on a cut line
        self.address = ""
        self._addr = addr
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._cut: set[str] = set()
        self._channel: grpc.Channel | None = None
        self._server: grpc.Server | None = None
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="message-proxy")

    def start(self) -> str:
        self._channel = open_channel(self.target, NO_TLS)
        self._server = grpc.server(
            self._workers, handlers=generic_handlers({DELIVER: self._deliver, CALL: self._call})
        )
        self.address = listen(self._server, TransportSettings(addr=self._addr))
        self._server.start()
        return self.address

    def cut(self, sender: str) -> None:
        """Nothing of this sender passes: its capture ID, or the address that it advertises."""
        with self._lock:
            self._cut.add(sender)

    def heal(self, sender: str | None = None) -> None:
        with self._lock:
            self._cut = set() if sender is None else self._cut - {sender}

    def close(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
        if self._channel is not None:
            self._channel.close()
        self._workers.shutdown()

    def __enter__(self) -> MessageProxy:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _deliver(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        batch = load_batch(request)
        with self._lock:
            is_cut = bool(self._cut & {batch.sender, batch.address})
            self.refused += is_cut
            kept = self._without_lost(batch)
            is_answered = self._dice.random() >= self.answer_loss
        if is_cut:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the line is cut")
        answer = self._forward(DELIVER, dump_batch(kept), context)
        if not is_answered:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        return answer

    def _without_lost(self, batch: Batch) -> Batch:
        kept = tuple(each for each in batch.messages if self._dice.random() >= self.loss)
        self.lost += len(batch.messages) - len(kept)
        self.forwarded += len(kept)
        return replace(batch, messages=kept)

    def _call(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return self._forward(CALL, request, context)

    def _forward(self, path: str, data: bytes, context: grpc.ServicerContext) -> bytes:
        assert self._channel is not None
        try:
            return self._channel.unary_unary(path)(data, timeout=context.time_remaining())
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise AssertionError("abort raises") from error
