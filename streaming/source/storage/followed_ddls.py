"""What the DDLs in a table's schema files tell of its columns, beside what these files tell
themselves. Pure.

Columns are followed by name, whatever TiCDC has left out: which of them are virtual, and the names
of ENUMs and SETs. Their order is followed as long as every DDL fits the table that the ones before
have made.

A schema file has its columns in the order of rows. There are folders whose files have them in the
order in which they were added instead (one encoder of TiCDC sorts a table's columns by their IDs in
place, and others may see it). A DDL that puts a column amid others shows which of the two a folder
has: in the file that has the DDL the column stands there, or at the end.
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
    None where DDLs are missing; ``added``: its columns in the order in which they were added;
    ``changed``: those of which a DDL has told a new definition, which may have a new ID;
    ``is_by_id``: schema files are in that order, not in the rows'."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    schema: TableSchema | None = None
    added: tuple[str, ...] = ()
    changed: frozenset[str] = frozenset()
    is_by_id: bool = False

    @classmethod
    def made(cls, schema: TableSchema, *, is_by_id: bool = False) -> FollowedTable:
        columns = {column.name.lower(): column for column in schema.columns}
        return cls(columns=columns, schema=schema, added=tuple(columns), is_by_id=is_by_id)

    def altered(self, changes: Sequence[AlterSpec]) -> FollowedTable:
        try:
            schema = None if self.schema is None else evolved(self.schema, changes).after
        except ValueError:
            schema = None
        gone, there, names = _moved(self.columns, changes)
        kept = {name: of for name, of in self.columns.items() if name not in gone}
        added = [names.get(name, name) for name in self.added if names.get(name) != ""]
        return replace(
            self,
            columns=kept | there,
            schema=schema,
            added=tuple(dict.fromkeys([*added, *there])),
            changed=frozenset(names.get(name, name) for name in self.changed)
            | {each.column.name.lower() for each in changes if isinstance(each, ModifyColumn)},
        )

    def beside(self, told: Iterable[str]) -> FollowedTable:
        """Behind a DDL, whose schema file tells these names."""
        order, told = self.order(), tuple(told)
        if order is None or set(order) != set(told):
            return self
        if told == order:
            return replace(self, is_by_id=self.is_by_id and self._steady(order) == self._added())
        rows, file = self._steady(order), self._steady(told)
        is_by_id = file == self._added() != rows
        return replace(self, is_by_id=self.is_by_id or is_by_id)

    def order(self) -> tuple[str, ...] | None:
        if self.schema is None:
            return None
        return tuple(column.name.lower() for column in self.schema.columns)

    def _steady(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those that have the ID that they began with."""
        return tuple(name for name in names if name not in self.changed)

    def _added(self) -> tuple[str, ...]:
        return self._steady(self.added)


def _moved(
    columns: Mapping[str, Column], changes: Iterable[AlterSpec]
) -> tuple[set[str], dict[str, Column], dict[str, str]]:
    """The names that are gone, the columns that are there, and the new names of columns ("": none)
    by their names before. A change finds its column by the name before all of them, as in MySQL."""
    gone, there, names = set[str](), dict[str, Column](), dict[str, str]()
    for change in changes:
        match change:
            case AddColumn(column=column):
                there[column.name.lower()] = column
            case ModifyColumn(name=name, column=column):
                gone.add(name.lower())
                names[name.lower()] = column.name.lower()
                there[column.name.lower()] = column
            case DropColumn(name=name):
                gone.add(name.lower())
                names[name.lower()] = ""
            case RenameColumn(name=name, new_name=new_name):
                gone.add(name.lower())
                names[name.lower()] = new_name.lower()
                if (renamed := columns.get(name.lower())) is not None:
                    there[new_name.lower()] = renamed
    return gone, there, names
