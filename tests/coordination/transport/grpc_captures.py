"""Transports of this process that find each other by capture ID, and what they say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from conf.settings import TransportSettings
from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, Ts
from coordination.scheduler.messages import (
    AddTable,
    Body,
    Checkpoint,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    Span,
)
from coordination.scheduler.table_status import Statuses, TableState, TableStatus
from coordination.transport.grpc_transport import GrpcTransport
from coordination.transport.transport import PeerMessage
from tests.services.message_proxy import MessageProxy

FREE = "127.0.0.1:0"
A, B, C = CaptureID("capture-a"), CaptureID("capture-b"), CaptureID("capture-c")


def message(sender: str, to: str, body: Body) -> Message:
    return Message(
        version="1.0.0",
        launch=5,
        processor_epoch=ProcessorEpoch("epoch"),
        changefeed_epoch=7,
        sender=CaptureID(sender),
        to=CaptureID(to),
        changefeed_id=ChangefeedID("shop"),
        body=body,
    )


def dispatch(number: int, sender: str = A, to: str = B) -> Message:
    """Told apart by its fence."""
    span = Span(1, "shop", "orders")
    checkpoint = Checkpoint(Ts(1), Ts(1))
    return message(
        sender,
        to,
        AddTable(span=span, is_secondary=False, checkpoint=checkpoint, fence=number),
    )


def heartbeat(number: int, sender: str = A, to: str = B) -> Message:
    return message(sender, to, Heartbeat(seen=number))


def big_response(spans: int, sender: str = A, to: str = B) -> Message:
    statuses = Statuses.of(
        TableStatus(table_id, TableState.REPLICATING, Ts(450_000_000_000_000_000 + table_id))
        for table_id in range(spans)
    )
    return message(
        sender,
        to,
        HeartbeatResponse(
            statuses=statuses, liveness=Liveness.ALIVE, sequence=1, since=0, checksum=0
        ),
    )


def numbers(messages: list[PeerMessage]) -> list[int]:
    found = []
    for each in messages:
        match each.body:
            case AddTable(fence=number) | Heartbeat(seen=number):
                found.append(number)
            case _:
                raise AssertionError(each)
    return found


class GrpcCaptures:
    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self._listening: dict[int, str] = {}
        self._woken: dict[int, threading.Event] = {}
        self._opened: list[GrpcTransport | MessageProxy] = []

    def start(
        self,
        capture_id: CaptureID,
        *,
        at: str | None = None,
        settings: TransportSettings | None = None,
        timeout_s: float = 1.0,
        **more: Any,
    ) -> GrpcTransport:
        woken = threading.Event()
        transport = GrpcTransport(
            settings or TransportSettings(addr=at or FREE),
            capture_id=capture_id,
            resolve=lambda capture_id: self.addresses.get(capture_id),
            wake=woken.set,
            timeout_s=timeout_s,
            **more,
        )
        self._opened.append(transport)
        self._listening[id(transport)] = address = transport.start()
        self.addresses[capture_id] = address
        self._woken[id(transport)] = woken
        return transport

    def proxy(self, target: str, **chances: float) -> MessageProxy:
        proxy = MessageProxy(target, seed=len(self._opened), **chances)  # type: ignore[arg-type]
        self._opened.append(proxy)
        proxy.start()
        return proxy

    def address(self, transport: GrpcTransport) -> str:
        return self._listening[id(transport)]

    def set_address(self, capture_id: CaptureID, address: str | None) -> None:
        if address is None:
            self.addresses.pop(capture_id, None)
        else:
            self.addresses[capture_id] = address

    def is_woken(self, transport: GrpcTransport) -> bool:
        woken = self._woken[id(transport)]
        was_woken = woken.is_set()
        woken.clear()
        return was_woken

    def wait(self, until: Callable[[], bool], *, patience_s: float = 10.0) -> None:
        deadline = time.monotonic() + patience_s
        while not until():
            assert time.monotonic() < deadline, "it does not come"
            time.sleep(0.002)

    def close(self) -> None:
        for opened in self._opened:
            opened.close()

    def receive(self, transport: GrpcTransport, count: int) -> list[PeerMessage]:
        """Wait for so many."""
        received: list[PeerMessage] = []

        def enough() -> bool:
            received.extend(transport.receive())
            return len(received) >= count

        self.wait(enough)
        return received

    def get_through(self, sender: GrpcTransport, to: GrpcTransport, message: PeerMessage) -> None:
        """Say it until it comes, as captures do: a line that is opened anew loses what is first."""

        def has_come() -> bool:
            sender.send([message])
            time.sleep(0.02)
            return message in to.receive()

        self.wait(has_come)
        time.sleep(0.1)
        to.receive()  # those that were said once too often
