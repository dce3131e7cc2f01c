"""DM's `routes` as ``[[sink.routes]]``.

A route with a `table-pattern` counts before one without, which is of a whole schema. So the routes
of schemas leave out what the others take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conf.task.models import Route
from conf.task.name_pattern import NamePattern

# With them DM does not look whether shards may have rows of one key.
KEY_CHECKS: Final = frozenset({"all", "auto_increment_ID"})


def route_table(
    routes: Mapping[str, Route], *, source_id: str, checks_left_out: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows of ``[[sink.routes]]``. ``checks_left_out``: `ignore-checking-items`. Raises
    SettingError."""
    rules = {name: _rule(f"routes.{name}", each) for name, each in routes.items()}
    of_tables = [rules[name] for name, each in routes.items() if each.table_pattern]
    found = []
    for name, each in routes.items():
        others = [] if each.table_pattern else [f"!{rule}" for rule in of_tables]
        row: dict[str, Any] = {
            "matcher": [rules[name], *others],
            "target-schema": each.target_schema,
        }
        if each.target_table:
            row["target-table"] = each.target_table
        for key in ("extract-table", "extract-schema", "extract-source"):
            extract = getattr(each, key.replace("-", "_"))
            if extract is not None:
                row[key] = extract.model_dump(by_alias=True)
        if each.extract_source is not None:
            row["source-id"] = source_id
        if KEY_CHECKS & set(checks_left_out):
            row["disjoint-keys"] = True
        found.append(row)
    return found


def _rule(place: str, route: Route) -> str:
    schema = NamePattern(route.schema_pattern, f"{place}.schema-pattern").rule
    table = NamePattern(route.table_pattern or "*", f"{place}.table-pattern").rule
    return f"{schema}.{table}"
