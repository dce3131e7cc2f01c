"""What TiCDC's encoder wrote in avro leads to the recorded tables, with a registry that has its
schemas."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conf.sources.source_uri import parse_source_uri
from tests.acceptance.one_process import Lives
from tests.acceptance.test_protocols import LABELS
from tests.services import wire
from tests.services.schema_registry import SchemaRegistry, serving

pytestmark = [pytest.mark.acceptance, pytest.mark.spark]
NEEDED = "protocol=avro&enable-tidb-extension=true&avro-enable-watermark=true"


def test_recorded_bytes_lead_to_every_recorded_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = wire.DATA / "avro-watermark" / "messages.jsonl.gz"
    with serving(SchemaRegistry(wire.schemas("avro-watermark"))) as registry:
        uri = f"file://{path}?{NEEDED}&schema-registry={registry.url}"
        lives = Lives(spark, None, tmp_path, source=parse_source_uri(uri))
        for label in LABELS:
            lives.finish(target_ts=wire.state_ts(label))
            letters = {each["error_class"] for each in lives.dead_letters()}
            assert (label, wire.differences(lives.warehouse, label)) == (label, [])
            assert letters <= {"delete-without-key", "no-key"}
