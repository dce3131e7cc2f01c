"""How a MySQL table is partitioned: which rows a TRUNCATE or DROP PARTITION takes away.

A target has no partitions of its own. TiCDC sends no deletes for the rows of a partition that goes,
so its definition is kept in the table's properties, from the CREATE TABLE on, and changed by each
ALTER TABLE. Where it cannot be read, or was never sent, it is None, and such a DDL is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

Method = Literal["range", "list", "hash"]
Value = str | None  # as canal-json would send it; None is NULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """``less_than``: in RANGE, a value for each column, None for MAXVALUE; ``values``: in LIST,
    tuples with a value for each column, ``is_default`` for the rest of them. HASH has neither."""

    name: str
    less_than: tuple[str | None, ...] = ()
    values: tuple[tuple[Value, ...], ...] = ()
    is_default: bool = False

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name}
        if self.less_than:
            found["less_than"] = list(self.less_than)
        if self.values:
            found["values"] = [list(each) for each in self.values]
        return {**found, "is_default": True} if self.is_default else found

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            name=fields["name"],
            less_than=tuple(fields.get("less_than", ())),
            values=tuple(tuple(each) for each in fields.get("values", ())),
            is_default=fields.get("is_default", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """``function``: YEAR or TO_DAYS or UNIX_TIMESTAMP of the one column, or the column itself.

    The order of partitions is that of their bounds (RANGE) and numbers (HASH).
    """

    method: Method
    columns: tuple[str, ...]
    function: str = ""
    partitions: tuple[Partition, ...]

    def named(self, names: Sequence[str]) -> tuple[int, ...]:
        """The places of these partitions. Raises ValueError for an unknown name."""
        places = {each.name.lower(): at for at, each in enumerate(self.partitions)}
        missing = [name for name in names if name.lower() not in places]
        if missing:
            raise ValueError(f"the table has no partition {missing[0]}")
        return tuple(places[name.lower()] for name in names)

    def added(self, partitions: Sequence[Partition]) -> Partitioning:
        """Appends partitions. A name that exists already is skipped (IF NOT EXISTS)."""
        known = {each.name.lower() for each in self.partitions}
        new = [each for each in partitions if each.name.lower() not in known]
        return replace(self, partitions=(*self.partitions, *new))

    def grown(self, count: int) -> Partitioning:
        """For HASH: so many more partitions at the end, or, below zero, fewer. Names go on with the
        number."""
        if count < 0:
            return replace(self, partitions=self.partitions[:count])
        first = len(self.partitions)
        return self.added(numbered(first, count))

    def without(self, names: Sequence[str]) -> Partitioning:
        gone = set(self.named(names))
        kept = [each for at, each in enumerate(self.partitions) if at not in gone]
        return replace(self, partitions=tuple(kept))

    def reorganized(self, names: Sequence[str], into: Sequence[Partition]) -> Partitioning:
        """``into`` in the place of these, which stand side by side in RANGE."""
        first = min(self.named(names))
        kept = self.without(names).partitions
        return replace(self, partitions=(*kept[:first], *into, *kept[first:]))

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "columns": list(self.columns),
            "function": self.function,
            "partitions": [each.to_json() for each in self.partitions],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            method=fields["method"],
            columns=tuple(fields["columns"]),
            function=fields["function"],
            partitions=tuple(Partition.from_json(each) for each in fields["partitions"]),
        )


def numbered(first: int, count: int) -> tuple[Partition, ...]:
    """The names of HASH partitions that have none."""
    return tuple(Partition(name=f"p{number}") for number in range(first, first + count))


def of_values(columns: Sequence[tuple[str, str]]) -> Partitioning:
    """One partition: the rows that have these values in these columns."""
    values = (tuple(value for _, value in columns),)
    return Partitioning(
        method="list",
        columns=tuple(name for name, _ in columns),
        partitions=(Partition(name="these", values=values),),
    )
