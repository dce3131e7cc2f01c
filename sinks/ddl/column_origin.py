"""Where the values of a column come from after a DDL, for rows from before it. Pure.

Two kinds of rows use it: stored rows that are written anew (``merge_on_write.rewrite``), and rows
that come again after a rewind and need the table's present columns (``past_schemas``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from sinks.ddl.schema_change import SchemaChange
from sinks.types.masks import hashed
from sinks.types.mysql_type import MySQLType
from sinks.types.server_rules.conversion import ServerChange
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import MOMENTS, Mask
from sinks.types.text_arrays import CastRules
from sinks.types.type_changes import CannotConvert, converted, fill_values, needs_conversion

OnAddDefault = Literal["rewrite", "null"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOrigin:
    """``types``: the values of ``source`` are converted from the first type to the second; None:
    they stay as they are. ``fill``: the value of rows if there is no source, instead of NULL."""

    name: str
    source: str | None  # a column of before
    types: tuple[MySQLType, MySQLType] | None = None
    fill: tuple[MySQLType, str] | None = None
    mask: Mask = ""  # of what ``fill`` gives
    by_server: ServerChange | None = None  # how ``types`` are converted; None: by TiDB's rules
    session: ServerSession | None = None  # of ``fill``

    def values(
        self,
        source: pa.Array | None,
        rows: int,
        kind: pa.DataType,
        rules: CastRules,
        ddl_ms: int,
        *,
        is_strict: bool = True,
    ) -> pa.Array:
        """The values for so many rows. ``kind``: the column's type where nothing else says it.

        ``ddl_ms``: the time of the DDL, for a column in which old rows get that time. CannotConvert
        names the column and the first value that has no place in its new type; without
        ``is_strict`` such a value becomes null.
        """
        try:
            if self.fill is not None:
                of, text = self.fill
                found = _filled(text, of, rules.of_ddl, ddl_ms, self.session)
                found = hashed(found, of, rules.mask_salt) if self.mask else found
                return pa.repeat(found[0], rows)
            if source is None:
                return pa.nulls(rows, kind)
            if self.types is None:
                return source
            if self.by_server is not None:
                zone = self.by_server.session.time_zone or rules.of_ddl.time_zone
                return self.by_server.values(source, zone, is_strict=is_strict)
            return converted(source, *self.types, rules.of_ddl.time_zone, is_strict=is_strict)
        except (CannotConvert, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            # Arrow's errors concern this table alone.
            raise CannotConvert(f"column {self.name}: {error}") from error


def _filled(
    text: str, of: MySQLType, rules: CastRules, ddl_ms: int, session: ServerSession | None
) -> pa.Array:
    if session is None:
        return fill_values(text, of, rules, ddl_ms * 1000)
    zone = session.time_zone or rules.time_zone
    began_us = ddl_ms * 1000 if session.began_us is None else session.began_us
    return fill_values(text, of, replace(rules, time_zone=zone), began_us)


def column_origins(change: SchemaChange, on_add_default: OnAddDefault) -> dict[str, ColumnOrigin]:
    """By delivered column of ``change.after``, in order."""
    found = {}
    for column in change.after.delivered:
        name, source = column.name, change.sources[column.name]
        types = fill = by_server = None
        if source is None:
            text = change.fills.get(name) if on_add_default == "rewrite" else None
            fill = None if text is None or column.mask == "null" else (column.type, text)
        elif column.mask == "null":
            source = None
        elif not column.mask:
            was = change.before.column(source).type
            by_server = change.by_server(name)
            is_other = by_server if change.session else needs_conversion(was, column.type)
            types = (was, column.type) if is_other else None
        found[name] = ColumnOrigin(
            name=name,
            source=source,
            types=types,
            fill=fill,
            mask=column.mask,
            by_server=by_server,
            session=change.session,
        )
    return found


def null_fills(change: SchemaChange, rules: CastRules) -> dict[str, str]:
    """Added columns with a default that old rows cannot show: a date that Delta does not have,
    which is NULL by ``rules``."""
    return {
        name: text
        for name, text in change.fills.items()
        if (kind := change.after.column(name).type).name in MOMENTS
        and rules.zero_date == "null"
        and not fill_values(text, kind, rules, 0)[0].is_valid
    }


def zeros_of_nulls(change: SchemaChange) -> list[str]:
    """Columns of dates in which the server made each NULL a date of zeros: they are NOT NULL now,
    and its session is not strict."""
    return [
        column.name
        for column in change.after.delivered
        if (found := change.by_server(column.name)) is not None and found.makes_zero_dates
    ]
