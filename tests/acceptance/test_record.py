"""A recording that was made of a topic leads to its tables."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.replays import ended, replay
from tests.services import wire
from tests.services.commands_here import run_here
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]


def lines_of(recording: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(recording.read_bytes()) if recording.suffix == ".gz" else None
    return [json.loads(each) for each in (text or recording.read_bytes()).splitlines()]


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
