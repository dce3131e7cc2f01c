"""The source URI in librdkafka's words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from cryptography.hazmat.primitives import serialization

from conf.masking import masked
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from streaming.source.kafka.connection_errors import connection_refusal
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from tests.services.certificates import Authority

GOOD = "kafka://a:9092,b:9093/shop?protocol=canal-json&enable-tidb-extension=true"


def source(parameters: str = "", **own: str) -> KafkaSettings:
    return replace(parse_source_uri(GOOD + parameters), **own)


def test_nothing_but_brokers():
    assert librdkafka_settings(source()) == {
        "bootstrap.servers": "a:9092,b:9093",
        "client.id": "tidelake",
        "group.id": "tidelake",
        "security.protocol": "PLAINTEXT",
        "receive.message.max.bytes": 100_000_000,
    }


def test_a_rack_and_a_group_may_be_the_captures_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RACK", "eu-1a")
    settings = librdkafka_settings(source(client_rack="${env:RACK}", group_id="lake"))
    assert (settings["client.rack"], settings["group.id"]) == ("eu-1a", "lake")


def test_a_message_may_be_larger_than_librdkafkas_limit():
    settings = librdkafka_settings(source("&max-message-bytes=500000000"))
    assert int(settings["receive.message.max.bytes"]) > 500_000_000


def test_files_are_read_here_for_those_who_have_none(tmp_path: Path):
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"the {name}")
    files = "".join(f"&{name}={tmp_path / name}" for name in ("ca", "cert", "key"))
    settings = librdkafka_settings(source(files))
    assert settings["security.protocol"] == "SSL"
    assert settings["enable.ssl.certificate.verification"] is True
    pems = ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem")
    assert [settings[name] for name in pems] == ["the ca", "the cert", "the key"]
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError, match=r"cannot read key=.*/key of the source URI: No such"):
        librdkafka_settings(source(files))


def test_a_key_with_a_passphrase_asks_nobody_for_it(tmp_path: Path):
    authority = Authority(tmp_path, "authority")
    files = authority.issue("client")
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    encrypted = serialization.BestAvailableEncryption(b"passphrase")
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted)
    files.key.write_bytes(key.private_bytes(*form))
    kafka = source(f"&ca={authority.ca}&cert={files.cert}&key={files.key}")
    with pytest.raises(ConfigError, match=r"SASL or TLS: Failed to create consumer: ssl\.key\.pem"):
        connection_refusal(kafka)


def test_a_password_is_looked_up_and_masked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP", "marked-secret")
    asked = "&enable-tls=true&insecure-skip-verify=true&sasl-mechanism=scram-sha-256&sasl-user=u"
    settings = librdkafka_settings(source(asked + "&sasl-password=${env:SHOP}"))
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["enable.ssl.certificate.verification"] is False
    assert settings["sasl.mechanism"] == "SCRAM-SHA-256"
    assert (settings["sasl.username"], settings["sasl.password"]) == ("u", "marked-secret")
    assert "marked" not in masked(f"refused: {settings}")


OAUTH = (
    "&sasl-mechanism=oauthbearer&sasl-oauth-token-url=http://127.0.0.1:1/token"
    "&sasl-oauth-client-id=id&sasl-oauth-scopes=x,y&sasl-oauth-client-secret="
)


def test_librdkafka_gets_its_tokens_itself():
    settings = librdkafka_settings(source(OAUTH + "bWFya2VkLXNlY3JldA=="))
    assert settings["sasl.oauthbearer.method"] == "oidc"
    assert settings["sasl.oauthbearer.client.secret"] == "marked-secret"
    assert settings["sasl.oauthbearer.scope"] == "x y"
    assert "marked" not in masked(f"refused: {settings}")
    with pytest.raises(ConfigError, match="sasl-oauth-client-secret is not Base64"):
        librdkafka_settings(source(OAUTH + "no!"))


@pytest.mark.parametrize(
    "parameters",
    [
        "&enable-tls=true&insecure-skip-verify=true",
        "&sasl-mechanism=plain&sasl-user=u&sasl-password=p",
        "&sasl-mechanism=scram-sha-512&sasl-user=u&sasl-password=p&enable-tls=true",
        OAUTH + "c2VjcmV0",
    ],
)
def test_librdkafka_takes_them(parameters: str):
    settings = librdkafka_settings(source(parameters, client_rack="r"))
    Consumer({**settings, "bootstrap.servers": "127.0.0.1:1", "log_level": 0}).close()
