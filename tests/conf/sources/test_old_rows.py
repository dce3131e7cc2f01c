"""An UPDATE that changes the key needs its old row, unless TiCDC has split it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.load import load_settings
from conf.problems import SettingError
from conf.sources.source_uri import parse_source_uri

RAW = "output-raw-change-event=true"
AVRO = "kafka://h:9092/t?protocol=avro&at-least-once=true&schema-registry=http://r:8081"
CSV = "s3://b/p?protocol=csv&include-commit-ts=true"


@pytest.mark.parametrize(
    ("uri", "option"),
    [
        (f"kafka://h:9092/t?protocol=open-protocol&{RAW}&output-old-value=false", "old-value"),
        (
            "kafka://h:9092/t?protocol=debezium&enable-tidb-extension=true"
            f"&{RAW}&output-old-value=false",
            "old-value",
        ),
        (f"{AVRO}&{RAW}", "avro-include-before-value"),
        (f"{CSV}&{RAW}", "output-old-value"),
    ],
)
def test_raw_events_without_old_rows_are_refused(uri: str, option: str) -> None:
    with pytest.raises(SettingError, match="nobody can tell that the row of the old key is gone"):
        parse_source_uri(uri)
    parse_source_uri(uri.replace(f"&{RAW}", ""))
    parse_source_uri(_with_old(uri, option))


def _with_old(uri: str, option: str) -> str:
    kept = uri.replace("&output-old-value=false", "")
    return kept if kept != uri else f"{uri}&{option}=true"


@pytest.mark.parametrize("protocol", ["canal-json", "simple", "open-protocol", "debezium"])
def test_raw_events_with_old_rows_are_read(protocol: str) -> None:
    parse_source_uri(f"kafka://h:9092/t?protocol={protocol}&enable-tidb-extension=true&{RAW}")


@pytest.mark.parametrize(
    ("uri", "sink"),
    [
        (CSV, "cloud-storage-config"),
        (AVRO, "kafka-config"),
    ],
)
def test_the_changefeed_file_of_ticdc_tells_it(tmp_path: Path, uri: str, sink: str) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(f"[sink.{sink}]\noutput-raw-change-event = true\n")
    given = {"source-uri": uri, "sink-uri": "delta:///lake", "changefeed-id": "x"}
    with pytest.raises(SettingError, match="output-raw-change-event=true"):
        load_settings(config=file, environment={}, arguments=given)
