"""The registry of Avro's schemas in a source URI, and its secrets in what people read."""

from __future__ import annotations

import pytest

from conf.masking import masked, masked_uri
from conf.problems import SettingError
from conf.sources.recording_uri import RecordingSettings
from conf.sources.schema_registry import parse_registry
from conf.sources.source_uri import parse_source_uri

NEEDED = "protocol=avro&enable-tidb-extension=true&avro-enable-watermark=true"
URI = f"file:///r.jsonl?{NEEDED}&schema-registry="


def test_the_login_may_be_in_the_url_or_beside_it():
    one = parse_registry({"schema-registry": "https://joe:p%40ss@r:8081/api/"})
    beside = {"schema-registry-user": "joe", "schema-registry-password": "p@ss"}
    assert one == parse_registry({"schema-registry": "https://r:8081/api", **beside})
    assert one is not None
    assert (one.url, one.user, one.password) == ("https://r:8081/api", "joe", "p@ss")
    assert "p@ss" not in repr(one)


def test_other_protocols_have_none():
    source = parse_source_uri("file:///r.jsonl?protocol=simple&schema-registry=x")
    assert isinstance(source, RecordingSettings)
    assert source.registry is None


@pytest.mark.parametrize(
    ("registry", "says"),
    [
        ("r:8081", "must look like http://host:8081"),
        ("http://[r", "must look like http://host:8081"),
        ("http://r?a=b", "must look like http://host:8081"),
        ("http://a:b@r&schema-registry-user=c", "give it once"),
        ("http://r&schema-registry-user=c", "go together"),
        ("http://r&schema-registry-ca=ca.pem", "absolute path"),
        ("http://r&schema-registry-password=${env:}&schema-registry-user=c", "names nothing"),
        ("http://r&large-message-handle-option=claim-check", "no such option for avro"),
        ("", "protocol=avro needs schema-registry="),
    ],
)
def test_what_is_wrong_is_one_line(registry: str, says: str):
    with pytest.raises(SettingError, match=says.replace("$", r"\$")) as raised:
        parse_source_uri(URI + registry)
    assert "b@r" not in str(raised.value)


@pytest.mark.parametrize("name", ["enable-tidb-extension", "avro-enable-watermark"])
def test_without_watermarks_at_least_once_is_asked_for(name: str):
    uri = f"{URI}http://r".replace(f"{name}=true", f"{name}=false")
    with pytest.raises(SettingError, match=f"{name}=true is needed for protocol=avro"):
        parse_source_uri(uri)
    source = parse_source_uri(f"{uri}&at-least-once=true")
    assert isinstance(source, RecordingSettings)
    assert source.is_numbered
    exact = parse_source_uri(f"{URI}http://r&at-least-once=true")
    assert isinstance(exact, RecordingSettings)
    assert not exact.is_numbered


@pytest.mark.parametrize(
    "uri",
    [
        "kafka://b:9/t?protocol=avro&schema-registry=http://joe:short@r:8081&x=1",
        "kafka://b:9/t?schema-registry=http%3A%2F%2Fjoe%3Ashort%40r%3A8081&protocol=avro",
        "kafka://b:9/t?schema-registry=http://r&schema-registry-password=short",
    ],
)
def test_no_password_is_shown(uri: str):
    assert "short" not in masked_uri(uri)
    assert "short" not in masked(f"refused: {uri}")
