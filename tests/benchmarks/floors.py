"""(d) What is below the whole: reading, decoding, applying and committing, each by itself.

They run in one process, one after the other, on the product's own code where it is Tidelake's
step, so that the next piece of work is plain. The first figure of a Spark step is that of a cold
JVM.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass

from tests.benchmarks.bulk import TABLE, rows_text
from tests.benchmarks.contenders import DeltaRs, Setting, Tidelake
from tests.benchmarks.feed import Feed
from tests.benchmarks.measure import Job
from tests.benchmarks.workload import make_changes
from tests.services.kafka_broker import KafkaBroker

_PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One step, several times."""

    step: str
    seconds: tuple[float, ...]
    count: int  # of what one repetition handled; 0: a fixed cost
    unit: str
    note: str


def run_floors(broker: KafkaBroker, setting: Setting, changes: int, base_rows: int) -> list[Floor]:
    """A topic of ``changes`` and a table of ``base_rows``, made the same way as for (a)."""
    folder = setting.folder / "floors"
    setting.say(f"floors: building a topic and a table of {rows_text(base_rows)} rows")
    feed = Feed(broker, "floors", {TABLE: make_changes(base_rows, changes, recent=True)})
    try:
        feed.send_creates()
        Tidelake(setting).prepare(feed, base_rows, folder / "tidelake")
        DeltaRs(setting).prepare(feed, base_rows, folder / "plain")
        feed.send()
        command = [
            sys.executable, "-m", "tests.benchmarks.floors_job", "--source-uri", feed.source_uri,
            "--bootstrap", feed.bootstrap, "--topic", feed.topic, "--folder", str(folder),
        ]  # fmt: skip
        memory = {"SPARK_DRIVER_MEMORY": setting.memory}
        with Job("floors", command, setting.folder, setting.broker_pid, memory) as job:
            setting.say("floors: read, decode, apply, commit")
            job.wait(_PATIENCE_S)
        return _grouped(job)
    finally:
        broker.delete_topic(feed.topic)
        shutil.rmtree(folder, ignore_errors=True)


def _grouped(job: Job) -> list[Floor]:
    by_step: dict[str, list[dict[str, object]]] = {}
    for event in job.events("floor"):
        by_step.setdefault(event["step"], []).append(event)
    return [
        Floor(
            step=step,
            seconds=tuple(float(event["seconds"]) for event in events),
            count=int(events[0]["count"]),
            unit=str(events[0]["unit"]),
            note=str(events[0]["note"]),
        )
        for step, events in by_step.items()
    ]
