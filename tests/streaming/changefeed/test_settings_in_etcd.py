"""A changefeed in etcd is the changefeed of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conf.files.reading import read_checked
from conf.load import load_settings
from coordination.errors import ConfigError
from coordination.metadata.records import ChangefeedInfo, dump, load
from coordination.model import ChangefeedID, Ts
from streaming.changefeed.settings_in_etcd import changefeed_config, changefeed_settings

SOURCE = (
    "kafka://k1:9092,k2:9092/shop?protocol=canal-json&partition-num=3&enable-tidb-extension=true"
    "&sasl-mechanism=plain&sasl-user=u&sasl-password=p"
)
RECORDING = "file:///data/shop.jsonl?protocol=canal-json&enable-tidb-extension=true"
FILE = """
kafka-group-id = "lake"
kafka-client-rack = "${env:RACK}"
zero-date = "fail"
on-error = "fail"
on-unknown-column = "drop"
apply-engine = "merge-on-write"
case-sensitive = true
strict-types = true
start-ts = 7

[storage-options]
region = "x"

[filter]
rules = ["shop.*", "!shop.log"]
[[filter.event-filters]]
matcher = ["shop.orders"]
ignore-event = ["delete"]

[sink]
topics = ["shop_2"]
[[sink.dispatchers]]
matcher = ["shop.*"]
topic = "shop"
[[sink.tables]]
matcher = ["shop.audit", "!shop.audit_2"]
write-mode = "append"
"""


def test_there_and_back(tmp_path: Path):
    path = tmp_path / "shop.toml"
    path.write_text(FILE)
    arguments = {
        "changefeed-id": "shop",
        "source-uri": SOURCE,
        "sink-uri": "delta:///warehouse",
        "start-ts": 5,
        "target-ts": 90,
    }
    expected = load_settings(config=path, environment={}, arguments=arguments).changefeed
    info = ChangefeedInfo(
        id=ChangefeedID("shop"),
        sink_uri=SOURCE,
        start_ts=Ts(5),
        target_ts=Ts(90),
        config=changefeed_config(read_checked(path), delta_uri="delta:///warehouse"),
    )
    assert expected.sink.tables[0].write_mode == "append"
    assert changefeed_settings(load(ChangefeedInfo, dump(info))) == expected
    assert info.config == json.loads(dump(info))["config"]


def test_what_go_writes_for_nothing_is_nothing():
    """TiCDC's tools write every key of theirs; 0 is no target."""
    config = {
        "filter": {"rules": ["*.*"], "event-filters": None},
        "sink": {"delta-uri": "delta:///w", "dispatchers": None, "protocol": "canal-json"},
        "enable-sync-point": True,
        "sync-point-interval": 600_000_000_000,
        "mounter": {"worker-num": 16},
        "consistent": None,
    }
    info = ChangefeedInfo(
        id=ChangefeedID("shop"),
        sink_uri=SOURCE.replace("protocol=canal-json&", ""),
        config=config,
        target_ts=Ts(0),
    )
    changefeed = changefeed_settings(info)
    assert changefeed.target_ts is None
    assert changefeed.sink.warehouse == "/w"
    assert changefeed.source.topic == "shop"
    assert changefeed.source.security.sasl_password == "p"


@pytest.mark.parametrize(
    ("sink_uri", "config"),
    [
        (SOURCE, None),
        (SOURCE, {"sink": {}}),
        ("mysql://h:1/", {"sink": {"delta-uri": "delta:///w"}}),
        (RECORDING, {"sink": {"delta-uri": "delta:///w"}}),
    ],
)
def test_what_no_data_plane_could_work_with_is_one_line(sink_uri: str, config: dict | None):
    info = ChangefeedInfo(id=ChangefeedID("shop"), sink_uri=sink_uri, config=config)
    with pytest.raises(ConfigError, match=r"^changefeed shop: "):
        changefeed_settings(info)
