"""``tidelake diff``: whether the tables are what the database has."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conf.load import load_sink, load_source
from coordination.errors import TidelakeError
from coordination.metadata.duration import duration_ms
from streaming.cli.options import (
    EXIT_FAILED,
    EXIT_USAGE,
    ConfigFile,
    Format,
    ShownChangefeed,
    SinkUri,
    SourceUri,
    reported,
    say,
)
from streaming.operations.diff.findings import DiffReport, RowFinding, TableFinding, shown

WAIT = "60s"
Tables = Annotated[
    list[str] | None,
    typer.Argument(help="Tables, as schema.table; without any, all of the changefeed."),
]
Wait = Annotated[
    str,
    typer.Option(
        help="How long a table may take to come to what the database had when it was read.",
        metavar="DURATION",
    ),
]
RowsPerS = Annotated[
    int | None,
    typer.Option(
        "--rows-per-s",
        min=1,
        help="Read at most so many rows a second off the database; without it, as fast as one "
        "connection gives them.",
    ),
]
_STYLES = {
    "equal": "green",
    "equal as a set": "yellow",
    "differs": "red",
    "not settled": "yellow",
    "not compared": "yellow",
}


def diff(
    tables: Tables = None,
    *,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    config: ConfigFile = None,
    wait: Wait = WAIT,
    rows_per_s: RowsPerS = None,
    output_format: Format = "table",
) -> None:
    """Compare every cell of the tables with the database's, while both go on.

    Reads each table of the database once, by one connection, in chunks of some 64 MiB,
    and the Delta table once. A row that differs is asked again, until the table has passed
    what the database had: so a change that is on its way is no difference. Names the rows
    and columns that differ. A TiDB (tidb://) is read as of a snapshot of the tables.

    Exit codes: 0 all are equal, 1 something differs, 2 something could not be compared.

    Example:
      tidelake diff --source-uri 'mysql://user@host:3306/' --sink-uri delta:///data/lake \\
        shop.orders shop.customers
    """
    with reported():
        wait_s = duration_ms("--wait", wait) / 1e3
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        source = load_source(config=config, environment=os.environ, source_uri=source_uri)
        from streaming.cli import terminal
        from streaming.operations.diff.comparison import DiffLimits
        from streaming.operations.diff.databases import compare_with_database

        limits = DiffLimits(wait_s=wait_s, rows_per_s=rows_per_s)
        try:
            with terminal.bar("rows") as told:
                found = compare_with_database(
                    sink, changefeed_id, tables or (), source, limits=limits, told=told
                )
        except TidelakeError as error:  # 1 would say that something differs
            say(str(error))
            raise typer.Exit(EXIT_USAGE) from None
        terminal.show(found, view, as_json=output_format == "json")
        raise typer.Exit(exit_code(found))


def exit_code(found: DiffReport) -> int:
    if found.is_equal:
        return 0
    return EXIT_USAGE if found.differing == 0 else EXIT_FAILED


def view(found: DiffReport, _width: int) -> RenderableType:
    """A table of all tables, then a line for each thing that differs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("table", "result", "version"):
        table.add_column(name, no_wrap=True)
    for name in ("rows", "in the database", "differing", "not settled"):
        table.add_column(name, justify="right")
    for each in found.tables:
        is_read = each.problem is None
        numbers = (each.lake_rows, each.database_rows, each.differing, each.open_rows)
        table.add_row(
            str(each.name),
            Text(each.result, style=_STYLES[each.result]),
            str(each.version) if each.version is not None else "-",
            *(str(number) if is_read else "-" for number in numbers),
        )
    if found.snapshot_ts is not None:
        table.caption = f"as of the snapshot at {found.snapshot_ts}"
        table.caption_justify = "left"
    notes = (Text(line, no_wrap=True, overflow="ignore") for line in _lines(found))
    return Group(table, *notes)


def _lines(found: DiffReport) -> list[str]:
    lines = []
    for each in found.tables:
        if each.problem is not None:
            lines.append(f"{each.name}: {each.problem}")
        lines += [f"{each.name}: {sentence}" for sentence in each.columns]
        if each.not_here:
            names = ", ".join(each.not_here)
            lines.append(f"{each.name}: not compared, since the target does not have them: {names}")
        if each.other_rows:
            dropped = f"{each.other_rows} rows of upstream tables that were dropped"
            lines.append(f"{each.name}: {dropped} were not compared")
        if each.repeats:
            held = "the target is a set, and holds each row once"
            lines.append(f"{each.name}: the database has {each.repeats} repeats: {held}")
        lines += [f"{each.name}: {_row(row)}" for row in each.rows]
        if (more := _more(each)) is not None:
            lines.append(f"{each.name}: {more}")
    return lines


def _row(row: RowFinding) -> str:
    key = ", ".join(f"{name} = {shown(value)}" for name, value in row.key.items())
    cells = ", ".join(
        f"{name} is {_quoted(ours)}, and {_quoted(theirs)} in the database"
        for name, (ours, theirs) in row.cells.items()
    )
    says = {
        "missing": "is in the database alone",
        "extra": "is in the table alone",
        "several": "is there more than once",
        "counted": "is there more often on one side",
        "unfit": "has a value in the database that the table's type cannot hold",
        "changed": cells,
    }[row.kind]
    maybe = "" if row.is_settled else " (not settled: it may be a change on its way)"
    return f"{key}: {says}{maybe}"


def _quoted(value: object) -> str:
    return "NULL" if value is None else repr(shown(value))


def _more(table: TableFinding) -> str | None:
    left = table.differing + table.open_rows + table.not_asked - len(table.rows)
    if left <= 0:
        return None
    asked = f", {table.not_asked} of which were not asked again" if table.not_asked else ""
    return f"and {left} rows more{asked}"
