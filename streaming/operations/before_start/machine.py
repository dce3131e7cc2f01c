"""What a start needs of its machine: Java and the jars of Spark and Delta."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coordination.errors import ConfigError
from streaming.operations.before_start.notes import Note
from streaming.spark.jvm import GATEWAY_VARIABLES, NEEDS
from streaming.spark.spark_conf import JARS_VARIABLE, jar_files

LEAST_JAVA: Final = 17
ANSWER_S: Final = 30.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


def machine_notes() -> Iterator[Note]:
    """Blocks: Java is asked for its version."""
    if GATEWAY_VARIABLES[0] in os.environ:
        yield Note("ok", "Spark", "it runs already, started by spark-submit")
        return
    yield _of_java()
    yield _of_jars()


def _of_java() -> Note:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "none is on the PATH"
        return Note("refused", "Java", f"there is no Java: {where}. {NEEDS}")
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Note("refused", "Java", f"{java} does not start: {error}. {NEEDS}")
    told = _VERSION.search(said.stderr + said.stdout)
    if told is None:
        last = (said.stderr + said.stdout).strip().splitlines()[-1:] or [f"code {said.returncode}"]
        return Note("refused", "Java", f"{java} does not tell its version: {last[0]}. {NEEDS}")
    if int(told[1]) < LEAST_JAVA:
        return Note("refused", "Java", f"{java} is Java {told[1]}. {NEEDS}")
    return Note("ok", "Java", f"{told[0].removeprefix('version ')} ({java})")


def _of_jars() -> Note:
    try:
        found = jar_files()
    except ConfigError as error:
        return Note("refused", "jars", str(error))
    if not found:
        return Note(
            "note",
            "jars",
            "no jars of Delta are here: the first start fetches some 200 MB from Maven's "
            f"repository. On a machine that cannot, let {JARS_VARIABLE} name a folder that has "
            "them (make setup makes .jars/spark)",
        )
    return Note("ok", "jars", f"{len(found)} in {Path(found[0]).parent}")
