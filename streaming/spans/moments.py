"""The moments of a first copy: positions in the binlog, each with a commit-ts.

A moment (position, ts) says: what lies before the position is at or below ts, the rest is above.
They are kept in a file, so that a copy that was killed goes on with the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from coordination.model import TSO_LOGICAL_BITS, Ts

_MOST_ROOM: Final = 1_000 << TSO_LOGICAL_BITS


class Moment(NamedTuple):
    position: int
    ts: Ts


class Moments:
    """By a text that says what each one is of. Made once; `settle` fixes them."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError for a file that is none of these."""
        self._path = path
        text = path.read_text() if path.exists() else "{}"
        self._known: dict[str, list[int]] = json.loads(text)

    def at(self, what: str, make: Callable[[], Moment]) -> Moment:
        if what not in self._known:
            return self.put(what, make())
        position, ts = self._known[what]
        return Moment(position, Ts(ts))

    def put(self, what: str, moment: Moment) -> Moment:
        self._known[what] = list(moment)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._known))
        part.replace(self._path)
        return moment

    def of(self, table: Mapping[str, Any], make: Callable[[], Moment]) -> Moment:
        """From where on a table of this definition is copied."""
        return self.at(json.dumps(table, sort_keys=True), make)

    def settle(self, moments: Iterable[Moment]) -> dict[int, Moment]:
        """All moments of the copy, by position, with rising ts; the same again after a restart."""
        found = {}
        for moment in rising(moments):
            what = f"settled {moment.position}"
            found[moment.position] = self.at(what, partial(Moment, *moment))
        return found


def rising(moments: Iterable[Moment]) -> list[Moment]:
    """One for each position, in order. Clocks were asked by several threads: where a ts does not
    rise, it is raised, with room for the transactions that lie between."""
    latest: dict[int, Ts] = {}
    for position, ts in moments:
        latest[position] = max(ts, latest.get(position, ts))
    found: list[Moment] = []
    for position, ts in sorted(latest.items()):
        if found:
            before = found[-1]
            room = min(position - before.position, _MOST_ROOM)  # a transaction has several bytes
            ts = Ts(max(ts, before.ts + room))
        found.append(Moment(position, ts))
    return found
