"""A DDL of avro: JSON, as TiCDC writes it where avro-enable-watermark is on."""

from __future__ import annotations

from typing import Final

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Repeating,
    as_text,
    member_integer,
    parse,
)
from streaming.protocols.rows.ddl_types import ddl_type
from streaming.protocols.rows.parsed_message import Bad, Ddl, Error
from streaming.protocols.rows.safe_names import safe_name

_MALFORMED: Final = Error("malformed", "not a DDL of avro")


def told_ddl(text: bytes) -> Ddl | Bad:
    """Rows have the table's name only with its other characters replaced. So a DDL of such a table
    is about a table that no row is of: it is refused."""
    try:
        fields = parse(text)
        ts, kind = member_integer(fields, "commitTs"), member_integer(fields, "type")
        query = as_text(fields.get("query"))
        schema, table = (as_text(fields.get(each)) or "" for each in ("schema", "table"))
    except Malformed:
        return Bad(NO_TABLE, _MALFORMED)
    if isinstance(fields, Repeating) or ts is None or ts <= 0 or query is None:
        return Bad(NO_TABLE, _MALFORMED)
    name = TableName(schema, table)
    unsafe = [each for each in (schema, table) if table and safe_name(each) != each]
    if unsafe:
        shown = safe_name(unsafe[0])
        why = (
            f"a DDL of {name}: in avro its rows name {shown!r} for {unsafe[0]!r}, so the table is "
            f"kept as it comes, and its DDLs are not run"
        )
        return Bad(name, Error("unsafe-name", why))
    return Ddl(name, ts, ddl_type(kind or 0), query)
