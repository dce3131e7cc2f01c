"""The recorded bytes of TiCDC's own encoder lead to the recorded tables, cell for cell.

Against a real broker; a life in this process for each restart, and the real program in a process of
its own. The topics go on far beyond the moments at which it stops, with replays of rows and DDLs,
and lower watermarks. Behind ``after_updates`` tables change: columns, names, partitions; some go,
and their names come back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.control.dead_letters import DeadLetters
from sinks.control.progress import Progress
from sinks.control.snapshots import Snapshots
from tests.acceptance.one_process import CHANGEFEED, Lives, on_spark
from tests.acceptance.processes import JVM_OPTIONS
from tests.services import wire
from tests.services.kafka_broker import REPOSITORY, KafkaBroker

PATIENCE_S = 400
LABELS = (
    "after_load",
    "after_updates",
    "after_first_ddls",
    "after_renames",
    "after_partition_ddls",
    "final",
)
pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]


def run_to(label: str, broker: KafkaBroker, topic: str, folder: Path, engine: str) -> None:
    """``tidelake run`` to the state's timestamp; it must end by itself with exit code 0."""
    config = folder / "changefeed.toml"
    config.write_text(f'apply-engine = "{engine}"\n')
    source = f"kafka://{broker.bootstrap}/{topic}?protocol=canal-json&partition-num=3"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "streaming.cli.main", "run"),
            *("--source-uri", f"{source}&enable-tidb-extension=true"),
            *("--sink-uri", f"delta://{folder}/warehouse", "--changefeed-id", CHANGEFEED),
            *("--target-ts", str(wire.state_ts(label)), "--config", str(config)),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "JDK_JAVA_OPTIONS": JVM_OPTIONS},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.spark
def test_recorded_bytes_lead_to_every_recorded_state(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart at each labelled moment. A table without a key is in dead letters."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    topic = wire.produce(broker, "canal-json", topic="wire-in-order")
    lives = Lives(on_spark(spark), broker, tmp_path, topics=[topic])
    for label in LABELS:
        lives.finish(target_ts=wire.state_ts(label))
        assert (label, wire.differences(lives.warehouse, label)) == (label, [])
        assert_snapshot_is_current(lives.warehouse, label)
        if label == "after_updates":
            assert_keyless_is_in_dead_letters(lives.warehouse)


def assert_keyless_is_in_dead_letters(warehouse: Path) -> None:
    spans = Progress(str(warehouse)).read(CHANGEFEED)
    keyless = next(span for name, span in spans.items() if name.table == "audit_log")
    assert (keyless.state, keyless.delta_version) == ("warning", None)
    dead = DeadLetters(str(warehouse)).counts(CHANGEFEED)
    assert dead == {keyless.name: keyless.dead_letters}
    assert keyless.dead_letters > 0


@pytest.mark.soak
def test_recorded_bytes_through_spark(broker: KafkaBroker, tmp_path: Path) -> None:
    topic = wire.produce(broker, "canal-json", topic="wire-spark")
    run_to("after_load", broker, topic, tmp_path, engine="auto")
    run_to("after_updates", broker, topic, tmp_path, engine="spark")
    assert wire.differences(tmp_path / "warehouse", "after_updates") == []
    spans = Progress(str(tmp_path / "warehouse")).read(CHANGEFEED)
    engines = {name.table: row.engine for name, row in spans.items()}
    assert engines["orders"] == "spark"


@pytest.mark.parametrize(
    "label",
    [
        *(pytest.param(each, marks=pytest.mark.soak) for each in LABELS[:-1]),
        pytest.param(LABELS[-1], marks=pytest.mark.more),
    ],
)
def test_interleaved_bytes_lead_there_in_one_run(
    broker: KafkaBroker, tmp_path: Path, label: str
) -> None:
    topic = wire.produce(broker, "canal-json-interleaved", topic=f"wire-interleaved-{label}")

    run_to(label, broker, topic, tmp_path, engine="auto")

    warehouse = tmp_path / "warehouse"
    assert wire.differences(warehouse, label) == []
    assert_snapshot_is_current(warehouse, label)


def assert_snapshot_is_current(warehouse: Path, label: str) -> None:
    """The ledger names, for the last limit, versions that show it: of the tables of then alone."""
    snapshot = Snapshots(str(warehouse)).latest(CHANGEFEED)
    assert snapshot is not None
    assert snapshot.primary_ts == wire.state_ts(label)
    there = {f"shop.{table.name}" for table in wire.expected(label).values() if table.key}
    assert set(snapshot.tables) == there
    assert wire.differences(warehouse, label, versions=snapshot.tables) == []
