"""Peak memory of driver, JVM and workers for backlogs of different sizes: it must not grow."""

from __future__ import annotations

import shutil

from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import TABLE, BulkRun, measured, rows_text
from tests.benchmarks.contenders import Tidelake
from tests.benchmarks.feed import Feed
from tests.benchmarks.printing import new_table, number
from tests.benchmarks.sizes import MILLION
from tests.benchmarks.workload import make_changes


def run(bench: Bench, results: list[BulkRun]) -> None:
    """Each backlog by itself, over a table of a million rows, or as many as the backlog has."""
    for count in bench.size.backlogs:

        def work(count: int = count) -> None:
            base_rows = min(MILLION, count)
            bench.say(f"backlog of {rows_text(count)}: the history")
            changes = make_changes(base_rows, count, recent=True)
            feed = Feed(bench.broker, f"backlog-{count}", {TABLE: changes})
            folder = bench.setting.folder / feed.topic
            contender = Tidelake(bench.setting)
            try:
                feed.send_creates()
                contender.prepare(feed, base_rows, folder / contender.name)
                feed.send()
                bench.say(f"backlog of {rows_text(count)}: reading it")
                results.append(measured(contender, feed, folder))
            finally:
                bench.broker.delete_topic(feed.topic)
                shutil.rmtree(folder, ignore_errors=True)

        bench.attempt(f"backlog of {rows_text(count)}", work)


def tables(results: list[BulkRun]) -> list[Table]:
    table = new_table(
        "Memory with a backlog, peaks in MB (it must not grow with the backlog)",
        "changes", "driver", "JVM", "workers", "etcd", "at once", "steady changes/s", "commits",
    )  # fmt: skip
    for run_ in results:
        mb = run_.cost.peak_rss_mb_of
        table.add_row(
            rows_text(run_.changes),
            *(number(mb[kind], 0) for kind in ("driver", "jvm", "workers", "etcd")),
            number(run_.cost.peak_rss_mb, 0),
            number(run_.steady_rate, 0),
            str(run_.commits),
        )
    return [table]
