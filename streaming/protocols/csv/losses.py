"""What is lost of a column's values before they come here (``rows/losses.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sinks.types.mysql_type import TEXT_TYPES
from streaming.protocols.rows.losses import Loss

_TEXTS: Final = (*TEXT_TYPES, "enum", "set")


def losses_of(lost_text: str) -> Sequence[Loss]:
    """``lost_text``: `CsvFormat.lost_text`."""
    return (
        Loss(f"the text {lost_text!r} comes as NULL", lambda column: column.type.name in _TEXTS),
    )
