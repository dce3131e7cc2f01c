"""DM's `filters` as event filters, which only ignore.

A rule with action `Ignore` ignores the events that it names, and the DDLs in which an `sql-pattern`
is found. With `Do` it ignores all others. As in DM an event that one rule ignores stays ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from conf.files.event_types import COMPATIBLE_DDLS, EVENT_ALIASES, INCOMPATIBLE_DDLS, ROW_EVENTS
from conf.rows.event_filter import EventFilter
from conf.task.name_pattern import NamePattern


def event_filter(
    place: str,
    *,
    schema_pattern: str,
    table_pattern: str,
    events: Sequence[str],
    sql_pattern: Sequence[str],
    is_do: bool,
) -> EventFilter:
    """Raises SettingError. Without ``table_pattern`` the rule is for all tables of the schema."""
    schema = NamePattern(schema_pattern, f"{place}.schema-pattern").rule
    table = NamePattern(table_pattern or "*", f"{place}.table-pattern").rule
    named = [EVENT_ALIASES.get(each, each) for each in events]
    found = EventFilter(
        matcher=(f"{schema}.{table}",), ignore_event=tuple(named), ignore_sql=tuple(sql_pattern)
    )
    if not is_do:
        return found
    others = [
        each
        for each in (*ROW_EVENTS, *COMPATIBLE_DDLS, *INCOMPATIBLE_DDLS)
        if not _names(named, each)
    ]
    either = "|".join(sql_pattern)
    nowhere = (rf"\A(?!(?s:.*)(?:{either}))",) if sql_pattern else ()
    return EventFilter(matcher=found.matcher, ignore_event=tuple(others), ignore_sql=nowhere)


def _names(events: Sequence[str], event: str) -> bool:
    """Whether the list names the event: its entries are read in order, and a "none …" before an
    entry that names it means no."""
    kind = "dml" if event in ROW_EVENTS else "ddl"
    for each in events:
        if each in ("all", f"all {kind}", event):
            return True
        if each in ("none", f"none {kind}"):
            return False
        if each == "incompatible ddl changes" and event in INCOMPATIBLE_DDLS:
            return True
    return False
