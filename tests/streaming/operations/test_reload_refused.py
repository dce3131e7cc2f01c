"""`tidelake table reload` of a changefeed that cannot carry it out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.settings import DeltaSink
from coordination.errors import ConfigError
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from sinks.control.warehouse import ControlTables
from streaming.operations.orders.reloads import order_reload
from streaming.source.binlog.source import PART

OF_A_RUN = "f1/etcd/run-shop"
FOLLOWS = ChangefeedRow(
    changefeed_id="shop",
    start_ts=1,
    checkpoint_ts=5,
    resolved_ts=5,
    row_rules=json.dumps({"protocol": "binlog"}),
    source_positions={PART: 7},
    watermarks={PART: RecordedWatermark(ts=6, position=7, token="[]")},
    etcd_cluster_id=OF_A_RUN,
)


@pytest.mark.parametrize(
    ("is_otherwise", "says"),
    [
        (
            {"row_rules": json.dumps({"protocol": "maxwell", "delivery": "at-least-once"})},
            r"no commit-ts .*maxwell.* Rewind the changefeed with --overwrite-checkpoint-ts",
        ),
        ({"source_positions": {}, "watermarks": {}}, "has read nothing yet: its first copy loads"),
        ({"etcd_cluster_id": "etcd", "source_positions": {"t/0": 7}}, "reads what TiCDC sends"),
        ({"state": "finished"}, "has finished at its target-ts"),
        ({}, "changefeed shop has no table shop.orders"),
    ],
)
def test_a_changefeed_that_cannot_carry_it_out(
    tmp_path: Path, is_otherwise: dict[str, Any], says: str
) -> None:
    sink = DeltaSink(warehouse=str(tmp_path))
    ControlTables.of(sink).changefeeds.begin(replace(FOLLOWS, **is_otherwise))
    with pytest.raises(ConfigError, match=says):
        order_reload(sink, None, "shop.orders", is_dry=False)
    assert ControlTables.of(sink).reloads.read_all() == []
