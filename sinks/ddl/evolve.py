"""A table's schema after an ALTER TABLE, and from which old column each new one comes. Pure.

As in MySQL all changes of a statement happen at once. The column or index that is changed is found
by its name before the statement; AFTER and new indexes use the names after it. Indexes are added
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordination.errors import ConfigError
from sinks.ddl.defaults import as_bytes, fill
from sinks.ddl.definitions import in_binary
from sinks.ddl.effects import (
    FIRST,
    AddColumn,
    AddIndex,
    AddPartitions,
    AlterSpec,
    DropColumn,
    DropIndex,
    ModifyColumn,
    RenameColumn,
    RenameIndex,
    ReorganizePartitions,
    SetCharset,
    SetDefault,
    SetPartitioning,
)
from sinks.ddl.handle_key import PRIMARY, keyed, named
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.text.tokens import same_name
from sinks.types.column_choice import EVERY_COLUMN, ColumnChoice, keeps_text
from sinks.types.mysql_type import BINARY_TYPES, MARIADB_VECTOR, TEXT_TYPES
from sinks.types.partitioning import Partitioning
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import Column, Index, IndexKind, TableSchema

_LONG_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_UTF8_OR_BYTES = ("utf8mb4", "utf8mb3", "utf8", "binary")
_WIDE = ("ucs2", "utf16", "utf16le", "utf32")  # character sets in which ASCII has other bytes


def evolved(
    schema: TableSchema,
    changes: Sequence[AlterSpec],
    choice: ColumnChoice = EVERY_COLUMN,
    session: ServerSession | None = None,
) -> SchemaChange:
    """The schema after these changes. Raises ValueError, whose text is a reason for operators, if
    the changes do not fit the schema (a column is missing, or exists already), or if the values of
    old rows in a new column cannot be known.

    ``choice``: of the target's columns. What it leaves out may be missing in the schema, if that
    was told by rows. ``session``: of a MySQL or MariaDB; None: TiDB's rules hold."""
    changes = _known(changes, schema, choice)
    _refuse_two_charsets(changes if session else ())
    charset = _charset(changes, schema) if session else ""
    table = _Places(schema, charset, _is_binary_first(changes, schema))
    for change in changes:
        table.change_columns(change)
        table.change_indexes(change)
    for change in changes:
        if isinstance(change, AddIndex):
            table.add_index(change)
    after = replace(table.schema(), partitioning=_partitioned(schema.partitioning, changes))
    try:
        after = choice.chosen(after)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    source_of = {each.column.name: each.old for each in table.columns}
    sources: dict[str, str | None] = {}
    fills: dict[str, str] = {}
    for column in after.columns:
        _refuse_another_choice(source_of[column.name], column)
    for column in after.delivered:
        old = source_of[column.name]
        sources[column.name] = old.name if old else None
        was = old.generated if old else ""
        if was == "virtual" or (column.generated and not was):
            raise ValueError(f"{column.name} is computed in old rows, whose values are not sent")
        text = fill(column, session) if old is None else None
        if session and text and _has_unclear_bytes(column, after, session):
            raise ValueError(f"the bytes of the default of column {column.name} are not clear")
        if text is not None:
            fills[column.name] = text
    found = SchemaChange(before=schema, after=after, sources=sources, fills=fills, session=session)
    found.refuse_recomputed()
    return found


def _has_unclear_bytes(column: Column, table: TableSchema, session: ServerSession) -> bool:
    """Whether nothing tells the bytes of a default. MariaDB keeps that of a TEXT or BLOB as an
    expression, which it reads in the set of the table: of one of bytes it is bytes in whatever
    set."""
    is_ascii = (column.default or "").isascii()
    if column.type.name in BINARY_TYPES:
        is_read = session.is_mariadb and column.type.name in _BLOBS and not is_ascii
        return table.charset in _WIDE or (is_read and table.charset not in _UTF8_OR_BYTES)
    is_plain = is_ascii and column.charset not in _WIDE
    of_bytes = session.is_mariadb and table.binary_charset
    return of_bytes and column.type.name in _LONG_TEXTS and not is_plain


def _charset(changes: Sequence[AlterSpec], schema: TableSchema) -> str:
    """The character set of columns that name none, whatever stands first in the statement."""
    told = [each.charset for each in changes if isinstance(each, SetCharset)]
    return told[-1] if told else schema.charset


def _is_binary_first(changes: Sequence[AlterSpec], schema: TableSchema) -> bool:
    """Whether the first column that names no character set is of bytes. TiDB takes one change after
    the other."""
    told = [each.binary for each in changes if isinstance(each, SetCharset) and each.by_server]
    return bool(told[-1]) if told else schema.binary_charset


def _refuse_two_charsets(changes: Sequence[AlterSpec]) -> None:
    """MySQL reads the bytes of such a column in the set of CONVERT TO first."""
    converts = [each.charset for each in changes if isinstance(each, SetCharset) and each.converts]
    for each in changes:
        if isinstance(each, ModifyColumn) and each.has_charset and converts:
            column = each.column
            if column.charset not in (converts[-1], MARIADB_VECTOR):
                raise ValueError(
                    f"column {column.name} is to have another character set than that to which "
                    "the same statement converts its table: what its values become is not clear"
                )


def _known(
    changes: Sequence[AlterSpec], schema: TableSchema, choice: ColumnChoice
) -> Sequence[AlterSpec]:
    """The changes without those of columns that the schema does not have because they are left
    out."""
    if choice.is_all:
        return changes
    there = {column.name.lower() for column in schema.columns}
    added = {each.column.name.lower() for each in changes if isinstance(each, AddColumn)}

    def is_foreign(name: str) -> bool:
        return name.lower() not in there | added and not choice.takes(name)

    found: list[AlterSpec] = []
    for each in changes:
        match each:
            case DropColumn(name=name) | SetDefault(name=name):
                is_left = is_foreign(name)
            case RenameColumn(name=name, new_name=new_name):
                is_left = is_foreign(name) and not choice.takes(new_name)
            case ModifyColumn(name=name, column=column):
                is_left = is_foreign(name) and not choice.takes(column.name)
            case AddIndex(index=index):
                is_left = any(map(is_foreign, index.columns))
            case _:
                is_left = False
        if isinstance(each, AddColumn | ModifyColumn) and each.place not in (None, FIRST):
            each = replace(each, place=None if is_foreign(each.place or "") else each.place)
        if not is_left:
            found.append(each)
    return found


def _refuse_another_choice(old: Column | None, column: Column) -> None:
    """A column keeps what the target has of it: earlier values would be missing, or in clear."""
    if old is None:
        return
    if (old.left_out, old.mask) != (column.left_out, column.mask):
        raise ValueError(
            f"it renames column {old.name} to {column.name}, of which [[sink.column-selectors]] or "
            f"[[sink.column-masks]] say otherwise: let them say of {column.name} what they say of "
            f"{old.name}, and start again"
        )
    if column.mask == "sha256" and not keeps_text(old.type, column.type):
        raise ValueError(
            f"it makes {column.type} of column {column.name}, which is masked with sha256: the "
            "hashes of old rows cannot be made anew"
        )


def _partitioned(
    partitioning: Partitioning | None, changes: Sequence[AlterSpec]
) -> Partitioning | None:
    """Unknown partitions stay unknown until a statement names them all."""
    for change in changes:
        if isinstance(change, SetPartitioning):
            partitioning = change.partitioning
        elif partitioning is not None:
            match change:
                case AddPartitions(partitions=partitions, count=count):
                    partitioning = partitioning.added(partitions).grown(count)
                case ReorganizePartitions(names=names, into=into):
                    partitioning = partitioning.reorganized(names, into)
    return partitioning


@dataclass(slots=True, eq=False)
class _Place:
    """One column of the table, whose definition may change; it is compared by identity."""

    column: Column
    old: Column | None  # as it was before the statement


@dataclass(slots=True, eq=False)
class _PlacedIndex:
    name: str
    columns: list[_Place]
    kind: IndexKind


class _Places:
    """A schema while it changes. Its indexes refer to `_Place` objects instead of names, so that a
    rename of a column need not change them."""

    def __init__(self, schema: TableSchema, charset: str, binary: bool) -> None:
        self._charset = charset
        self.columns = [_Place(column=column, old=column) for column in schema.columns]
        self._indexes = [
            _PlacedIndex(name=index.name, columns=self._named(index.columns), kind=index.kind)
            for index in _all_indexes(schema)
        ]
        self._binary = binary
        self._follows_indexes = schema.follows_indexes
        self._is_nonclustered = schema.is_nonclustered

    def schema(self) -> TableSchema:
        names = [each.column.name.lower() for each in self.columns]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"the table would have two columns {', '.join(sorted(twice))}")
        if not names:
            raise ValueError("the table would have no columns")
        indexes = [
            Index(each.name, tuple(of.column.name for of in each.columns), each.kind)
            for each in self._indexes
        ]
        columns = [each.column for each in self.columns]
        schema = keyed(columns, named(indexes), self._binary)
        return replace(
            schema,
            charset=self._charset,
            follows_indexes=self._follows_indexes,
            is_nonclustered=self._is_nonclustered,
        )

    def change_columns(self, change: AlterSpec) -> None:
        match change:
            case AddColumn():
                self._add(change)
            case DropColumn(name=name, if_exists=if_exists):
                self._drop(name, if_exists)
            case RenameColumn(name=name, new_name=new_name):
                renamed = self._column(name)
                renamed.column = replace(renamed.column, name=new_name)
            case ModifyColumn():
                self._modify(change)
            case SetDefault(name=name, default=default, default_is_expression=is_expression):
                found = self._column(name)
                found.column = replace(
                    found.column, default=default, default_is_expression=is_expression
                )
            case SetCharset(binary=True, converts=True):
                for each in self.columns:
                    each.column = _with_bytes(each.column)
            case SetCharset(converts=True, charset=charset) if self._charset:
                texts = (*TEXT_TYPES, "enum", "set")
                for each in (of for of in self.columns if of.column.type.name in texts):
                    each.column = replace(each.column, charset=charset)

    def change_indexes(self, change: AlterSpec) -> None:
        """Drop and rename indexes; `add_index` adds new ones. An unknown index is no error: a table
        that was made from its rows knows only its key."""
        match change:
            case DropIndex(name=name):
                self._indexes = [each for each in self._indexes if not same_name(each.name, name)]
            case RenameIndex(name=name, new_name=new_name):
                for each in self._indexes:
                    if same_name(each.name, name):
                        each.name = new_name
            case SetCharset(binary=binary):
                self._binary = binary

    def _add(self, change: AddColumn) -> None:
        exists = any(same_name(each.column.name, change.column.name) for each in self.columns)
        if exists and change.if_not_exists:
            return
        self._put(_Place(column=self._defined(change), old=None), change.place)

    def _modify(self, change: ModifyColumn) -> None:
        found = self._find(change.name)
        if found is None and change.if_exists:
            return
        found = found or self._column(change.name)
        found.column = self._defined(change)
        if change.place is not None:
            self.columns.remove(found)
            self._put(found, change.place)

    def _defined(self, change: AddColumn | ModifyColumn) -> Column:
        in_bytes = self._binary and not change.has_charset
        column = change.column
        if not column.charset and column.type.name in (*TEXT_TYPES, "enum", "set"):
            column = replace(column, charset=self._charset)
        return _with_bytes(column) if in_bytes else column

    def _put(self, column: _Place, place: str | None) -> None:
        at = len(self.columns)
        if place == FIRST:
            at = 0
        elif place is not None:
            by_name = (each for each in self.columns if same_name(each.column.name, place))
            at = self.columns.index(next(by_name, None) or self._column(place)) + 1
        self.columns.insert(at, column)

    def _drop(self, name: str, if_exists: bool) -> None:
        found = self._find(name)
        if found is None and if_exists:
            return
        found = found or self._column(name)
        self.columns.remove(found)
        for index in [each for each in self._indexes if found in each.columns]:
            index.columns.remove(found)
            if not index.columns:
                self._indexes.remove(index)

    def add_index(self, change: AddIndex) -> None:
        index = change.index
        name = PRIMARY if index.kind == "primary" else index.name
        self._is_nonclustered |= index.kind == "primary"  # as each one that comes later
        known = next((each for each in self._indexes if name and same_name(each.name, name)), None)
        if known is not None:
            if change.if_not_exists:
                return
            if known.kind != "plain":
                raise ValueError(f"the table has an index {name} already")
            self._indexes.remove(known)  # it was dropped: plain ones are not followed
        if index.kind == "unique" and not name:  # TiDB gives it a name that no other index has
            self._follows_indexes = False
        self._indexes.append(
            _PlacedIndex(name=name, columns=self._named(index.columns), kind=index.kind)
        )

    def _named(self, names: Sequence[str]) -> list[_Place]:
        """The columns that have these names now. Raises ValueError."""
        by_name = {each.column.name.lower(): each for each in self.columns}
        missing = [name for name in names if name.lower() not in by_name]
        if missing:
            raise ValueError(f"an index names {missing[0]}, which is no column")
        return [by_name[name.lower()] for name in names]

    def _find(self, name: str) -> _Place | None:
        """The column with this name before the statement, or else with this name now."""
        for before in (True, False):
            for each in self.columns:
                known = each.old if before else each.column
                if known is not None and same_name(known.name, name):
                    return each
        return None

    def _column(self, name: str) -> _Place:
        found = self._find(name)
        if found is None:
            raise ValueError(f"the table has no column {name}")
        return found


def _all_indexes(schema: TableSchema) -> Sequence[Index]:
    """The schema's indexes with the key's, which a schema without ``indexes`` lacks."""
    if schema.indexes or not schema.key or schema.key_is_row:
        return schema.indexes
    if schema.key_index is None:
        return (Index(PRIMARY, schema.key, "primary"),)
    return (Index(schema.key_index, schema.key, "unique"),)


def _with_bytes(column: Column) -> Column:
    """The column as it is under CHARACTER SET binary: with bytes instead of text."""
    in_bytes = in_binary(column.type)
    default = column.default
    if in_bytes != column.type and default is not None and not column.default_is_expression:
        default = as_bytes(default)
    charset = "binary" if column.type.name in ("enum", "set") else ""
    if column.charset == MARIADB_VECTOR:
        charset = MARIADB_VECTOR
    return replace(column, type=in_bytes, default=default, charset=charset)
