"""The result as tables on the terminal and as one JSON file."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from tests.benchmarks.bulk import Cell, Run
from tests.benchmarks.floors import Floor
from tests.benchmarks.freshness import Freshness
from tests.benchmarks.many_tables import TABLES, ManyTables

AIM_OVER_NAIVE = 5.0
AIM_P95_S = 3.0
AIM_ROUND_S = 10.0


@dataclass(slots=True)
class Report:
    """What was measured so far; every part may be missing."""

    notes: list[str]
    bulk: dict[Cell, list[Run]] = field(default_factory=dict)
    freshness: list[Freshness] = field(default_factory=list)
    many_tables: list[ManyTables] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """One JSON object; every single run is in it."""
        body = {
            "machine": {
                "cores": os.cpu_count(),
                "memory_gb": round(psutil.virtual_memory().total / 1e9),
                "system": platform.platform(),
                "python": platform.python_version(),
            },
            "notes": self.notes,
            "bulk": [
                {**dataclasses.asdict(cell), "runs": [_plain(run) for run in runs]}
                for cell, runs in self.bulk.items()
            ],
            "freshness": [_plain(each) for each in self.freshness],
            "many_tables": [_plain(each) for each in self.many_tables],
            "floors": [_plain(each) for each in self.floors],
            "failures": self.failures,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body, indent=1) + "\n")

    def show(self, console: Console) -> None:
        """All tables, then the notes, then what went wrong."""
        if self.bulk:
            console.print(self._bulk_table())
        if self.freshness:
            console.print(self._freshness_table())
        if self.many_tables:
            console.print(self._many_tables_table())
        if self.floors:
            console.print(self._floors_table())
        for note in self.notes:
            console.print(f"· {note}", highlight=False)
        for failure in self.failures:
            first = failure.splitlines()[0]
            console.print(f"[red]FAILED[/red] {first} (more above)", highlight=False)

    def _bulk_table(self) -> Table:
        table = _table(
            "(a) Kafka to Delta, medians "
            "(aim: 5x naive everywhere; level with delta-rs at 1 M rows, ahead at 10 M)",
            "keys over rows", "contender", "changes/s", "each round", "ratio to naive",
            "ratio to delta-rs", "s", "first commit s", "process s", "CPU s", "others CPU s",
            "peak MB", "note",
        )  # fmt: skip
        for cell, runs in self.bulk.items():
            by_name = _grouped(runs)
            rates = {name: median(run.rate for run in mine) for name, mine in by_name.items()}
            for name, mine in by_name.items():
                table.add_row(
                    cell.name,
                    name,
                    f"{rates[name]:,.0f}",
                    " ".join(f"{run.rate / 1000:.1f}k" for run in mine),
                    _ratio(rates, name, "naive"),
                    _ratio(rates, name, "delta-rs"),
                    _median(mine, lambda run: run.seconds),
                    _median(mine, lambda run: run.first_commit_s),
                    _median(mine, lambda run: run.process_s),
                    _median(mine, lambda run: run.cost.cpu_s),
                    _median(mine, lambda run: run.cost.others_cpu_s),
                    _median(mine, lambda run: run.cost.peak_rss_mb, 0),
                    mine[0].note,
                )
            table.add_section()
        return table

    def _freshness_table(self) -> Table:
        table = _table(
            f"(b) Produced to readable at 1,000 changes/s (aim: p95 at most {AIM_P95_S:g} s)",
            "contender", "rows", "watermark every", "p50 s", "p95 s", "longest s", "commits",
            "CPU s", "others CPU s", "peak MB",
        )  # fmt: skip
        for each in self.freshness:
            table.add_row(
                each.contender,
                f"{each.base_rows:,}",
                f"{each.watermark_interval_s:g} s",
                f"{each.p50:.2f}",
                f"{each.p95:.2f}",
                f"{each.longest:.2f}",
                str(each.commits),
                *_cost(each.cost),
            )
        return table

    def _many_tables_table(self) -> Table:
        table = _table(
            f"(c) {TABLES} tables x 50 changes, seconds a round (aim: at most {AIM_ROUND_S:g} s)",
            "contender", "median s", "each round", "CPU s in all", "others CPU s", "peak MB",
            "note",
        )  # fmt: skip
        for each in self.many_tables:
            rounds = " ".join(f"{seconds:.1f}" for seconds in each.seconds)
            table.add_row(
                each.contender, f"{each.median:.1f}", rounds, *_cost(each.cost), each.note
            )
        return table

    def _floors_table(self) -> Table:
        table = _table("(d) What is below", "step", "each s", "median s", "rate/s", "note")
        for floor in self.floors:
            middle = median(floor.seconds)
            rate = f"{floor.count / middle:,.0f} {floor.unit}" if floor.count else ""
            each = " ".join(f"{seconds:.3g}" for seconds in floor.seconds)
            table.add_row(floor.step, each, f"{middle:.3g}", rate, floor.note)
        return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n < 1 or column == "note" else "right")
    return table


def _grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    return {
        name: [r for r in runs if r.contender == name]
        for name in dict.fromkeys(r.contender for r in runs)
    }


def _ratio(rates: dict[str, float], name: str, other: str) -> str:
    return f"{rates[name] / rates[other]:.2f}" if other in rates else ""


def _median(runs: Sequence[Run], value: Any, digits: int = 1) -> str:
    return f"{median(value(run) for run in runs):.{digits}f}"


def _cost(cost: Any) -> tuple[str, str, str]:
    return f"{cost.cpu_s:.1f}", f"{cost.others_cpu_s:.1f}", f"{cost.peak_rss_mb:.0f}"


def _plain(value: Any) -> dict[str, Any]:
    return dataclasses.asdict(value)
