"""Messages of Debezium's own engine, recorded from a real MariaDB
(`tests/benchmarks/record_debezium.py`), lead to what that database answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conf.sources.source_uri import parse_source_uri
from streaming.source.sources import open_source
from tests.acceptance.one_process import Lives
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.spark]
DATA = Path(__file__).resolve().parents[1] / "data" / "debezium"
# With time.precision.mode=connect the connector has cut these to milliseconds of a day.
CUT = {"source-types": {"tm", "tm6", "dtm6"}}
TIMES = {"tm", "tm6"}


def shown(name: str, value: Any) -> Any:
    """As the recording has it: bytes and bits in hexadecimal, times as Python's durations."""
    if value is None or isinstance(value, bytes):
        return value.hex() if value is not None else None
    if name in TIMES:
        hours, minutes, seconds = value.lstrip("-").split(":")
        span = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
        return str(-span if value.startswith("-") else span)
    if name in ("b1", "b12"):
        return f"{value:02x}" if name == "b1" else f"{value:04x}"
    return str(value).removesuffix("+00:00")


def same(name: str, was: Any, now: Any) -> bool:
    if name in ("f", "db") and was is not None:
        return float(was) == float(now)
    return bool(was == shown(name, now))


def differences(
    rows: list[dict[str, Any]], truth: list[dict[str, Any]], cut: set[str]
) -> list[Any]:
    def key(row: Mapping[str, Any]) -> Any:
        return [str(row[name]) for name in ("id", "a", "b") if name in row]

    found: list[Any] = [] if len(rows) == len(truth) else [(len(rows), len(truth))]
    for row, told in zip(sorted(rows, key=key), sorted(truth, key=key), strict=False):
        found += [
            (key(told), name, was, row.get(name))
            for name, was in told.items()
            if name not in cut and not same(name, was, row.get(name))
        ]
    return found


@pytest.mark.parametrize("variant", ["schemas", "plain", "source-types"])
def test_its_messages_lead_to_what_the_database_has(
    variant: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot and what follows; with DDLs of the schema-change topic, or tables made from rows.
    The connector shows the NULL of a column with a default as the default."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    uri = f"file://{DATA}/{variant}.jsonl.gz?protocol=debezium&at-least-once=true"
    settings = parse_source_uri(uri)
    lives = Lives(spark, None, tmp_path, source=settings)
    lives.finish(target_ts=open_source(settings).end_ts())
    truth = json.loads((DATA / f"{variant}.json").read_text())
    for table, told in truth.items():
        rows = read_rows(lives.warehouse / "shop" / table)
        found = differences(rows, told, CUT.get(variant, set()))
        assert [each for each in found if each[1:] != ("v", None, 5)] == []
    assert lives.dead_letters() == []
