"""``tidelake check``: would a start work?"""

from __future__ import annotations

import os

import typer

from conf.load import load_settings
from streaming.cli.options import (
    EXIT_FAILED,
    EXIT_USAGE,
    ChangefeedId,
    ConfigFile,
    Etcd,
    Format,
    SchemaFile,
    SinkUri,
    SourceUri,
    StartTs,
    TaskFileOption,
    read_task_file,
    reported,
    settings_of,
)


def check(
    *,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    task: TaskFileOption = None,
    changefeed_id: ChangefeedId = None,
    start_ts: StartTs = None,
    schema_file: SchemaFile = None,
    config: ConfigFile = None,
    etcd: Etcd = None,
    output_format: Format = "table",
) -> None:
    """Look at all that `tidelake run` would need, and tell all that is wrong at once.

    Takes the options of `run`. Looks at Java and the jars, etcd, the settings, the
    warehouse and the source; of a database also at the account's rights, each table's
    key, definition and columns, and at what its binlog does not tell. Each finding comes
    with the statement or command that mends it. Nothing is started, copied or kept.

    Exit codes: 0 a start would work, 2 it would be refused, 1 something did not answer.

    Example:
      tidelake check --sink-uri delta:///data/lake \\
        --source-uri 'mysql://user@db.example:3306/?password=${env:DB_PASSWORD}'
    """
    arguments = settings_of(locals())
    with reported():
        for other in ("task", "output-format"):
            arguments.pop(other)
        settings = load_settings(
            config=config,
            environment=os.environ,
            arguments=arguments,
            task=read_task_file(task) if task is not None else None,
        )
        from streaming.cli import terminal
        from streaming.operations.before_start.outlook import outlook

        found = outlook(settings)
        terminal.show(found, terminal.outlook, as_json=output_format == "json")
        if found.is_refused:
            raise typer.Exit(EXIT_FAILED if found.is_away else EXIT_USAGE)
