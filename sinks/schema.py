"""A table's MySQL definition, and the Delta type of each of its columns (design 6). Skeleton; see memo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coordination.model import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLType:
    """``decimal(20,4) unsigned`` in parts. ``None`` where the text did not say."""

    name: str  # lower case, canonical: tinyint … bigint, decimal, varchar, enum, …
    unsigned: bool = False
    length: int | None = None  # (n) of bit, char, time…; precision of decimal
    scale: int | None = None
    elements: tuple[str, ...] = ()  # of enum and set


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: MySQLType
    nullable: bool = True
    generated: Literal["", "virtual", "stored"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Columns in table order and the handle key (empty: a table without one, rule 8)."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def delivered(self) -> tuple[Column, ...]:
        """The columns that TiCDC sends: all but virtual generated ones."""
        return tuple(column for column in self.columns if column.generated != "virtual")
