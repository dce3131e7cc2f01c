"""Fetches the jars that Spark needs beside its own, by the Ivy that ships inside PySpark."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from coordination.errors import ConfigError, TidelakeError
from streaming.spark.java import java_program

LISTED: Final = Path(__file__).resolve().parents[2] / "conf" / "ivy.xml"
MOST_S: Final = 1800.0
_SETTINGS: Final = """<ivysettings>
  <settings defaultResolver="given"/>
  <resolvers><ibiblio name="given" m2compatible="true" root={root}/></resolvers>
</ivysettings>
"""


def fetch_jars(folder: Path, *, repository: str | None, settings: Path | None) -> list[Path]:
    """The jars, in the folder. Either all of them come or none. Blocks: some 13 MB are loaded.

    ``repository``: the address of a Maven repository that is asked in place of Maven's own.
    ``settings``: a file of Ivy's settings (more repositories, logins) that says which are asked.
    """
    if list(folder.glob("*.jar")):
        raise ConfigError(
            f"{folder} holds jars already, and two versions would be one too many: "
            "empty it, or name another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as scratch:
            fetched = _fetched(Path(scratch), repository, settings)
            return sorted(jar.replace(folder / jar.name) for jar in fetched)
    except OSError as error:
        raise TidelakeError(f"the jars cannot be kept in {folder}: {error}") from error


def _fetched(scratch: Path, repository: str | None, settings: Path | None) -> list[Path]:
    if repository is not None:
        settings = scratch / "settings.xml"
        root = repository.rstrip("/") + "/"
        settings.write_text(_SETTINGS.format(root=quoteattr(root)), encoding="utf-8")
    command = [java_program(), f"-Divy.default.ivy.user.dir={scratch / 'ivy'}"]
    command += ["-jar", str(_ivy()), "-ivy", str(LISTED), "-confs", "spark", "-types", "jar"]
    command += ["bundle", "-retrieve", f"{scratch}/jars/[artifact]-[revision].[ext]"]
    command += ["-settings", str(settings)] if settings is not None else []
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=MOST_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TidelakeError(f"the jars did not come within {MOST_S / 60:.0f} minutes") from error
    jars = list((scratch / "jars").glob("*.jar"))
    if said.returncode or not jars:
        where = repository or (f"what {settings} names" if settings else "Maven's repository")
        raise TidelakeError(
            f"the jars could not be fetched from {where}: {_reason(said.stdout + said.stderr)}. "
            "Where a mirror is to be asked, name it with --repository, or several, with logins, "
            "in a file of Ivy's settings with --ivy-settings"
        )
    return jars


def _reason(said: str) -> str:
    """The first lines of Ivy's summary of problems, as one."""
    lines = [line.strip() for line in said.partition("problems summary")[2].splitlines()]
    told = [line for line in lines if line and not line.startswith(("::", "=="))]
    last = said.strip().splitlines()[-1:]
    return "; ".join(told[:3] or last or ["Ivy does not say why"])


def _ivy() -> Path:
    found = importlib.util.find_spec("pyspark")
    origin = Path(found.origin).parent if found is not None and found.origin else Path()
    for jar in origin.glob("jars/ivy-*.jar"):
        return jar
    raise TidelakeError(f"there is no Ivy in {origin / 'jars'}: is it a whole PySpark?")
