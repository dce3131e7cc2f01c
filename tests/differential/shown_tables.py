"""A table as its server shows it: a generator builds on it, and a target is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pymysql import Connection
from pymysql.cursors import Cursor

from tests.differential.column_types import kind_of

_COLUMNS = """
    SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, IS_NULLABLE, EXTRA, COLUMN_KEY
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumn:
    name: str
    type: str  # with its length and sign
    charset: str | None
    is_nullable: bool
    generated: str  # "virtual", "stored" or ""
    is_key: bool

    @property
    def kind(self) -> str:
        return kind_of(self.type)

    @property
    def is_ours(self) -> bool:
        """Whether a DDL may alter it: the first column tells rows apart."""
        return self.name != "id"


def read_columns(connection: Connection[Cursor], database: str) -> dict[str, Sequence[ShownColumn]]:
    """By table."""
    found: dict[str, list[ShownColumn]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, (database,))
        for table, name, column_type, charset, nullable, extra, key in cursor.fetchall():
            upper = extra.upper()
            generated = next((e for e in ("VIRTUAL", "STORED") if f"{e} GENERATED" in upper), "")
            column = ShownColumn(
                name=name,
                type=column_type if isinstance(column_type, str) else column_type.decode(),
                charset=charset,
                is_nullable=nullable == "YES",
                generated=generated.lower(),
                is_key=bool(key),
            )
            found.setdefault(table, []).append(column)
    return {name: tuple(columns) for name, columns in found.items()}
