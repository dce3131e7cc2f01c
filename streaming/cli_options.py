"""Options that several commands have, and how every command ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from conf.load import CONFIG_VARIABLE
from conf.settings import SettingError
from coordination.errors import ConfigError, Stop, TidelakeError

EXIT_FAILED = 1
EXIT_USAGE = 2


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


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
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check", help="Do not ask broker and warehouse: only the captures can reach them."
    ),
]
NoConfirm = Annotated[
    bool, typer.Option("--no-confirm", help="As in TiCDC; nothing is asked here anyway.")
]


@contextmanager
def reported() -> Iterator[None]:
    """Turn expected trouble into one line and an exit code."""
    try:
        yield
    except (SettingError, ConfigError) as error:
        _end(error, EXIT_USAGE)
    except Stop:
        raise typer.Exit from None
    except TidelakeError as error:
        _end(error, EXIT_FAILED)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _end(error: Exception, code: int) -> None:
    typer.echo(f"tidelake: {error}", err=True)
    raise typer.Exit(code) from None
