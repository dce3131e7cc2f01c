"""``tidelake server|changefeed|capture|processor|table``: captures as a cluster, from anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conf.server import ServerSettings, load_cluster, load_server
from streaming import logs
from streaming.cli_described import changed_by, checking, described_by
from streaming.cli_options import (
    ChangefeedId,
    ConfigFile,
    LogFormat,
    LogLevel,
    NoCheck,
    NoConfirm,
    OutputFormat,
    SinkUri,
    SourceUri,
    TableOption,
    logged,
    reported,
)
from streaming.cli_table import table, table_name_of

if TYPE_CHECKING:
    from streaming.cluster_operator import Operator
    from streaming.found import Found

changefeed = typer.Typer(help="Changefeeds of a cluster: state in etcd.", no_args_is_help=True)
capture = typer.Typer(help="Captures of a cluster.", no_args_is_help=True)
processor = typer.Typer(help="What captures replicate.", no_args_is_help=True)

Etcd = Annotated[
    str | None,
    typer.Option(
        help="Where the captures meet: http://host:2379, several by comma.", metavar="URL"
    ),
]
ClusterId = Annotated[
    str | None, typer.Option(help="Captures of one cluster share it; TiCDC's cluster-id.")
]
Format = Annotated[OutputFormat, typer.Option("--format")]
Id = Annotated[str, typer.Option("--changefeed-id", "-c", help="The changefeed's ID.")]
CaptureId = Annotated[str, typer.Option("--capture-id", "-p", help="As `capture list` shows it.")]
ServerFile = Annotated[Path | None, typer.Option(help="A server file (TOML) with TiCDC's names.")]


def server(
    *,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    addr: Annotated[
        str | None, typer.Option(help="Where other captures find this one (port 0: any free one).")
    ] = None,
    advertise_addr: Annotated[
        str | None, typer.Option(help="Its address as others see it, where that is another.")
    ] = None,
    config: ServerFile = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Of the lines on stderr.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(case_sensitive=False)] = None,
) -> None:
    """Be a capture that serves whatever changefeeds the cluster has, until SIGTERM or Ctrl-C."""
    arguments = {
        "etcd": etcd,
        "cluster-id": cluster_id,
        "addr": addr,
        "advertise-addr": advertise_addr,
        "log-format": log_format and log_format.value,
        "log-level": log_level and log_level.value,
    }
    with reported(log_format):
        settings = load_server(config=config, environment=os.environ, arguments=arguments)
        raise typer.Exit(_serve(settings))


def _serve(settings: ServerSettings) -> int:
    logs.install(settings.log_format, settings.log_level)
    with logged():
        from streaming.serve import serve

        return serve(settings)


@changefeed.command()
def create(
    *,
    changefeed_id: ChangefeedId = None,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    start_ts: Annotated[int | None, typer.Option(help="Changes above this TSO.")] = None,
    target_ts: Annotated[int | None, typer.Option(help="Finish at this TSO.")] = None,
    config: ConfigFile = None,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    no_check: NoCheck = False,
    no_confirm: NoConfirm = False,  # noqa: ARG001 - for TiCDC's scripts
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Make a changefeed; the captures of the cluster share its tables."""
    with reported():
        arguments = {
            "changefeed-id": changefeed_id,
            "source-uri": source_uri,
            "sink-uri": sink_uri,
            "start-ts": start_ts,
            "target-ts": target_ts,
        }
        info = described_by(arguments, config)
        check = checking(no_check=no_check, is_new=True)
        _show(etcd, cluster_id, output_format, lambda op: op.create(info, check), config)


@changefeed.command()
def update(
    *,
    changefeed_id: Id,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    target_ts: Annotated[int | None, typer.Option(help="Finish at this TSO; 0: never.")] = None,
    config: ConfigFile = None,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    no_check: NoCheck = False,
    no_confirm: NoConfirm = False,  # noqa: ARG001 - for TiCDC's scripts
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Change a paused changefeed: what is not given stays, and so do its ID and start."""
    with reported():
        arguments = {
            "source-uri": source_uri,
            "sink-uri": sink_uri,
            "target-ts": target_ts,
        }
        check = checking(no_check=no_check, is_new=False)
        change = changed_by(arguments, config)
        _show(
            etcd,
            cluster_id,
            output_format,
            lambda op: op.update(changefeed_id, change, check),
            config,
        )


@changefeed.command("list")
def list_changefeeds(
    *, etcd: Etcd = None, cluster_id: ClusterId = None, output_format: Format = OutputFormat.TABLE
) -> None:
    """All of them: state, checkpoint, owner."""
    with reported():
        _show(etcd, cluster_id, output_format, lambda op: op.list_changefeeds())


@changefeed.command()
def query(
    *,
    changefeed_id: Id,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """One of them, with its error."""
    with reported():
        _show(etcd, cluster_id, output_format, lambda op: op.query(changefeed_id))


@changefeed.command()
def pause(
    *,
    changefeed_id: Id,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Stop replicating; the checkpoint stays."""
    with reported():
        _show(etcd, cluster_id, output_format, lambda op: op.pause(changefeed_id))


@changefeed.command()
def resume(
    *,
    changefeed_id: Id,
    overwrite_checkpoint_ts: Annotated[
        int | None, typer.Option(help="From this TSO, not from the checkpoint.")
    ] = None,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    no_confirm: NoConfirm = False,  # noqa: ARG001 - for TiCDC's scripts
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Go on with a paused, failed or finished one."""
    with reported():
        _show(
            etcd,
            cluster_id,
            output_format,
            lambda op: op.resume(changefeed_id, overwrite_checkpoint_ts),
        )


@changefeed.command()
def remove(
    *,
    changefeed_id: Id,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """End it and forget it; its tables stay."""
    with reported():
        _show(etcd, cluster_id, output_format, lambda op: op.remove(changefeed_id))


@capture.command("list")
def list_captures(
    *, etcd: Etcd = None, cluster_id: ClusterId = None, output_format: Format = OutputFormat.TABLE
) -> None:
    """Who serves the cluster, and who of them leads."""
    with reported():
        _show(etcd, cluster_id, output_format, lambda op: op.list_captures())


@capture.command()
def drain(
    *,
    capture_id: CaptureId,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take it back: it serves again, and takes tables.")
    ] = False,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Have the others take its tables; ask again until `remaining` is 0."""

    def ask(op: Operator) -> Found:
        return op.take_back_drain(capture_id) if undo else op.drain(capture_id)

    with reported():
        _show(etcd, cluster_id, output_format, ask)


@processor.command("list")
def list_processors(
    *,
    changefeed_id: ChangefeedId = None,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Each table: its state, its capture, its checkpoint."""
    with reported():
        _show(etcd, cluster_id, output_format, lambda op: op.list_processors(changefeed_id))


@table.command()
def move(
    *,
    changefeed_id: Id,
    table_name: TableOption,
    capture_id: CaptureId,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Have another capture replicate it, from the next batch on."""
    with reported():
        table_name_of(table_name)
        _show(
            etcd,
            cluster_id,
            output_format,
            lambda op: op.move_table(changefeed_id, table_name, capture_id),
        )


@table.command()
def rebalance(
    *,
    changefeed_id: Id,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = OutputFormat.TABLE,
) -> None:
    """Spread a changefeed's tables evenly over the captures."""
    with reported():
        _show(etcd, cluster_id, output_format, lambda op: op.rebalance(changefeed_id))


def _show(
    etcd: str | None,
    cluster_id: str | None,
    output_format: OutputFormat,
    ask: Callable[[Operator], Found],
    config: Path | None = None,
) -> None:
    from streaming import views
    from streaming.cluster_operator import operator

    arguments = {"etcd": etcd, "cluster-id": cluster_id}
    settings = load_cluster(config=config, environment=os.environ, arguments=arguments)
    with operator(settings.etcd, settings.transport) as found:
        views.show(ask(found), views.listing, as_json=output_format is OutputFormat.JSON)
