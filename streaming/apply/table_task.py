"""The task of bringing one table on, and the rules by which texts become values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coordination.model import TableName, Ts
from sinks.casts import CastRules
from sinks.schema import TableSchema
from sinks.table_form import UPSERT, TableForm


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """The task of bringing a table on from ``checkpoint``."""

    name: TableName
    schema: TableSchema
    checkpoint: Ts
    # Those of insert, update and delete that the event filter ignores.
    ignored_events: frozenset[str] = frozenset()
    form: TableForm = UPSERT
    # If the schema has no key: True, the table has none; False, its shape is not known yet.
    is_keyless: bool = False

    @property
    def is_log(self) -> bool:
        """Whether every event is written, not the last change of each key."""
        return self.form.is_log


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules(CastRules):
    """How texts are cast, and what is done about a column that the table lacks."""

    unknown_column: Literal["dead-letter", "drop"] = "dead-letter"

    @property
    def drops(self) -> bool:
        """Whether values of columns that the table lacks are dropped, and counted."""
        return self.unknown_column == "drop"
