"""What a start needs of its machine: Java and the jars of Spark and Delta."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from coordination.errors import ConfigError, TidelakeError
from streaming.operations.before_start.notes import Note
from streaming.spark.java import java_version
from streaming.spark.jvm import GATEWAY_VARIABLES
from streaming.spark.spark_conf import JARS_VARIABLE, jar_files


def machine_notes() -> Iterator[Note]:
    """Blocks: Java is asked for its version."""
    if GATEWAY_VARIABLES[0] in os.environ:
        yield Note("ok", "Spark", "it runs already, started by spark-submit")
        return
    yield _of_java()
    yield _of_jars()


def _of_java() -> Note:
    try:
        return Note("ok", "Java", java_version())
    except TidelakeError as error:
        return Note("refused", "Java", str(error))


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
            f"repository. `tidelake jars DIR` fetches them now, also from a mirror; "
            f"{JARS_VARIABLE} then names the folder",
        )
    return Note("ok", "jars", f"{len(found)} in {Path(found[0]).parent}")
