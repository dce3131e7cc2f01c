"""Options that several commands share, and how every command reports errors and exits."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from conf.load import CONFIG_VARIABLE
from conf.masking import masked
from conf.problems import SettingError
from conf.task.file import TaskDescription, read_task
from coordination.errors import ConfigError, NotInTime, Stop, TidelakeError
from streaming.process import logs

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LATE = 3
LOG_FORMAT_VARIABLE = "TIDELAKE_LOG_FORMAT"

ORDER = (
    *("run", "check", "progress", "snapshot", "diff", "table", "ddl", "dead-letters", "record"),
    "warehouse",
    *("task", "server", "changefeed", "capture", "processor", "jars"),
)

LogFormat = Literal["text", "json"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
OutputFormat = Literal["table", "json"]

SchemaFile = Annotated[
    str | None,
    typer.Option(
        help="CREATE TABLE statements (mysqldump --no-data) of tables that were there before the "
        "start-ts, as they were then.",
        metavar="FILE",
    ),
]
SourceUri = Annotated[
    str | None,
    typer.Option(
        help="The source: a Kafka topic, by the URI that TiCDC was given as its sink URI, "
        "kafka://host:9092/topic?… with protocol=canal-json, open-protocol or simple; or a "
        "database, mysql://user@host:3306/.",
        metavar="URI",
    ),
]
SinkUri = Annotated[
    str | None,
    typer.Option(
        help="The warehouse, which holds the Delta tables: delta:///path, delta+s3://bucket/path, "
        "delta+abfss://… or delta+gs://….",
        metavar="URI",
    ),
]
StartTs = Annotated[
    int | None,
    typer.Option(
        help="Replicate changes above this TSO; without it, all that the source has. A changefeed "
        "that has run before goes on where it was instead."
    ),
]
TargetTs = Annotated[
    int | None,
    typer.Option(
        help="Apply everything up to this TSO, then finish (`run` ends with exit code 0); 0: there "
        "is no such end."
    ),
]
OverwriteCheckpointTs = Annotated[
    int | None,
    typer.Option(
        help="Rewind: go back to this TSO and apply everything above it once more, instead of "
        "going on at the checkpoint. A `run` with the same value again goes on."
    ),
]
TableOption = Annotated[
    str, typer.Option("--table", help="The table, as schema.table.", metavar="TABLE")
]
ChangefeedId = Annotated[
    str | None,
    typer.Option(
        "--changefeed-id",
        "-c",
        help="The changefeed's ID: letters, digits and single hyphens. Without it, the topic's "
        "name.",
    ),
]
Id = Annotated[str, typer.Option("--changefeed-id", "-c", help="The changefeed's ID.")]
ShownChangefeed = Annotated[
    str | None, typer.Option("--changefeed-id", "-c", help="Only this changefeed.")
]
TaskFileOption = Annotated[
    Path | None,
    typer.Option(
        help="A task file of DM (YAML), with one source: what `task start` would have a cluster "
        "do, this process does. The changefeed has the task's name and its source's.",
        metavar="FILE",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="A changefeed file (TOML), with the names of TiCDC's own. Arguments and environment "
        "variables override it.",
        envvar=CONFIG_VARIABLE,
    ),
]
Etcd = Annotated[
    str | None,
    typer.Option(
        help="The etcd where the captures meet: http://host:2379, several separated by commas. "
        "`run` and `server` also take `embedded`, the default: one that ends with the process.",
        metavar="URL",
    ),
]
ClusterId = Annotated[
    str | None,
    typer.Option(
        help="The name of the cluster in etcd, as in TiCDC; `default` if it is not given."
    ),
]
Addr = Annotated[
    str | None,
    typer.Option(
        help="The address where other captures and commands reach this one, as 10.0.0.1:8300 "
        "(port 0: any free one). Without it, only those on this machine can."
    ),
]
AdvertiseAddr = Annotated[
    str | None,
    typer.Option(help="The address that others use to reach this process, if it is not --addr."),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(help="The form of the log lines on stderr; `text` if it is not given."),
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        case_sensitive=False, help="The lowest level that is logged; INFO if it is not given."
    ),
]
Format = Annotated[
    OutputFormat, typer.Option("--format", help="Print a table for people, or JSON for programs.")
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check",
        help="Do not ask Kafka and the warehouse whether the changefeed can work: for a machine "
        "that cannot reach them.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Change nothing: print the changefeed as it would be, and all findings (exit code 2).",
    ),
]
NoConfirm = Annotated[
    bool, typer.Option("--no-confirm", help="Accepted for scripts made for TiCDC; changes nothing.")
]


def settings_of(options: Mapping[str, object]) -> dict[str, object]:
    """A command's options by the names of their settings, without ``config``."""
    return {name.replace("_", "-"): value for name, value in options.items() if name != "config"}


class ProgramGroup(TyperGroup):
    """The commands, in the order in which a user meets them. Masks secrets in usage errors: they
    repeat what was typed, which may be a password."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _reflowed(self)
        super().format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """What nobody has put in order comes last."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: (*ORDER, *names).index(name))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _reflowed(super().get_command(ctx, cmd_name))

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _masking():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _masking():
            return super().invoke(ctx)


def _reflowed(command: Any) -> Any:
    """With its help as paragraphs that fill any terminal; indented lines stay."""
    if command is not None:
        command.help = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(command.help or ""))
        for each in getattr(command, "commands", {}).values():
            _reflowed(each)
    return command


@contextmanager
def _masking() -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = masked(message)
        raise


def say(line: str) -> None:
    """Tell the operator something beside the answer, which is on stdout."""
    typer.echo(masked(f"{logs.PROGRAM}: {line}"), err=True)


def read_task_file(file: Path) -> TaskDescription:
    """The file; its keys without an effect are named once, on stderr. Raises SettingError."""
    found = read_task(file)
    if found.idle_keys:
        say(f"{file}: without an effect here: {', '.join(found.idle_keys)}")
    return found


@contextmanager
def reported(log_format: LogFormat | None = None) -> Iterator[None]:
    """Turn expected errors into one line on stderr and an exit code.

    ``log_format``: that of a command that logs; with "json" the line is JSON too.
    """
    chosen = log_format or os.environ.get(LOG_FORMAT_VARIABLE, "")

    def say(error: Exception) -> None:
        if chosen == "json":
            logs.install("json", "INFO")
            logs.failed(error)
        else:
            typer.echo(masked(f"{logs.PROGRAM}: {error}"), err=True)

    with _ending(say):
        yield


@contextmanager
def logged() -> Iterator[None]:
    """The same for a command that logs: whatever fails, its last line is an ERROR log line."""
    try:
        with _ending(logs.failed):
            yield
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001  # it becomes the program's last line
        logs.failed(error, traceback=True)
        raise typer.Exit(EXIT_FAILED) from None


@contextmanager
def _ending(say: Callable[[Exception], None]) -> Iterator[None]:
    try:
        yield
    except (SettingError, ConfigError) as error:
        say(error)
        raise typer.Exit(EXIT_USAGE) from None
    except (Stop, KeyboardInterrupt):
        raise typer.Exit from None
    except TidelakeError as error:
        say(error)
        raise typer.Exit(EXIT_LATE if isinstance(error, NotInTime) else EXIT_FAILED) from None
