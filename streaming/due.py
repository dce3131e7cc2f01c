"""What is due in one batch for one table, and the columns that say what became of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.model import TableName, Ts
from sinks.apply import OP_COLUMN
from sinks.schema import TableSchema
from streaming.filter import TableFilter
from streaming.segments import Carry, Segment
from streaming.spans import Spans

ERROR_CLASS: Final = "_error_class "  # why it cannot be applied; null for a good row
ERROR_MESSAGE: Final = "_error_message "
ORIGIN_COLUMNS: Final = ("_topic ", "_partition ", "_offset ", "_commit_ts ")  # null for a good row
DROPPED: Final = "_dropped "  # of a good row: the columns that the target lacks, or null
CHANGE_COLUMNS: Final = (OP_COLUMN, ERROR_CLASS, ERROR_MESSAGE, *ORIGIN_COLUMNS, DROPPED)
UNKNOWN_COLUMN: Final = "unknown-column"  # an error class


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """What one batch has to do for one table."""

    name: TableName
    schema: TableSchema
    checkpoint: Ts
    segments: tuple[Segment, ...]
    ignored_events: frozenset[str] = frozenset()  # of insert, update, delete: the event filter
    is_keyless: bool = False  # without a key in its schema: for good, or not known yet

    @property
    def max_rows(self) -> int:
        """No more rows than this are due."""
        return sum(segment.tables[self.name].rows for segment in self.segments)

    @property
    def has_key_updates(self) -> bool:
        return any(segment.tables[self.name].key_updates for segment in self.segments)


def settled_keys(tables: Mapping[TableName, TableSchema | None]) -> dict[TableName, Sequence[str]]:
    """What a decoder wants to know of the tables that need no schema from the stream any more."""
    return {name: schema.key if schema else () for name, schema in tables.items()}


def due_tasks(
    carry: Carry, spans: Spans, names: Iterable[TableName], limit: Ts, table_filter: TableFilter
) -> list[TableTask]:
    """What there is to do to bring these tables to ``limit``; those without a due row need
    nothing.
    """
    tasks = []
    for name in sorted(names):
        span = spans[name]
        segments = carry.due(name, span.checkpoint, limit)
        if segments:
            tasks.append(
                TableTask(
                    name=name,
                    schema=spans.schema_or_empty(name),
                    checkpoint=span.checkpoint,
                    segments=segments,
                    ignored_events=table_filter.ignored_row_events(name)
                    | (frozenset(("delete",)) if span.has_no_row else frozenset()),
                    is_keyless=span.is_keyless,
                )
            )
    return tasks
