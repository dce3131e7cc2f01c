"""What TiCDC's encoders wrote leads to the recorded tables, cell for cell, in each protocol.

One process plays the recordings, a life for each labelled state: a restart at each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conf.sources.source_uri import parse_source_uri
from tests.acceptance.one_process import Lives
from tests.services import wire

LABELS = (
    "after_load",
    "after_updates",
    "after_first_ddls",
    "after_renames",
    "after_partition_ddls",
    "final",
)
pytestmark = [pytest.mark.acceptance, pytest.mark.spark]


def lives_of(
    variant: str, protocol: str, spark: SparkSession, folder: Path, more: str = ""
) -> Lives:
    path = wire.DATA / variant / "messages.jsonl.gz"
    source = parse_source_uri(f"file://{path}?protocol={protocol}&partition-num=3{more}")
    return Lives(spark, None, folder, source=source)


@pytest.mark.parametrize(
    ("variant", "labels"),
    [
        ("open-protocol", LABELS),
        ("open-protocol-interleaved", LABELS[-1:]),
    ],
)
def test_recorded_bytes_lead_to_every_recorded_state(
    variant: str,
    labels: tuple[str, ...],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lives = lives_of(variant, variant.removesuffix("-interleaved"), spark, tmp_path)
    for label in labels:
        lives.finish(target_ts=wire.state_ts(label))
        assert (label, wire.differences(lives.warehouse, label)) == (label, [])
