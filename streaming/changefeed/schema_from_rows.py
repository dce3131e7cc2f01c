"""The schema of a table whose CREATE TABLE was not read, as a whole row of it tells; and its
differences from the schema file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName, Ts
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import TableSchema, schema_from_mysql_types

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WholeRow:
    """Columns and key as a row's message tells them: the input of ``schema_from_mysql_types``.

    ``types``: with the digits that the row's value has (``time(3)``) where it is not NULL."""

    types: Mapping[str, str]  # column -> type as in the message, in the row's order
    key: tuple[str, ...]  # empty if the messages do not say it
    commit_ts: Ts = field(default=Ts(0), compare=False)  # of the row
    version: int | None = None  # of a schema that another message tells; then the rest is empty
    columns: frozenset[str] | None = None  # of a whole row of that version; None: none has come
    schema: TableSchema | None = None  # as that message tells it

    @property
    def is_elsewhere(self) -> bool:
        """Whether another message tells it, which is not known here."""
        return self.version is not None and self.schema is None

    def defined(self, definition: str) -> WholeRow:
        """With the definition that another message tells (`TableSchema.to_json`'s). It does not
        say which columns are virtual: a whole row lacks them."""
        told = TableSchema.from_json(definition)
        columns = tuple(
            replace(column, generated="virtual")
            if self.columns is not None and column.name not in self.columns
            else column
            for column in told.columns
        )
        schema = replace(told, columns=columns)
        types = {column.name: str(column.type) for column in schema.delivered}
        key = schema.key if schema.key_index is None else ()
        return replace(self, types=types, key=key, schema=schema)


class Untold(StrEnum):
    """Why no row tells columns and key of a table."""

    NOT_WRITTEN = "not-written"  # only DELETEs came, which have nothing to delete
    ONLY_CUT = "only-cut"  # rows came, and none was whole


_LENGTH_COUNTS = (
    *("char", "varchar", "binary", "varbinary", "bit"),
    *("decimal", "datetime", "timestamp", "time"),
)


def refuse_unlike(name: TableName, schema: TableSchema, told: WholeRow) -> None:
    """Raise ConfigError if the file's definition of a table differs from what a whole row of it
    tells."""
    if differences := unlike(schema, told.types, told.key):
        raise ConfigError(
            f"schema-file: table {name} is another in its messages (commit-ts {told.commit_ts}): "
            f"{'; '.join(differences)}. Give its CREATE TABLE as it was at the start-ts, or leave "
            "it out of the file: then its messages tell what it is"
        )


def schema_of_row(name: TableName, told: WholeRow) -> TableSchema:
    """The schema that a row tells, for a table that no file defines. Raises TidelakeError. Facts
    that the row does not tell are logged."""
    if told.schema is not None:
        return told.schema
    assert told.version is None, f"{name}: the schema of version {told.version} is not known"
    try:
        schema, warnings = schema_from_mysql_types(told.types, list(told.key))
    except ValueError as error:
        raise TidelakeError(
            f"cannot make {name} from the types in its messages: {error}. Give "
            "--schema-file, start before its CREATE TABLE, or leave it out with [filter] rules"
        ) from error
    for warning in warnings:
        logger.warning("no CREATE TABLE was read: %s table=%s", warning, name)
    return schema


def unlike(schema: TableSchema, types: Mapping[str, str], key: Sequence[str]) -> list[str]:
    """The differences between a table's definition and a whole row of it, as sentences. ``types``
    by column, and ``key``, the primary key (empty: there is none)."""
    told = {name.lower(): text for name, text in types.items()}
    found = []
    for column in schema.delivered:
        text = told.pop(column.name.lower(), None)
        if text is None:
            found.append(f"column {column.name} ({column.type}) is in the file alone")
        elif not fits(column.type, text):
            found.append(f"column {column.name} is {column.type} in the file and {text} there")
    of_target = schema.delivered
    others = {column.name.lower() for column in schema.columns if column not in of_target}
    found += [
        f"column {name} ({text}) is there alone"
        for name, text in told.items()
        if name not in others  # they come nevertheless: a binlog has virtual ones
    ]
    primary = () if schema.key_index is not None else schema.key
    if {name.lower() for name in primary} != {name.lower() for name in key}:
        shown, other = (", ".join(each) or "none" for each in (primary, key))
        found.append(f"the primary key is {shown} in the file and {other} there")
    return found


def fits(file: MySQLType, text: str) -> bool:
    """Whether a type can be the one that is told. canal-json tells a length, or the names of an
    enum, only with ``content-compatible=true``. The display width of an integer says nothing."""
    try:
        told = MySQLType.parse(text)
    except ValueError:
        return False
    if (file.name, file.unsigned) != (told.name, told.unsigned):
        return False
    if told.elements and told.elements != file.elements:
        return False
    if "(" not in text or told.name not in _LENGTH_COUNTS:
        return True
    return (told.length or 0, told.scale or 0) == (file.length or 0, file.scale or 0)
