"""Most recordings are played on threads (`streaming/jobs/on_threads.py`). Here one of each protocol
family and each kind of source is played on Spark too, and leads to the same tables and letters.

Kafka's and the binlog's lives on Spark are those of `test_data_path`, `test_write_modes`,
`test_bank` and others (docs/contributing.md, What stays on Spark)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance import test_avro, test_maxwell
from tests.acceptance.one_process import Lives, NewEngine, on_spark
from tests.services import wire, wire_storage
from tests.services.delta_rows import read_rows
from tests.services.schema_registry import SchemaRegistry, serving

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
EXACT = "enable-tidb-extension=true&partition-num=3"
RECORDINGS = {
    "canal-json-snappy": f"protocol=canal-json&{EXACT}&large-message-handle-compression=snappy",
    "open-protocol": f"protocol=open-protocol&{EXACT}",
    "simple-json": f"protocol=simple&{EXACT}",
    "simple-avro": f"protocol=simple&encoding-format=avro&{EXACT}",
    "debezium": f"protocol=debezium&{EXACT}",
}
STORED = (wire_storage.CANAL_JSON, wire_storage.CSV)
LABEL, LAST_OF_SNAPPY = "after_first_ddls", "after_updates"


@contextmanager
def uri_of(variant: str, folder: Path) -> Iterator[str]:
    if variant == "maxwell":
        yield test_maxwell.recording(folder / "maxwell.jsonl.gz")
    elif variant in STORED:
        yield wire_storage.uri(variant, wire_storage.folder(variant, folder / "cdc"))
    elif variant == "avro":
        path = wire.DATA / "avro-watermark" / "messages.jsonl.gz"
        with serving(SchemaRegistry(wire.schemas("avro-watermark"))) as registry:
            yield f"file://{path}?{test_avro.NEEDED}&schema-registry={registry.url}"
    else:
        yield f"file://{wire.DATA / variant / 'messages.jsonl.gz'}?{RECORDINGS[variant]}"


def played(new_engine: NewEngine, uri: str, folder: Path, target_ts: int) -> dict[str, Any]:
    """The rows of each table, and of the letters what does not depend on the moment."""
    lives = Lives(new_engine, None, folder, source=parse_source_uri(uri), quiet_s=0.2)
    lives.finish(target_ts=target_ts)
    tables = sorted(each.name for each in (lives.warehouse / "shop").iterdir())
    letters = [
        (each["part"], each["position"], each["table_name"], each["error_class"])
        for each in lives.dead_letters()
    ]
    rows = {name: sorted(map(repr, read_rows(lives.warehouse / "shop" / name))) for name in tables}
    return {**rows, "dead letters": letters}


MORE = ("simple-avro", "open-protocol", "maxwell", wire_storage.CANAL_JSON)  # another of the kind


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(each, marks=pytest.mark.more) if each in MORE else each
        for each in (*RECORDINGS, "avro", "maxwell", *STORED)
    ],
)
def test_spark_and_threads_lead_to_the_same_tables(
    variant: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    label = LAST_OF_SNAPPY if variant == "canal-json-snappy" else LABEL
    target_ts = test_maxwell.target_ts(LABEL) if variant == "maxwell" else wire.state_ts(label)
    with uri_of(variant, tmp_path) as uri:
        by_spark = played(on_spark(spark), uri, tmp_path / "spark", target_ts)
        on_threads = played(ThreadsOfProcess, uri, tmp_path / "threads", target_ts)
    assert {"orders", "alltypes"} <= by_spark.keys()
    assert sum(map(len, by_spark.values())) > 50
    assert by_spark == on_threads
