"""What a ``run`` costs that has nothing to do: memory, and CPU-seconds a minute.

Once without any message, once with TiCDC's watermark each second, as a living feed has it.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import TABLE
from tests.benchmarks.contenders import Tidelake
from tests.benchmarks.feed import Feed
from tests.benchmarks.freshness import await_ready
from tests.benchmarks.measure import Cost
from tests.benchmarks.printing import COST_COLUMNS, cost_cells, new_table, number
from tests.benchmarks.workload import make_changes

_BASE_ROWS = 100_000
_SETTLING_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """One stretch of doing nothing."""

    with_watermarks: bool
    seconds: float
    cost: Cost

    @property
    def cpu_s_a_minute(self) -> float:
        return self.cost.cpu_s * 60 / self.seconds


def run(bench: Bench, results: list[Idle]) -> None:
    """One process, both stretches."""
    folder = bench.setting.folder / "idle"

    def work() -> None:
        changes = make_changes(_BASE_ROWS, 1_000, recent=True)
        feed = Feed(bench.broker, "idle", {TABLE: changes}, watermark_every=1_000)
        contender = Tidelake(bench.setting)
        try:
            feed.send_creates()
            contender.prepare(feed, _BASE_ROWS, folder / "run")
            with contender.job(feed, folder / "run", tables=[TABLE], bounded=False) as job:
                await_ready(contender, job, folder / "run")
                feed.send()
                time.sleep(_SETTLING_S)
                for with_watermarks in (False, True):
                    bench.say(f"idle, {'a watermark each second' if with_watermarks else 'mute'}")
                    begun = time.time()
                    while time.time() < begun + bench.size.idle_s:
                        time.sleep(1.0)
                        if with_watermarks:
                            feed.tick()
                    job.check_alive()
                    ended = time.time()
                    results.append(
                        Idle(
                            with_watermarks=with_watermarks,
                            seconds=ended - begun,
                            cost=job.cost(begun, ended),
                        )
                    )
        finally:
            bench.broker.delete_topic(feed.topic)
            shutil.rmtree(folder, ignore_errors=True)

    bench.attempt("idle", work)


def tables(results: list[Idle]) -> list[Table]:
    table = new_table(
        "An idle run (aim: at most 2 CPU-seconds a minute)",
        "the topic", "seconds", "CPU-s a minute", *COST_COLUMNS,
    )  # fmt: skip
    for each in results:
        table.add_row(
            "a watermark each second" if each.with_watermarks else "mute",
            number(each.seconds, 0),
            number(each.cpu_s_a_minute),
            *cost_cells([each.cost]),
        )
    return [table]
