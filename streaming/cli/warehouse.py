"""``tidelake warehouse``: what concerns the folder of all tables."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer

from conf.load import load_sink
from conf.masking import masked
from streaming.cli.options import EXIT_LATE, ConfigFile, Format, OutputFormat, SinkUri, reported

warehouse = typer.Typer(
    help="Look whether the tables' folders can be moved or copied, and see to it.",
    no_args_is_help=True,
)


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
        warehouse, options = _place(sink_uri, config)
        _show(warehouse, options, output_format)


@warehouse.command()
def gather(
    *, sink_uri: SinkUri = None, config: ConfigFile = None, output_format: Format = "table"
) -> None:
    """Write the files that `warehouse check` lists anew in their tables' own folders.

    Rows and older versions stay as they are, and so do the old files. It takes as long as to
    read and write these files, and may run beside the program, which does so too, slowly, with
    the tables that it writes. Given again, it goes on where it was.

    Prints what is left, as `warehouse check` does, and why on stderr.

    Exit codes: 0 each table is whole in its own folder, 3 some are not.

    Example:
      tidelake warehouse gather --sink-uri delta:///data/lake
    """
    with reported():
        warehouse, options = _place(sink_uri, config)
        from coordination.errors import TidelakeError
        from sinks.merge_on_write.engine import MergeOnWriteEngine
        from sinks.merge_on_write.upkeep.gather import gather as gathered
        from sinks.merge_on_write.upkeep.outside_files import outside_files
        from sinks.storage.errors import one_sentence
        from streaming.cli import terminal

        engine = MergeOnWriteEngine(options, keeps_up=False)
        found = list(outside_files(warehouse, options))
        left = {each.table: 0 for each in found}
        for each in found:
            left[each.table] += each.files
        of_all = sum(left.values())
        with terminal.bar("files") as told:

            def tell(name: str, files: int) -> None:
                left[name] = min(files, left[name])
                told(of_all - sum(left.values()), of_all)

            for name in left:
                uri = f"{warehouse}/{name}"
                try:
                    with one_sentence("write to", uri):
                        gathered(engine.table(uri), partial(tell, name))
                except TidelakeError as error:
                    typer.echo(masked(f"{name}: {error}"), err=True)
        engine.close()
        _show(warehouse, options, output_format)


def _place(sink_uri: str | None, config: Path | None) -> tuple[str, dict[str, str]]:
    """The folder of all tables, and the options of its storage."""
    sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
    from coordination.secrets import revealed_options

    return sink.warehouse, dict(revealed_options(sink.storage_options))


def _show(warehouse: str, options: dict[str, str], output_format: OutputFormat) -> None:
    from sinks.merge_on_write.upkeep.outside_files import outside_files
    from streaming.cli import screen

    found: list[screen.ShownRow] = [asdict(each) for each in outside_files(warehouse, options)]
    screen.show_rows(found, as_json=output_format == "json")
    if found:
        raise typer.Exit(EXIT_LATE)
