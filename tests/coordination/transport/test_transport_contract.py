"""The contract of a Transport: the fake, and gRPC over real sockets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from coordination.model import CaptureID
from coordination.transport.grpc_transport import GrpcTransport
from tests.contracts.transport_contract import LATER_B, A, B, TransportContract, message
from tests.coordination.transport.grpc_captures import GrpcCaptures, heartbeat
from tests.fakes.fake_transport import FakeNetwork, FakeTransport


class TestFakeTransport(TransportContract):
    @pytest.fixture
    def network(self) -> FakeNetwork:
        return FakeNetwork(random.Random(0))

    @pytest.fixture
    def one(self, network: FakeNetwork) -> FakeTransport:
        return FakeTransport(network, "n1", lambda: None)

    @pytest.fixture
    def other(self, network: FakeNetwork) -> FakeTransport:
        return FakeTransport(network, "n2", lambda: None)

    @pytest.fixture
    def settled(self, network: FakeNetwork) -> Callable[[], None]:
        return lambda: network.advance_to(network.now_s + 1.0)


class TestGrpcTransport(TransportContract):
    @pytest.fixture
    def captures(self) -> Iterator[GrpcCaptures]:
        made = GrpcCaptures()
        yield made
        made.close()

    @pytest.fixture
    def one(self, captures: GrpcCaptures) -> GrpcTransport:
        return captures.start(A)

    @pytest.fixture
    def other(self, captures: GrpcCaptures) -> GrpcTransport:
        found = captures.start(B)
        captures.set_address(LATER_B, captures.address(found))
        return found

    @pytest.fixture
    def settled(self, captures: GrpcCaptures, one: GrpcTransport) -> Callable[[], None]:
        return lambda: captures.wait(lambda: not one._peers)

    def test_a_peer_gets_both_kinds_of_messages_in_their_order(
        self, one: GrpcTransport, other: GrpcTransport, settled: Callable[[], None]
    ) -> None:
        sent = [message(1), heartbeat(2, A, B), message(3), heartbeat(4, A, B)]
        one.send(sent)
        settled()
        assert other.receive() == sent

    def test_a_peer_that_sends_in_anothers_name_is_not_heard(
        self, one: GrpcTransport, other: GrpcTransport, settled: Callable[[], None]
    ) -> None:
        """The sender is in the message and in the batch, and both must be the same."""
        one.send([message(1, sender=CaptureID("c")), message(2)])
        settled()
        assert other.receive() == [message(2)]
