"""The schema of a table whose CREATE TABLE was not read, as a whole row of it tells; and its
differences from the schema file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName, Ts
from sinks.types.mysql_type import BINARY_TYPES, TEXT_TYPES, MySQLType
from sinks.types.table_schema import TableSchema, schema_from_mysql_types
from streaming.protocols.rows.safe_names import safe_name

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
    is_coarse: bool = False  # types and names are as in `contract.Cells.AVRO`
    is_key_guessed: bool = False  # it is the key of Debezium's messages, which may be any columns

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


_COARSE = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint"), "int"),
    **dict.fromkeys(TEXT_TYPES, "text"),
    **dict.fromkeys(BINARY_TYPES, "blob"),
}
_DEFAULT_LENGTHS = {"bit": (1, None), "decimal": (10, 0)}
_LENGTH_COUNTS = (
    *("char", "varchar", "binary", "varbinary", "bit"),
    *("decimal", "datetime", "timestamp", "time"),
)

_GUESSED = (
    "no CREATE TABLE of it was read, and the key of Debezium's messages need not be the table's "
    "(message.key.columns). Add the connector's schema-change topic (its topic.prefix) to "
    "`topics`, give the CREATE TABLE with --schema-file, set key = 'all-columns' or write-mode = "
    "'append' for it in [[sink.tables]], or leave it out with [filter] rules"
)


def refuse_unlike(name: TableName, schema: TableSchema, told: WholeRow) -> None:
    """Raise ConfigError if the file's definition of a table differs from what a whole row of it
    tells."""
    known = () if schema.key_index is not None else schema.key
    key = known if told.is_key_guessed else told.key
    if differences := unlike(schema, told.types, key, is_coarse=told.is_coarse):
        raise ConfigError(
            f"schema-file: table {name} is another in its messages (commit-ts {told.commit_ts}): "
            f"{'; '.join(differences)}. Give its CREATE TABLE as it was at the start-ts, or leave "
            "it out of the file: then its messages tell what it is"
        )


def schema_of_row(name: TableName, told: WholeRow, *, needs_key: bool = True) -> TableSchema:
    """The schema that a row tells, for a table that no file defines. Raises TidelakeError. Facts
    that the row does not tell are logged. ``needs_key``: it cannot be without."""
    if told.schema is not None:
        return told.schema
    assert told.version is None, f"{name}: the schema of version {told.version} is not known"
    if told.is_key_guessed and needs_key:
        raise TidelakeError(f"cannot make {name} from its rows: {_GUESSED}")
    key = [] if told.is_key_guessed else list(told.key)
    try:
        schema, warnings = schema_from_mysql_types(told.types, key)
    except ValueError as error:
        raise TidelakeError(
            f"cannot make {name} from the types in its messages: {error}. Give "
            "--schema-file, start before its CREATE TABLE, or leave it out with [filter] rules"
        ) from error
    for warning in warnings:
        logger.warning("no CREATE TABLE was read: %s table=%s", warning, name)
    return schema


def unlike(
    schema: TableSchema, types: Mapping[str, str], key: Sequence[str], *, is_coarse: bool = False
) -> list[str]:
    """The differences between a table's definition and a whole row of it, as sentences. ``types``
    by column, and ``key``, the primary key (empty: there is none), or if ``is_coarse`` that by
    which the messages tell rows apart."""
    told = {name.lower(): text for name, text in types.items()}
    found = []
    for column in schema.delivered:
        text = told.pop(_as_told(column.name, is_coarse=is_coarse), None)
        if text is None:
            found.append(f"column {column.name} ({column.type}) is in the file alone")
        elif not (fits_coarsely if is_coarse else fits)(column.type, text):
            found.append(f"column {column.name} is {column.type} in the file and {text} there")
    of_target = schema.delivered
    others = {
        _as_told(column.name, is_coarse=is_coarse)
        for column in schema.columns
        if column not in of_target
    }
    found += [
        f"column {name} ({text}) is there alone"
        for name, text in told.items()
        if name not in others  # they come nevertheless: a binlog has virtual ones
    ]
    known = schema.key if is_coarse or schema.key_index is None else ()
    if {_as_told(name, is_coarse=is_coarse) for name in known} != {n.lower() for n in key}:
        shown, other = (", ".join(each) or "none" for each in (known, key))
        found.append(f"the primary key is {shown} in the file and {other} there")
    return found


def _as_told(name: str, *, is_coarse: bool) -> str:
    return (safe_name(name) if is_coarse else name).lower()


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


def fits_coarsely(file: MySQLType, text: str) -> bool:
    """The same where one type stands for several (`contract.Cells.AVRO`). Only of whole numbers it
    tells that they are unsigned, and in names of ENUM and SET TiCDC adds backslashes to commas and
    takes quotes and backslashes out."""
    told, coarse = MySQLType.parse(text), _COARSE.get(file.name, file.name)
    if coarse in ("enum", "set"):
        return told.name == coarse and _bare(file) == _bare(told)
    unsigned = file.unsigned and coarse in ("int", "bigint")
    length, scale = file.length, file.scale
    if length is None:
        length, scale = _DEFAULT_LENGTHS.get(coarse, (None, None))
    of = replace(file, name=coarse, unsigned=unsigned, length=length, scale=scale)
    return fits(of, text)


def _bare(of: MySQLType) -> str:
    return ",".join(of.elements).replace("\\", "").replace("'", "")
