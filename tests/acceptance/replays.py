"""The program plays a recording."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.processes import JVM_OPTIONS, ON_SPARK, ON_THREADS
from tests.services.kafka_broker import REPOSITORY

PATIENCE_S = 200


def command(*arguments: str, program: str = ON_SPARK) -> list[str]:
    return [sys.executable, "-m", program, *arguments]


def replay(recording: Path, warehouse: Path, *more: str, program: str = ON_THREADS) -> list[str]:
    source = f"file://{recording}?protocol=canal-json&enable-tidb-extension=true"
    arguments = ("run", "--source-uri", source, "--sink-uri", f"delta://{warehouse}", *more)
    return command(*arguments, program=program)


def ended(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=REPOSITORY,
        env={**os.environ, "JDK_JAVA_OPTIONS": JVM_OPTIONS},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
