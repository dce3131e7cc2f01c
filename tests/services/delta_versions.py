"""Every version of a small Delta table, on a local disk by its log's own JSON: to open the table at
each of them costs ten times as much."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.services.delta_rows import read_rows


class Version(NamedTuple):
    number: int
    at: float  # wall time of the commit; 0 where the table is elsewhere
    rows: list[dict[str, Any]]


class DeltaVersions:
    """For tables without partitions, deletion vectors and column mapping, as control tables are."""

    def __init__(self, uri: str | Path) -> None:
        self._uri = str(uri)
        self._folder = Path(uri)
        self._next = 0
        self._files: dict[str, list[dict[str, Any]] | None] = {}  # None: not read so far

    def further(self) -> Iterator[Version]:
        """Those since the last call, oldest first. One that upkeep has removed is left out."""
        if "://" in self._uri:
            for number in range(self._next, DeltaTable(self._uri).version() + 1):
                self._next = number + 1
                yield Version(number, 0.0, read_rows(self._uri, number))
            return
        commits = {int(path.stem): path for path in self._folder.glob("_delta_log/*.json")}
        for number in sorted(at for at in commits if at >= self._next):
            try:
                self._go_to(number, commits[number])
                rows = [row for file in self._files for row in self._rows(file)]
                at = commits[number].stat().st_mtime
            except (DeltaError, OSError):
                continue
            yield Version(number, at, rows)

    def _go_to(self, number: int, commit: Path) -> None:
        if number > self._next:  # what lay between was removed
            there = DeltaTable(str(self._folder), version=number).file_uris()
            self._files = dict.fromkeys(Path(each).name for each in there)
        else:
            for action in map(json.loads, commit.read_text().splitlines()):
                if "remove" in action:
                    self._files.pop(unquote(action["remove"]["path"]), None)
                if "add" in action:
                    assert not action["add"].get("deletionVector"), action
                    self._files[unquote(action["add"]["path"])] = None
        self._next = number + 1

    def _rows(self, file: str) -> list[dict[str, Any]]:
        found = self._files[file]
        if found is None:
            found = pq.ParquetFile(self._folder / file).read(use_threads=False).to_pylist()
            self._files[file] = found
        return found
