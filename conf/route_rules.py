"""``[[sink.routes]]``: which target each upstream table goes into, as `routes` of a task file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conf.problems import require
from conf.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """A column of the target that says which table, schema or source a row came from: the groups
    of ``regexp`` (Go's) in that name, one after the other, or "" where it is not found there."""

    regexp: str
    target_column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRule:
    """One ``[[sink.routes]]``. No table may match two of them."""

    matcher: tuple[str, ...] = setting(
        "matcher", (), "the upstream tables, as in `[filter] rules`; no table may match two routes"
    )
    target_schema: str = setting("target-schema", "", "the database of their target")
    target_table: str = setting(
        "target-table", "", "the name of their target; without it each keeps its own"
    )
    disjoint_keys: bool = setting(
        "disjoint-keys",
        False,
        "no two of these tables ever hold rows of one key, so their target needs no column that "
        "tells them apart",
    )
    source_id: str = setting("source-id", "", "what `extract-source` reads: a name of the source")
    extract_table: Extract | None = None
    extract_schema: Extract | None = None
    extract_source: Extract | None = None

    def __post_init__(self) -> None:
        require(bool(self.matcher), "sink.routes: one of them has no matcher")
        at = f"sink.routes: the route of {', '.join(self.matcher)}"
        require(bool(self.target_schema), f"{at} has no target-schema")
        extracts = self.extracts
        for name, each in extracts.items():
            key = f"{at}: extract-{name}"
            require(bool(each.target_column), f"{key} has no target-column")
            try:
                has_group = re.compile(each.regexp).groups > 0
            except re.error as error:
                require(False, f"{key}: {each.regexp!r} is not a regular expression: {error}")
            require(
                has_group,
                f"{key}: {each.regexp!r} has no group: put what the column is to hold in ( )",
            )
        names = [each.target_column.lower() for each in extracts.values()]
        require(len(set(names)) == len(names), f"{at}: two of its columns have one name")
        require(
            "source" not in extracts or bool(self.source_id),
            f"{at}: extract-source reads the source-id, and there is none",
        )

    @property
    def extracts(self) -> dict[str, Extract]:
        """By what they read: "table", "schema", "source"; in the order of the target's columns."""
        found = {
            "table": self.extract_table,
            "schema": self.extract_schema,
            "source": self.extract_source,
        }
        return {name: each for name, each in found.items() if each is not None}

    @property
    def is_merging(self) -> bool:
        """Whether several tables may go into one target."""
        return bool(self.extracts) or self.disjoint_keys


def route_rules(rows: Iterable[Mapping[str, Any]]) -> tuple[RouteRule, ...]:
    """The rules of a file's checked rows. Raises SettingError."""
    return tuple(RouteRule(**_fields(row)) for row in rows)


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        if key.startswith("extract-"):
            of = key.removeprefix("extract-")
            found[key.replace("-", "_")] = Extract(
                regexp=value.get(f"{of}-regexp", ""), target_column=value.get("target-column", "")
            )
        else:
            found[key.replace("-", "_")] = tuple(value) if isinstance(value, list) else value
    return found


def told_routes(rows: Iterable[Mapping[str, Any]]) -> tuple[RouteRule, ...]:
    """The rules of their fields (``dataclasses.asdict``), read back from JSON."""

    def value(of: Any) -> Any:
        return tuple(of) if isinstance(of, list) else Extract(**of) if isinstance(of, dict) else of

    return tuple(RouteRule(**{name: value(each) for name, each in row.items()}) for row in rows)
