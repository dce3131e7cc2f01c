"""A broker that does not let us in: one line that says what, where, and what to do, and no hang."""

from __future__ import annotations

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError, TidelakeError
from streaming.source.contract import SourceAway
from streaming.source.kafka import broker
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.connection_errors import connection_refusal
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.topic_partition import TopicPartition
from tests.services.broker_settings import SASL_PASSWORD
from tests.services.secured_broker import SecuredBroker
from tests.services.token_endpoint import TokenServer

pytestmark = pytest.mark.kafka
WRONG = "marked-wrong-password"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "_ANSWER_S", 0.5)


def refusal(uri: str) -> str:
    """What an operator reads."""
    source = Broker(parse_source_uri(uri))
    try:
        with pytest.raises(TidelakeError) as raised:
            source.shape()
    finally:
        source.close()
    line = str(raised.value)
    assert "\n" not in line
    assert WRONG not in line
    assert SASL_PASSWORD not in line
    if isinstance(raised.value, SourceAway):
        assert line.startswith("no answer from the Kafka broker at 127.0.0.1:")
    return line


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(secured_broker: SecuredBroker, mechanism: str):
    parameters = secured_broker.trusted + secured_broker.login(mechanism, password=WRONG)
    line = refusal(secured_broker.source_uri("sasl_tls", "t", parameters))
    assert "Authentication failed" in line
    assert line.endswith(": check sasl-user and sasl-password")


def test_a_mechanism_that_it_does_not_take(secured_broker: SecuredBroker):
    line = refusal(secured_broker.source_uri("oauth", "t", secured_broker.login("PLAIN")))
    assert line.endswith("no login by PLAIN: sasl-mechanism must be one of OAUTHBEARER")


def test_a_login_where_none_is_asked_for(secured_broker: SecuredBroker):
    line = refusal(secured_broker.source_uri("plaintext", "t", secured_broker.login("PLAIN")))
    assert "give the port of its SASL listener, or no sasl-mechanism" in line


@pytest.mark.parametrize("listener", ["tls", "sasl"])
def test_neither_tls_nor_a_login_where_they_are_asked_for(
    secured_broker: SecuredBroker, listener: str
):
    line = refusal(secured_broker.source_uri(listener, "t"))
    assert "Check the port, enable-tls and sasl-mechanism" in line


def test_tls_where_there_is_none(secured_broker: SecuredBroker):
    line = refusal(secured_broker.source_uri("plaintext", "t", secured_broker.trusted))
    assert "it speaks no TLS there" in line


@pytest.mark.parametrize("is_system", [True, False], ids=["system", "other"])
def test_an_unknown_ca(secured_broker: SecuredBroker, is_system: bool):
    ca = "" if is_system else f"&ca={secured_broker.foreign_ca}"
    line = refusal(secured_broker.source_uri("tls", "t", f"&enable-tls=true{ca}"))
    assert "its certificate cannot be trusted (unable to get local issuer certificate)" in line
    assert line.endswith(": ca must be the file of the CA that signed it")


def test_an_expired_certificate(secured_broker: SecuredBroker):
    line = refusal(secured_broker.source_uri("expired", "t", secured_broker.trusted))
    assert "its certificate cannot be trusted (certificate has expired)" in line


def test_a_certificate_of_another_host(secured_broker: SecuredBroker):
    line = refusal(secured_broker.source_uri("elsewhere", "t", secured_broker.trusted))
    assert "mismatch, certificate is not valid for '127.0.0.1'" in line
    assert "name the broker in the source URI as its certificate does" in line


def test_no_certificate_of_ours(secured_broker: SecuredBroker):
    line = refusal(secured_broker.source_uri("mtls", "t", secured_broker.trusted))
    assert line.endswith("a certificate of ours is wanted: give cert and key")


def test_a_certificate_of_ours_that_it_does_not_trust(secured_broker: SecuredBroker):
    stranger = secured_broker.foreign_client
    parameters = f"{secured_broker.trusted}&cert={stranger.cert}&key={stranger.key}"
    line = refusal(secured_broker.source_uri("mtls", "t", parameters))
    assert line.endswith("a certificate of ours is refused: check cert and key")


def test_a_key_of_another_certificate(secured_broker: SecuredBroker):
    files = f"&cert={secured_broker.client.cert}&key={secured_broker.foreign_client.key}"
    line = refusal(secured_broker.source_uri("mtls", "t", secured_broker.trusted + files))
    assert line.startswith("the source URI's SASL or TLS: ")


def test_a_client_that_the_token_endpoint_does_not_know(secured_broker: SecuredBroker):
    with TokenServer() as tokens:
        line = refusal(secured_broker.source_uri("oauth", "t", tokens.login(WRONG)))
    assert "invalid_client" in line
    assert "check sasl-oauth-token-url, -client-id, -client-secret" in line


def test_a_token_endpoint_that_is_away(secured_broker: SecuredBroker):
    with TokenServer() as tokens:
        login = tokens.login()
    line = refusal(secured_broker.source_uri("oauth", "t", login))
    assert "Failed to acquire SASL OAUTHBEARER token: Failed to connect" in line


def test_nobody_there():
    line = refusal("kafka://127.0.0.1:1/t?protocol=canal-json&enable-tidb-extension=true")
    assert line.endswith("failed: Connection refused. Check the address")


def test_a_host_that_has_no_address():
    uri = "kafka://nowhere.invalid:1/t?protocol=canal-json&enable-tidb-extension=true"
    assert "Failed to resolve" in str(connection_refusal(parse_source_uri(uri)))


def test_a_broker_that_is_back(secured_broker: SecuredBroker):
    uri = secured_broker.source_uri("tls", "t", secured_broker.trusted)
    assert connection_refusal(parse_source_uri(uri)) is None


def test_a_file_that_is_missing(secured_broker: SecuredBroker):
    uri = secured_broker.source_uri("tls", "t", "&ca=/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=r"cannot read ca=/nowhere/ca\.pem of the source URI: No"):
        librdkafka_settings(parse_source_uri(uri))


def test_first_messages_of_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(broker, "_SEARCH_S", 1.0)
    uri = "kafka://127.0.0.1:1/t?protocol=canal-json&enable-tidb-extension=true"
    with pytest.raises(SourceAway, match=r"no message of t/0 came within 1 s: .*refused"):
        Broker(parse_source_uri(uri)).times_ms({TopicPartition("t", 0): 0})
