"""Options that several commands have, and how every command ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from conf.load import CONFIG_VARIABLE
from conf.masking import masked
from conf.settings import SettingError
from coordination.errors import ConfigError, Stop, TidelakeError
from streaming import logs

EXIT_FAILED = 1
EXIT_USAGE = 2
LOG_FORMAT_VARIABLE = "TIDELAKE_LOG_FORMAT"

LogFormat = Literal["text", "json"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
OutputFormat = Literal["table", "json"]

SourceUri = Annotated[
    str | None,
    typer.Option(
        help="The very sink URI that TiCDC was given: "
        "kafka://host:9092/topic?protocol=canal-json&partition-num=3&enable-tidb-extension=true",
        metavar="URI",
    ),
]
SinkUri = Annotated[
    str | None,
    typer.Option(
        help="The warehouse: delta:///path, delta+s3://bucket/path, delta+abfss://…, delta+gs://…",
        metavar="URI",
    ),
]
TableOption = Annotated[str, typer.Option("--table", help="schema.table", metavar="TABLE")]
ChangefeedId = Annotated[
    str | None,
    typer.Option(
        "--changefeed-id",
        "-c",
        help="The changefeed's ID: letters, digits and single hyphens. Not given, a new one has "
        "its topic's name, where that can be one.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(help="A changefeed file (TOML) with TiCDC's names.", envvar=CONFIG_VARIABLE),
]
ClusterId = Annotated[
    str | None, typer.Option(help="Captures of one cluster share it; TiCDC's cluster-id.")
]
AdvertiseAddr = Annotated[
    str | None, typer.Option(help="Its address as others see it, where that is another.")
]
LogFormatOption = Annotated[LogFormat | None, typer.Option(help="Of the lines on stderr.")]
LogLevelOption = Annotated[LogLevel | None, typer.Option(case_sensitive=False)]
Format = Annotated[OutputFormat, typer.Option("--format")]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check", help="Do not ask broker and warehouse: only the captures can reach them."
    ),
]
NoConfirm = Annotated[
    bool, typer.Option("--no-confirm", help="As in TiCDC; nothing is asked here anyway.")
]


def settings_of(options: Mapping[str, object]) -> dict[str, object]:
    """A command's options by the names of their settings; what is no setting has no name there."""
    return {name.replace("_", "-"): value for name, value in options.items() if name != "config"}


class MaskingGroup(TyperGroup):
    """Wrong usage is answered with what was typed, and a password may have been typed."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _masking():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _masking():
            return super().invoke(ctx)


@contextmanager
def _masking() -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = masked(message)
        raise


@contextmanager
def reported(log_format: LogFormat | None = None) -> Iterator[None]:
    """Turn expected trouble into one line and an exit code.

    ``log_format``: of a command that logs; who asked for JSON gets its refusal as JSON too.
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
    """The same for a program that logs: its last line is an ERROR line, whatever has failed."""
    try:
        with _ending(logs.failed):
            yield
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001  # the last line of the program
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
        raise typer.Exit(EXIT_FAILED) from None
