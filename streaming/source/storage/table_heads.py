"""The columns of the rows of a table's version, as schema files tell them.

A row has its values in the types that its version's schema file tells, and in the order of that
file (`followed_ddls` has the exception). It lacks some of the columns that the file names. What
tells which ones is:

- virtual generated columns: the DDLs in the table's schema files, and before them the CREATE TABLE
  of the schema file that the user gave (``--schema-file``);
- columns that TiDB hides, of an expression index: their names;
- columns that TiCDC's column selectors leave out: the changefeed's file. Whether TiCDC was given
  it the number of fields of a row tells, as it tells whether ``output-handle-key`` adds a field
  (releases after TiCDC 8.5 take the option, and add none).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName
from sinks.ddl.effects import AlterTable, CreateTable, CreateTableLike, Effect, RenameTable
from sinks.ddl.statements import read_ddl
from sinks.types.table_schema import TableSchema
from streaming.protocols.csv.table_head import TableHead
from streaming.protocols.rows.element_names import UNTOLD
from streaming.source.storage.followed_ddls import FollowedTable
from streaming.source.storage.schema_files import SchemaText

_DEEPEST = 32  # names that a table had, one after the other
_HIDDEN = "_v$_"  # what TiDB's names of the columns of an expression index begin with


@dataclass(frozen=True, slots=True)
class ToldColumns:
    """What the user's files tell of the columns of an upstream table. ``before``: as it was before
    the folder's first DDL; ``selected``: those that a column selector takes. None: not told."""

    before: Callable[[TableName], TableSchema | None] = lambda _: None
    selected: Callable[[TableName], Callable[[str], bool] | None] = lambda _: None


NOTHING_TOLD: Final = ToldColumns()


class TableHeads:
    """``texts``: the schema files of a table, by version. For one thread at a time."""

    def __init__(
        self,
        csv: CsvFormat,
        texts: Callable[[TableName], Iterable[SchemaText]],
        told: ToldColumns = NOTHING_TOLD,
    ) -> None:
        self._csv = csv
        self._texts = texts
        self._told = told
        self._made: dict[tuple[TableName, int], TableHead] = {}

    def of(self, text: SchemaText) -> TableHead:
        """The head of the version that a schema file tells."""
        name, version = text.name, text.version
        made = self._made.get((name, version))
        if made is None:
            columns = _columns(text, self._followed(name, version, _DEEPEST))
            made = self._made[name, version] = self._head(text, columns)
        return made

    def _head(self, text: SchemaText, columns: Sequence[tuple[str, str]]) -> TableHead:
        head = TableHead(text.name, tuple(columns), text.key, self._csv)
        heads = [head]
        if (takes := self._told.selected(text.name)) is not None:
            chosen = tuple(each for each in columns if takes(each[0]))
            heads += [replace(head, columns=chosen)] if chosen != head.columns else []
        if self._csv.has_handle_key:
            csv = replace(self._csv, has_handle_key=False)
            heads += [replace(each, csv=csv) for each in heads]
        widths = Counter(each.fields for each in heads)
        first, *others = heads
        return replace(first, others=tuple(each for each in others if widths[each.fields] == 1))

    def _followed(self, name: TableName, version: int, deep: int) -> FollowedTable:
        before = self._told.before(name)
        found = FollowedTable() if before is None else FollowedTable.made(before)
        for text in self._texts(name):
            if text.version <= version and text.query:
                read = read_ddl(text.query, "", name.schema, name.table)
                for effect in read.effects:
                    found = self._after(effect, found, text.version, deep)
                alters = [each for each in read.effects if isinstance(each, AlterTable)]
                changes = [change for each in alters for change in each.changes]
                found = found.beside([each.lower() for each, _ in text.columns], changes)
        return found

    def _after(
        self, effect: Effect, found: FollowedTable, version: int, deep: int
    ) -> FollowedTable:
        match effect:
            case CreateTable(schema=schema):
                return FollowedTable.made(schema, is_by_id=found.is_by_id)
            case CreateTableLike(source=other) | RenameTable(name=other):
                return self._followed(other, version - 1, deep - 1) if deep else FollowedTable()
            case AlterTable(changes=changes):
                return found.altered(changes)
        return found


def _columns(text: SchemaText, followed: FollowedTable) -> list[tuple[str, str]]:
    """In the order of rows."""
    told = {name.lower(): (name, kind) for name, kind in text.columns}
    order = followed.order() if followed.is_by_id else None
    found = []
    for lower in order if order is not None and set(order) == told.keys() else told:
        name, kind = told[lower]
        column = followed.columns.get(lower)
        if lower.startswith(_HIDDEN) or (column and column.generated == "virtual"):
            continue
        has_names = column is not None and kind == UNTOLD and column.type.elements
        found.append((name, str(column.type) if column and has_names else kind))
    return found
