"""Show progress, snapshots and the answers of a cluster on a terminal, or as JSON."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from types import FrameType
from typing import Any, Final, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from conf.masking import masked, masked_values
from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from streaming.changefeed.awaited import awaited, delivery
from streaming.changefeed.freshness import NOT_RUNNING, why_not_running
from streaming.changefeed.refused.lossy_tables import in_words
from streaming.operations import changed, progress_report
from streaming.operations.before_start.notes import Outlook
from streaming.operations.diff.findings import DiffReport
from streaming.operations.progress_report import ProgressReport
from streaming.operations.snapshots import SnapshotReport, select_text

GOOD_STATES = frozenset({"running", "finished", "replicating", "normal"})
BAD_STATES = frozenset({"failed", "error", "pending", NOT_RUNNING})
PIPE_WIDTH = 200  # the width if stdout is no terminal: wide enough that no cell is cut
MOST_WIDTH = 1_000_000
NARROW = 130
TIME = "checkpoint time"
SHORT_TIME = slice(len("2026-"), len("2026-01-31T12:00:00"))
LEFT_OUT_WHEN_NARROW = ("checkpoint-ts", "resolved-ts", "capture")
NUMBERS = frozenset(
    {
        *("checkpoint-ts", "resolved-ts", "lag", "behind", "messages/s", "left", "term"),
        *("Delta\nversion", "dead\nletters", "dead letters", "rows", "columns"),
    }
)
WORDY = frozenset({"query", "reason", "sql", "error"})
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


VERDICTS: Final = {"ok": "green", "note": "yellow", "waits": "yellow", "refused": "red"}
R = TypeVar("R", ProgressReport, SnapshotReport, DiffReport, Outlook)
ShownRow = Mapping[str, Any]
Cells = dict[str, Text]


def progress(found: ProgressReport, width: int) -> RenderableType:
    """A table of changefeeds, notes on what holds them back, and a table of their spans."""
    notes = [note for row in found.changefeeds for note in _notes(found, row)]
    notes += [note for span in found.spans for note in _reload(found, span)]
    changefeeds = [_changefeed(found, row) for row in found.changefeeds]
    moving = {row.changefeed_id for row in found.changefeeds if progress_report.is_moving(row)}
    spans = [_span(found, span, span.changefeed_id in moving) for span in found.spans]
    dropped = [_dropped(span) for span in found.spans if span.dropped_columns]
    nulled = [_null_dates(span) for span in found.spans if span.null_dates]
    lossy = [_lossy(*of, columns) for of, columns in found.lossy.items()]
    below = [_table(spans, width)] if spans else []
    return Group(_table(changefeeds, width), *notes, *below, *dropped, *nulled, *lossy)


def outlook(found: Outlook, width: int) -> RenderableType:  # noqa: ARG001  # it folds by itself
    """A line for each finding, the worst ones last, and what they come to."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    order = list(VERDICTS)
    for note in sorted(found.notes, key=lambda each: order.index(each.verdict)):
        style = VERDICTS[note.verdict]
        about = Text(masked(note.about))
        table.add_row(Text(note.verdict, style=style), about, Text(masked(note.what)))
    return Group(table, Text(found.line, style="red" if found.is_refused else "green"))


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, if that is a terminal. Yields a function of how many are done, and
    of how many."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as it:
        task = it.add_task(what, total=None)
        yield lambda done, total: it.update(task, completed=done, total=total)


def snapshot(found: SnapshotReport, width: int) -> RenderableType:
    """The tables' versions, unreadable tables, then one SQL statement per table, ready to be
    copied."""
    row = found.row
    head = Text(
        f"{row.changefeed_id} as of {row.primary_ts} ({_clock(row.primary_time)}), "
        f"{row.dead_letters} dead letters"
    )
    versions: list[Cells] = [
        {
            "table": Text(str(each.table.name)),
            "Delta\nversion": Text(str(each.table.version)),
            "rows": _count(each.rows),
            "columns": _count(len(each.types) or None),
        }
        for each in found.tables
    ]
    gone = [
        Text(each.problem, style="yellow", no_wrap=True, overflow="ignore")
        for each in found.tables
        if each.problem
    ]
    statements = [
        Text(f"{select_text(each.table)};", no_wrap=True, overflow="ignore")
        for each in found.tables
    ]
    return Group(head, _table(versions, width), *gone, *statements)


def show_rows(found: ShownRow | list[ShownRow], *, as_json: bool) -> None:
    """Print one row with a line for each field, or a list of rows (with equal keys) as a table."""
    rows = found if isinstance(found, list) else [found]
    if as_json:
        print(_json({"rows": rows}, indent=2))
        return
    for row in rows:
        for line in changed.lines(row):
            print(line)
    rows = [{name: row[name] for name in row if name != changed.CHANGED} for row in rows]
    if isinstance(found, list):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in rows[0] if rows else ("none",):
            # Rich makes columns that may not wrap narrower last: they are what a command is given.
            table.add_column(name, no_wrap=name not in WORDY, overflow="fold")
        for row in rows:
            table.add_row(*(_plain(name, value) for name, value in row.items()))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows[0].items():
            table.add_row(Text(name, style="bold"), _plain(name, value))
    console = _console()
    if not console.is_terminal:  # for programs: a row is a line, however long
        wide = console.options.update_width(MOST_WIDTH)
        console.width = max(console.width, console.measure(table, options=wide).maximum)
    console.print(table, crop=False)


def _plain(name: str, value: object) -> Text:
    if name == "state":
        return _state(str(value))
    if isinstance(value, datetime):
        return Text(_clock(value))
    return Text("-" if value is None else masked(str(value)))


def say(line: str, fields: dict[str, Any], *, as_json: bool) -> None:
    """Print one line: a text, or JSON."""
    print(_json(fields, indent=None) if as_json else masked(line))


def show(found: R, view: Callable[[R, int], RenderableType], *, as_json: bool) -> None:
    console = _console()
    if as_json:
        print(_json(found.to_json(), indent=2))
    else:
        console.print(view(found, console.width), crop=False)


def watch(
    read: Callable[[], R],
    view: Callable[[R, int], RenderableType],
    *,
    every_s: float,
    as_json: bool,
) -> None:
    """Read and print again and again until Ctrl-C. An error of ``read`` is shown and does not end
    it: a warehouse that is empty now may have a changefeed later."""
    console = _console()
    with ExitStack() as stack:
        is_over = stack.enter_context(_interrupt())
        if console.is_terminal and not as_json:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        else:
            live = None
        while not is_over.is_set():
            content: RenderableType
            try:
                found = read()
            except TidelakeError as error:
                content, fields = Text(masked(str(error)), style="yellow"), {"error": str(error)}
            else:
                content, fields = view(found, console.width), found.to_json()
            if live is not None:
                live.update(content, refresh=True)
            elif as_json:
                print(_json(fields, indent=None), flush=True)
            else:
                console.print(content, crop=False)
            is_over.wait(every_s)


@contextmanager
def _interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets: an exception alone could be lost in a library's callback. A second
    Ctrl-C raises KeyboardInterrupt."""
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _json(content: dict[str, Any], *, indent: int | None) -> str:
    def plain(value: object) -> str:
        return value.isoformat() if isinstance(value, datetime) else str(value)

    return json.dumps(masked_values(content), default=plain, indent=indent, ensure_ascii=False)


def _console() -> Console:
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False)


def _changefeed(found: ProgressReport, row: ChangefeedRow) -> Cells:
    moving, row = progress_report.is_moving(row), found.measured(row)
    return {
        "changefeed": Text(row.changefeed_id),
        "state": _state(found.state(row)),
        "refreshed": Text(f"{_lag(found.refresh_age_s(row))} ago"),
        **_checkpoint(found, row.checkpoint_ts, moving),
        "behind": _count(row.messages_behind if moving else None),
        "messages/s": _count(row.messages_per_s if moving else None),
        "left": Text(_left(row) if moving else "-"),
        "source keeps": Text("-" if (left_s := found.source_left_s(row)) is None else _lag(left_s)),
        "dead letters": _letters(row.dead_letters),
        "resolved-ts": Text(str(row.resolved_ts or "-")),
        "term": Text(str(row.term)),
        "capture": Text(row.capture_id),
    }


def _notes(found: ProgressReport, row: ChangefeedRow) -> list[Text]:
    notes = []
    awaits, is_running = awaited(row), found.is_running(row)
    if (told := delivery(row)) is not None:
        notes.append(Text(f"{row.changefeed_id}: {told}, and not exactly once", style="yellow"))
    if not is_running:
        why = why_not_running(row, found.now)
        notes.append(Text(f"{row.changefeed_id}: not running: {why}", style="red"))
    elif awaits:
        notes.append(Text(f"{row.changefeed_id}: {awaits}", style="yellow"))
    elif (
        (slowest := progress_report.slowest_part(row)) is not None
        and progress_report.is_moving(row)
        and progress_report.holds_back(row)
    ):
        notes.append(
            Text(f"{row.changefeed_id}: the lowest watermark is that of {slowest}", style="dim")
        )
    if is_running and progress_report.falls_behind(row):
        notes.append(
            Text(
                f"{row.changefeed_id}: it does not catch up: messages come in as fast as they are "
                "read, or faster",
                style="yellow",
            )
        )
    if row.error:
        notes.append(Text(f"{row.changefeed_id}: {masked(row.error)}", style="red"))
    ours = (each for each in found.spans if each.changefeed_id == row.changefeed_id)
    errors = [each.error for each in ours if each.error and each.error != row.error]
    return [*notes, *(Text(f"{row.changefeed_id}: {masked(e)}", style="red") for e in errors)]


def _reload(found: ProgressReport, span: ProgressRow) -> list[Text]:
    order = found.reload_of(span)
    if order is None or order.state == "done":
        return []
    style = "yellow" if order.is_open else "red"
    told = f"{span.changefeed_id}: {masked(progress_report.how_far(order))}"
    return [Text(told, style=style)]


def _span(found: ProgressReport, span: ProgressRow, moving: bool) -> Cells:
    several = len(found.changefeeds) > 1
    version = "-" if span.delta_version is None else str(span.delta_version)
    return {
        "table": Text(f"{span.changefeed_id}: {span.name}" if several else str(span.name)),
        "state": _state(found.state(span)),
        **_checkpoint(found, span.checkpoint_ts, moving and span.state != DROPPED),
        "Delta\nversion": Text(version),
        "engine": Text(span.engine or "-"),
        "dead\nletters": _letters(span.dead_letters),
    }


def _checkpoint(found: ProgressReport, ts: int, moving: bool) -> Cells:
    """The cells of a checkpoint; ``-`` while there is none, since TSO 0 has neither time nor
    lag."""
    at, lag_s = progress_report.checkpoint_time(ts), found.lag_s(ts)
    return {
        "checkpoint-ts": Text(str(ts or "-")),
        TIME: Text(_clock(at) if at is not None else "-"),
        "lag": Text(_lag(lag_s) if moving and lag_s is not None else "-"),
    }


def _left(row: ChangefeedRow) -> str:
    return _lag(row.time_left_s) if row.messages_behind and row.time_left_s is not None else "-"


def _letters(count: int | None) -> Text:
    return Text("-" if count is None else str(count), style="yellow" if count else "")


def _count(number: float | None) -> Text:
    return Text("-" if number is None else f"{number:,.0f}")


def _dropped(span: ProgressRow) -> Text:
    return Text(
        f"{span.changefeed_id}: {span.name} lacks columns, whose values are dropped: "
        f"{_counted(span.dropped_columns)}",
        style="yellow",
    )


def _null_dates(span: ProgressRow) -> Text:
    return Text(
        f"{span.changefeed_id}: {span.name} has NULL for dates that Delta does not have "
        f"(zero-date): {_counted(span.null_dates)}",
        style="dim",
    )


def _lossy(changefeed_id: str, name: TableName, columns: Mapping[str, str]) -> Text:
    return Text(
        f"{changefeed_id}: the messages of {name} may lack values of columns: {in_words(columns)}",
        style="dim",
    )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))


def _table(rows: Sequence[Cells], width: int) -> Table:
    """A table of the rows. On a narrow terminal some columns are left out: the time of a checkpoint
    says as much as its TSO."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    dropped = LEFT_OUT_WHEN_NARROW if width < NARROW else ()
    columns = [name for name in (rows[0] if rows else ()) if name not in dropped]
    for name in columns:
        table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    for row in rows:
        is_cut = width < NARROW and TIME in row and row[TIME].plain != "-"
        cells = row | {TIME: row[TIME][SHORT_TIME]} if is_cut else row
        table.add_row(*(cells[name] for name in columns))
    return table


def _state(state: str) -> Text:
    style = "green" if state in GOOD_STATES else "red" if state in BAD_STATES else "yellow"
    return Text(state, style=style)


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _lag(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{seconds:.1f}s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.1f}m"
    return f"{seconds / HOUR_S:.1f}h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.1f}d"
