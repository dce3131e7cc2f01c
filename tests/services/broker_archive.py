"""Make a class archive, with which the tests' broker starts with 2 CPU seconds instead of 3.5.

``python -m tests.services.broker_archive``; see ``streaming/spark/class_archive.py``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.services.kafka_broker import ARCHIVE, QUICK_TO_START, KafkaBroker

WRITTEN_WITHIN_S = 120.0


def make(archive: Path) -> bool:
    """Start a broker, use it, and end it, which writes the archive; whether it did."""
    with KafkaBroker(jvm=(*QUICK_TO_START, f"-XX:ArchiveClassesAtExit={archive}")) as broker:
        broker.create_topic("archive")
        broker.produce("archive", [(0, None, b"message")])
        broker.read("archive")
        broker.delete_topic("archive")
        broker.end(WRITTEN_WITHIN_S)
    return archive.exists()


def main() -> int:
    """The exit code."""
    ARCHIVE.unlink(missing_ok=True)
    part = ARCHIVE.with_suffix(".part")
    if not make(part):
        return 1
    part.rename(ARCHIVE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
