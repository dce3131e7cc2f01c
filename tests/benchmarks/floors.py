"""(d) What is below the whole: each step of the data plane as a direct call of its module, and a
whole run over the same topic beside their sum.

CPU-µs a message: what the steps cost is what the whole cannot fall below; what is above it is
Spark, processes and copies between them.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass

from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import TABLE, BulkRun, measured, rows_text
from tests.benchmarks.commit_workload import make_base
from tests.benchmarks.contenders import Tidelake
from tests.benchmarks.feed import SCHEMA_NAME, Feed
from tests.benchmarks.measure import KINDS, Job
from tests.benchmarks.printing import grouped, middle, new_table, number
from tests.benchmarks.workload import make_changes

_PATIENCE_S = 900.0
JOBS = "consume and decode in Spark jobs: "
WHOLE = "whole run: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One step, or a kind of process of the whole run, once."""

    step: str
    wall_s: float | None  # None: not by itself
    cpu_s: float
    messages: int

    @property
    def micros(self) -> float:
        return 1e6 * self.cpu_s / self.messages


def run(bench: Bench, results: list[Floor]) -> None:
    """The first stage of the smallest table of (a)."""
    base_rows = min(bench.size.bulk)
    count = bench.size.bulk[base_rows][0].changes
    folder = bench.setting.folder / "floors"

    def work() -> None:
        bench.say(f"floors: a topic of {rows_text(count)}, a table of {rows_text(base_rows)} rows")
        changes = make_changes(base_rows, count, recent=True)
        feed = Feed(bench.broker, "floors", {TABLE: changes})
        try:
            feed.send_creates()
            contender = Tidelake(bench.setting)
            if contender.name in bench.names:
                contender.prepare(feed, base_rows, folder / contender.name)
            start = feed.end_offsets()
            feed.send()
            make_base(folder / "base", "integer", base_rows)
            results.extend(_steps(bench, feed, start))
            results.extend(_read_jobs(bench, feed))
            if contender.name in bench.names:
                bench.say("floors: a whole run beside them")
                results.extend(_whole(measured(contender, feed, folder)))
        finally:
            bench.broker.delete_topic(feed.topic)
            shutil.rmtree(folder, ignore_errors=True)

    bench.attempt("floors", work)


def _steps(bench: Bench, feed: Feed, start: dict[int, int]) -> list[Floor]:
    folder = bench.setting.folder / "floors"
    command = [
        sys.executable, "-m", "tests.benchmarks.floors_job", "--bootstrap", feed.bootstrap,
        "--topic", feed.topic, "--start", json.dumps(start), "--schema", SCHEMA_NAME,
        "--end", json.dumps(feed.end_offsets()), "--table", TABLE,
        "--folder", str(folder), "--base", str(folder / "base"),
    ]  # fmt: skip
    with Job("floors", command, bench.setting.folder, bench.setting.broker_pid) as job:
        bench.say("floors: consume, decode, carry, cast, commit")
        job.wait(_PATIENCE_S)
    names = ("step", "wall_s", "cpu_s", "messages")
    return [Floor(**{name: event[name] for name in names}) for event in job.events("floor")]


def _read_jobs(bench: Bench, feed: Feed) -> list[Floor]:
    """Reading and decoding through Spark, by kind of process."""
    command = [
        sys.executable, "-m", "tests.benchmarks.read_job", "--source-uri", feed.source_uri,
        "--tables", ",".join(f"{SCHEMA_NAME}.{name}" for name in feed.tables),
    ]  # fmt: skip
    with Job("read-job", command, bench.setting.folder, bench.setting.broker_pid) as job:
        bench.say("floors: read and decode in Spark jobs")
        job.wait(_PATIENCE_S)
    found = []
    for event in job.events("pass"):
        cost = job.cost(event["first"], event["last"])
        kinds = {**{k: v for k, v in cost.cpu_s_of.items() if v}, "broker": cost.broker_cpu_s}
        wall = event["last"] - event["first"]
        found += [
            Floor(step=f"{JOBS}{kind}", wall_s=wall, cpu_s=cpu, messages=event["messages"])
            for kind, cpu in kinds.items()
        ]
    return found


def _whole(run_: BulkRun) -> list[Floor]:
    seconds = {**{k: run_.cost.cpu_s_of[k] for k in KINDS}, "broker": run_.cost.broker_cpu_s}
    return [
        Floor(step=f"{WHOLE}{kind}", wall_s=None, cpu_s=cpu_s, messages=run_.applied)
        for kind, cpu_s in seconds.items()
    ]


def tables(results: list[Floor]) -> list[Table]:
    table = new_table(
        "(d) Floors, medians of three, and the whole (start of its processes included)",
        "step", "CPU-µs a message", "each", "wall µs a message",
    )  # fmt: skip
    floors = wholes = 0.0
    for step, mine in grouped(results, lambda floor: floor.step).items():
        micros = middle(mine, lambda floor: floor.micros)
        if step.startswith(WHOLE):
            wholes += 0.0 if step.endswith("broker") else micros
        elif not step.startswith(JOBS):
            floors += micros
        walls = [1e6 * each.wall_s / each.messages for each in mine if each.wall_s is not None]
        table.add_row(
            step,
            number(micros, 2),
            " ".join(number(floor.micros, 2) for floor in mine),
            number(sorted(walls)[len(walls) // 2], 2) if walls else "",
        )
    table.add_section()
    table.add_row("sum of the floors", number(floors, 2))
    if wholes:
        table.add_row("whole, without the broker", number(wholes, 2))
        table.add_row("whole / floors", number(wholes / floors, 2))
    return [table]
