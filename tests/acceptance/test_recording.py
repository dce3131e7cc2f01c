"""A recording is played without a broker, and one that was made of a topic leads to its tables."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sinks.control.changefeeds import Changefeeds
from tests.acceptance.processes import JVM_OPTIONS, ON_SPARK, ON_THREADS
from tests.services import wire
from tests.services.commands_here import run_here
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import REPOSITORY, KafkaBroker

PATIENCE_S = 200
pytestmark = pytest.mark.acceptance


def command(*arguments: str, program: str = ON_SPARK) -> list[str]:
    return [sys.executable, "-m", program, *arguments]


def replay(recording: Path, warehouse: Path, *more: str, program: str = ON_THREADS) -> list[str]:
    source = f"file://{recording}?protocol=canal-json&enable-tidb-extension=true"
    arguments = ("run", "--source-uri", source, "--sink-uri", f"delta://{warehouse}", *more)
    return command(*arguments, program=program)


def ended(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=REPOSITORY,
        env={**os.environ, "JDK_JAVA_OPTIONS": JVM_OPTIONS},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_recording_is_played_to_a_target_then_to_its_end(tmp_path: Path) -> None:
    """A kill on the way changes nothing, and a whole one has nothing to do."""
    recording = wire.DATA / "canal-json" / "messages.jsonl.gz"
    warehouse = tmp_path / "lake"
    first = ended(replay(recording, warehouse, "--target-ts", str(wire.state_ts("after_updates"))))
    assert first.returncode == 0, first.stderr
    assert wire.differences(warehouse, "after_updates") == []

    killed = subprocess.Popen(
        replay(recording, warehouse, program=ON_SPARK),
        cwd=REPOSITORY,
        env={**os.environ, "JDK_JAVA_OPTIONS": JVM_OPTIONS},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert killed.stderr is not None
    for line in killed.stderr:
        if "runs a DDL" in line:
            killed.send_signal(signal.SIGKILL)
            break
    killed.wait()
    killed.stderr.close()

    last = ended(replay(recording, warehouse))
    assert last.returncode == 0, last.stderr
    assert wire.differences(warehouse, "final") == []
    began_s = time.monotonic()
    again = ended(replay(recording, warehouse))
    assert (again.returncode, time.monotonic() - began_s < PATIENCE_S) == (0, True)
    assert "finished already" in again.stderr
    row = Changefeeds(str(warehouse)).read("messages")
    assert row is not None
    assert row.state == "finished"
    assert {part.rpartition("/")[2] for part in row.source_identities} == {"0", "1", "2"}


def test_another_recording_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    plain = gzip.decompress((wire.DATA / "canal-json" / "messages.jsonl.gz").read_bytes())
    recording, warehouse = tmp_path / "m.jsonl", tmp_path / "lake"
    recording.write_bytes(plain)
    target = ("--target-ts", str(wire.state_ts("after_load")))
    assert ended(replay(recording, warehouse, *target)).returncode == 0
    recording.write_bytes(plain + plain.splitlines(keepends=True)[-1])
    refused = ended(replay(recording, warehouse))
    assert refused.returncode == 1
    assert "is not the recording that this changefeed has read" in refused.stderr
    recording.write_bytes(plain[: len(plain) // 2])
    broken = ended(replay(recording, tmp_path / "other"))
    assert broken.returncode == 2
    assert "is no message of a recording" in broken.stderr.splitlines()[-1]


def lines_of(recording: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(recording.read_bytes()) if recording.suffix == ".gz" else None
    return [json.loads(each) for each in (text or recording.read_bytes()).splitlines()]


@pytest.mark.kafka
def test_what_is_recorded_of_a_topic_leads_to_the_same_tables(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = wire.produce(broker, "canal-json", topic="wire-recorded")
    source = f"kafka://{broker.bootstrap}/{topic}?protocol=canal-json&enable-tidb-extension=true"
    recording, masked = tmp_path / "shop.jsonl.gz", tmp_path / "masked.jsonl"
    made = run_here("record", "--source-uri", source, "--output", str(recording))
    assert (made.code, made.err) == (0, "")
    sent = wire.messages("canal-json")
    assert made.out == f"recorded {len(sent)} messages in {recording}\n"
    found = {(line["partition"], line["offset"]) for line in lines_of(recording)}
    assert len(found) == len(sent)
    warehouse = tmp_path / "lake"
    target = ("--target-ts", str(wire.state_ts("after_updates")))
    assert ended(replay(recording, warehouse, *target)).returncode == 0
    assert wire.differences(warehouse, "after_updates") == []

    made = run_here("record", "--source-uri", source, "-o", str(masked), "--mask")
    assert made.code == 0, made.err
    assert ended(replay(masked, tmp_path / "masked", *target)).returncode == 0
    plain, other = (
        {row["id"]: row for row in read_rows(folder / "shop" / "orders")}
        for folder in (warehouse, tmp_path / "masked")
    )
    assert plain.keys() == other.keys()
    assert plain != other

    part = ("--from", f"{topic}/1=5", "--to", f"{topic}/1=8", "--to", f"{topic}/0=0")
    some = tmp_path / "some.jsonl"
    made = run_here("record", "--source-uri", source, "-o", str(some), *part)
    assert made.code == 0, made.err
    assert [x["offset"] for x in lines_of(some) if x["partition"] == 1] == [5, 6, 7]
    assert not [x for x in lines_of(some) if x["partition"] == 0]
    at_ms = lines_of(recording)[-1]["timestamp_ms"] + 60_000
    later = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms / 1e3))
    made = run_here("record", "--source-uri", source, "-o", str(some), "--since", later)
    assert made.code == 2
    assert "there is no message to record" in made.err
    made = run_here("record", "--source-uri", source, "-o", str(some), "--until", later)
    assert made.out.startswith(f"recorded {len(sent)} messages")
    made = run_here("record", "--source-uri", source, "-o", str(some), "--from", "x=1")
    assert (made.code, "must look like shop/0=4711" in made.err) == (2, True)
