"""The meaning of one message, of whatever protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.compressed import fault
from streaming.protocols.contract import NO_TABLE, Cells, ToldTable

_TEXT: Final = pa.string()

Cell = str | bytes | int | float | None  # a value


@dataclass(frozen=True, slots=True)
class Error:
    """Why something cannot be used; the class is for programs, the message for people."""

    error_class: str
    message: str


EMPTY: Final = Error("empty", "the message has no value")
_HANDLE_KEY_ONLY: Final = Error(
    "handle-key-only",
    "only the key of a large row was sent: set large-message-handle-option=claim-check in TiCDC, "
    "or raise max-message-bytes",
)


CLAIM_CHECK: Final = "claim-check"  # the error class of a row that TiCDC has put into a file
LOOKED: Final = "where claim-check-storage-uri says"  # whoever has looked says the place itself


def reduced(place: str | None, *, is_cut: bool) -> Error | None:
    """Why a row is not whole, which was too large. ``place``: of the file into which TiCDC has put
    it."""
    if place is None:
        return _HANDLE_KEY_ONLY if is_cut else None
    return Error(
        CLAIM_CHECK,
        f"the row is in claim-check storage, and its file was not read: {place} (it is looked for "
        f"by its name {LOOKED})",
    )


def name_in(fields: Mapping[str, Any]) -> TableName:
    """The table that a message names as canal-json and simple do, whatever else is in it."""
    schema, table = fields.get("database"), fields.get("table")
    return TableName(schema, table) if type(schema) is str and type(table) is str else NO_TABLE


def unreadable(value: bytes, error: Error) -> Error:
    """``error``, or why a value that is compressed cannot be inflated."""
    why = fault(value)
    return error if why is None else Error("compression", why)


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts that all rows of a block share, beside their table.

    ``wire_types`` names the columns of ``columns`` whose type the message tells; ``only_old`` stand
    in ``old`` alone. ``typed``: the columns, of either, whose cells are no texts, with their types.
    ``is_by_id``: their order counts, since it is that of the columns' IDs.
    """

    columns: tuple[str, ...]
    wire_types: tuple[tuple[str, str], ...]
    key_names: tuple[str, ...] | None
    only_old: tuple[str, ...] = ()
    typed: frozenset[tuple[str, pa.DataType]] = frozenset()
    cells: Cells = Cells.TEXT
    version: int | None = None  # of the table's schema
    is_by_id: bool = False
    letter_head: bytes | None = None  # `contract.LETTER_HEAD`

    def types(self, names: Iterable[str]) -> tuple[pa.DataType, ...]:
        """The types of the cells of these columns."""
        typed = dict(self.typed)
        return tuple(typed.get(name, _TEXT) for name in names)

    @property
    def unordered(self) -> object:
        """Equal where only the order of the columns differs, and does not count: such rows share a
        block."""
        names = frozenset(self.columns), frozenset(self.only_old)
        order = self.columns if self.is_by_id else None
        kinds = frozenset(self.wire_types), self.key_names, self.typed, self.cells
        return *names, *kinds, self.version, self.letter_head, order


@dataclass(frozen=True, slots=True)
class ParsedRow:
    """``old`` is of UPDATEs alone, and holds the values that the message sent. ``checksum``: as in
    a block; None: the message has none."""

    name: TableName
    op: int
    commit_ts: int
    shape: Shape
    values: tuple[Cell, ...]
    old: Mapping[str, Cell] | None
    error: Error | None
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class Ddl:
    name: TableName
    commit_ts: int
    ddl_type: str
    query: str | None
    tables: tuple[ToldTable, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    table: ToldTable


@dataclass(frozen=True, slots=True)
class WatermarkEvent:
    watermark_ts: int


@dataclass(frozen=True, slots=True)
class Bad:
    """``name`` as far as the message tells. ``is_row``: it is surely about a row of that table, and
    no DDL, which may be about others too."""

    name: TableName
    error: Error
    is_row: bool = False


Event = ParsedRow | Ddl | SchemaEvent | WatermarkEvent | Bad
