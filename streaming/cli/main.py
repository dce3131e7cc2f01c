"""The command line: ``tidelake run|progress|snapshot`` and the cluster's commands.

The docstring of a command is its ``--help``: its first paragraph, one line, also stands in the list
of commands; line breaks of the others are kept.

Exit codes: 0 finished or asked to stop, 1 failed, 2 bad usage or configuration. An expected error
is one line on stderr; a traceback is a bug. Spark and Delta are imported only by the commands that
need them, so that ``--help`` and a wrong setting are answered at once.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Literal

import typer

from conf.load import load_settings, load_sink
from conf.masking import masked
from conf.problems import SettingError
from coordination.metadata.duration import duration_ms
from coordination.metadata.version import tidelake_version
from streaming.cli import check as start_check
from streaming.cli import cluster, ddl, diff, jars, letters, record, reload, task, warehouse
from streaming.cli.options import (
    Addr,
    AdvertiseAddr,
    ChangefeedId,
    ClusterId,
    ConfigFile,
    Etcd,
    Format,
    LogFormatOption,
    LogLevelOption,
    OverwriteCheckpointTs,
    ProgramGroup,
    SchemaFile,
    ShownChangefeed,
    SinkUri,
    SourceUri,
    StartTs,
    TargetTs,
    TaskFileOption,
    logged,
    read_task_file,
    reported,
    say,
    settings_of,
)
from streaming.process import logs
from streaming.process.masked_arguments import mask_arguments

WATCH_INTERVAL_S = 1.0
MAX_LAG = "60s"

app = typer.Typer(
    name="tidelake",
    cls=ProgramGroup,
    epilog="Settings can also come from the environment: --sink-uri is TIDELAKE_SINK_URI.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.command()(start_check.check)
app.command()(cluster.server)
cluster.table.command()(reload.reload)
for _name in ("changefeed", "capture", "processor", "table"):
    app.add_typer(getattr(cluster, _name), name=_name)
app.add_typer(task.task, name="task")
app.add_typer(ddl.ddl, name="ddl")
app.add_typer(letters.letters, name="dead-letters")
app.command()(record.record)
app.command()(diff.diff)
app.add_typer(warehouse.warehouse, name="warehouse")
app.command()(jars.jars)

Watch = Annotated[bool, typer.Option("--watch", help="Print it every second, until Ctrl-C.")]
Check = Annotated[
    bool,
    typer.Option("--check", help="For a probe: print one line, and end with an exit code (above)."),
]
MaxLag = Annotated[
    str | None,
    typer.Option(
        help=f"With --check: how far a table may be behind, as 90s or 10m; {MAX_LAG} if it is not "
        "given.",
        metavar="DURATION",
    ),
]
MaxDeadLetters = Annotated[
    int | None,
    typer.Option(
        help="With --check: more open dead letters of a changefeed than this are a failure.",
        min=0,
        metavar="COUNT",
    ),
]

WaitFor = Annotated[
    str | None,
    typer.Option(
        "--wait",
        help="Wait until every table has what the source has now, but no longer than this, as 90s "
        "or 10m; then as with --check.",
        metavar="DURATION",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def tidelake(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Copy the changes of TiDB (TiCDC), MySQL and MariaDB into Delta tables, exactly once.

    For one changefeed (a source URI and a sink URI) `tidelake run` is all you need:
    it replicates in its own process. `progress` and `snapshot` show what it did; if a
    DDL stops it, `ddl` says why and how to go on.

    For many changefeeds on several machines start `tidelake server` on each machine,
    and manage the cluster with `changefeed`, `capture`, `processor` and `table`. `task`
    does so for a database that has no TiCDC, from a task file of DM.
    """


@app.command()
def version() -> None:
    """Show the version of this program."""
    typer.echo(f"tidelake {tidelake_version()}")


@app.command("config-schema")
def config_schema(
    *,
    server: Annotated[
        bool, typer.Option("--server", help="Print the schema of a server file.")
    ] = False,
) -> None:
    """Print the JSON schema of a changefeed file, with which an editor completes it.

    Put the schema beside the file, and name it in the file's first line.

    Example:
      tidelake config-schema > changefeed.schema.json

      #:schema ./changefeed.schema.json
    """
    from conf.files import models
    from conf.files.json_schema import json_schema

    schema = json_schema(models.ServerFile if server else models.ChangefeedFile)
    typer.echo(json.dumps(schema, indent=2))


@app.command(
    help="""Replicate one changefeed from Kafka, a database or a recording into Delta tables.

    It runs until --target-ts is reached, or until SIGTERM or Ctrl-C, and logs to stderr.
    After a crash give the same command again: it goes on where the tables are.
    Several processes with the same arguments and the same --etcd share the tables.

    Example:
      tidelake run --sink-uri delta:///data/lake --source-uri \\
        'kafka://127.0.0.1:9092/shop?protocol=canal-json&enable-tidb-extension=true'

    Exit codes: 0 finished or asked to stop, 1 failed (start it again after a pause),
    2 wrong arguments or configuration."""
)
def run(
    *,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    task: TaskFileOption = None,
    changefeed_id: ChangefeedId = None,
    start_ts: StartTs = None,
    target_ts: TargetTs = None,
    overwrite_checkpoint_ts: OverwriteCheckpointTs = None,
    schema_file: SchemaFile = None,
    config: ConfigFile = None,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    addr: Addr = None,
    advertise_addr: AdvertiseAddr = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    arguments = settings_of(locals())
    with reported(log_format):
        arguments.pop("task")
        settings = load_settings(
            config=config,
            environment=os.environ,
            arguments=arguments,
            task=read_task_file(task) if task is not None else None,
        )
        logs.install(settings.log_format, settings.log_level, changefeed=settings.changefeed.id)
        with logged():
            from streaming.process.launch import run as run_capture

            raise typer.Exit(run_capture(settings))


@app.command()
def progress(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    config: ConfigFile = None,
    output_format: Format = "table",
    watch: Watch = False,
    check: Check = False,
    max_lag: MaxLag = None,
    max_dead_letters: MaxDeadLetters = None,
    wait: WaitFor = None,
) -> None:
    """Show how far each table is, how much is left to read, and what holds it back.

    Reads the control tables in the warehouse, and needs neither Kafka nor etcd.
    Prints one row for each changefeed (state, checkpoint, lag, messages behind), its
    troubles, and one row for each table (state, checkpoint, lag, Delta version, dead
    letters). --format json prints all facts. If nobody refreshes these rows any more, the
    state is `not running`; it may take some seconds to find that out.

    Exit codes with --check and --wait, the worst of all tables and changefeeds: 0 fresh (or
    finished), 3 late, 4 nobody there (killed, or stopped), 5 failed, or a table is blocked,
    or there are more dead letters than --max-dead-letters.

    Examples:
      tidelake progress --sink-uri delta:///data/lake --watch
      tidelake progress --sink-uri delta:///data/lake --check --max-lag 60s
      tidelake progress --sink-uri delta:///data/lake --wait 5m
    """
    with reported():
        max_lag_s = duration_ms("--max-lag", max_lag or MAX_LAG) / 1e3
        if watch + check + (wait is not None) > 1:
            raise SettingError("--check, --wait and --watch exclude each other")
        for option, value in (("--max-lag", max_lag), ("--max-dead-letters", max_dead_letters)):
            if value is not None and not check:
                raise SettingError(f"{option} is for --check")
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming.changefeed.freshness import Freshness
        from streaming.cli import screen, terminal
        from streaming.operations import progress_report
        from streaming.operations.check import verdict, waited

        freshness, as_json = Freshness(), output_format == "json"

        def read() -> progress_report.ProgressReport:
            return progress_report.read_progress(sink, changefeed_id, freshness)

        if check or wait is not None:
            found = (
                waited(read, duration_ms("--wait", wait) / 1e3, say=say)
                if wait is not None
                else verdict(read(), max_lag_s, max_dead_letters)
            )
            screen.say(found.line, found.to_json(), as_json=as_json)
            raise typer.Exit(int(found.finding))
        if watch:
            terminal.watch(read, terminal.progress, every_s=WATCH_INTERVAL_S, as_json=as_json)
        else:
            terminal.show(read(), terminal.progress, as_json=as_json)


@app.command()
def snapshot(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    config: ConfigFile = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Show the newest snapshot at or before this TSO or RFC 3339 time; without it, "
            "the newest one."
        ),
    ] = None,
    sql: Annotated[
        Literal["spark", "databricks", "trino", "duckdb"] | None,
        typer.Option(
            help="Print only SQL for this reader: statements that make a view of each table."
        ),
    ] = None,
    output_format: Format = "table",
) -> None:
    """Find the Delta versions of all tables at one TiDB timestamp, and the SQL to read them.

    Reads the control tables in the warehouse. Prints the timestamp, the version of each
    table, and one SELECT for each table. Snapshots are kept for `snapshot-retention-h`
    hours, a setting of the changefeed.

    Example:
      tidelake snapshot --sink-uri delta:///data/lake --as-of 2026-01-31T12:00:00Z
    """
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming.cli import terminal
        from streaming.operations import snapshots

        limit = snapshots.parse_as_of(as_of) if as_of is not None else None
        found = snapshots.snapshot_of(sink, changefeed_id, limit)
        if sql is not None:
            print(snapshots.sql_text(found, sql))
            return
        terminal.show(snapshots.reported(found), terminal.snapshot, as_json=output_format == "json")


def _say_masked(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback with its secrets masked."""
    sys.stderr.write(masked("".join(traceback.format_exception(kind, error, trace))))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program; raises SystemExit for every code but 0.

    A Databricks wheel task calls this function and takes any SystemExit for a failure.
    """
    # Rust libraries read it once, when they are imported. Their log lines are not needed: what
    # fails in them is raised too, and reported by us in one sentence.
    os.environ.setdefault("RUST_LOG", "error")
    mask_arguments()
    sys.excepthook = _say_masked
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="tidelake")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise


if __name__ == "__main__":
    main()
