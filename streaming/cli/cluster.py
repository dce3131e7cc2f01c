"""``tidelake server|changefeed|capture|processor|table``: the cluster's commands.

The docstring of each function under ``@asks`` is the command's ``--help``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conf.files.reading import with_schema_text
from conf.load import changefeed_document, load_server, load_settings, load_sink
from conf.problems import SettingError
from coordination.errors import NotInTime
from coordination.metadata.duration import duration_ms
from streaming.cli.options import (
    Addr,
    AdvertiseAddr,
    ChangefeedId,
    ClusterId,
    ConfigFile,
    DryRun,
    Etcd,
    Format,
    Id,
    LogFormatOption,
    LogLevelOption,
    NoCheck,
    NoConfirm,
    OutputFormat,
    OverwriteCheckpointTs,
    SchemaFile,
    ShownChangefeed,
    SinkUri,
    SourceUri,
    StartTs,
    TableOption,
    TargetTs,
    logged,
    reported,
    say,
    settings_of,
)
from streaming.process import logs
from streaming.spark.light_imports import importing

if TYPE_CHECKING:
    from streaming.operations.captures import ShownRow
    from streaming.operations.cluster import Operator

changefeed = typer.Typer(
    help="Create, show, change and end the changefeeds of a cluster.", no_args_is_help=True
)
capture = typer.Typer(
    help="Show the captures (server processes) of a cluster, or empty one.", no_args_is_help=True
)
processor = typer.Typer(help="Show which capture replicates which table.", no_args_is_help=True)
table = typer.Typer(
    help="Move tables between captures, or pause the writes to one.", no_args_is_help=True
)

CaptureId = Annotated[
    str, typer.Option("--capture-id", "-p", help="The capture's ID, as `capture list` shows it.")
]
ServerFile = Annotated[Path | None, typer.Option(help="A server file (TOML), with TiCDC's names.")]
Ask = Callable[["Operator"], "ShownRow | list[ShownRow]"]


def asks(group: typer.Typer, name: str | None = None) -> Callable[[Callable[..., Ask]], None]:
    """Make a command of a function that returns what to ask the cluster. Every such command also
    gets the options for where etcd is and how the answer is shown."""

    def register(asking: Callable[..., Ask]) -> None:
        def command(
            *,
            etcd: Etcd = None,
            cluster_id: ClusterId = None,
            output_format: Format = "table",
            **own: Any,
        ) -> None:
            with reported():
                ask = asking(**own)
                arguments = {"etcd": etcd, "cluster-id": cluster_id}
                _show(ask, arguments, own.get("config"), output_format)

        own = inspect.signature(asking, eval_str=True).parameters.values()
        *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
        command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        command.__annotations__ = {}
        group.command(name or asking.__name__, help=asking.__doc__)(command)

    return register


def _show(
    ask: Ask, arguments: dict[str, str | None], config: Path | None, output_format: OutputFormat
) -> None:
    from streaming.cli import screen
    from streaming.operations.before_start.findings import DryRunRefused
    from streaming.operations.cluster import operator

    settings = load_server(
        config=config, environment=os.environ, arguments=arguments, model="ChangefeedFile"
    )
    with operator(settings.etcd, settings.transport, say) as op:
        as_json = output_format == "json"
        try:
            screen.show_rows(ask(op), as_json=as_json)
        except NotInTime as late:
            screen.show_rows([*late.rows], as_json=as_json)
            raise
        except DryRunRefused as refused:
            screen.show_rows(refused.rows, as_json=as_json)
            raise


def server(
    *,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    addr: Addr = None,
    advertise_addr: AdvertiseAddr = None,
    config: ServerFile = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run a capture of a cluster: it replicates tables of all the cluster's changefeeds.

    Start one on each machine, with the same --etcd and --cluster-id. It runs until
    SIGTERM or Ctrl-C, and logs to stderr. Changefeeds are made with `changefeed create`.
    Without --etcd it starts an etcd of its own, for trying it out on one machine.

    Example:
      tidelake server --etcd http://etcd:2379 --addr 10.0.0.1:8300
    """
    arguments = settings_of(locals())
    with reported(log_format):
        settings = load_server(config=config, environment=os.environ, arguments=arguments)
        logs.install(settings.log_format, settings.log_level)
        with logged():
            with importing():
                from streaming.process.server import serve

            raise typer.Exit(serve(settings))


@asks(changefeed)
def create(
    *,
    changefeed_id: ChangefeedId = None,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    start_ts: StartTs = None,
    target_ts: TargetTs = None,
    schema_file: SchemaFile = None,
    config: ConfigFile = None,
    no_check: NoCheck = False,
    dry_run: DryRun = False,
    no_confirm: NoConfirm = False,  # for TiCDC's scripts
) -> Ask:
    """Create a changefeed, which the captures of the cluster replicate from then on.

    First asks Kafka and the warehouse whether it can work (unless --no-check): topic, clocks,
    a write to the warehouse, and which changefeed owns the tables there.
    Prints the new changefeed, as `changefeed query` does.

    Example:
      tidelake changefeed create -c shop --etcd http://etcd:2379 --sink-uri delta:///data/lake \\
        --source-uri 'kafka://host:9092/shop?protocol=canal-json&enable-tidb-extension=true'
    """
    arguments = settings_of(locals())
    settings = load_settings(
        config=config, environment=os.environ, arguments={**arguments, "etcd": "embedded"}
    )
    document = changefeed_document(config, os.environ)
    return lambda op: op.create(
        settings.changefeed, arguments, document, is_checked=not no_check, is_dry=dry_run
    )


@asks(changefeed)
def update(
    *,
    changefeed_id: Id,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    target_ts: TargetTs = None,
    schema_file: SchemaFile = None,
    config: ConfigFile = None,
    no_check: NoCheck = False,
    dry_run: DryRun = False,
    no_confirm: NoConfirm = False,  # for TiCDC's scripts
) -> Ask:
    """Change the settings of a changefeed that is paused, failed or finished.

    Settings that you do not give stay as they were; ID and start-ts cannot be changed. Prints the
    changefeed, which `changefeed resume` starts again.
    """
    arguments = with_schema_text(settings_of(locals()))
    document = changefeed_document(config, os.environ)
    return lambda op: op.update(
        changefeed_id, arguments, document, is_checked=not no_check, is_dry=dry_run
    )


@asks(changefeed, "list")
def list_changefeeds() -> Ask:
    """List the changefeeds: state, checkpoint, and the capture that owns each."""
    return lambda op: op.list_changefeeds()


@asks(changefeed)
def query(*, changefeed_id: Id) -> Ask:
    """Show one changefeed: state, checkpoint, URIs, and the error if it has one.

    `tidelake progress` shows its tables.
    """
    return lambda op: op.query(changefeed_id)


@asks(changefeed)
def pause(*, changefeed_id: Id) -> Ask:
    """Stop replicating a changefeed until `changefeed resume`. The tables stay as they are."""
    return lambda op: op.pause(changefeed_id)


@asks(changefeed)
def resume(
    *,
    changefeed_id: Id,
    overwrite_checkpoint_ts: OverwriteCheckpointTs = None,
    no_confirm: NoConfirm = False,  # noqa: ARG001 - for TiCDC's scripts
) -> Ask:
    """Start a paused, failed or finished changefeed again, at its checkpoint.

    Prints the changefeed, as `changefeed query` does.

    Example, a rewind:
      tidelake changefeed resume -c shop --overwrite-checkpoint-ts 449999999999999999
    """
    return lambda op: op.resume(changefeed_id, overwrite_checkpoint_ts)


@asks(changefeed)
def remove(*, changefeed_id: Id) -> Ask:
    """Stop a changefeed and delete it from etcd. Its Delta tables stay."""
    return lambda op: op.remove(changefeed_id)


@asks(capture, "list")
def list_captures() -> Ask:
    """List the captures: ID, address, state and version, and which of them is the owner."""
    return lambda op: op.list_captures()


@asks(capture)
def drain(
    *,
    capture_id: CaptureId,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Let the capture take tables again, and be the owner again."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has no table any more.")
    ] = False,
    timeout: Annotated[
        str,
        typer.Option(
            help="With --wait: for how long at most, as 90s or 10m; exit code 3 after that.",
            metavar="DURATION",
        ),
    ] = "5m",
) -> Ask:
    """Move all tables away from a capture, so that it can be stopped.

    Prints how many tables it still has (`remaining`; `-` while the owner changes). Give --wait, or
    repeat the command until that is 0. Then stop the process. The last capture that serves is not
    drained.

    Exit codes with --wait: 0 the capture has no table any more, 3 it still had some after
    --timeout.
    """
    timeout_s = duration_ms("--timeout", timeout) / 1e3
    if wait and undo:
        raise SettingError("--wait is for a drain: it goes without --undo")
    if undo:
        return lambda op: op.take_back_drain(capture_id)
    if wait:
        return lambda op: op.drain_wholly(capture_id, timeout_s=timeout_s)
    return lambda op: op.drain(capture_id)


@asks(processor, "list")
def list_processors(*, changefeed_id: ShownChangefeed = None) -> Ask:
    """List the tables: state, the capture that replicates each, and its checkpoint."""
    return lambda op: op.list_processors(changefeed_id)


@table.command("pause")
def pause_table(
    *,
    table_name: TableOption,
    sink_uri: SinkUri = None,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """Stop commits to one Delta table, so that your own DELETE or OPTIMIZE does not conflict.

    Its changes wait and are applied after `table resume`. In a cluster the other tables
    go on; the checkpoint of a `tidelake run` waits for this table.

    Example:
      tidelake table pause --table shop.orders --sink-uri delta:///data/lake
    """
    _pause(table_name, sink_uri, config, output_format, paused=True)


@table.command("resume")
def resume_table(
    *,
    table_name: TableOption,
    sink_uri: SinkUri = None,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """Allow commits to a table again after `table pause`, and apply the changes that waited."""
    _pause(table_name, sink_uri, config, output_format, paused=False)


def _pause(
    name: str,
    sink_uri: str | None,
    config: Path | None,
    output_format: OutputFormat,
    *,
    paused: bool,
) -> None:
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming.cli import screen
        from streaming.operations.cluster import set_table_paused

        row = set_table_paused(sink, name, paused=paused)
        screen.show_rows([row], as_json=output_format == "json")


@asks(table)
def move(*, changefeed_id: Id, table_name: TableOption, capture_id: CaptureId) -> Ask:
    """Move one table to another capture.

    It stays there, also after a pause of the changefeed, until that capture ends, another
    capture becomes the owner, or `table rebalance` is called.
    """
    return lambda op: op.move_table(changefeed_id, table_name, capture_id)


@asks(table)
def rebalance(*, changefeed_id: Id) -> Ask:
    """Spread the tables of a changefeed evenly over the captures.

    The owner does so each minute by itself, but leaves tables that were moved by hand.
    """
    return lambda op: op.rebalance(changefeed_id)
