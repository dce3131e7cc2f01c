"""Throughput with garbage between the messages: none, 0.1 % and 50 % of them.

Every mutated message must be a dead letter, and nothing else may be one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import TABLE, BulkRun, measured, rows_text
from tests.benchmarks.contenders import Tidelake
from tests.benchmarks.feed import Feed
from tests.benchmarks.measure import Job
from tests.benchmarks.printing import new_table, number
from tests.benchmarks.sizes import MILLION
from tests.benchmarks.workload import make_changes

SHARES = (0.0, 0.001, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """One share of garbage, once."""

    share: float
    garbage: int  # messages of it
    run: BulkRun

    @property
    def whole_rate(self) -> float:
        """Messages a second, garbage included."""
        return (self.run.applied + self.garbage) / self.run.whole_s

    @property
    def steady_rate(self) -> float:
        return self.run.steady_rate * (self.run.applied + self.garbage) / self.run.applied


class _Counting(Tidelake):
    """Looks at the dead letters when the run is over, before its warehouse goes."""

    letters = -1

    def ready_at(self, job: Job, warehouse: Path) -> float | None:
        path = warehouse / "_tidelake" / "dead_letters"
        if path.is_dir():
            self.letters = DeltaTable(str(path)).count()
        return super().ready_at(job, warehouse)


def run(bench: Bench, results: list[Garbage]) -> None:
    count = bench.size.garbage_changes
    base_rows = min(MILLION, 2 * count)
    for share in SHARES:

        def work(share: float = share) -> None:
            changes = make_changes(base_rows, count, recent=True)
            topic = f"garbage-{share:g}".replace(".", "-")
            feed = Feed(bench.broker, topic, {TABLE: changes}, garbage=share)
            folder = bench.setting.folder / feed.topic
            contender = _Counting(bench.setting)
            try:
                feed.send_creates()
                contender.prepare(feed, base_rows, folder / contender.name)
                feed.send()
                bench.say(f"garbage: {share:.1%} of {rows_text(count + feed.garbage_sent)}")
                run_ = measured(contender, feed, folder)
                found = max(contender.letters, 0)
                assert found == feed.garbage_sent, f"{found} dead letters of {feed.garbage_sent}"
                results.append(Garbage(share=share, garbage=feed.garbage_sent, run=run_))
            finally:
                bench.broker.delete_topic(feed.topic)
                shutil.rmtree(folder, ignore_errors=True)

        bench.attempt(f"garbage, {share:.1%}", work)


def tables(results: list[Garbage]) -> list[Table]:
    table = new_table(
        "Garbage between the messages, messages/s with it",
        "garbage", "messages", "steady", "whole", "CPU-µs a message", "peak MB",
    )  # fmt: skip
    for each in results:
        messages = each.run.applied + each.garbage
        table.add_row(
            f"{each.share:.1%}",
            rows_text(messages),
            number(each.steady_rate, 0),
            number(each.whole_rate, 0),
            number(1e6 * each.run.cost.cpu_s / messages),
            number(each.run.cost.peak_rss_mb, 0),
        )
    return [table]
