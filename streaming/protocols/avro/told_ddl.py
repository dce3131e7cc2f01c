"""A DDL of avro: JSON, as TiCDC writes it where avro-enable-watermark is on.

Rows have the names of tables only with their other characters replaced (`rows/safe_names.py`), and
a table is kept under that name. So a DDL is told by such names too: ``ALTER TABLE `s`.`a-b` …`` is
read as ``ALTER TABLE `s`.`a_b` …``. TiCDC writes all of them in backquotes, with their databases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from coordination.model import TableName
from sinks.ddl.effects import DropDatabase, Effect, RenameTable
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
from streaming.protocols.rows.safe_names import safe_name, safe_table

_MALFORMED: Final = Error("malformed", "not a DDL of avro")
_OF_EFFECTS: Final = ("name", "new_name", "source", "table")
_NAME: Final = "`(?:[^`]|``)+`"
_NAMES: Final = re.compile(
    rf"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(?P<schema>{_NAME})\s*\.\s*(?P<table>{_NAME})"
    rf"|^(?P<verb>\s*(?:CREATE|ALTER|DROP)\s+DATABASE\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?)"
    rf"(?P<database>{_NAME})|{_NAME}|/\*(?![!MT]).*?(?:\*/|\Z)",
    re.IGNORECASE | re.DOTALL,
)


def told_ddl(text: bytes) -> Ddl | Bad:
    try:
        told = parse(text)
        ts, kind = member_integer(told, "commitTs"), member_integer(told, "type")
        query = as_text(told.get("query"))
        schema, table = (as_text(told.get(each)) or "" for each in ("schema", "table"))
    except Malformed:
        return Bad(NO_TABLE, _MALFORMED)
    if isinstance(told, Repeating) or ts is None or ts <= 0 or query is None:
        return Bad(NO_TABLE, _MALFORMED)
    name = TableName(schema, table)
    safe = Ddl(safe_table(name), ts, ddl_type(kind or 0), _NAMES.sub(_safe, query))
    if (safe.name, safe.query) == (name, query):
        return safe
    why = _refused(safe)
    return safe if why is None else Bad(safe.name, Error("unsafe-name", f"{query}: {why}"))


def _safe(found: re.Match[str]) -> str:
    if found["schema"] is not None:
        return f"{_quoted(found['schema'])}.{_quoted(found['table'])}"
    if found["database"] is not None:
        return f"{found['verb']}{_quoted(found['database'])}"
    return found[0]


def _quoted(name: str) -> str:
    return f"`{safe_name(name[1:-1].replace('``', '`'))}`"


def _refused(ddl: Ddl) -> str | None:
    """Why a DDL with such names is not run; None: it is."""
    from sinks.ddl.statements import read_ddl  # rare, and sqlglot is large

    effects = read_ddl(ddl.query or "", ddl.ddl_type, ddl.name.schema, ddl.name.table).effects
    for effect in effects:
        if isinstance(effect, RenameTable) and effect.name == effect.new_name:
            return f"both names are {effect.name} in the rows, so it changes nothing here"
        for name in _names(effect):
            if name != safe_table(name):
                return (
                    f"rows name {safe_table(name)} for {name}, and the statement does not name it "
                    "with its database, in backquotes: it is not run"
                )
    return None


def _names(effect: Effect) -> Iterator[TableName]:
    if isinstance(effect, DropDatabase):
        yield TableName(effect.schema, "")
    told = (getattr(effect, each, None) for each in _OF_EFFECTS)
    yield from (each for each in told if isinstance(each, TableName))
