"""What is lost of a column's values before they come here (``rows/losses.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sinks.types.table_schema import MOMENTS, Column
from streaming.protocols.rows.losses import Loss

_DOUBLES_DIGITS: Final = 15


def _is_beyond_a_double(column: Column) -> bool:
    of = column.type
    return of.name == "decimal" and (of.length is None or of.length > _DOUBLES_DIGITS)


def _shows_its_default(column: Column) -> bool:
    return column.nullable and column.default is not None


def _has_zero_as_1970(column: Column) -> bool:
    return column.type.name in MOMENTS and not column.nullable


TICDCS: Final[Sequence[Loss]] = (
    Loss("a decimal comes as a double, of which 15 digits are right", _is_beyond_a_double),
    Loss(
        "a date before the year 1000 comes as one of this century",
        lambda column: column.type.name in ("date", "datetime"),
    ),
    Loss("a zero date comes as 1970-01-01", lambda column: column.type.name == "timestamp"),
    Loss(
        "a zero date comes as 1970-01-01",
        lambda column: _has_zero_as_1970(column) and column.type.name != "timestamp",
    ),
    Loss("NULL comes as the default", _shows_its_default),
)
CONNECTORS: Final[Sequence[Loss]] = (
    Loss("a zero date comes as 1970-01-01", _has_zero_as_1970),
    Loss(
        "NULL comes as the default, unless the converter has replace.null.with.default=false",
        _shows_its_default,
    ),
)
