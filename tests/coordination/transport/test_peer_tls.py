"""Who is let in between captures, and what both sides say of who is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conf.problems import SettingError
from conf.settings import TransportSettings
from coordination.errors import ConfigError
from coordination.model import CaptureID
from coordination.transport import grpc_transport
from coordination.transport.grpc_calls import CallRefused, Unanswered, call_owner
from coordination.transport.grpc_transport import GrpcTransport
from tests.coordination.transport.grpc_captures import A, B, dispatch
from tests.own_lines import own_lines
from tests.services.certificates import Authority, Files

FREE = "127.0.0.1:0"
WITHIN_S = 30.0


class Site:
    """Two authorities, and transports with certificates of theirs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.ours, self.strange = Authority(folder, "ours"), Authority(folder, "strange")
        self.good = self.ours.issue("capture")
        self.operator = self.ours.issue("operator")
        self.expired = self.ours.issue("expired", good_for=timedelta(days=-1))
        self.stranger = self.strange.issue("stranger")
        self.addresses: dict[CaptureID, str] = {}
        self._stack = stack

    def settings(
        self, files: Files | None, *, ca: Authority | None = None, **more: Any
    ) -> TransportSettings:
        return TransportSettings(
            addr=FREE,
            ca_path=str((ca or self.ours).ca),
            cert_path=str(files.cert) if files else None,
            key_path=str(files.key) if files else None,
            **more,
        )

    def start(self, capture_id: CaptureID, settings: TransportSettings) -> GrpcTransport:
        made = GrpcTransport(
            settings,
            capture_id=capture_id,
            resolve=self.addresses.get,
            wake=lambda: None,
            handle=lambda method, _: {"asked": method},
            timeout_s=1.0,
        )
        self._stack.callback(made.close)
        self.addresses[capture_id] = made.start()
        return made

    def ask(self, settings: TransportSettings) -> dict[str, Any]:
        return call_owner(self.addresses[B], "drain", {}, timeout_s=5, tls=settings)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def said(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [each for each in own_lines(caplog) if text in each]


@pytest.mark.parametrize(
    ("who", "there"),
    [
        ("none", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("plain", "WRONG_VERSION_NUMBER"),
        ("stranger", "local issuer"),
        ("other CA", ""),
        ("expired", "certificate has expired"),
    ],
)
def test_who_has_no_certificate_a_strangers_or_an_expired_one_is_told_where_to_look(
    site: Site, capfd: pytest.CaptureFixture[str], who: str, there: str
):
    """The other side's line is gRPC's own, on stderr: it alone says why."""
    site.start(B, site.settings(site.good))
    caller = {
        "none": site.settings(None),
        "plain": TransportSettings(),
        "stranger": site.settings(site.stranger),
        "other CA": site.settings(site.stranger, ca=site.strange),
        "expired": site.settings(site.expired),
    }[who]
    capfd.readouterr()
    with pytest.raises(Unanswered, match="its log says why it closes the connection") as raised:
        site.ask(caller)
    assert "\n" not in str(raised.value)
    assert there in capfd.readouterr().err


def test_captures_that_do_not_accept_each_other_say_so_once(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:  # its certificate expired after its start
        patch.setattr(grpc_transport, "check_own", lambda _: None)
        late = site.start(A, site.settings(site.expired))
    good = site.start(B, site.settings(site.good))
    for _ in range(3):
        late.send([dispatch(1)])
        good.send([dispatch(1, sender=B, to=A)])
    eventually(lambda: len(said(caplog, "a capture does not answer")) == 2)
    (at_late,) = said(caplog, f"peer_id={B}")
    (at_good,) = said(caplog, f"peer_id={A}")
    assert all(
        "certificates of that CA which have not expired" in each for each in (at_late, at_good)
    )
    assert good.receive() == []


def test_a_certificate_that_is_being_replaced_ends_no_capture(
    site: Site, caplog: pytest.LogCaptureFixture
):
    a, b = site.start(A, site.settings(site.good)), site.start(B, site.settings(site.good))
    key = Path(site.good.key).read_bytes()
    Path(site.good.key).unlink()
    for _ in range(2):
        a.send([dispatch(1)])
    eventually(lambda: said(caplog, "a capture does not answer"))
    (told,) = said(caplog, "a capture does not answer")
    assert "cannot read key-path" in told
    Path(site.good.key).write_bytes(key)
    a.send([dispatch(2)])
    eventually(b.receive)


@pytest.mark.parametrize(
    ("files", "allowed", "why"),
    [
        ("expired", (), "certificate has expired"),
        ("stranger", (), "unable to get local issuer certificate"),
        ("good", ("another",), "its common name 'capture' is not in cert-allowed-cn"),
    ],
)
def test_a_capture_whose_certificate_the_others_would_refuse_does_not_start(
    site: Site, files: str, allowed: tuple[str, ...], why: str
):
    settings = site.settings(getattr(site, files), cert_allowed_cn=allowed)
    with pytest.raises(ConfigError, match=f"cert-path .*: {why}; no other capture"):
        site.start(A, settings)


def test_common_names_say_who_is_a_capture_and_who_may_only_call(
    site: Site, caplog: pytest.LogCaptureFixture
):
    roles = {"cert_allowed_cn": ("capture",), "operator_allowed_cn": ("operator",)}
    b = site.start(B, site.settings(site.good, **roles))
    other = site.settings(site.ours.issue("clerk"))
    assert site.ask(site.settings(site.good)) == {"asked": "drain"}
    assert site.ask(site.settings(site.operator)) == {"asked": "drain"}
    for _ in range(2):
        with pytest.raises(CallRefused, match=r"common name 'clerk' .* not allowed to call") as no:
            site.ask(other)
    assert "\n" not in str(no.value)
    assert len(said(caplog, "a caller is refused common_name='clerk'")) == 1
    posing = site.start(A, site.settings(site.operator))
    posing.send([dispatch(1)])
    eventually(lambda: said(caplog, "common_name='operator'"))
    eventually(lambda: said(caplog, "a capture does not answer"))
    assert "it refuses: common name 'operator'" in said(caplog, "a capture does not answer")[0]
    assert b.receive() == []


@pytest.mark.parametrize(
    ("addr", "tls", "warns"),
    [("0.0.0.0:0", False, True), ("0.0.0.0:0", True, False), (FREE, False, False)],
)
def test_who_listens_to_the_world_without_mtls_is_warned_once(
    site: Site, caplog: pytest.LogCaptureFixture, addr: str, tls: bool, warns: bool
):
    plain = TransportSettings(addr=addr, advertise_addr=FREE)
    settings = TransportSettings(
        addr=addr,
        advertise_addr=FREE,
        ca_path=str(site.ours.ca),
        cert_path=str(site.good.cert),
        key_path=str(site.good.key),
    )
    site.start(A, settings if tls else plain)
    assert len(said(caplog, "everybody who reaches this capture")) == warns


def test_names_without_certificates_are_refused():
    with pytest.raises(SettingError, match="cert-allowed-cn needs ca-path and mtls"):
        TransportSettings(cert_allowed_cn=("capture",))
    with pytest.raises(SettingError, match="operator-allowed-cn needs cert-allowed-cn"):
        TransportSettings(operator_allowed_cn=("operator",))
