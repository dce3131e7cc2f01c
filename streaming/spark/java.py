"""The Java that Spark starts with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from coordination.errors import TidelakeError

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
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "none is on the PATH"
        raise TidelakeError(f"there is no Java: {where}. {NEEDS}")
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TidelakeError(f"{java} does not start: {error}. {NEEDS}") from error
    told = _VERSION.search(said.stderr + said.stdout)
    if told is None:
        last = (said.stderr + said.stdout).strip().splitlines()[-1:] or [f"code {said.returncode}"]
        raise TidelakeError(f"{java} does not tell its version: {last[0]}. {NEEDS}")
    if int(told[2]) < LEAST:
        raise TidelakeError(f"{java} is Java {told[1]}. {NEEDS}")
    return java, told[1]
