"""The columns of the rows of a table's version, as schema files tell them.

A row has its values in the table's order. A schema file names virtual generated columns too, which
rows lack, and does not say that they are. So the DDLs in the table's schema files are followed from
its CREATE TABLE on. Where they are not all there, the schema file's own columns count. The columns
that TiDB hides, of an expression index, are virtual too; their names say it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName
from sinks.ddl.effects import AlterTable, CreateTable, CreateTableLike, Effect, RenameTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.types.table_schema import TableSchema
from streaming.protocols.csv.table_head import TableHead
from streaming.source.storage.schema_files import SchemaText

_DEEPEST = 32  # names that a table had, one after the other
_HIDDEN = "_v$_"  # what TiDB's names of the columns of an expression index begin with


class TableHeads:
    """``texts``: the schema files of a table, by version. For one thread at a time."""

    def __init__(self, csv: CsvFormat, texts: Callable[[TableName], Iterable[SchemaText]]) -> None:
        self._csv = csv
        self._texts = texts
        self._made: dict[tuple[TableName, int], TableHead] = {}

    def of(self, text: SchemaText) -> TableHead:
        """The head of the version that a schema file tells."""
        name, version = text.name, text.version
        made = self._made.get((name, version))
        if made is None:
            columns = _columns(text, self._schema(name, version, _DEEPEST))
            made = self._made[name, version] = TableHead(name, columns, text.key, self._csv)
        return made

    def _schema(self, name: TableName, version: int, deep: int) -> TableSchema | None:
        """The table at a version by its DDLs; None where they are not all known."""
        found: TableSchema | None = None
        for text in self._texts(name):
            if text.version <= version and text.query:
                read = read_ddl(text.query, "", name.schema, name.table)
                for effect in read.effects:
                    found = self._after(effect, found, text.version, deep)
        return found

    def _after(
        self, effect: Effect, found: TableSchema | None, version: int, deep: int
    ) -> TableSchema | None:
        match effect:
            case CreateTable(schema=schema):
                return schema
            case CreateTableLike(source=other) | RenameTable(name=other):
                return self._schema(other, version - 1, deep - 1) if deep else None
            case AlterTable(changes=changes) if found is not None:
                try:
                    return evolved(found, changes).after
                except ValueError:
                    return None
        return found


def _columns(text: SchemaText, known: TableSchema | None) -> tuple[tuple[str, str], ...]:
    """In the order of rows."""
    columns = tuple(each for each in text.columns if not each[0].lower().startswith(_HIDDEN))
    if known is None:
        return columns
    told = {name.lower(): (name, each) for name, each in columns}
    names = [column.name.lower() for column in known.columns]
    if set(names) != told.keys():
        return columns
    kept = [column for column in known.columns if column.generated != "virtual"]
    return tuple((told[each.name.lower()][0], str(each.type)) for each in kept)
