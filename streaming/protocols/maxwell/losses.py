"""What is lost of a column's values before they come here (``rows/losses.py``). A message does not
tell for certain who has written it: both writers' losses are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sinks.types.mysql_type import BINARY_TYPES, SPATIAL_TYPES
from sinks.types.table_schema import Column
from streaming.protocols.rows.losses import Loss


def _of(*types: str) -> Callable[[Column], bool]:
    return lambda column: column.type.name in types


LOSSES: Final[Sequence[Loss]] = (
    Loss(
        "TiCDC sends no UPDATE of a table with such a column",
        _of(*(each for each in BINARY_TYPES if each not in SPATIAL_TYPES)),
    ),
    Loss("TiCDC sends no row in which it is NULL", _of("vector")),
    Loss("Maxwell's daemon writes NULL for an empty text of no name", _of("enum")),
    Loss("Maxwell's daemon writes NULL for the document null", _of("json")),
    Loss("Maxwell's daemon has times of less than a day alone", _of("time")),
)
