"""What a schema file says: the columns of a table from a version on, and the DDL that made it.

    {"Table", "Schema", "Version": 1, "TableVersion", "Query", "Type", "TableColumnsTotal",
     "TableColumns": [{"ColumnName", "ColumnType", "ColumnPrecision"?, "ColumnScale"?,
     "ColumnNullable"?, "ColumnIsPk"?, "ColumnElems"?, "ColumnDefault"?, "ColumnId"?} …]}

Its name has a checksum of its columns. A file without a query tells columns alone.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from coordination.model import TableName
from streaming.protocols.rows.ddl_types import ddl_type
from streaming.protocols.rows.element_names import UNTOLD
from streaming.protocols.rows.parsed_message import Ddl

_LENGTHS: Final = frozenset(("CHAR", "VARCHAR", "BINARY", "VARBINARY", "BIT"))
_TIMED: Final = frozenset(("DATETIME", "TIMESTAMP", "TIME"))
_NOT_UNSIGNED: Final = frozenset(("BIT", "YEAR"))  # TiCDC calls them so
# Go has two spellings of these: the escape is for a byte that is no UTF-8, and what Go before 1.22
# writes for \b and \f. A lone surrogate stands for each, which Go never writes.
_SPELLINGS: Final = {"\\ufffd": "\udcfd", "\\u0008": "\udc08", "\\u000c": "\udc0c"}
_GO: Final = {
    **{ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"},
    **{ord(each): spelling for spelling, each in _SPELLINGS.items()},
}
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


class NotWhole(ValueError):
    """The text is no JSON of a schema file: it is being written, or is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaText:
    """``columns``: name and type, in table order; ``key``: the primary key."""

    name: TableName
    version: int
    query: str
    kind: int
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    checksum: int  # of what the file says, as its name should have it

    @property
    def ddl(self) -> Ddl | None:
        if not self.query:
            return None
        return Ddl(self.name, self.version, ddl_type(self.kind), self.query)


def read_schema_text(text: bytes) -> SchemaText:
    """Raises NotWhole."""
    try:
        fields = json.loads(text)
        columns = fields["TableColumns"] or []
        return SchemaText(
            name=TableName(fields["Schema"], fields["Table"]),
            version=int(fields["TableVersion"]),
            query=fields["Query"],
            kind=int(fields["Type"]),
            columns=tuple((each["ColumnName"], mysql_type(each)) for each in columns),
            key=tuple(each["ColumnName"] for each in columns if each.get("ColumnIsPk") == "true"),
            checksum=_checksum(text.decode()),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotWhole(
            f"it is no schema file of TiCDC ({type(error).__name__}: {error})"
        ) from error


def in_order(found: Sequence[tuple[SchemaText, bytes]]) -> list[tuple[SchemaText, bytes]]:
    """By version. One RENAME of several tables makes several at one version: the one that leaves a
    name comes before the one that takes it."""
    ordered = sorted(found, key=lambda each: (each[0].version, each[0].name))
    done: list[tuple[SchemaText, bytes]] = []
    for _, alike in groupby(ordered, key=lambda each: each[0].version):
        left = list(alike)
        while left:
            free = (each for each in left if not any(_leaves(o[0], each[0]) for o in left))
            first = next(free, left[0])
            left.remove(first)
            done.append(first)
    return done


def _leaves(one: SchemaText, other: SchemaText) -> bool:
    """Whether a RENAME takes a table from the name that the other one takes."""
    if one is other or not other.name.table:
        return False
    before, to, _ = one.query.upper().partition("` TO `")
    return bool(to) and before.endswith(f"`{other.name.table.upper()}")


def mysql_type(column: Mapping[str, Any]) -> str:
    """The type as a definition writes it."""
    name, _, unsigned = column["ColumnType"].partition(" ")
    precision, scale = column.get("ColumnPrecision"), column.get("ColumnScale")
    digits = ""
    if name == "DECIMAL":
        digits = f"({precision},{scale or 0})"
    elif name in _LENGTHS and precision is not None:
        digits = f"({precision})"
    elif name == "TINYINT" and precision == "1":
        digits = "(1)"
    elif name in _TIMED and scale:
        digits = f"({scale})"
    elif name in ("ENUM", "SET"):
        if not (names := column.get("ColumnElems")):
            return UNTOLD
        quoted = ("'" + each.replace("'", "''") + "'" for each in names)
        digits = f"({','.join(quoted)})"
    is_unsigned = unsigned and name not in _NOT_UNSIGNED
    return f"{name.lower()}{digits}{' unsigned' if is_unsigned else ''}"


def _checksum(text: str) -> int:
    """As TiCDC computes it: a CRC32 of the columns by name, as Go writes them."""
    fields = json.loads(_ESCAPE.sub(lambda found: _SPELLINGS.get(found[0], found[0]), text))
    told = {
        "Table": fields["Table"],
        "Schema": fields["Schema"],
        "Version": 0,
        "TableColumns": sorted(fields["TableColumns"] or [], key=lambda each: each["ColumnName"]),
        "TableColumnsTotal": fields["TableColumnsTotal"],
    }
    return zlib.crc32(json.dumps(told, ensure_ascii=False, indent=4).translate(_GO).encode())
