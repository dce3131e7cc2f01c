"""Show progress, snapshots and the answers of a cluster on a terminal, or as JSON."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final, TypeVar

from rich.console import Console, Group, JustifyMethod, RenderableType
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

from conf.masking import masked
from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from streaming.changefeed.awaited import awaited, delivery
from streaming.changefeed.freshness import why_not_running
from streaming.changefeed.refused.lossy_tables import in_words
from streaming.cli.screen import as_json_text, clock, console_of, state_text
from streaming.operations import progress_report
from streaming.operations.before_start.notes import Outlook
from streaming.operations.diff.findings import DiffReport
from streaming.operations.progress_report import ProgressReport
from streaming.operations.snapshots import SnapshotReport, select_text

TIME = "checkpoint time"
SHORT_TIME = slice(len("2026-"), len("2026-01-31T12:00:00"))
LEFT_OUT_FIRST = (
    *("capture", "resolved-ts", "checkpoint-ts", "term", "engine", "source keeps", "left"),
    *("messages/s", "refreshed", "Delta\nversion", TIME),
)
BETWEEN = 2  # two columns
NUMBERS = frozenset(
    {
        *("checkpoint-ts", "resolved-ts", "lag", "behind", "messages/s", "left", "term"),
        *("Delta\nversion", "dead\nletters", "rows", "columns"),
    }
)
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


VERDICTS: Final = {"ok": "green", "note": "yellow", "waits": "yellow", "refused": "red"}
R = TypeVar("R", ProgressReport, SnapshotReport, DiffReport, Outlook)
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
        f"{row.changefeed_id} as of {row.primary_ts} ({clock(row.primary_time)}), "
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


def show(found: R, view: Callable[[R, int], RenderableType], *, as_json: bool) -> None:
    console = console_of()
    if as_json:
        print(as_json_text(found.to_json(), indent=2))
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
    console = console_of()
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
                print(as_json_text(fields, indent=None), flush=True)
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


def _changefeed(found: ProgressReport, row: ChangefeedRow) -> Cells:
    moving, row = progress_report.is_moving(row), found.measured(row)
    return {
        "changefeed": Text(row.changefeed_id),
        "state": state_text(found.state(row)),
        "refreshed": Text(f"{_lag(found.refresh_age_s(row))} ago"),
        **_checkpoint(found, row.checkpoint_ts, moving),
        "behind": _count(row.messages_behind if moving else None),
        "messages/s": _count(row.messages_per_s if moving else None),
        "left": Text(_left(row) if moving else "-"),
        "source keeps": Text("-" if (left_s := found.source_left_s(row)) is None else _lag(left_s)),
        "dead\nletters": _letters(row.dead_letters),
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
    if (
        is_running
        and (slowest := progress_report.slowest_part(row)) is not None
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
    return [*notes, *_notes_of_tables(found, row)]


def _notes_of_tables(found: ProgressReport, row: ChangefeedRow) -> Iterator[Text]:
    for each in found.spans:
        if each.changefeed_id != row.changefeed_id or not each.error:
            continue
        decided = found.decided.get((each.changefeed_id, each.name))
        if decided is not None:
            told = f"table {each.name}: {decided} is ordered, and not carried out yet"
            yield Text(f"{row.changefeed_id}: {told}", style="yellow")
        elif each.error != row.error:
            yield Text(f"{row.changefeed_id}: {masked(each.error)}", style="red")


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
        "state": state_text(found.state(span)),
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
        TIME: Text(clock(at) if at is not None else "-"),
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
    """A table of the rows. What a narrow terminal has no room for is left out, the least needed
    first; the first column, a name, is folded where it must be."""
    columns = list(rows[0])
    if (
        TIME in columns and _needed(rows, columns) > width
    ):  # the time of a checkpoint says as much as its TSO
        rows = [
            row | {TIME: row[TIME][SHORT_TIME]} if row[TIME].plain != "-" else row for row in rows
        ]
    for name in LEFT_OUT_FIRST:
        if _needed(rows, columns) > width and name in columns:
            columns.remove(name)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        side: JustifyMethod = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=side, no_wrap=name != columns[0], overflow="fold")
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def _needed(rows: Sequence[Cells], columns: Sequence[str]) -> int:
    widest = (
        max(*map(len, name.split("\n")), *(len(row[name]) for row in rows)) for name in columns
    )
    return sum(widest) + BETWEEN * (len(columns) - 1)


def _lag(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{seconds:.1f}s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.1f}m"
    return f"{seconds / HOUR_S:.1f}h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.1f}d"
