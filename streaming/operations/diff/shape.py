"""Which columns of a table are compared, and what else differs of its two definitions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from coordination.model import TableName
from sinks.types.delta_types import delta_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema

MOST_NAMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """``key`` and ``cells``: the columns that both sides have, as the table defines them. Together
    they are all that is compared, and with ``counts_rows`` how often each row is there.
    ``differences``: sentences on columns that cannot be. ``not_here``: columns that the target
    lacks by what it is told: virtual ones, and those that the user leaves out."""

    key: tuple[Column, ...]
    cells: tuple[Column, ...]
    differences: tuple[str, ...] = ()
    counts_rows: bool = False
    not_here: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.key, *self.cells)


class NotComparable(Exception):
    """The table has no rows that could be compared with the database's: one sentence says why."""


def compared(
    schema: TableSchema, lake: Collection[str], database: Mapping[str, MySQLType]
) -> Shape:
    """``lake``: the columns of the Delta table. ``database``: those of the database, with their
    types. Names are compared as MySQL does, in any case. Raises NotComparable."""
    theirs = {name.lower(): of for name, of in database.items()}
    known = {column.name.lower(): column for column in schema.columns if column.name in lake}
    key = tuple(known[name.lower()] for name in schema.key if name.lower() in known)
    if not schema.key or len(key) < len(schema.key):
        raise NotComparable("it has no key, by which rows could be told apart")
    if masked := [column.name for column in key if column.mask]:
        raise NotComparable(
            f"its key has the column {masked[0]}, which is masked: the database cannot be asked "
            "for a row by its hash"
        )
    if missing := [column.name for column in key if column.name.lower() not in theirs]:
        raise NotComparable(f"its key has the column {missing[0]}, which the database lacks")
    in_key = {column.name for column in key}
    cells = tuple(
        column for name, column in known.items() if column.name not in in_key and name in theirs
    )
    of_target = schema.delivered
    others = {column.name.lower() for column in schema.columns if column not in of_target}
    differences = [
        f"column {column.name} is in the table alone"
        for name, column in known.items()
        if name not in theirs
    ]
    differences += [
        f"column {name} is in the database alone"
        for name in database
        if name.lower() not in known and name.lower() not in others
    ]
    for column in (*key, *cells):
        ours, other = delta_type(column.type), delta_type(theirs[column.name.lower()])
        if ours != other:
            differences.append(
                f"column {column.name} is {theirs[column.name.lower()]} in the database, and "
                f"{column.type} ({ours}) in the table"
            )
    return Shape(
        key=key,
        cells=cells,
        differences=tuple(differences),
        counts_rows=schema.counts_rows,
        not_here=tuple(
            f"{column.name} ({column.generated or 'left out'})"
            for column in schema.columns
            if column not in of_target
            and column.name.lower() not in known
            and column.name.lower() in theirs
        ),
    )


def compared_together(
    schema: TableSchema,
    lake: Collection[str],
    databases: Mapping[TableName, Mapping[str, MySQLType]],
) -> Shape:
    """As ``compared``, of several tables that have one target: the columns that all of them have.
    Raises NotComparable."""
    shapes = {name: compared(schema, lake, each) for name, each in databases.items()}
    first = next(iter(shapes.values()))
    common = [each for each in first.cells if all(each in of.cells for of in shapes.values())]
    told: dict[str, list[TableName]] = {}
    for name, shape in shapes.items():
        for sentence in shape.differences:
            told.setdefault(sentence, []).append(name)
    differences = tuple(
        sentence if len(of) == len(shapes) else f"{sentence} (of {_some(of)})"
        for sentence, of in told.items()
    )
    return replace(first, cells=tuple(common), differences=differences)


def _some(names: Sequence[TableName]) -> str:
    more = f" and {len(names) - MOST_NAMES} others" if len(names) > MOST_NAMES else ""
    return ", ".join(map(str, names[:MOST_NAMES])) + more
