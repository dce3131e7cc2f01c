"""Partitions of a table by its key ``id``, and the DDLs about them: parts of an ALTER TABLE."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

_FIRST_PARTITIONS = 3
_RANGE = 40  # ids


class HashPartitions:
    """By the remainder, which is another one for most rows when there are more partitions."""

    def __init__(self, dice: random.Random, _first_id: int) -> None:
        self._dice, self._count = dice, _FIRST_PARTITIONS

    @property
    def clause(self) -> str:
        return f" PARTITION BY HASH (`id`) PARTITIONS {self._count}"

    def changed(self) -> str:
        """All rows stay."""
        if self._count > 2 and self._dice.random() < 0.5:
            self._count -= 1
            return "COALESCE PARTITION 1"
        self._count += 2
        return "ADD PARTITION PARTITIONS 2"

    def emptied(self, ids: Iterable[int]) -> tuple[str, list[int]]:
        """And which of these rows go by it."""
        gone = set(self._dice.sample(range(self._count), self._dice.randint(1, 2)))
        names = ",".join(f"`p{number}`" for number in sorted(gone))
        return f"TRUNCATE PARTITION {names}", [id for id in ids if id % self._count in gone]


class RangePartitions:
    """By bounds; there must always be one for the next rows: `grown`."""

    def __init__(self, dice: random.Random, first_id: int) -> None:
        self._dice = dice
        self._names = _FIRST_PARTITIONS
        self._bounds = {
            f"p{number}": first_id + (number + 1) * _RANGE for number in range(self._names)
        }

    @property
    def clause(self) -> str:
        return f" PARTITION BY RANGE (`id`) ({self._definitions(self._bounds)})"

    def _definitions(self, names: Iterable[str]) -> str:
        return ",".join(
            f"PARTITION `{name}` VALUES LESS THAN ({self._bounds[name]})" for name in names
        )

    def _new(self, bound: int) -> str:
        name = f"p{self._names}"
        self._names += 1
        self._bounds[name] = bound
        self._bounds = dict(sorted(self._bounds.items(), key=lambda each: each[1]))
        return self._definitions([name])

    def grown(self, id: int) -> str:
        """Empty while there is a partition for this one."""
        highest = max(self._bounds.values())
        return f"ADD PARTITION ({self._new(highest + _RANGE)})" if id >= highest else ""

    def changed(self) -> str:
        """Two become one."""
        names = list(self._bounds)
        if len(names) < 2:
            return self.grown(max(self._bounds.values()))
        at = self._dice.randrange(len(names) - 1)
        both = names[at : at + 2]
        bound = max(self._bounds.pop(name) for name in both)
        return f"REORGANIZE PARTITION {_listed(both)} INTO ({self._new(bound)})"

    def emptied(self, ids: Iterable[int]) -> tuple[str, list[int]]:
        """By TRUNCATE, or by DROP: never of the last one."""
        names, bounds = list(self._bounds), [0, *self._bounds.values()]
        first = self._dice.randrange(len(names))
        last = min(first + self._dice.randrange(2), len(names) - 1)
        chosen = names[first : last + 1]
        gone = [id for id in ids if bounds[first] <= id < bounds[last + 1]]
        if last == len(names) - 1 or self._dice.random() < 0.5:
            return f"TRUNCATE PARTITION {_listed(chosen)}", gone
        for name in chosen:
            del self._bounds[name]
        return f"DROP PARTITION {_listed(chosen)}", gone


Partitions = HashPartitions | RangePartitions


def _listed(names: Sequence[str]) -> str:
    return ",".join(f"`{name}`" for name in names)
