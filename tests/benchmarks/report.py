"""The results as one JSON file: every single run is in it."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from pathlib import Path
from typing import Any

import psutil

NOTES = (
    "All contenders read the same topics (2 partitions, in (a) filled beforehand). After every run "
    "the whole table was checked against the history (large ones: see targets.check).",
    "Messages are canal-json as TiCDC writes it, content-compatible, with the TiDB extension: 823 "
    "bytes an INSERT or DELETE, 1,059 an UPDATE; 40 % INSERT, 55 % UPDATE, 5 % DELETE.",
    "whole: from the process's start to the target's last commit; steady: from the end of the "
    "first 200,000 changes. delta-rs and naive take 200,000 messages a batch, evened out so that "
    "no tiny one is left.",
    "The feed's watermarks: in each partition every 10,000 changes in (a), a second of the feed's "
    "clock; every second in (b); at each round's end in (c).",
    "Tidelake's target: made by Tidelake itself from the feed's CREATE TABLE, then filled by the "
    "same plain append that made the others' tables (sorted keys, files of 300,000 rows).",
    "CPU and RSS are of the whole process tree (embedded etcd included), pages that processes "
    "share counted twice; 'others' is all else on the machine but broker and bench: rows where it "
    "is large are noisy.",
    "naive applies two batches of (a), the first with a cold JVM; in (c) it has a twentieth of the "
    "100 tables, scaled.",
)


def write(path: Path, parts: dict[str, list[Any]], failures: list[str]) -> None:
    """Every part's results, as far as they are."""
    body = {
        "machine": {
            "cores": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "notes": NOTES,
        **{name: [dataclasses.asdict(each) for each in found] for name, found in parts.items()},
        "failures": failures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n")
