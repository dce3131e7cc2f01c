"""The schema file: CREATE TABLE statements that say what tables were at the start-ts. They are used
for tables that existed before the stream, since their own CREATE TABLE is not read.

The text is written by ``mysqldump --no-data``, by SHOW CREATE TABLE, or by hand. Only USE and
CREATE TABLE are read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from conf.route_rules import RouteRule
from conf.settings import Changefeed, FilterSettings
from coordination.errors import ConfigError
from coordination.model import TableName
from sinks.ddl.effects import CreateTable, CreateTableLike, Effect, Unsupported
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.logged import as_omitted, as_stored
from sinks.ddl.text.plain_text import Dialect
from sinks.ddl.text.tokens import Words, read_words
from sinks.types.delta_types import quoted
from sinks.types.table_schema import TableSchema
from streaming.changefeed.filter import TableFilter
from streaming.changefeed.routes import Routes, routes_of
from streaming.changefeed.target_forms import choice_of
from streaming.protocols.decoders import has_safe_names
from streaming.protocols.rows.safe_names import safe_table
from streaming.source.storage.table_heads import ToldColumns

logger = logging.getLogger(__name__)

# Of a changefeed in etcd, as JSON. A transaction takes 1.25 MiB, and the rest of it is small.
MAX_STORED_BYTES: Final = 1024 * 1024

_PIECE = re.compile(
    r"""
    (?P<quoted> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`
              | /\*(?:M?!|T!).*?\*/ )               # SQL in a comment stays
  | (?P<comment> /\*.*?\*/ | (?:--(?=\s|$)|\#)[^\n]* )
  | (?P<end> ;
      | ^DELIMITER[ \t]+(?!;\s*$)\S+.*?(?:^DELIMITER[ \t]+;[ \t]*$|\Z)   # of routines
      | ^[ ]*(?:\*{5,}|\d+[ ]rows?[ ]in[ ]set|Table:[ ])[^\n]*$          # of the mysql client
      | ^(?:[ ]*Create[ ]Table:[ ]|[^\t\n'"`]+\t)?(?=CREATE\s+TABLE\b) ) # without a semicolon
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_CREATE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b", re.IGNORECASE)
_USE = re.compile(r"USE\s+(?:`((?:[^`]|``)+)`|(\S+))", re.IGNORECASE)
_DUMPED = re.compile(r"-- Host: .*\bDatabase: (\S+)")  # the first line of a mysqldump
_SHOWN = 60  # characters of a statement in an error


class UnreadableDefinition(ConfigError):
    """``reason``: why, without the table's name."""

    def __init__(self, name: TableName, reason: str) -> None:
        shown = str(name) if name.schema else name.table
        super().__init__(f"schema-file: table {shown}: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Definition:
    name: TableName
    schema: TableSchema
    statement: str  # as it stands in the file


class Definitions(dict[TableName, Definition]):
    """By name in lower case: TiDB tells no tables apart by case."""

    def schema(self, name: TableName) -> TableSchema | None:
        found = self.get(_lower(name))
        return None if found is None else found.schema

    def __contains__(self, name: object) -> bool:
        return isinstance(name, TableName) and super().__contains__(_lower(name))


def definitions_of(changefeed: Changefeed) -> Definitions:
    """The tables of the changefeed's schema file that its filter selects, by the names of their
    targets. Raises ConfigError, which names the table and the reason."""
    is_safe = has_safe_names(changefeed.source.protocol)
    return _by_target(changefeed.schema_text, changefeed.filter, changefeed.sink.routes, is_safe)


def told_columns(changefeed: Changefeed) -> ToldColumns:
    """What the changefeed's files tell of upstream tables."""
    settings, sink = changefeed.filter, changefeed.sink
    rules = sink.column_selectors, settings.case_sensitive
    routes = routes_of(sink.routes, settings)

    def selected(name: TableName) -> Callable[[str], bool] | None:
        route = routes.found(name)
        choice = choice_of(name if route is None else route.target, rules[0], (), rules[1])
        return None if choice.is_all else choice.takes

    return ToldColumns(
        before=lambda name: _read(changefeed.schema_text, settings, False).schema(name),
        selected=selected,
    )


@lru_cache(maxsize=8)
def _by_target(
    text: str,
    settings: FilterSettings,
    rules: tuple[RouteRule, ...],
    is_safe: bool,
) -> Definitions:
    found, routes = _read(text, settings, is_safe), routes_of(rules, settings)
    found = _with_safe_names(found) if is_safe else found
    return routed_definitions(found, routes) if routes else found


def routed_definitions(found: Definitions, routes: Routes) -> Definitions:
    """Definitions of targets. Raises ConfigError where two tables of one target differ."""
    routed = Definitions()
    for each in found.values():
        target = routes.of(each.name).target
        schema = routes.extended(each.name, each.schema)
        known = routed.setdefault(_lower(target), Definition(target, schema, each.statement))
        if [(of.name.lower(), of.type) for of in known.schema.columns] != [
            (of.name.lower(), of.type) for of in schema.columns
        ] or known.schema.key != schema.key:
            raise ConfigError(
                f"table {each.name} goes into {target} with others, and has other columns or "
                "another key: make it like them, or leave it out with [filter] rules"
            )
    return routed


def of_mariadb(found: Definitions, *, omits_generated: bool) -> Definitions:
    """With the columns as a MariaDB's rows have them. ``omits_generated``: they do not have all
    values of generated ones."""
    known = Definitions()
    for key, each in found.items():
        stored = map(as_stored, each.schema.columns)
        columns = tuple(map(as_omitted, stored) if omits_generated else stored)
        known[key] = replace(each, schema=replace(each.schema, columns=columns))
    return known


def _with_safe_names(found: Definitions) -> Definitions:
    """By the names that messages have. Raises ConfigError where two tables have one."""
    safe = Definitions()
    for each in found.values():
        name = safe_table(each.name)
        known = safe.setdefault(_lower(name), replace(each, name=name))
        if known.statement != each.statement:
            raise ConfigError(
                f"schema-file: {each.name} and another table both are {name} in the messages: a "
                "character that is no letter, digit or _ is _ there. Leave one of them out"
            )
    return safe


@lru_cache(maxsize=8)
def _read(text: str, settings: FilterSettings, is_safe: bool) -> Definitions:
    selects = TableFilter(settings).selects
    if not is_safe:
        return read_definitions(text, selects)
    return read_definitions(text, lambda name: selects(name) or selects(safe_table(name)))


def read_definitions(text: str, is_wanted: Callable[[TableName], bool]) -> Definitions:
    """The wanted tables of this text. Raises ConfigError, mostly UnreadableDefinition, if one of
    them cannot be read."""
    found, has_tables, database = Definitions(), False, ""
    for statement, header in _statements(text):
        database = database or header
        if (use := _USE.fullmatch(statement)) is not None:
            database = use[2] or use[1].replace("``", "`")
        if _CREATE.match(statement) is None:
            continue
        has_tables = True
        name = _name(statement, database)
        if not is_wanted(name):
            continue
        read = read_ddl(statement, "CREATE", name.schema, name.table, Dialect.WRITTEN)
        (effect,) = read.effects
        definition = Definition(name, _schema(name, effect, found), statement)
        known = found.setdefault(_lower(name), definition)
        if known.schema != definition.schema:
            raise UnreadableDefinition(name, "it is there twice, and each time other")
    if text.strip() and not has_tables:
        raise ConfigError("schema-file: it has no CREATE TABLE statement")
    return found


def stored_text(text: str, settings: FilterSettings, protocol: str) -> str:
    """The statements of the tables that the filter selects, to be stored with a changefeed. Raises
    ConfigError if they are too long for etcd."""
    found = _read(text, settings, has_safe_names(protocol)).values()
    kept = "".join(f"USE {quoted(of.name.schema)};\n{of.statement};\n" for of in found)
    size = len(json.dumps(kept))
    if size > MAX_STORED_BYTES:
        raise ConfigError(
            f"schema-file: the CREATE TABLE statements of the {len(found)} tables that [filter] "
            f"selects have {size} bytes, and etcd holds {MAX_STORED_BYTES} for a changefeed: leave "
            "tables out of the file whose CREATE TABLE is in the stream, or make several "
            "changefeeds"
        )
    return kept


def digest(definitions: Definitions) -> str | None:
    """A short hash by which captures see whether they were given the same; None: no definitions."""
    if not definitions:
        return None
    found = sorted((str(of.name), of.schema.to_json()) for of in definitions.values())
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Each statement without comments, and the database that a comment before it names."""
    parts: list[str] = []
    at, database = 0, ""
    for match in _PIECE.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match["quoted"] is not None:
            parts.append(match[0])
        elif match["comment"] is not None:
            dumped = _DUMPED.match(match[0])
            database = dumped[1] if dumped is not None else database
            parts.append(" ")
        else:
            yield "".join(parts).strip(), database
            parts = []
    yield "".join([*parts, text[at:]]).strip(), database


def _name(statement: str, database: str) -> TableName:
    try:
        words = Words(read_words(statement, Dialect.WRITTEN))
        while not words.accept("TABLE"):
            words.take()
        words.accept("IF", "NOT", "EXISTS")
        schema, table = words.table_name()
    except ValueError as error:
        shown = " ".join(statement[:_SHOWN].split())
        raise ConfigError(f"schema-file: {shown} … cannot be read: {error}") from error
    if not (schema or database):
        raise UnreadableDefinition(
            TableName("", table), "no database is named: put `USE <database>;` before it"
        )
    return TableName(schema or database, table)


def _schema(name: TableName, effect: Effect, found: Definitions) -> TableSchema:
    match effect:
        case CreateTable(schema=schema):
            return replace(schema, follows_indexes=False)  # of later DDLs it does not tell
        case CreateTableLike(source=source):
            if (schema_of_source := found.schema(source)) is not None:
                return schema_of_source
            raise UnreadableDefinition(
                name, f"it is like {source}, which is not before it, or not in [filter]"
            )
        case Unsupported(reason=reason):
            raise UnreadableDefinition(name, reason)
    raise UnreadableDefinition(name, "it makes no table")


def _lower(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())
