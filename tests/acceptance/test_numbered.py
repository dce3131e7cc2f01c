"""Messages without a commit-ts and watermarks: recorded ones lead to the recorded tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conf.sources.source_uri import parse_source_uri
from tests.acceptance.one_process import Lives
from tests.services import wire

pytestmark = [pytest.mark.acceptance, pytest.mark.spark]


def test_canal_json_without_the_extension(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = wire.DATA / "canal-json-noext" / "messages.jsonl.gz"
    source = parse_source_uri(
        f"file://{path}?protocol=canal-json&at-least-once=true&partition-num=3"
    )
    lives = Lives(spark, None, tmp_path, source=source)
    for label in ("after_load", "after_updates", "after_first_ddls"):
        lives.finish(target_ts=wire.state_ts(label))
        assert (label, wire.differences(lives.warehouse, label)) == (label, [])
    letters = {(each["table_name"], each["error_class"]) for each in lives.dead_letters()}
    assert {name for name, _ in letters} == {"audit_log"}
