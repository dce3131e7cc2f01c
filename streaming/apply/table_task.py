"""What is to be done for one table, and by which rules its text becomes values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coordination.model import TableName, Ts
from sinks.casts import CastRules
from sinks.schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """Bring a table on from ``checkpoint``."""

    name: TableName
    schema: TableSchema
    checkpoint: Ts
    ignored_events: frozenset[str] = frozenset()  # of insert, update, delete: the event filter
    is_keyless: bool = False  # without a key in its schema: for good, or not known yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules(CastRules):
    """What becomes of a column that the table lacks, beside how text is cast."""

    unknown_column: Literal["dead-letter", "drop"] = "dead-letter"

    @property
    def drops(self) -> bool:
        """Whether values of columns that the table lacks are dropped, and counted."""
        return self.unknown_column == "drop"
