"""A recording of a topic, in the place of the topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.load import load_settings
from conf.problems import SettingError
from conf.settings import Settings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import KNOWN
from conf.sources.source_uri import parse_source_uri

MESSAGES = "protocol=canal-json&enable-tidb-extension=true"
GOOD = f"file:///data/messages.jsonl?{MESSAGES}"


def load(uri: str, **arguments: str) -> Settings:
    given = {"source-uri": uri, "sink-uri": "delta:///lake", **arguments}
    return load_settings(config=None, environment={}, arguments=given)


def test_the_usual_uri():
    source = parse_source_uri(f"{GOOD}&time-zone=Asia/Shanghai&partition-num=3")
    assert source == RecordingSettings(
        path="/data/messages.jsonl",
        protocol="canal-json",
        partition_num=3,
        time_zone="Asia/Shanghai",
    )
    assert parse_source_uri(GOOD.replace("///", "//localhost/")) == parse_source_uri(GOOD)


@pytest.mark.parametrize("path", ["/a b/100%.jsonl.gz", "/ü/c#d?.jsonl"])
def test_any_path_can_be_written(path: str):
    uri = RecordingSettings(path=path, protocol="canal-json").uri
    source = parse_source_uri(f"{uri}&enable-tidb-extension=true")
    assert isinstance(source, RecordingSettings)
    assert source.path == path


def test_what_the_kafka_uri_says_of_kafka_may_stay():
    own = {"protocol", "enable-tidb-extension", "partition-num", "time-zone"}
    own |= {"large-message-handle-option", "claim-check-storage-uri", "claim-check-raw-value"}
    own |= {"lower-case-names"}
    built = {*KNOWN} - own - {"sasl-oauth-audience", "large-message-handle-compression"}
    others = "&".join(f"{name}=1" for name in built if not name.startswith("sasl-gssapi-"))
    assert parse_source_uri(f"{GOOD}&{others}") == parse_source_uri(GOOD)


def test_a_changefeed_is_named_after_the_file():
    assert load(GOOD).changefeed.id == "messages"
    assert load(GOOD.replace(".jsonl", ".jsonl.gz")).changefeed.id == "messages"
    with pytest.raises(SettingError, match=r"recording 'a\.b' cannot be one.*--changefeed-id a-b"):
        load(GOOD.replace("messages", "a.b"))


def test_the_file_gives_defaults_as_for_kafka(tmp_path: Path):
    file = tmp_path / "changefeed.toml"
    file.write_text(
        "kafka-group-id = 'lake'\n[sink]\nprotocol = 'canal-json'\n"
        "[[sink.dispatchers]]\nmatcher = ['*.*']\ntopic = '{schema}'\n"
        "[sink.kafka-config]\npartition-num = 2\n"
        "[sink.kafka-config.codec-config]\nenable-tidb-extension = true\n"
    )
    arguments = {"source-uri": "file:///data/messages.jsonl", "sink-uri": "delta:///lake"}
    source = load_settings(config=file, environment={}, arguments=arguments).changefeed.source
    assert source == RecordingSettings(
        path="/data/messages.jsonl", protocol="canal-json", partition_num=2
    )


AVRO = "file:///r.jsonl?protocol=avro&enable-tidb-extension=true&avro-enable-watermark=true"


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        (GOOD.replace("///", "//"), "file://data/messages.jsonl is relative: write file:///"),
        (f"file:messages.jsonl?{MESSAGES}", "'messages.jsonl' is relative"),
        (f"file:///a%00.jsonl?{MESSAGES}", "cannot be a file's name"),
        ("file:///data/messages.jsonl", "protocol is missing"),
        ("file:///data/messages.jsonl?protocol=canal-json", "no commit-ts"),
        (AVRO, "protocol=avro needs schema-registry="),
        (f"{GOOD}&time-zone=Mars", "time-zone=Mars"),
        (f"{GOOD}&time-zon=UTC", "'time-zon'; did you mean time-zone?"),
        (f"{GOOD}&large-message-handle-compression=zstd", "large-message-handle-compression"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(uri: str, says: str):
    with pytest.raises(SettingError) as raised:
        load(uri)
    assert says in str(raised.value)
    assert str(raised.value).startswith("source-uri: ")
    assert "\n" not in str(raised.value)
