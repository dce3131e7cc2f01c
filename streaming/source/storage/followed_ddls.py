"""What the DDLs in a table's schema files tell of its columns, beside what these files tell
themselves. Pure.

Columns are followed by name, whatever TiCDC has left out: which of them are virtual, and the names
of ENUMs and SETs. Their order is followed as long as every DDL fits the table that the ones before
have made.

A schema file has its columns in the order of rows. There are folders whose files have them in the
order in which they were added instead (one encoder of TiCDC sorts a table's columns by their IDs in
place, and others may see it). A DDL that puts a column amid others shows which of the two a folder
has: in the file that has the DDL the column stands there, or at the end. No other DDL shows it:
TiCDC's event filter may have ignored one that moves a column, so an order that was not followed
may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sinks.ddl.effects import AddColumn, AlterSpec, DropColumn, ModifyColumn, RenameColumn
from sinks.ddl.evolve import evolved
from sinks.types.table_schema import Column, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedTable:
    """Names are in lower case. ``columns``: as far as DDLs have told them; ``schema``: the table,
    None where DDLs are missing; ``is_by_id``: schema files have the columns in the order in which
    they were added, not in the rows'."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    schema: TableSchema | None = None
    is_by_id: bool = False

    @classmethod
    def made(cls, schema: TableSchema, *, is_by_id: bool = False) -> FollowedTable:
        columns = {column.name.lower(): column for column in schema.columns}
        return cls(columns=columns, schema=schema, is_by_id=is_by_id)

    def altered(self, changes: Sequence[AlterSpec]) -> FollowedTable:
        try:
            schema = None if self.schema is None else evolved(self.schema, changes).after
        except ValueError:
            schema = None
        gone, there = _moved(self.columns, changes)
        kept = {name: of for name, of in self.columns.items() if name not in gone}
        return replace(self, columns=kept | there, schema=schema)

    def beside(self, told: Sequence[str], changes: Sequence[AlterSpec]) -> FollowedTable:
        """Behind a DDL with these changes, whose schema file tells these names."""
        order = self.order()
        if order is None or set(order) != set(told):
            return self
        given = [each for each in changes if isinstance(each, AddColumn | ModifyColumn)]
        new = {each.column.name.lower() for each in given}  # each may have a new ID
        found = self
        for each in given:
            name = each.column.name.lower()
            if isinstance(each, AddColumn) and each.place is not None and name in told:
                is_there = _before(name, told) == _before(name, order)
                is_last = set(told[told.index(name) :]) <= new
                if is_there != is_last:  # else it tells nothing
                    found = replace(found, is_by_id=is_last)
        return found

    def order(self) -> tuple[str, ...] | None:
        if self.schema is None:
            return None
        return tuple(column.name.lower() for column in self.schema.columns)


def _before(name: str, names: Sequence[str]) -> str | None:
    """The one that ``name`` follows."""
    at = names.index(name)
    return names[at - 1] if at else None


def _moved(
    columns: Mapping[str, Column], changes: Iterable[AlterSpec]
) -> tuple[set[str], dict[str, Column]]:
    """The names that are gone, and the columns that are there. A change finds its column by the
    name before all of them, as in MySQL."""
    gone, there = set[str](), dict[str, Column]()
    for change in changes:
        match change:
            case AddColumn(column=column):
                there[column.name.lower()] = column
            case ModifyColumn(name=name, column=column):
                gone.add(name.lower())
                there[column.name.lower()] = column
            case DropColumn(name=name):
                gone.add(name.lower())
            case RenameColumn(name=name, new_name=new_name):
                gone.add(name.lower())
                if (renamed := columns.get(name.lower())) is not None:
                    there[new_name.lower()] = renamed
    return gone, there
