"""Sets of GTIDs: which transactions lie before a position of some server's log. Pure.

    MySQL      <uuid>:1-90:95,<uuid>:<tag>:1-3    every transaction of a source, as runs of numbers
    MariaDB    0-1-90,5-2-17                      of each domain the last one: domain-server-number

A *trail* also tells their order and their commit-ts: by a number, which others would change.
MariaDB's log has a domain's transactions in one order on all servers, so the last one tells all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

Run = tuple[int, int]  # first and last number, both inclusive
_MARIADB: Final = re.compile(r"(\d+)-(\d+)-(\d+)")
_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_RUN: Final = re.compile(r"([1-9]\d*)(?:-([1-9]\d*))?")
_MOST: Final = (1 << 63) - 1


class Last(NamedTuple):
    """The last transaction of a domain."""

    domain: int
    server: int
    number: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.number}"


@dataclass(frozen=True, slots=True)
class GtidSet:
    """``runs``: MySQL's, by source (``uuid`` or ``uuid:tag``), in order and apart; ``last``:
    MariaDB's, by domain. The empty set is of either."""

    runs: tuple[tuple[str, tuple[Run, ...]], ...] = ()
    last: tuple[Last, ...] = ()

    def __str__(self) -> str:
        if self.last:
            return ",".join(map(str, self.last))
        return ",".join(
            ":".join([source, *(f"{a}-{b}" if a < b else f"{a}" for a, b in runs)])
            for source, runs in self.runs
        )

    def __bool__(self) -> bool:
        return bool(self.runs or self.last)

    @property
    def count(self) -> int:
        """How many transactions MySQL's has."""
        return sum(b - a + 1 for _, runs in self.runs for a, b in runs)

    def plus(self, more: GtidSet) -> GtidSet:
        """With the transactions of ``more``; of a domain that both have, ``more``'s last one."""
        if not more:
            return self
        runs = dict(self.runs)
        for source, added in more.runs:
            runs[source] = joined_runs((*runs.get(source, ()), *added))
        last = {each.domain: each for each in (*self.last, *more.last)}
        return GtidSet(tuple(sorted(runs.items())), tuple(sorted(last.values())))

    def minus(self, other: GtidSet) -> GtidSet:
        """Those that are not in ``other``. MariaDB's: the last ones of domains where ``other``
        is not as far, or has another transaction of that number."""
        runs = {source: _left(runs, dict(other.runs).get(source, ())) for source, runs in self.runs}
        known = {each.domain: each for each in other.last}
        return GtidSet(
            tuple((source, left) for source, left in runs.items() if left),
            tuple(each for each in self.last if not _has(known.get(each.domain), each)),
        )

    def since(self, before: GtidSet) -> GtidSet:
        """What is to be added to an earlier set of the same log: ``before.plus(…)`` is this one."""
        known = set(before.last)
        return GtidSet(
            self.minus(before).runs, tuple(each for each in self.last if each not in known)
        )


@dataclass(frozen=True, slots=True)
class Trail:
    """What lies before a position. ``count``: how many of them were followed, which begin anywhere;
    ``order``: a hash of their order and commit-ts, below 2^64."""

    gtids: GtidSet
    count: int = 0
    order: int = 0


def _has(known: Last | None, each: Last) -> bool:
    return known is not None and (known.number > each.number or known == each)


def parse_gtids(text: str) -> GtidSet:
    """Raises ValueError for what no server writes."""
    runs: dict[str, list[Run]] = {}
    last: dict[int, Last] = {}
    for each in "".join(text.split()).split(","):
        if not each:
            continue
        if named := _MARIADB.fullmatch(each):
            found = Last(*map(int, named.groups()))
            if found.domain in last:
                raise ValueError(f"domain {found.domain} stands twice")
            last[found.domain] = found
        else:
            for source, some in _parsed_runs(each):
                runs.setdefault(source, []).extend(some)
    if runs and last:
        raise ValueError("some are MySQL's and some MariaDB's")
    return GtidSet(
        tuple(sorted((source, joined_runs(some)) for source, some in runs.items())),
        tuple(sorted(last.values())),
    )


def _parsed_runs(text: str) -> Iterator[tuple[str, list[Run]]]:
    """``uuid:1-3:5:tag:1``: the tag holds for what follows it."""
    uuid, *parts = text.split(":")
    try:
        source = name = str(UUID(uuid))
    except ValueError:
        raise ValueError(f"{text} is no GTID") from None
    if not parts:
        raise ValueError(f"{text} names no transaction")
    for part in parts:
        if (run := _RUN.fullmatch(part)) is not None:
            first, last = int(run[1]), int(run[2] or run[1])
            if not first <= last <= _MOST:
                raise ValueError(f"{part} is no run of numbers")
            yield source, [(first, last)]
        elif _TAG.fullmatch(part.lower()):
            source = f"{name}:{part.lower()}"
        else:
            raise ValueError(f"{part} is neither numbers nor a tag")


def joined_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """In order and apart."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def _left(runs: Iterable[Run], taken: Iterable[Run]) -> tuple[Run, ...]:
    found = list(runs)
    for first, last in taken:
        found = [
            part
            for a, b in found
            for part in ((a, min(b, first - 1)), (max(a, last + 1), b))
            if part[0] <= part[1]
        ]
    return tuple(found)


def of_source(source: str, numbers: npt.NDArray[np.int64]) -> GtidSet:
    """These transactions of one source of MySQL's."""
    found = np.sort(numbers)
    if not len(found):
        return GtidSet()
    breaks = np.flatnonzero(np.diff(found) > 1)
    first, last = found[np.append(0, breaks + 1)], found[np.append(breaks, len(found) - 1)]
    return GtidSet(((source, tuple(zip(first.tolist(), last.tolist(), strict=True))),))
