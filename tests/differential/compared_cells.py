"""Each cell of a target beside the server's own SELECT, by rules written down here once more: none
of the product's conversions is used.

The server shows each value as a text or bytes that only its type decides (docs/types.md says what
each type becomes in Delta); the target's value is brought to the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from struct import pack, unpack
from typing import Any

from pymysql import Connection
from pymysql.cursors import Cursor

from tests.differential.shown_tables import ShownColumn

Cells = tuple[Any, ...]
_EXACT = Context(prec=100)
READING = "SET sql_mode = '', time_zone = '+00:00', sql_select_limit = DEFAULT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """``rows``: of the server alone, and of the target alone, at most three of each."""

    columns: tuple[str, ...]
    of_server: tuple[Cells, ...] = ()
    of_target: tuple[Cells, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return self.why
        lines = [f"columns {self.columns}"]
        for row, other in self._pairs():
            told = [
                f"{name}: server {a!r}, target {b!r}"
                for name, a, b in zip(self.columns, row, other, strict=True)
                if a != b
            ]
            lines.append(f"id {row[self.columns.index('id')]}: " + "; ".join(told))
        if len(lines) == 1:
            lines += [f"server alone: {self.of_server}", f"target alone: {self.of_target}"]
        return "\n".join(lines)

    def _pairs(self) -> list[tuple[Cells, Cells]]:
        at = self.columns.index("id")
        by_id = {row[at]: row for row in self.of_target}
        return [(row, by_id[row[at]]) for row in self.of_server if row[at] in by_id]


def is_delivered(column: ShownColumn, omits_generated: bool) -> bool:
    """Whether the target has it."""
    return column.generated != "virtual" and not (omits_generated and column.generated)


def server_rows(
    connection: Connection[Cursor], table: str, columns: Sequence[ShownColumn]
) -> list[Cells]:
    with connection.cursor() as cursor:
        cursor.execute(READING)
        cursor.execute(f"SELECT {', '.join(map(_asked, columns))} FROM {table}")
        rows = cursor.fetchall()
    return [
        tuple(_of_server(value, column) for value, column in zip(row, columns, strict=True))
        for row in rows
    ]


def _asked(column: ShownColumn) -> str:
    name = f"`{column.name}`"
    match column.kind:
        case "bit":
            return f"CAST({name} + 0 AS CHAR)"
        case "float" | "double":  # DOUBLE(M,D) would be shown with D digits
            return f"{name} + 0e0"
        case "date" | "datetime" | "timestamp" | "time" | "decimal" | "uuid" | "inet4" | "inet6":
            return f"CAST({name} AS CHAR)"
        case "binary" | "varbinary" | "blob" | "geometry" | "point" | "vector":
            return f"HEX({name})"
        case "char" | "varchar" | "text" | "enum" | "set" | "json":
            return f"HEX(CONVERT({name} USING utf8mb4))"
        case _:
            return name


def _of_server(value: Any, column: ShownColumn) -> Any:  # noqa: PLR0911 - one per kind
    if value is None:
        return None
    match column.kind:
        case "integer" | "bit" | "year":
            return int(value)
        case "float" | "double":
            return float(value)
        case "decimal":
            return Decimal(value)
        case "binary" | "varbinary" | "blob" | "geometry" | "point" | "vector":
            return bytes.fromhex(value)
        case "char" | "varchar" | "text" | "enum" | "set" | "json":
            return bytes.fromhex(value).decode()
        case "date" | "datetime" | "timestamp":
            return _moment(str(value))
        case _:
            return str(value)


def _moment(text: str) -> str | None:
    """As the server's text with six digits; None for one that Delta does not have."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.isoformat(" ", "microseconds")


def target_cell(value: Any, column: ShownColumn) -> Any:  # noqa: PLR0911 - one per kind
    if value is None:
        return None
    match column.kind:
        case "integer" | "bit" | "year":
            return int(value)
        case "float":
            return unpack("f", pack("f", value))[0]
        case "vector" if isinstance(value, list):  # of MySQL
            return pack(f"<{len(value)}f", *value)
        case "decimal":
            return Decimal(value)
        case "timestamp":
            assert value.tzinfo is not None, "a TIMESTAMP is a moment"
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
        case "datetime":
            assert value.tzinfo is None, "a DATETIME has no zone"
            return value.isoformat(" ", "microseconds")
        case "date":
            assert type(value) is date
            return datetime(value.year, value.month, value.day).isoformat(" ", "microseconds")  # noqa: DTZ001
        case _:
            return value


def compared(
    wanted: Sequence[Cells], rows: Sequence[dict[str, Any]], columns: Sequence[ShownColumn]
) -> Difference | None:
    """``rows``: of the target. None: they are equal."""
    names = tuple(column.name for column in columns)
    if rows and set(rows[0]) != set(names):
        why = f"the target has the columns {sorted(rows[0])}, the server {sorted(names)}"
        return Difference(columns=names, why=why)
    try:
        found = [tuple(target_cell(row[each.name], each) for each in columns) for row in rows]
    except (AssertionError, AttributeError, TypeError) as error:
        return Difference(columns=names, why=f"a value of another type: {error!r}: {rows[:2]}")
    theirs, ours = _counted(wanted), _counted(found)
    if theirs == ours:
        return None
    lacking = [row for key, row in theirs.items() if key not in ours]
    extra = [row for key, row in ours.items() if key not in theirs]
    return Difference(columns=names, of_server=tuple(lacking[:3]), of_target=tuple(extra[:9]))


def _counted(rows: Sequence[Cells]) -> dict[tuple[str, int], Cells]:
    """By how each is written, and the how many-th it is."""
    found: dict[tuple[str, int], Cells] = {}
    for row in rows:
        # 1.0 and 1.00 are one DECIMAL, and so are 0.0 and -0.0.
        text = repr([_plain(each) for each in row])
        at = 0
        while (text, at) in found:
            at += 1
        found[text, at] = row
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.normalize(_EXACT) or Decimal(0)
    return value + 0.0 if isinstance(value, float) else value
