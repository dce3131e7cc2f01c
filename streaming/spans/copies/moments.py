"""From which positions of the binlog on the tables of a first copy are read.

They are kept in a file, so that a copy that was killed goes on with the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coordination.model import Ts
from streaming.source.dump.chunk_files import refusals


class Moment(NamedTuple):
    """What lies before the position is at or below the ts, the rest is above."""

    position: int
    ts: Ts


class Begins:
    """By table: its position before its first chunk was read. Where the file cannot be written,
    StagingFull and StagingFailed are raised, and the object is of no more use."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError for a file that is none of these."""
        self._path = path
        text = path.read_text() if path.exists() else "{}"
        self._known: dict[str, Any] = json.loads(text)

    @property
    def server(self) -> str | None:
        """On which the copy began; None: it has not."""
        return self._known[""][0] if "" in self._known else None

    def first(self, server: str, make: Callable[[], Moment]) -> tuple[str, Moment]:
        """On which server, and where, the copy began: no table begins before."""
        if "" not in self._known:
            self._put("", [server, *make()])
        began_on, position, ts = self._known[""]
        return began_on, Moment(position, Ts(ts))

    def of(self, table: Mapping[str, Any], now: int) -> int:
        """The position from which on a table of this definition is copied: ``now``, unless its
        copy has begun."""
        what = _named(table)
        if what not in self._known:
            self._put(what, now)
        return int(self._known[what])

    def forget(self, table: Mapping[str, Any]) -> None:
        if self._known.pop(_named(table), None) is not None:
            self._write()

    def _put(self, what: str, known: object) -> None:
        self._known[what] = known
        self._write()

    def _write(self) -> None:
        part = self._path.with_suffix(".part")
        with refusals(self._path.parent):
            part.write_text(json.dumps(self._known))
            part.replace(self._path)


def _named(table: Mapping[str, Any]) -> str:
    return json.dumps(table, sort_keys=True)
