"""``tidelake table reload``: load one table anew."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from conf.load import load_sink, load_source
from streaming.cli.options import (
    ConfigFile,
    Format,
    ShownChangefeed,
    SinkUri,
    SourceUri,
    reported,
)

Table = Annotated[str, typer.Argument(help="The table, as schema.table.", metavar="TABLE")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would happen, and why the table is held.")
]


def reload(
    table_name: Table,
    *,
    dry_run: DryRun = False,
    sink_uri: SinkUri = None,
    source_uri: SourceUri = None,
    changefeed_id: ShownChangefeed = None,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """Load one table anew from its database, in the place of what its Delta table has.

    For a table that cannot go on by itself: a DDL holds it that cannot be followed, its
    folder was moved away or altered by hand, or it got another key. One commit brings the
    rows, columns and key that the database has; snapshots of before stay readable.
    It is for a database's binlog. A `tidelake run` that is up, or a cluster's leader, does it
    within seconds, and the changefeed's other tables wait meanwhile; else the next start does.
    For a TiCDC changefeed the next `tidelake run` with the tidb:// URI does it. Giving the
    command twice does no harm. With --source-uri the database is asked what it has of the
    table.

    Example:
      tidelake table reload shop.orders --sink-uri delta:///data/lake --dry-run
    """
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        source = None
        if source_uri is not None:
            source = load_source(config=config, environment=os.environ, source_uri=source_uri)
        from streaming.cli import screen
        from streaming.operations.orders.reloads import order_reload

        found = order_reload(sink, changefeed_id, table_name, source=source, is_dry=dry_run)
        screen.show_rows(found, as_json=output_format == "json")
