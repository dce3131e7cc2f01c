"""``tidelake jars``: what the wheel does not bring."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import reported


def jars(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder; made if it is not there.")
    ],
    *,
    repository: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A Maven repository to ask in place of Maven's own, as a mirror."
        ),
    ] = None,
    ivy_settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Ivy's settings: several repositories, or one with a login."
        ),
    ] = None,
) -> None:
    """Fetch the jars of Delta that Spark needs, for a Tidelake that was installed as a wheel.

    They are some 13 MB. Afterwards let TIDELAKE_JARS name the folder. Without them
    Spark fetches them itself at its start, if Maven's repository can be reached.

    Example:
      tidelake jars ~/tidelake-jars && export TIDELAKE_JARS=~/tidelake-jars
    """
    with reported():
        from conf.problems import SettingError
        from streaming.spark.fetch_jars import fetch_jars
        from streaming.spark.spark_conf import JARS_VARIABLE

        if repository is not None and ivy_settings is not None:
            raise SettingError("--repository goes without --ivy-settings")
        if ivy_settings is not None and not ivy_settings.is_file():
            raise SettingError(f"--ivy-settings: there is no file {ivy_settings}")
        typer.echo("asks for some 13 MB of jars: that may take minutes")
        found = fetch_jars(folder, repository=repository, settings=ivy_settings)
        typer.echo(f"{len(found)} jars in {folder}")
        if os.environ.get(JARS_VARIABLE) != str(folder.resolve()):
            typer.echo(f"now: export {JARS_VARIABLE}={folder.resolve()}")
