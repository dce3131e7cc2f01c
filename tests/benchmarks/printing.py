"""How results are printed: tables of rich, numbers of three digits, medians of rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import median
from typing import TypeVar

from rich.table import Table

from tests.benchmarks.measure import KINDS, Cost

Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
COST_COLUMNS = ("CPU s", "of it driver", "JVM", "workers", "broker's", "others'", "peak MB",
                "of it driver", "JVM", "workers")  # fmt: skip


def new_table(title: str, *columns: str) -> Table:
    """Numbers to the right; the first column and notes to the left."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for n, column in enumerate(columns):
        is_text = n == 0 or column in ("note", "contender", "step")
        table.add_column(column, justify="left" if is_text else "right")
    return table


def number(value: float | None, digits: int = 1) -> str:
    """Empty where there is none."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:,.{digits}f}"


def each_k(rates: Iterable[float]) -> str:
    """Each round's, in thousands; a dash where there is none."""
    return " ".join("-" if math.isnan(rate) else f"{rate / 1000:.0f}k" for rate in rates)


def middle(results: Sequence[Result], value: Callable[[Result], float]) -> float:
    """Median of those that have one, else nan."""
    values = [value(result) for result in results]
    return median(known) if (known := [v for v in values if not math.isnan(v)]) else math.nan


def grouped(results: Iterable[Result], key: Callable[[Result], Key]) -> dict[Key, list[Result]]:
    """By key, in the order in which the keys come first."""
    groups: dict[Key, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def cost_cells(costs: Sequence[Cost]) -> list[str]:
    """Medians, under COST_COLUMNS; the executors' and etcd's shares are in the sums alone."""
    shown = [kind for kind in KINDS if kind in ("driver", "jvm", "workers")]
    return [
        number(middle(costs, lambda cost: cost.cpu_s)),
        *(number(middle(costs, lambda cost, k=kind: cost.cpu_s_of[k])) for kind in shown),
        number(middle(costs, lambda cost: cost.broker_cpu_s)),
        number(middle(costs, lambda cost: cost.others_cpu_s)),
        number(middle(costs, lambda cost: cost.peak_rss_mb), 0),
        *(number(middle(costs, lambda cost, k=kind: cost.peak_rss_mb_of[k]), 0) for kind in shown),
    ]
