"""Messages and calls between captures over real sockets."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conf.problems import SettingError
from conf.settings import TransportSettings
from coordination.errors import ConfigError, TidelakeError, TryAgain
from coordination.model import CaptureID
from coordination.transport import grpc_transport
from coordination.transport.grpc_calls import DELIVER, NO_TLS, CallRefused, call_owner, open_channel
from coordination.transport.grpc_transport import MAX_CALLS, GrpcTransport
from tests.coordination.transport.grpc_captures import FREE, A, B, GrpcCaptures, dispatch, numbers
from tests.own_lines import own_text

OWN = Path(__file__).parent / "tls"
ETCD = Path(__file__).parents[1] / "etcd" / "tls"


def tls(folder: Path = ETCD, *, ca: Path = ETCD, **more: Any) -> TransportSettings:
    return TransportSettings(
        addr=FREE,
        ca_path=str(ca / "cert.pem"),
        cert_path=str(folder / "cert.pem"),
        key_path=str(folder / "key.pem"),
        **more,
    )


@pytest.fixture
def captures() -> Iterator[GrpcCaptures]:
    made = GrpcCaptures()
    yield made
    made.close()


class TestLines:
    def test_a_cut_pair_is_told_once_and_goes_on_when_it_is_healed(
        self, captures: GrpcCaptures, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        a, b = captures.start(A), captures.start(B)
        proxy = captures.proxy(captures.address(b), loss=0.0)
        captures.set_address(B, proxy.address)
        proxy.cut(captures.address(a))
        a.send([dispatch(1)])
        captures.wait(lambda: "a capture does not answer" in own_text(caplog))
        b.send([dispatch(2, B, A)])  # the other way is whole
        assert numbers(captures.receive(a, 1)) == [2]
        assert b.receive() == []
        a.send([dispatch(3)])
        captures.wait(lambda: proxy.refused == 2)
        proxy.heal()
        captures.get_through(a, b, dispatch(4))
        captures.wait(lambda: "a capture answers again" in own_text(caplog))
        assert own_text(caplog).count("a capture does not answer") == 1
        assert "the line is cut" in own_text(caplog)

    def test_a_peer_that_is_silent_does_not_hold_up_the_others(
        self, captures: GrpcCaptures
    ) -> None:
        a, b = captures.start(A, timeout_s=60.0), captures.start(B)
        with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
            captures.set_address(CaptureID("silent"), f"127.0.0.1:{silent.getsockname()[1]}")
            began = time.monotonic()
            a.send([dispatch(1, A, "silent"), dispatch(2)])
            assert numbers(captures.receive(b, 1)) == [2]
            a.close()
            assert time.monotonic() - began < 30.0

    def test_a_lookup_that_fails_loses_what_waits(self, captures: GrpcCaptures) -> None:
        b = captures.start(B)
        answers = iter([RuntimeError("no etcd"), None, captures.address(b)])

        def resolve(_: CaptureID) -> str | None:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        a = GrpcTransport(
            TransportSettings(addr=FREE), capture_id=A, resolve=resolve, wake=lambda: None
        )
        a.start()
        for number in (1, 2, 3):
            a.send([dispatch(number)])
        assert numbers(captures.receive(b, 1)) == [3]
        a.close()

    def test_bytes_of_a_stranger_are_refused(self, captures: GrpcCaptures) -> None:
        b = captures.start(B)
        with (
            open_channel(captures.address(b), NO_TLS) as channel,
            pytest.raises(grpc_transport.grpc.RpcError, match="not a batch of messages"),
        ):
            channel.unary_unary(DELIVER)(b"\x00\xff", timeout=5)
        assert b.receive() == []


class TestEnding:
    def test_close_leaves_no_thread_and_no_port(self, captures: GrpcCaptures) -> None:
        before = set(threading.enumerate())
        a, b = captures.start(A), captures.start(B)
        address = captures.address(b)
        a.send([dispatch(1), dispatch(2, A, "nobody")])
        captures.receive(b, 1)
        a.close()
        b.close()
        captures.wait(lambda: set(threading.enumerate()) <= before, patience_s=2)
        captures.start(B, at=address)

    def test_close_before_start(self) -> None:
        transport = GrpcTransport(
            TransportSettings(addr=FREE), capture_id=A, resolve=lambda _: None, wake=lambda: None
        )
        transport.close()

    def test_a_port_in_use_is_one_line(self, captures: GrpcCaptures) -> None:
        a = captures.start(A)
        with pytest.raises(ConfigError, match=f"cannot listen at addr '{captures.address(a)}'"):
            captures.start(B, at=captures.address(a))


class TestTls:
    def test_captures_that_trust_each_other(self, captures: GrpcCaptures) -> None:
        a = captures.start(A, settings=tls())
        b = captures.start(B, settings=tls(), handle=lambda method, _: {"asked": method})
        a.send([dispatch(1)])
        assert numbers(captures.receive(b, 1)) == [1]
        asked = call_owner(captures.address(b), "list", {}, timeout_s=5, tls=tls())
        assert asked == {"asked": "list"}

    def test_without_mtls_a_caller_needs_the_ca_only(self, captures: GrpcCaptures) -> None:
        b = captures.start(B, settings=tls(mtls=False), handle=lambda _method, _params: {"a": 1})
        caller = TransportSettings(ca_path=str(ETCD / "cert.pem"))
        assert call_owner(captures.address(b), "list", {}, timeout_s=5, tls=caller) == {"a": 1}

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"ca_path": "/no/such/file"}, "needs cert-path and key-path"),
            (
                {"ca_path": "/no/such/ca", "cert_path": "/no/c", "key_path": "/no/k"},
                "cannot read key-path '/no/k'",
            ),
        ],
    )
    def test_wrong_files_are_one_line(
        self, captures: GrpcCaptures, wrong: dict[str, str], says: str
    ) -> None:
        with pytest.raises(ConfigError, match=says):
            captures.start(A, settings=TransportSettings(addr=FREE, **wrong))


class TestSettings:
    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"addr": "8300"}, "addr '8300': expected host:port"),
            ({"advertise_addr": "http://a:1"}, "advertise-addr 'http://a:1': expected host:port"),
            ({"addr": "0.0.0.0:8300"}, "advertise-addr must be given"),
            ({"cert_path": "c"}, "cert-path and key-path go together"),
            ({"cert_path": "c", "key_path": "k"}, "without ca-path"),
        ],
    )
    def test_wrong_settings_are_one_line(self, wrong: dict[str, str], says: str) -> None:
        with pytest.raises(SettingError, match=says):
            TransportSettings(**wrong)  # type: ignore[arg-type]

    def test_defaults_are_ticdcs(self) -> None:
        assert TransportSettings().addr == "127.0.0.1:8300"

    def test_the_advertised_address_is_what_others_are_told(self, captures: GrpcCaptures) -> None:
        settings = TransportSettings(addr="0.0.0.0:0", advertise_addr="localhost:0")
        a = captures.start(A, settings=settings)
        b = captures.start(B)
        assert captures.address(a).startswith("localhost:")
        b.send([dispatch(1, B, A)])
        assert numbers(captures.receive(a, 1)) == [1]


class TestCalls:
    def test_a_call_is_handled_and_answered(self, captures: GrpcCaptures) -> None:
        def handle(method: str, params: dict[str, Any]) -> dict[str, Any]:
            return {"method": method, **params}

        a = captures.start(A, handle=handle)
        proxy = captures.proxy(captures.address(a), loss=0.2)
        for address in (captures.address(a), proxy.address):
            reply = call_owner(address, "move", {"table": "shop.ä"}, timeout_s=5)
            assert reply == {"method": "move", "table": "shop.ä"}

    def test_what_the_owner_refuses_is_a_sentence(self, captures: GrpcCaptures) -> None:
        def handle(method: str, _params: dict[str, Any]) -> dict[str, Any]:
            raise TidelakeError("capture c is not here") if method == "drain" else KeyError(method)

        a = captures.start(A, handle=handle)
        with pytest.raises(CallRefused, match=r"^capture c is not here$"):
            call_owner(captures.address(a), "drain", {}, timeout_s=5)
        with pytest.raises(CallRefused, match="failed at this request: KeyError"):
            call_owner(captures.address(a), "move", {}, timeout_s=5)
        with pytest.raises(CallRefused, match="takes no calls"):
            call_owner(captures.address(captures.start(B)), "drain", {}, timeout_s=5)

    def test_nobody_there_and_no_answer_in_time(self, captures: GrpcCaptures) -> None:
        with pytest.raises(TryAgain, match=r"no answer from the capture at 127.0.0.1:1: unavail"):
            call_owner("127.0.0.1:1", "drain", {}, timeout_s=5)
        let_go = threading.Event()
        a = captures.start(A, handle=lambda _method, _params: {"late": let_go.wait(5)})
        with pytest.raises(TryAgain, match="deadline_exceeded"):
            call_owner(captures.address(a), "drain", {}, timeout_s=0.1)
        let_go.set()

    def test_calls_that_wait_do_not_hold_up_messages_or_the_end(
        self, captures: GrpcCaptures
    ) -> None:
        let_go = threading.Event()
        a = captures.start(A, handle=lambda _method, _params: {"late": let_go.wait(60)})
        b = captures.start(B)
        address = captures.address(a)

        def call() -> None:
            with pytest.raises(TryAgain):
                call_owner(address, "drain", {}, timeout_s=60)

        callers = [threading.Thread(target=call) for _ in range(8)]
        for caller in callers:
            caller.start()
        captures.wait(lambda: sum(caller.is_alive() for caller in callers) == MAX_CALLS)
        b.send([dispatch(1, B, A)])
        assert numbers(captures.receive(a, 1)) == [1]
        began = time.monotonic()
        a.close()  # on the thread that the calls wait for
        assert time.monotonic() - began < 30
        let_go.set()
        for caller in callers:
            caller.join()
