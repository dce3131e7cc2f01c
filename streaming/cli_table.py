"""``tidelake table``: the commands that need a warehouse alone; ``cli_cluster`` adds the others."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from conf.load import load_sink
from conf.settings import SettingError
from coordination.model import TableName
from coordination.secrets import revealed_options
from streaming.cli_options import ConfigFile, SinkUri, TableOption, reported

table = typer.Typer(
    help="Where a table is replicated, and whether it is written now.", no_args_is_help=True
)


@table.command()
def pause(*, table_name: TableOption, sink_uri: SinkUri = None, config: ConfigFile = None) -> None:
    """Let nothing be committed to it: your own DELETE or OPTIMIZE has it to itself meanwhile.

    Its changes wait and are applied after `table resume`. In a cluster the other tables go on; a
    `tidelake run` holds its checkpoint for it.
    """
    _pause(table_name, sink_uri, config, paused=True)


@table.command("resume")
def resume_table(
    *, table_name: TableOption, sink_uri: SinkUri = None, config: ConfigFile = None
) -> None:
    """Take the commits up again that `table pause` has held back."""
    _pause(table_name, sink_uri, config, paused=False)


def _pause(table_name: str, sink_uri: str | None, config: Path | None, *, paused: bool) -> None:
    with reported():
        warehouse, given = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from sinks.merge_on_write.pause import set_paused
        from sinks.tables import table_uri

        uri = table_uri(warehouse, table_name_of(table_name))
        changed = set_paused(uri, revealed_options(given), paused=paused)
        state = "is paused" if paused else "goes on"
        typer.echo(f"{table_name} {state}" + ("" if changed else " already"))


def table_name_of(text: str) -> TableName:
    """``schema.table``; SettingError."""
    schema, dot, name = text.partition(".")
    if not (schema and dot and name):
        raise SettingError(f"--table {text!r}: expected schema.table")
    return TableName(schema, name)
