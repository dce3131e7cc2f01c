"""Which target each upstream table goes into: ``[[sink.routes]]``.

    wanted targets ──`RoutedWanted`──► a decoder asks by upstream names
    blocks by upstream names ──`routed_blocks`──► by targets; each remembers its origin

Behind the reader everything goes by the names of targets, as if they were the upstream's. A block
keeps the name of its *origin*, the upstream table, and the columns that tell it: they become
columns of its rows when these are read.

Several tables in one target are its *shards*. The target's properties name them (`Shards`), since a
later owner can no longer read all of them from the stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from conf.route_rules import RouteRule
from conf.settings import Changefeed, DeltaSink, FilterSettings
from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from coordination.secrets import revealed_options
from sinks.ddl.handle_key import PRIMARY
from sinks.target.table_properties import SHARDS
from sinks.target.target_table import inspect, table_uri
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, Index, TableSchema
from streaming.changefeed.filter import TableFilter, read_regex, read_rules
from streaming.protocols.contract import (
    DDL_BODY,
    NO_TABLE,
    SCHEMA_BODY,
    Block,
    Kind,
    Wanted,
    WantedTable,
    ipc,
)

# Names of tables and schemas have at most 64 characters, and several groups may be joined.
TYPE: Final = "varchar(255)"
Statements = tuple[tuple[Ts, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of one upstream table. ``columns``: the target's columns that tell it, with their
    values. ``is_merging``: other tables may go there too."""

    target: TableName
    columns: tuple[tuple[str, str], ...] = ()
    is_merging: bool = False
    has_disjoint_keys: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


class Routes:
    """The routes of a changefeed, and its filter, which knows upstream names. Pickled by its
    settings. The constructor raises ConfigError."""

    def __init__(self, rules: Sequence[RouteRule], settings: FilterSettings) -> None:
        self._settings = tuple(rules), settings
        self.filter = TableFilter(settings)
        self._rules = [
            (
                rule,
                read_rules("matcher of sink.routes", rule.matcher, settings.case_sensitive),
                {of: read_regex(each.regexp) for of, each in rule.extracts.items()},
            )
            for rule in rules
        ]
        self._found: dict[TableName, Route | None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return routes_of, self._settings

    def __bool__(self) -> bool:
        """Whether there are any: without one, each table goes into the target of its name."""
        return bool(self._rules)

    def of(self, origin: TableName) -> Route:
        """Raises ConfigError for a table that matches two routes."""
        found = self.found(origin)
        if found is None:
            raise ConfigError(
                f"sink.routes: table {origin} matches two of them: let their matchers leave it to "
                "one"
            )
        return found

    def found(self, origin: TableName) -> Route | None:
        """None for a table that matches two routes."""
        if origin not in self._found:
            self._found[origin] = self._looked_up(origin)
        return self._found[origin]

    def _looked_up(self, origin: TableName) -> Route | None:
        if not self._rules or not origin.table:
            return Route(target=origin)
        matching = [each for each in self._rules if each[1].match(origin)]
        if len(matching) > 1:
            return None
        if not matching:
            return Route(target=origin)
        rule, _, regexps = matching[0]
        read = {"table": origin.table, "schema": origin.schema, "source": rule.source_id}
        return Route(
            target=TableName(rule.target_schema, rule.target_table or origin.table),
            columns=tuple(
                (each.target_column, _groups(regexps[of], read[of]))
                for of, each in rule.extracts.items()
            ),
            is_merging=rule.is_merging,
            has_disjoint_keys=rule.disjoint_keys,
        )

    def clash(self, origin: TableName, others: Iterable[TableName]) -> str:
        """Why this table cannot go into one target with the others; "": it can."""
        route = self.of(origin)
        for other in others:
            there = self.of(other)
            both = f"{origin} and {other} both go into {route.target}"
            if there.names != route.names:
                return f"{both}, and their routes give it other columns (sink.routes)"
            are_disjoint = there.has_disjoint_keys and route.has_disjoint_keys
            if there.columns == route.columns and not are_disjoint:
                return (
                    f"{both}, where no column tells their rows apart: leave one of them out with "
                    "[filter] rules, set disjoint-keys = true in [[sink.routes]] if they never "
                    "have rows of one key, or begin anew with extract-table or extract-schema"
                )
        return ""

    def by_target(self, origins: Iterable[TableName]) -> dict[TableName, list[TableName]]:
        """The upstream tables of each target. Raises ConfigError where some cannot be in one."""
        found: dict[TableName, list[TableName]] = {}
        for origin in origins:
            there = found.setdefault(self.of(origin).target, [])
            if why := self.clash(origin, there):
                raise ConfigError(why)
            there.append(origin)
        return found

    def taken(self, origins: Iterable[TableName]) -> set[TableName]:
        """The targets of those of these tables that the filter takes."""
        return {self.of(each).target for each in origins if self.filter.selects(each)}

    def may_make(self, target: TableName) -> bool:
        """Whether a target of this name may be of this changefeed."""
        if self.filter.selects(target) and self.found(target) in (None, Route(target=target)):
            return True
        return any(
            rule.target_schema == target.schema and rule.target_table in ("", target.table)
            for rule, _, _ in self._rules
        )

    def extended(self, origin: TableName, schema: TableSchema) -> TableSchema:
        """The target's schema of an upstream table of this schema: with the columns that tell the
        table, which belong to each key. Raises ConfigError where it has such a column already."""
        names = self.of(origin).names
        if not names:
            return schema
        own = {column.name.lower() for column in schema.columns}
        if taken := [name for name in names if name.lower() in own]:
            raise ConfigError(
                f"sink.routes: table {origin} has a column {taken[0]} itself: give target-column "
                "another name"
            )
        added = (Column(name=each, type=MySQLType.parse(TYPE), nullable=False) for each in names)
        indexes = schema.indexes
        if not indexes and schema.key and not schema.key_is_row:
            kind: Any = "primary" if schema.key_index is None else "unique"
            indexes = (Index(schema.key_index or PRIMARY, schema.key, kind),)
        return replace(
            schema,
            columns=(*schema.columns, *added),
            key=(*schema.key, *names) if schema.key else (),
            indexes=tuple(
                each if each.kind == "plain" else replace(each, columns=(*each.columns, *names))
                for each in indexes
            ),
        )


def _groups(regexp: re.Pattern[str], text: str) -> str:
    found = regexp.search(text)
    return "" if found is None else "".join(each or "" for each in found.groups())


@lru_cache(maxsize=8)
def routes_of(rules: tuple[RouteRule, ...], settings: FilterSettings) -> Routes:
    return Routes(rules, settings)


def changefeed_routes(changefeed: Changefeed) -> Routes:
    return routes_of(changefeed.sink.routes, changefeed.filter)


@dataclass(frozen=True, slots=True)
class RoutedWanted(Mapping[TableName, WantedTable]):
    """What is wanted of upstream tables, whatever their names: asked, not listed."""

    routes: Routes
    targets: Wanted
    _asked: dict[TableName, WantedTable | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        plain = [(n.schema, n.table, each.above_ts, each.key) for n, each in self.targets.items()]
        return _routed_wanted, (self.routes, plain)

    def __getitem__(self, origin: TableName) -> WantedTable:
        if origin not in self._asked:
            self._asked[origin] = self._look_up(origin)
        if (found := self._asked[origin]) is None:
            raise KeyError(origin)
        return found

    def _look_up(self, origin: TableName) -> WantedTable | None:
        route = self.routes.found(origin)
        if route is None or not self.routes.filter.selects(origin):
            return None
        wanted = self.targets.get(route.target)
        if wanted is None or wanted.key is None:
            return wanted
        return replace(wanted, key=tuple(each for each in wanted.key if each not in route.names))

    def __iter__(self) -> Iterator[TableName]:
        raise TypeError("upstream tables are not listed")

    def __len__(self) -> int:
        return len(self.targets)


def _routed_wanted(routes: Routes, plain: Iterable[tuple[Any, ...]]) -> RoutedWanted:
    targets = {TableName(s, t): WantedTable(above_ts=ts, key=key) for s, t, ts, key in plain}
    return RoutedWanted(routes, targets)


def routed_blocks(blocks: Iterable[Block], routes: Routes) -> Iterator[Block]:
    """The blocks of targets. Rows of tables that the filter leaves out go: a target may have their
    name. DDLs stay as they are, but for the tables that they tell. Raises ConfigError for a table
    that matches two routes, or has a column of its target's already."""
    for block in blocks:
        if block.kind in (Kind.SCHEMA, Kind.DDL) and block.body is not None:
            yield _with_told(block, routes)
        elif block.kind not in (Kind.ROW, Kind.BAD) or not block.name.table:
            yield block
        elif not routes.filter.selects(block.name):
            if block.kind is Kind.BAD and not block.has_only_rows:
                yield replace(block, name=NO_TABLE)
        else:
            route = routes.of(block.name)
            routed = replace(block, name=route.target, origin=block.name, added=route.columns)
            is_bad = block.kind is Kind.BAD and route.target != block.name
            yield _with_origin(routed) if is_bad else routed


def _with_told(block: Block, routes: Routes) -> Block:
    """The block with its tables told as targets, with the columns that these have besides."""

    def of(schema: str, table: str, version: int, definition: str) -> list[list[Any]]:
        name = TableName(schema, table)
        if not routes.filter.selects(name):
            return []
        target = routes.of(name).target
        found = routes.extended(name, TableSchema.from_json(definition)).to_json()
        return [[target.schema, target.table, version, found]]

    rows = []
    for row in block.table().to_pylist():
        if block.kind is Kind.SCHEMA:
            names = ("schema_name", "table_name", "version", "definition")
            told = of(*(row[name] for name in names))
            rows += [{**row, **dict(zip(names, each, strict=True))} for each in told]
        else:
            told = [new for each in json.loads(row["tables"] or "[]") for new in of(*each)]
            rows.append({**row, "tables": json.dumps(told, ensure_ascii=False) if told else None})
    schema = SCHEMA_BODY if block.kind is Kind.SCHEMA else DDL_BODY
    return replace(block, body=ipc(pa.Table.from_pylist(rows, schema)))


def _with_origin(block: Block) -> Block:
    """Bad messages of a table, each with the upstream table's name."""
    bad = block.table()
    at = bad.schema.names.index("error_message")
    told = pc.binary_join_element_wise(f"table {block.origin}", bad["error_message"], ": ")
    return replace(block, body=ipc(bad.set_column(at, bad.schema.field(at), told)))


@dataclass(frozen=True, slots=True)
class Shards:
    """The upstream tables of a target. ``behind``: by table, the DDLs that the target has had and
    the table has not, each with its commit-ts: rows of the table have the shape from before."""

    behind: Mapping[TableName, Statements] = field(default_factory=dict)

    def __contains__(self, origin: TableName) -> bool:
        return origin in self.behind

    def __iter__(self) -> Iterator[TableName]:
        return iter(sorted(self.behind))

    def __len__(self) -> int:
        return len(self.behind)

    def joined(self, *origins: TableName) -> Shards:
        return Shards({**self.behind, **{each: () for each in origins if each not in self.behind}})

    def left(self, *origins: TableName) -> Shards:
        return Shards({name: each for name, each in self.behind.items() if name not in origins})

    def to_text(self) -> str:
        return json.dumps(
            [[each.schema, each.table, self.behind[each]] for each in self], ensure_ascii=False
        )

    @property
    def properties(self) -> dict[str, str]:
        return {SHARDS: self.to_text()}

    @classmethod
    def of_text(cls, text: str) -> Shards:
        return cls(
            {
                TableName(schema, table): tuple((Ts(ts), query) for ts, query in behind)
                for schema, table, behind in json.loads(text or "[]")
            }
        )


def shards_of(sink: DeltaSink, target: TableName) -> Shards:
    """The upstream tables that a target has, if routes lead to it. Blocks; raises StorageAway."""
    state = inspect(table_uri(sink.warehouse, target), revealed_options(sink.storage_options))
    return Shards() if state is None else Shards.of_text(state.shards)
