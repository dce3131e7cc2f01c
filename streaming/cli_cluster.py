"""``tidelake server|changefeed|capture|processor|table``: captures as a cluster, from anywhere."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conf.keys import CHANGEFEED_FILE
from conf.load import changefeed_document, load_server, load_settings, load_sink
from streaming import logs
from streaming.cli_options import (
    AdvertiseAddr,
    ChangefeedId,
    ClusterId,
    ConfigFile,
    Format,
    LogFormatOption,
    LogLevelOption,
    NoCheck,
    NoConfirm,
    OutputFormat,
    SinkUri,
    SourceUri,
    TableOption,
    logged,
    reported,
    settings_of,
)

if TYPE_CHECKING:
    from streaming.operations import Operator, Row

changefeed = typer.Typer(help="Changefeeds of a cluster: state in etcd.", no_args_is_help=True)
capture = typer.Typer(help="Captures of a cluster.", no_args_is_help=True)
processor = typer.Typer(help="What captures replicate.", no_args_is_help=True)
table = typer.Typer(
    help="Where a table is replicated, and whether it is written now.", no_args_is_help=True
)

Etcd = Annotated[
    str | None,
    typer.Option(
        help="Where the captures meet: http://host:2379, several by comma.", metavar="URL"
    ),
]
Id = Annotated[str, typer.Option("--changefeed-id", "-c", help="The changefeed's ID.")]
CaptureId = Annotated[str, typer.Option("--capture-id", "-p", help="As `capture list` shows it.")]
ServerFile = Annotated[Path | None, typer.Option(help="A server file (TOML) with TiCDC's names.")]
Ask = Callable[["Operator"], "Row | list[Row]"]


def asks(group: typer.Typer, name: str | None = None) -> Callable[[Callable[..., Ask]], None]:
    """Make a command of a function that says what to ask the cluster; where it is, and how the
    answer is shown, are options of every such command."""

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
    from streaming import views
    from streaming.operations import operator

    settings = load_server(
        config=config, environment=os.environ, arguments=arguments, table=CHANGEFEED_FILE
    )
    with operator(settings.etcd, settings.transport) as op:
        views.show_rows(ask(op), as_json=output_format == "json")


def server(
    *,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    addr: Annotated[
        str | None, typer.Option(help="Where other captures find this one (port 0: any free one).")
    ] = None,
    advertise_addr: AdvertiseAddr = None,
    config: ServerFile = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Be a capture that serves whatever changefeeds the cluster has, until SIGTERM or Ctrl-C."""
    arguments = settings_of(locals())
    with reported(log_format):
        settings = load_server(config=config, environment=os.environ, arguments=arguments)
        logs.install(settings.log_format, settings.log_level)
        with logged():
            from streaming.serve import serve

            raise typer.Exit(serve(settings))


@asks(changefeed)
def create(
    *,
    changefeed_id: ChangefeedId = None,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    start_ts: Annotated[int | None, typer.Option(help="Changes above this TSO.")] = None,
    target_ts: Annotated[int | None, typer.Option(help="Finish at this TSO.")] = None,
    config: ConfigFile = None,
    no_check: NoCheck = False,
    no_confirm: NoConfirm = False,  # for TiCDC's scripts
) -> Ask:
    """Make a changefeed; the captures of the cluster share its tables."""
    arguments = settings_of(locals())
    settings = load_settings(
        config=config, environment=os.environ, arguments={**arguments, "etcd": "embedded"}
    )
    document = changefeed_document(config, os.environ)
    return lambda op: op.create(settings.changefeed, arguments, document, is_checked=not no_check)


@asks(changefeed)
def update(
    *,
    changefeed_id: Id,
    source_uri: SourceUri = None,
    sink_uri: SinkUri = None,
    target_ts: Annotated[int | None, typer.Option(help="Finish at this TSO; 0: never.")] = None,
    config: ConfigFile = None,
    no_check: NoCheck = False,
    no_confirm: NoConfirm = False,  # for TiCDC's scripts
) -> Ask:
    """Change a paused changefeed: what is not given stays, and so do its ID and start."""
    arguments = settings_of(locals())
    document = changefeed_document(config, os.environ)
    return lambda op: op.update(changefeed_id, arguments, document, is_checked=not no_check)


@asks(changefeed, "list")
def list_changefeeds() -> Ask:
    """All of them: state, checkpoint, owner."""
    return lambda op: op.list_changefeeds()


@asks(changefeed)
def query(*, changefeed_id: Id) -> Ask:
    """One of them, with its error."""
    return lambda op: op.query(changefeed_id)


@asks(changefeed)
def pause(*, changefeed_id: Id) -> Ask:
    """Stop replicating; the checkpoint stays."""
    return lambda op: op.pause(changefeed_id)


@asks(changefeed)
def resume(
    *,
    changefeed_id: Id,
    overwrite_checkpoint_ts: Annotated[
        int | None, typer.Option(help="From this TSO, not from the checkpoint.")
    ] = None,
    no_confirm: NoConfirm = False,  # noqa: ARG001 - for TiCDC's scripts
) -> Ask:
    """Go on with a paused, failed or finished one."""
    return lambda op: op.resume(changefeed_id, overwrite_checkpoint_ts)


@asks(changefeed)
def remove(*, changefeed_id: Id) -> Ask:
    """End it and forget it; its tables stay."""
    return lambda op: op.remove(changefeed_id)


@asks(capture, "list")
def list_captures() -> Ask:
    """Who serves the cluster, and who of them leads."""
    return lambda op: op.list_captures()


@asks(capture)
def drain(
    *,
    capture_id: CaptureId,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take it back: it serves again, and takes tables.")
    ] = False,
) -> Ask:
    """Have the others take its tables; ask again until `remaining` is 0."""
    return lambda op: op.take_back_drain(capture_id) if undo else op.drain(capture_id)


@asks(processor, "list")
def list_processors(*, changefeed_id: ChangefeedId = None) -> Ask:
    """Each table: its state, its capture, its checkpoint."""
    return lambda op: op.list_processors(changefeed_id)


@table.command("pause")
def pause_table(
    *, table_name: TableOption, sink_uri: SinkUri = None, config: ConfigFile = None
) -> None:
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


def _pause(name: str, sink_uri: str | None, config: Path | None, *, paused: bool) -> None:
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming.operations import set_table_paused

        changed = set_table_paused(sink, name, paused=paused)
        state = "is paused" if paused else "goes on"
        typer.echo(f"{name} {state}" + ("" if changed else " already"))


@asks(table)
def move(*, changefeed_id: Id, table_name: TableOption, capture_id: CaptureId) -> Ask:
    """Have another capture replicate it, from the next batch on."""
    return lambda op: op.move_table(changefeed_id, table_name, capture_id)


@asks(table)
def rebalance(*, changefeed_id: Id) -> Ask:
    """Spread a changefeed's tables evenly over the captures."""
    return lambda op: op.rebalance(changefeed_id)
