"""``tidelake run|progress|snapshot``, and the cluster's: arguments in, exit code out.

0 finished or asked to stop, 1 failed, 2 bad usage or configuration. Expected trouble is one line on
stderr; a traceback is a bug. Spark and Delta are imported by the commands that need them, so that
``--help`` and a wrong setting answer at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated

import typer

from conf.load import load_settings, load_sink
from conf.masking import masked
from coordination.version import tidelake_version
from streaming import cli_cluster, logs
from streaming.cli_options import (
    AdvertiseAddr,
    ChangefeedId,
    ClusterId,
    ConfigFile,
    Format,
    LogFormatOption,
    LogLevelOption,
    MaskingGroup,
    SinkUri,
    SourceUri,
    logged,
    reported,
    settings_of,
)
from streaming.process_list import mask_arguments

WATCH_INTERVAL_S = 1.0

app = typer.Typer(
    name="tidelake",
    cls=MaskingGroup,
    help="TiDB and MySQL change streams in, exactly-once Delta tables out.",
    epilog="Each option may also be set in the environment: --sink-uri is TIDELAKE_SINK_URI.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.command()(cli_cluster.server)
for _name in ("changefeed", "capture", "processor", "table"):
    app.add_typer(getattr(cli_cluster, _name), name=_name)

Watch = Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")]


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
    """TiDB and MySQL change streams in, exactly-once Delta tables out."""


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"tidelake {tidelake_version()}")


@app.command(
    help="""Replicate a changefeed until its target-ts, or until SIGTERM or Ctrl-C.

    One capture in one process; several with one etcd share its tables.
    The same command after a crash goes on where the tables are."""
)
def run(
    *,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    changefeed_id: ChangefeedId = None,
    start_ts: Annotated[
        int | None,
        typer.Option(help="Changes above this TSO; a changefeed that has run goes on instead."),
    ] = None,
    target_ts: Annotated[
        int | None, typer.Option(help="Finish at this TSO, with exit code 0.")
    ] = None,
    overwrite_checkpoint_ts: Annotated[
        int | None, typer.Option(help="Rewind: apply everything above this TSO once more.")
    ] = None,
    config: ConfigFile = None,
    etcd: Annotated[
        str | None,
        typer.Option(
            help="Where captures meet: http://host:2379, several by comma; or `embedded`, "
            "for one machine only (the default).",
            metavar="URL|embedded",
        ),
    ] = None,
    cluster_id: ClusterId = None,
    addr: Annotated[
        str | None,
        typer.Option(
            help="Where other captures of the changefeed find this one; 127.0.0.1:0, any free "
            "port of this machine's own, if it is not given."
        ),
    ] = None,
    advertise_addr: AdvertiseAddr = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    arguments = settings_of(locals())
    with reported(log_format):
        settings = load_settings(config=config, environment=os.environ, arguments=arguments)
        logs.install(settings.log_format, settings.log_level, changefeed=settings.changefeed.id)
        with logged():
            from streaming.bootstrap import run as run_capture

            raise typer.Exit(run_capture(settings))


@app.command()
def progress(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ChangefeedId = None,
    config: ConfigFile = None,
    output_format: Format = "table",
    watch: Watch = False,
) -> None:
    """Show how fresh each table is: state, checkpoint, lag, Delta version."""
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming import report, views

        def read() -> report.ProgressReport:
            return report.read_progress(sink, changefeed_id)

        as_json = output_format == "json"
        if watch:
            views.watch(read, views.progress, every_s=WATCH_INTERVAL_S, as_json=as_json)
        else:
            views.show(read(), views.progress, as_json=as_json)


@app.command()
def snapshot(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ChangefeedId = None,
    config: ConfigFile = None,
    as_of: Annotated[
        str | None, typer.Option(help="The newest snapshot at or below this TSO or RFC 3339 time.")
    ] = None,
    output_format: Format = "table",
) -> None:
    """Show the Delta version of each table as of one TiDB timestamp, and the SQL to read them."""
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming import report, views

        limit = report.parse_as_of(as_of) if as_of is not None else None
        found = report.read_snapshot(sink, changefeed_id, limit)
        views.show(found, views.snapshot, as_json=output_format == "json")


def _say_masked(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A traceback is a bug; that is no reason to show a password in it."""
    sys.stderr.write(masked("".join(traceback.format_exception(kind, error, trace))))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program; raises SystemExit for every code but 0.

    A Databricks wheel task calls this function and takes any SystemExit for a failure.
    """
    # The Rust libraries read it once, when they are imported: what fails there is raised too, and
    # as one sentence of ours.
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
