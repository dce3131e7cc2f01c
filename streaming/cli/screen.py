"""Rows and lines, for people or for programs. On a terminal that is too narrow for a table each row
is a record."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conf.masking import masked, masked_values
from streaming.changefeed.freshness import NOT_RUNNING
from streaming.operations import changed

GOOD_STATES = frozenset({"running", "finished", "replicating", "normal"})
BAD_STATES = frozenset({"failed", "error", "pending", NOT_RUNNING})
PIPE_WIDTH = 200  # the width if stdout is no terminal: wide enough that no cell is cut
MOST_WIDTH = 1_000_000
WORDY = frozenset({"query", "reason", "sql", "error", "message", "note", "refusal", "what"})
LEAST_WORDS = 24  # the width below which a column of words is not readable
MOST_LINES = 4  # of a cell
ShownRow = Mapping[str, Any]


def show_rows(found: ShownRow | list[ShownRow], *, as_json: bool) -> None:
    """Print one row with a line for each field, or a list of rows (with equal keys) as a table."""
    rows = found if isinstance(found, list) else [found]
    if as_json:
        print(as_json_text({"rows": rows}, indent=2))
        return
    for row in rows:
        for line in changed.lines(row):
            print(line)
    rows = [{name: row[name] for name in row if name != changed.CHANGED} for row in rows]
    console = console_of()
    if isinstance(found, list) and console.is_terminal and _is_too_wide(rows, console.width):
        for row in rows:
            console.print(_record({k: v for k, v in row.items() if v is not None}), "", crop=False)
        return
    if isinstance(found, list):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in rows[0] if rows else ("none",):
            # Rich makes columns that may not wrap narrower last: they are what a command is given.
            table.add_column(name, no_wrap=name not in WORDY, overflow="fold")
        for row in rows:
            table.add_row(*(_plain(name, value) for name, value in row.items()))
    else:
        table = _record(rows[0])
    if not console.is_terminal:  # for programs: a row is a line, however long
        wide = console.options.update_width(MOST_WIDTH)
        console.width = max(console.width, console.measure(table, options=wide).maximum)
    console.print(table, crop=False)


def _record(row: ShownRow) -> Table:
    """A line for each field."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in row.items():
        table.add_row(Text(name, style="bold"), _plain(name, value))
    return table


def _is_too_wide(rows: Sequence[ShownRow], width: int) -> bool:
    """Whether a table of these rows would leave its wordy columns no room for words."""
    widest = {
        name: max(len(name), *(len(_plain(name, row[name])) for row in rows))
        for name in (rows[0] if rows else ())
    }
    wordy = sorted(size for name, size in widest.items() if name in WORDY)
    left = width - len(widest) - sum(size for name, size in widest.items() if name not in WORDY)
    for place, size in enumerate(wordy):  # the short ones leave more to the long ones
        share = left // (len(wordy) - place)
        if size > share and (share < LEAST_WORDS or size > MOST_LINES * share):
            return True
        left -= min(size, share)
    return left < 0


def _plain(name: str, value: object) -> Text:
    if name == "state":
        return state_text(str(value))
    if isinstance(value, datetime):
        return Text(clock(value))
    return Text("-" if value is None else masked(str(value)))


def say(line: str, fields: dict[str, Any], *, as_json: bool) -> None:
    """Print one line: a text, or JSON."""
    print(as_json_text(fields, indent=None) if as_json else masked(line))


def as_json_text(content: dict[str, Any], *, indent: int | None) -> str:
    def plain(value: object) -> str:
        return value.isoformat() if isinstance(value, datetime) else str(value)

    return json.dumps(masked_values(content), default=plain, indent=indent, ensure_ascii=False)


def is_terminal() -> bool:
    return console_of().is_terminal


def console_of() -> Console:
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False)


def state_text(state: str) -> Text:
    style = "green" if state in GOOD_STATES else "red" if state in BAD_STATES else "yellow"
    return Text(state, style=style)


def clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
