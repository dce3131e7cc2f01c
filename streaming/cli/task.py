"""``tidelake task``: databases without TiCDC, by task files of DM.

The docstring of a function under ``@asks`` is the command's ``--help``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conf.load import changefeed_document
from conf.task.file import TaskDescription
from streaming.cli.cluster import Ask, asks
from streaming.cli.options import (
    ConfigFile,
    Format,
    NoCheck,
    SinkUri,
    read_task_file,
    reported,
)

if TYPE_CHECKING:
    from streaming.operations.tasks import PlannedTask

task = typer.Typer(
    help="Copy databases and follow them, without TiCDC, by task files of DM.", no_args_is_help=True
)

TaskFile = Annotated[
    Path, typer.Argument(help="A task file of DM (YAML), with one source.", metavar="FILE")
]
TaskName = Annotated[str, typer.Argument(help="The task's name.", metavar="NAME")]
ServerUri = Annotated[
    str | None,
    typer.Option(
        "--source-uri",
        help="The database, mysql://user@host:3306/, if the file's source has no `from`.",
        metavar="URI",
    ),
]


@task.command()
def check(
    *,
    file: TaskFile,
    source_uri: ServerUri = None,
    sink_uri: SinkUri = None,
    config: ConfigFile = None,
    no_check: NoCheck = False,
    output_format: Format = "table",
) -> None:
    """Show what a task file would do, and what is wrong with it. Changes nothing.

    Asks the database and the warehouse too, unless --no-check. Each table is shown with its
    target, write mode and key, and how many rows are copied.

    Example:
      tidelake task check shop.yaml --sink-uri delta:///data/lake
    """
    with reported():
        plan = _planned(read_task_file(file), source_uri, sink_uri, config)
        from streaming.changefeed.settings_in_etcd import changefeed_settings
        from streaming.cli import screen
        from streaming.operations.before_start.findings import refuse
        from streaming.operations.before_start.planned import planned_tables

        tables = [] if no_check else planned_tables(changefeed_settings(plan.info))
        screen.show_rows({**plan.row, "tables": tables}, as_json=output_format == "json")
        refuse(plan.findings(is_new=True, is_checked=not no_check))


@asks(task)
def start(
    *,
    file: TaskFile,
    source_uri: ServerUri = None,
    sink_uri: SinkUri = None,
    config: ConfigFile = None,
    no_check: NoCheck = False,
) -> Ask:
    """Start a task: the captures of the cluster copy its tables, and then follow the database.

    First asks the database and the warehouse whether it can work (unless --no-check).
    --config is a changefeed file for what a task file does not have, such as `[[sink.tables]]`.

    Example:
      tidelake task start shop.yaml --etcd http://etcd:2379 --sink-uri delta:///data/lake
    """
    plan = _planned(read_task_file(file), source_uri, sink_uri, config)
    return lambda op: op.tasks.start(plan, is_checked=not no_check)


@asks(task, "list")
def list_tasks() -> Ask:
    """List the tasks: mode, state, the unit that runs (dump, load or sync), its stage and capture.

    `state` is what you have asked for, `stage` is how its unit is, as the leader knows it.
    """
    return lambda op: op.tasks.list_tasks()


@asks(task)
def query(*, name: TaskName) -> Ask:
    """Show one task: its units, their errors, how far they are, and the changefeed that follows.

    Tables, rows and bytes are of a unit that copies or loads; checkpoint and lag of the
    changefeed. `tidelake progress` shows its tables.
    """
    return lambda op: op.tasks.query(name)


@asks(task)
def pause(*, name: TaskName) -> Ask:
    """Have a task wait where it is until `task resume`."""
    return lambda op: op.tasks.pause(name)


@asks(task)
def resume(*, name: TaskName) -> Ask:
    """Let a task go on after `task pause`, or try again after an error."""
    return lambda op: op.tasks.resume(name)


@asks(task)
def update(
    *,
    file: TaskFile,
    source_uri: ServerUri = None,
    sink_uri: SinkUri = None,
    config: ConfigFile = None,
    no_check: NoCheck = False,
) -> Ask:
    """Give a task another task file; it goes on where it was. URIs that you do not give stay.

    A mode may only become one that begins with the same units.
    """
    found = read_task_file(file)

    def ask(stored: dict[str, str]) -> PlannedTask:
        own = source_uri if found.source_uri else source_uri or stored.get("source-uri")
        return _planned(found, own, sink_uri or stored.get("sink-uri"), config)

    return lambda op: op.tasks.update(
        ask(dict(op.tasks.stored_uris(found.name))), is_checked=not no_check
    )


@asks(task)
def stop(*, name: TaskName) -> Ask:
    """End a task, and forget how far it was. Its Delta tables stay."""
    return lambda op: op.tasks.stop(name)


def _planned(
    found: TaskDescription, source_uri: str | None, sink_uri: str | None, config: Path | None
) -> PlannedTask:
    from streaming.operations.tasks import planned

    document = changefeed_document(config, os.environ)
    given = {"source-uri": source_uri, "sink-uri": sink_uri}
    uris = {key: each or document.get(key) for key, each in given.items()}
    if found.source_uri:
        uris["source-uri"] = source_uri  # a variable of the shell is not about this task
    document = {key: each for key, each in document.items() if key not in given}
    return planned(found, document, source_uri=uris["source-uri"], sink_uri=uris["sink-uri"])
