"""The Java that Spark starts with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from coordination.errors import TidelakeError
from streaming.spark.start_errors import told, way_out

NEEDS: Final = "It needs Java 17 or newer, in JAVA_HOME or on the PATH"
LEAST: Final = 17
ANSWER_S: Final = 30.0
_VERSION: Final = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')


def java_program() -> str:
    """The path of the Java that a start would take. Blocks: it is asked for its version. Raises
    TidelakeError where there is none, or it is too old."""
    return _asked()[0]


def java_version() -> str:
    """The same with its version, for people."""
    java, version = _asked()
    return f"{version} ({java})"


def _asked() -> tuple[str, str]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        if home:
            raise TidelakeError(
                f"there is no Java: JAVA_HOME is {home}, which has no bin/java. Mend JAVA_HOME, or "
                "unset it: then the one on the PATH is taken"
            )
        raise TidelakeError(f"there is no Java: none is on the PATH. {NEEDS}")
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TidelakeError(f"{java} does not start: {error}. {NEEDS}") from error
    version = _VERSION.search(said.stderr + said.stdout)
    if version is None:
        why = told((said.stderr + said.stdout).splitlines(), said.returncode)
        raise TidelakeError(f"{java} does not tell its version: {why}. {way_out(why) or NEEDS}")
    if int(version[2]) < LEAST:
        raise TidelakeError(f"{java} is Java {version[1]}. {NEEDS}")
    return java, version[1]
