"""A live view of ``_tidelake/progress``: each table's checkpoint, lag and changes a second.

On a terminal it is one table that changes; elsewhere (CI) it is a line per table every few seconds.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from deltalake.exceptions import DeltaError
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.services.delta_rows import read_rows
from tests.shop.history import Event, Transaction

PLAIN_EVERY_S = 5.0
PLAIN_RARELY_S = 30.0
RATE_OVER_S = 6.0
_NUMBERS = ("lag", "changes/s", "changes", "Delta version")
_COLUMNS = ("table", "state", "checkpoint", *_NUMBERS, "engine")


class Watch:
    """Reads progress and shows it; a context manager."""

    def __init__(self, console: Console, warehouse: Path, events: Iterable[Event]) -> None:
        self._console = console
        self._progress = warehouse / "_tidelake" / "progress"
        self._changefeeds = warehouse / "_tidelake" / "changefeeds"
        self._commits = _commits_by_table(events)
        self._samples: dict[str, deque[tuple[float, int]]] = defaultdict(deque)
        self._last_plain = -PLAIN_RARELY_S
        self._printed: list[str] = []
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Watch:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self) -> None:
        """Read once and show; nothing before the job has made the table."""
        rows = self.rows()
        lines = [self._line(row) for row in rows]
        if self._live is not None:
            title = f"progress: {self._backlog()}"
            self._live.update(progress_table(lines, title=title), refresh=True)
        elif lines:
            self._print(lines)

    def _backlog(self) -> str:
        """How far the job is behind Kafka, as it has measured it."""
        found = self._read(self._changefeeds)
        behind, per_s, left_s = (
            found[0][name] if found else None
            for name in ("messages_behind", "messages_per_s", "time_left_s")
        )
        if behind is None:
            return "nothing measured yet"
        rate = "" if per_s is None else f", {per_s:,.0f} messages/s"
        left = "" if not behind or left_s is None else f", {left_s:.0f} s left"
        return f"{behind:,} messages behind{rate}{left}"

    def _print(self, lines: list[tuple[str, ...]]) -> None:
        """Plain lines: soon after a checkpoint moved, else rarely."""
        checkpoints = [line[2] for line in lines]
        moved = checkpoints != self._printed
        quiet_s = time.monotonic() - self._last_plain
        if quiet_s < (PLAIN_EVERY_S if moved else PLAIN_RARELY_S):
            return
        self._last_plain, self._printed = time.monotonic(), checkpoints
        self._console.print(self._backlog(), highlight=False, soft_wrap=True)
        for name, state, checkpoint, lag, rate, changes, version, engine in lines:
            self._console.print(
                f"{name}: {state}, checkpoint {checkpoint}, lag {lag}, {rate} changes/s, "
                f"{changes} changes, Delta version {version} by {engine}",
                highlight=False,
                soft_wrap=True,
            )

    def rows(self) -> list[dict[str, Any]]:
        """The progress table as it is now, by table name."""
        return sorted(self._read(self._progress), key=lambda row: row["table_name"])

    def _read(self, table: Path) -> list[dict[str, Any]]:
        try:
            return read_rows(table)
        except DeltaError:
            return []  # not there yet

    def final_table(self) -> Table:
        """The progress table at the end; lag has no meaning then."""
        return progress_table([self._line(row) for row in self.rows()], title="_tidelake/progress")

    def _line(self, row: dict[str, Any]) -> tuple[str, ...]:
        table = row["table_name"]
        changes = bisect_right(self._commits[table], row["checkpoint_ts"])
        lag_s = (datetime.now(UTC) - row["checkpoint_time"]).total_seconds()
        started = row["checkpoint_time"].year > 1970
        return (
            f"{row['schema_name']}.{table}",
            row["state"],
            f"{row['checkpoint_time']:%H:%M:%S.%f}"[:-3] if started else "-",
            f"{lag_s:.1f} s" if started else "-",
            f"{self._rate(table, changes):.0f}",
            f"{changes:,}",
            "-" if row["delta_version"] is None else str(row["delta_version"]),
            row["engine"] or "-",
        )

    def _rate(self, table: str, changes: int) -> float:
        """Changes a second that the table's checkpoint passed lately."""
        samples, now = self._samples[table], time.monotonic()
        samples.append((now, changes))
        while now - samples[0][0] > RATE_OVER_S:
            samples.popleft()
        past_s = now - samples[0][0]
        return (changes - samples[0][1]) / past_s if past_s else 0.0


def progress_table(lines: list[tuple[str, ...]], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in _COLUMNS:
        justify: Literal["left", "right"] = "right" if column in _NUMBERS else "left"
        table.add_column(column, justify=justify, no_wrap=True)
    for line in lines:
        table.add_row(*line)
    return table


def _commits_by_table(events: Iterable[Event]) -> dict[str, list[int]]:
    """Each table's changes as their commit-ts, ascending: what a checkpoint is worth."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if isinstance(event, Transaction):
            for change in event.changes:
                found[change.table.name].append(event.commit_ts)
    return found
