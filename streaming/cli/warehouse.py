"""``tidelake warehouse``: what concerns the folder of all tables."""

from __future__ import annotations

import os
from dataclasses import asdict

import typer

from conf.load import load_sink
from streaming.cli.options import EXIT_LATE, ConfigFile, Format, SinkUri, reported

warehouse = typer.Typer(
    help="Look whether the tables' folders can be moved or copied.", no_args_is_help=True
)


@warehouse.callback()
def _group() -> None:
    """A group, also with one command."""


@warehouse.command()
def check(
    *, sink_uri: SinkUri = None, config: ConfigFile = None, output_format: Format = "table"
) -> None:
    """List the tables that have files outside of their own folder, as a rename leaves them.

    Prints the table, the folder in which the files are, how many these are, and their bytes.
    Such a table is not whole if its folder alone is copied or moved, and it is broken if the
    other folder goes. It names these files by their whole address, so that a copy of the
    warehouse reads them where they were. Older versions of a table may have more.

    Exit codes: 0 each table is whole in its own folder, 3 some are not.

    Example:
      tidelake warehouse check --sink-uri delta:///data/lake
    """
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from coordination.secrets import revealed_options
        from sinks.merge_on_write.upkeep.outside_files import outside_files
        from streaming.cli import screen

        options = revealed_options(sink.storage_options)
        found: list[screen.ShownRow] = [
            asdict(each) for each in outside_files(sink.warehouse, options)
        ]
        screen.show_rows(found, as_json=output_format == "json")
        if found:
            raise typer.Exit(EXIT_LATE)
