"""What is lost of a column's values before they come here (``rows/losses.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sinks.types.table_schema import CURRENT_TIMESTAMP, MOMENTS, Column
from streaming.protocols.rows.losses import Loss

_DOUBLES_DIGITS: Final = 15


def _is_beyond_a_double(column: Column) -> bool:
    of = column.type
    return of.name == "decimal" and (of.length is None or of.length > _DOUBLES_DIGITS)


def _shows_its_default(column: Column) -> bool:
    return column.nullable and column.default is not None and not _has_now(column)


def _has_now(column: Column) -> bool:
    return column.default == CURRENT_TIMESTAMP and column.type.name in MOMENTS


def _has_zero_as_1970(column: Column) -> bool:
    return column.type.name in MOMENTS and not column.nullable


def _is(*types: str) -> Callable[[Column], bool]:
    return lambda column: column.type.name in types


# As `writeDebeziumFieldValue` of TiCDC's encoder does.
TICDCS: Final[Sequence[Loss]] = (
    Loss("a decimal comes as a double, of which 15 digits are right", _is_beyond_a_double),
    Loss(
        "a date before the year 100 comes as one of 1970 to 2069",
        _is("date", "datetime"),
    ),
    Loss(
        "a zero date comes as 1970-01-01",
        lambda column: column.type.name == "timestamp" or _has_zero_as_1970(column),
    ),
    Loss("NULL comes as the default, or as -1", _shows_its_default),
    Loss(
        "NULL comes as 1970-01-01",
        lambda column: column.nullable and column.type.name == "datetime" and _has_now(column),
    ),
)
CONNECTORS: Final[Sequence[Loss]] = (
    Loss("a zero date comes as 1970-01-01", _has_zero_as_1970),
    Loss(
        "NULL comes as the default, unless the converter has replace.null.with.default=false",
        lambda column: column.nullable and column.default is not None,
    ),
)
