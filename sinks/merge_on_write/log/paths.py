"""The names of the files in a table's ``_delta_log``: the kind of each, and which checkpoints a
listing has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LOG = "_delta_log/"
LAST_CHECKPOINT = f"{LOG}_last_checkpoint"
SIDECARS = f"{LOG}_sidecars/"

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CLASSIC = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")
_MULTI_PART = re.compile(r"_delta_log/(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_NAMED = re.compile(r"_delta_log/(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")
_COMPACTED = re.compile(r"_delta_log/(\d{20})\.(\d{20})\.compacted\.json")
_CHECKSUM = re.compile(r"_delta_log/(\d{20})\.crc")

Kind = Literal["commit", "checkpoint", "compacted", "checksum"]


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """A complete checkpoint: one file, or all of its parts."""

    version: int
    paths: tuple[str, ...]


def commit_path(version: int) -> str:
    return f"{LOG}{version:020}.json"


def checkpoint_path(version: int) -> str:
    return f"{LOG}{version:020}.checkpoint.parquet"


def classify(path: str) -> tuple[Kind, int] | None:
    """A log file's kind and version (a compacted one's first version); None for a name that is not
    of Delta's protocol as we know it."""
    if found := _COMMIT.fullmatch(path):
        return "commit", int(found[1])
    for pattern in (_CLASSIC, _MULTI_PART, _NAMED):
        if found := pattern.fullmatch(path):
            return "checkpoint", int(found[1])
    if found := _COMPACTED.fullmatch(path):
        return "compacted", int(found[1])
    if found := _CHECKSUM.fullmatch(path):
        return "checksum", int(found[1])
    return None


def whole_checkpoints(paths: Iterable[str]) -> list[LogCheckpoint]:
    """The complete checkpoints among these paths, newest first. One in parts counts only when no
    part is missing."""
    found = []
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for path in paths:
        if single := _CLASSIC.fullmatch(path) or _NAMED.fullmatch(path):
            found.append(LogCheckpoint(int(single[1]), (path,)))
        elif part := _MULTI_PART.fullmatch(path):
            version, number, count = int(part[1]), int(part[2]), int(part[3])
            parts.setdefault((version, count), {})[number] = path
    for (version, count), by_number in parts.items():
        if sorted(by_number) == list(range(1, count + 1)):
            found.append(LogCheckpoint(version, tuple(by_number[n] for n in sorted(by_number))))
    return sorted(found, key=lambda each: each.version, reverse=True)
