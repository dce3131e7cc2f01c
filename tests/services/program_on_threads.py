"""The program, with threads in the place of Spark's executors: for tests of what a process says and
leaves, where Spark is not the claim. It starts no JVM, and takes half of the processor's time.

    python -m tests.services.program_on_threads run --source-uri …
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

from streaming.jobs.on_threads import ThreadsOfProcess


class NoJvm:
    """In the place of `DriverJvm`."""

    is_launched = False

    def launch(self, _conf: object) -> None: ...

    def stop(self, *_: object, **__: object) -> None: ...


class NoSpark:
    """In the place of `SparkOnDemand`, from which `SparkOfProcess` is made."""

    def __init__(self, **_: object) -> None: ...

    def __call__(self) -> None: ...

    def begin(self) -> None: ...

    def stop(self) -> None: ...


def threads(_spark: Any) -> ThreadsOfProcess:
    return ThreadsOfProcess()


if __name__ == "__main__":
    with (
        patch("streaming.spark.jvm.DriverJvm", NoJvm),
        patch("streaming.spark.session.SparkOnDemand", NoSpark),
        patch("streaming.jobs.on_spark.SparkOfProcess", threads),
    ):
        from streaming.cli.main import main

        sys.exit(main())
