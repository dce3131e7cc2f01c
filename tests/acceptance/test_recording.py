"""A recording is played without a broker. One that is made of a topic: ``test_record``."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sinks.control.changefeeds import Changefeeds
from tests.acceptance.processes import JVM_OPTIONS, ON_SPARK
from tests.acceptance.replays import PATIENCE_S, ended, replay
from tests.services import wire
from tests.services.kafka_broker import REPOSITORY

pytestmark = pytest.mark.acceptance


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
