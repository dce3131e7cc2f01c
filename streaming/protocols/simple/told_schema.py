"""A table's schema as BOOTSTRAP and DDL messages tell it.

It tells all types with their digits, defaults and indexes. It does not tell which columns are
generated: a virtual one is in no row. Nor does it tell partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from coordination.model import TableName
from sinks.types.mysql_type import INTEGER_TYPES, TIMED_TYPES, MySQLType
from sinks.types.table_schema import CURRENT_TIMESTAMP, Column, Index, IndexKind, TableSchema
from streaming.protocols.contract import ToldTable
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Repeating,
    as_object,
    as_text,
    member_boolean,
    member_integer,
    member_list,
)

_FLOATS: Final = {"float": 12, "double": 22}  # the length that stands where none was given
_UNSIGNED: Final = frozenset((*INTEGER_TYPES, *_FLOATS, "decimal"))
_WITH_LENGTH: Final = frozenset(("char", "varchar", "binary", "varbinary", "bit"))
# TiCDC makes an index of that name where a table's key is no index: the hidden key of an integer,
# or a NOT NULL unique key, which has its own index besides.
_MADE_KEY: Final = "primary"
_MOST_DIGITS: Final = 6  # of a fraction of a second
_WIDTHS: Final = {"datetime": 19, "timestamp": 19, "time": 10}  # without a fraction of a second


def told_table(found: Any) -> ToldTable:
    """Raises Malformed."""
    fields = _object(found)
    name = TableName(_text(fields, "schema"), _text(fields, "table"))
    version = member_integer(fields, "version")
    if version is None or not name.table:
        raise Malformed
    columns = tuple(_column(each) for each in member_list(fields, "columns") or [])
    indexes = [_index(each) for each in member_list(fields, "indexes") or []]
    schema = _keyed(columns, indexes)
    return ToldTable(name, version, schema.to_json())


def _keyed(columns: tuple[Column, ...], indexes: Sequence[tuple[Index, bool]]) -> TableSchema:
    """``indexes``: with whether all their columns are NOT NULL."""
    if not columns:
        raise Malformed
    names = {column.name for column in columns}
    if any(set(index.columns) - names for index, _ in indexes):
        raise Malformed
    key = next((index for index, _ in indexes if index.kind == "primary"), None)
    key_index = None
    if key is not None and key.name == _MADE_KEY:
        alike = (i for i, is_not_null in indexes if is_not_null and i.columns == key.columns)
        key_index = next((index.name for index in alike if index.kind == "unique"), None)
    kept = (index for index, _ in indexes if key_index is None or index.kind != "primary")
    return TableSchema(
        columns=columns,
        key=() if key is None else key.columns,
        key_index=key_index,
        indexes=tuple(kept),
        follows_indexes=True,
        by_id=tuple(column.name for column in columns),
    )


def _column(found: Any) -> Column:
    fields = _object(found)
    default = as_text(fields.get("default"))
    is_now = default is not None and default.upper().startswith(CURRENT_TIMESTAMP)
    return Column(
        name=_text(fields, "name"),
        type=_type(_object(fields.get("dataType"))),
        nullable=member_boolean(fields, "nullable"),
        default=CURRENT_TIMESTAMP if is_now else default,
        default_is_expression=is_now,
    )


def _type(fields: Mapping[str, Any]) -> MySQLType:
    try:
        bare = MySQLType.parse(_text(fields, "mysqlType"))
    except ValueError as error:
        raise Malformed from error
    name = bare.name
    length, scale = member_integer(fields, "length"), member_integer(fields, "decimal")
    unsigned = name in _UNSIGNED and member_boolean(fields, "unsigned")
    elements = tuple(_is_text(each) for each in member_list(fields, "elements") or [])
    if name in ("enum", "set"):
        return MySQLType(name=name, elements=elements)
    if name == "decimal":
        return MySQLType(name=name, unsigned=unsigned, length=length or 10, scale=scale or 0)
    if name in _FLOATS:
        has_width = (length or _FLOATS[name]) != _FLOATS[name]
        if has_width and fields.get("decimal", 0) is None:  # TiCDC leaves them out in Avro
            return MySQLType(name=name, unsigned=unsigned, is_untold=True)
        has_digits = scale is not None or (length or 0) != _FLOATS[name]
        digits = (length, scale or 0) if has_digits and length else (None, None)
        return MySQLType(name=name, unsigned=unsigned, length=digits[0], scale=digits[1])
    if name in TIMED_TYPES:
        behind = (length or 0) - _WIDTHS[name] - 1  # the Avro encoding tells the width alone
        by_width = behind if 0 < behind <= _MOST_DIGITS else None
        return MySQLType(name=name, length=by_width if scale is None else scale or None)
    kept = length if name in _WITH_LENGTH else None
    return MySQLType(name=name, unsigned=unsigned, length=kept)


def _index(found: Any) -> tuple[Index, bool]:
    fields = _object(found)
    is_primary, is_unique = (member_boolean(fields, each) for each in ("primary", "unique"))
    kind: IndexKind = "primary" if is_primary else "unique" if is_unique else "plain"
    columns = tuple(_is_text(each) for each in member_list(fields, "columns") or [])
    return Index(_text(fields, "name"), columns, kind), not member_boolean(fields, "nullable")


def _object(found: Any) -> Mapping[str, Any]:
    if isinstance(found, Repeating):
        raise Malformed
    return as_object(found)


def _text(fields: Mapping[str, Any], name: str) -> str:
    return _is_text(fields.get(name))


def _is_text(found: Any) -> str:
    if type(found) is not str:
        raise Malformed
    return found
