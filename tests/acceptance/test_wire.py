"""The recorded bytes of TiCDC's own encoder lead to the recorded tables, cell for cell.

The real program in a process of its own, against a real broker. ``after_load`` and
``after_updates`` lie before the first DDL that changes a table, though the topics go on far beyond
them, with replays and lower watermarks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sinks.dead_letters import DeadLetters
from sinks.progress import Progress
from sinks.snapshots import Snapshots
from tests.acceptance.processes import JVM_OPTIONS
from tests.services import wire
from tests.services.kafka_broker import REPOSITORY, KafkaBroker

PATIENCE_S = 400
pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]


def run_to(label: str, broker: KafkaBroker, topic: str, folder: Path, engine: str) -> None:
    """``tidelake run`` to the state's timestamp; it must end by itself with exit code 0."""
    config = folder / "changefeed.toml"
    config.write_text(f'apply-engine = "{engine}"\n')
    source = f"kafka://{broker.bootstrap}/{topic}?protocol=canal-json&partition-num=3"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "streaming.cli", "run"),
            *("--source-uri", f"{source}&enable-tidb-extension=true"),
            *("--sink-uri", f"delta://{folder}/warehouse", "--changefeed-id", "wire"),
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


@pytest.mark.parametrize("engine", ["auto", pytest.param("spark", marks=pytest.mark.soak)])
def test_recorded_bytes_lead_to_the_recorded_tables(
    broker: KafkaBroker, tmp_path: Path, engine: str
) -> None:
    topic = wire.produce(broker, "canal-json", topic=f"wire-in-order-{engine}")

    run_to("after_load", broker, topic, tmp_path, engine="auto")
    assert wire.differences(tmp_path / "warehouse", "after_load") == []

    run_to("after_updates", broker, topic, tmp_path, engine=engine)
    assert wire.differences(tmp_path / "warehouse", "after_updates") == []
    engines = {name.table: row.engine for name, row in read_progress(tmp_path).items()}
    assert engines["orders"] == {"auto": "merge-on-write"}.get(engine, engine)


def test_interleaved_bytes_lead_there_in_one_run(broker: KafkaBroker, tmp_path: Path) -> None:
    topic = wire.produce(broker, "canal-json-interleaved", topic="wire-interleaved")

    run_to("after_updates", broker, topic, tmp_path, engine="auto")

    warehouse = tmp_path / "warehouse"
    assert wire.differences(warehouse, "after_updates") == []
    spans = read_progress(tmp_path)
    keyless = next(span for name, span in spans.items() if name.table == "audit_log")
    assert (keyless.state, keyless.delta_version) == ("warning", None)
    dead = DeadLetters(str(warehouse)).counts("wire")
    assert dead == {keyless.name: keyless.dead_letters}
    assert keyless.dead_letters > 0
    assert_snapshot_is_current(warehouse)


def read_progress(folder: Path) -> dict:
    return Progress(str(folder / "warehouse")).read("wire")


def assert_snapshot_is_current(warehouse: Path) -> None:
    """The ledger names, for the last limit, exactly the versions that the tables are at."""
    snapshot = Snapshots(str(warehouse)).latest("wire")
    assert snapshot is not None
    assert snapshot.primary_ts == wire.state_ts("after_updates")
    for name, version in snapshot.tables.items():
        assert DeltaTable(warehouse / name.replace(".", "/")).version() == version
