"""Which tables, rows and DDLs a changefeed takes: TiCDC's ``[filter]``.

A rule is ``schema.table`` in the pattern language of TiDB's tools. The last rule that matches
decides, and a table that no rule matches is not taken. An event filter ignores events of the tables
that its own matcher takes.

Regular expressions are Go's: ``_as_python`` translates them. An expression that Python cannot read
is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from conf.files.event_types import EVENT_ALIASES, EVENT_TYPES, INCOMPATIBLE_DDLS, ROW_EVENTS
from conf.problems import SettingError
from conf.rows.event_filter import EventFilter
from conf.rows.row_filter import RowFilter, ValueRule, value_rule
from conf.settings import FilterSettings
from coordination.errors import ConfigError
from coordination.model import TableName

SYSTEM_SCHEMAS = frozenset(
    (
        "information_schema",
        "performance_schema",
        "metrics_schema",
        "inspection_schema",
        "mysql",
        "sys",
        "tidb_cdc",
        "lightning_task_info",
        "workload_schema",
    )
)

_Matcher = Callable[[str], bool]
_Wrong = Callable[[str], ConfigError]  # makes the error from the reason


class TableFilter:
    """The ``[filter]`` of a changefeed. The constructor raises ConfigError, which quotes the rule,
    pattern or event name that is wrong."""

    def __init__(self, settings: FilterSettings) -> None:
        rules = settings.rules or ("*.*",)
        self._rules = read_rules("filter rule", rules, settings.case_sensitive)
        self._asks_rows = settings.dml_filters == "here"
        self._events = [
            _read_event_filter(e, settings.case_sensitive, asks_rows=self._asks_rows)
            for e in settings.event_filters
        ]

    def selects(self, name: TableName) -> bool:
        """Whether a table is taken; if ``name.table`` is empty, whether any table of the schema
        can be."""
        return name.schema.lower() not in SYSTEM_SCHEMAS and self._rules.match(name)

    def ignored_row_events(self, name: TableName) -> frozenset[str]:
        """The kinds among insert, update and delete that are ignored for this table."""
        return frozenset(
            event
            for rule in self._events
            if self._asks_rows and rule.rules.match(name)
            for event in ROW_EVENTS
            if rule.ignores_event(event)
        )

    def row_filter(self, name: TableName) -> RowFilter:
        """The events and conditions by which rows of this table are ignored."""
        rules = (each.values for each in self._events if each.values and each.rules.match(name))
        return RowFilter(tuple(rules), self.ignored_row_events(name))

    def row_filters(self, names: Iterable[TableName]) -> dict[TableName, RowFilter]:
        """Those of these tables that have one."""
        return {name: found for name in names if (found := self.row_filter(name))}

    @property
    def asks_old_rows(self) -> bool:
        """Whether the condition of any table is about the row before an UPDATE."""
        return RowFilter(tuple(each.values for each in self._events if each.values)).asks_old_rows

    def loses_rows(self, name: TableName | None) -> bool:
        """Whether INSERTs or UPDATEs of this table, or of any, may be ignored."""
        return self._asks_rows and any(
            rule.ignores_event("insert")
            or rule.ignores_event("update")
            or (rule.values is not None and bool(rule.values.expressions.keys() - {"delete"}))
            for rule in self._events
            if name is None or rule.rules.match(name)
        )

    def ignores_ddl(self, name: TableName, event_types: Iterable[str], query: str) -> bool:
        """Whether a DDL of a table is ignored (of a schema, if ``name.table`` is empty)."""
        events = [EVENT_ALIASES.get(event, event) for event in event_types]
        return any(
            rule.ignores_ddl(events, query) for rule in self._events if rule.rules.match(name)
        )


@dataclass(frozen=True, slots=True)
class _Rule:
    schema: _Matcher
    table: _Matcher
    takes: bool
    every_table: bool  # the table's pattern is a plain *


@dataclass(frozen=True, slots=True)
class TableRules:
    """``rules`` are in reverse order, so the first one that matches decides."""

    rules: tuple[_Rule, ...]

    def match(self, name: TableName) -> bool:
        if not name.table:
            return self._match_schema(name.schema)
        for rule in self.rules:
            if rule.schema(name.schema) and rule.table(name.table):
                return rule.takes
        return False

    def _match_schema(self, schema: str) -> bool:
        """Whether any table of the schema can be taken. A rule against some tables (``!shop.tmp``)
        does not decide that; one against all tables (``!shop.*``) does."""
        for rule in self.rules:
            if rule.schema(schema) and (rule.takes or rule.every_table):
                return rule.takes
        return False


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """In reverse order. A column that no rule matches is not taken; names have no case."""

    rules: tuple[tuple[_Matcher, bool], ...]

    def match(self, name: str) -> bool:
        return next((takes for matches, takes in self.rules if matches(name)), False)


@dataclass(frozen=True, slots=True)
class _EventRule:
    rules: TableRules
    events: tuple[str, ...]
    sql: tuple[re.Pattern[str], ...]
    values: ValueRule | None

    def ignores_event(self, event: str) -> bool:
        """Whether an event is ignored. As in TiCDC the entries are read in order, and a "none …"
        before an entry that matches means no."""
        is_row = event in ROW_EVENTS
        for ignored in self.events:
            if ignored in ("all", "all dml" if is_row else "all ddl", event):
                return True
            if ignored in ("none", "none dml" if is_row else "none ddl"):
                return False
            if ignored == "incompatible ddl changes" and event in INCOMPATIBLE_DDLS:
                return True
        return False

    def ignores_ddl(self, events: Sequence[str], query: str) -> bool:
        named = any(self.ignores_event(event) for event in events or ("",))
        return named or any(pattern.search(query) for pattern in self.sql)


def _read_event_filter(
    settings: EventFilter, case_sensitive: bool, *, asks_rows: bool
) -> _EventRule:
    events = [_read_event(event) for event in settings.ignore_event]
    sql = [
        _compiled(text, re.IGNORECASE, _refusal("ignore-sql", text)) for text in settings.ignore_sql
    ]
    rules = read_rules("event filter's matcher", settings.matcher, case_sensitive)
    try:
        values = value_rule(settings) if asks_rows else None
    except SettingError as error:
        raise ConfigError(f"event filter: {error}") from error
    return _EventRule(rules, tuple(events), tuple(sql), values)


def _read_event(text: str) -> str:
    event = text.strip().lower()
    event = EVENT_ALIASES.get(event, event)
    if event not in EVENT_TYPES:
        raise ConfigError(f"ignore-event {text!r} is no event that TiCDC knows")
    return event


def read_rules(what: str, texts: Sequence[str], case_sensitive: bool) -> TableRules:
    rules = [_read_rule(what, text, case_sensitive) for text in texts]
    return TableRules(tuple(rule for rule in reversed(rules) if rule is not None))


def read_column_rules(what: str, texts: Sequence[str]) -> ColumnRules:
    """Patterns of columns, as ``columns`` of TiCDC's column selectors. Raises ConfigError."""
    rules = []
    for text in texts:
        wrong = _refusal(what, text)
        pattern = text.strip(" \t")
        matches, _, left = _read_pattern(pattern.removeprefix("!"), re.IGNORECASE, wrong)
        if left:
            raise wrong(f"nothing may follow the column's pattern, but {left!r} does")
        rules.append((matches, not pattern.startswith("!")))
    return ColumnRules(tuple(reversed(rules)))


def _read_rule(what: str, text: str, case_sensitive: bool) -> _Rule | None:
    pattern = text.strip(" \t")
    if not pattern or pattern.startswith("#"):
        return None
    if pattern.startswith("@"):
        raise ConfigError(f"{what} {text!r}: rules in a file are not read, name them here")
    flags = re.NOFLAG if case_sensitive else re.IGNORECASE
    wrong = _refusal(what, text)
    schema, _, left = _read_pattern(pattern.removeprefix("!"), flags, wrong)
    if not left.startswith("."):
        raise wrong("a point must part schema and table")
    table, every_table, left = _read_pattern(left[1:], flags, wrong)
    if left:
        raise wrong(f"nothing may follow the table's pattern, but {left!r} does")
    return _Rule(schema, table, not pattern.startswith("!"), every_table)


def _refusal(what: str, text: str) -> _Wrong:
    return lambda why: ConfigError(f"{what} {text!r}: {why}")


_REGEX = re.compile(r"/((?:\\.|[^/])+)/")
_QUOTED = re.compile(r'"((?:""|[^"])+)"|`((?:``|[^`])+)`')
_RANGE = re.compile(r"\[(!?)((?:\\[^0-9a-zA-Z]|[^\\\]])+)\]")
_PLAIN = re.compile(r"[0-9A-Za-z$_\u0080-\U0010ffff]")


def _read_pattern(left: str, flags: re.RegexFlag, wrong: _Wrong) -> tuple[_Matcher, bool, str]:
    """Read the first pattern as TiDB's table filter does. Returns its matcher, whether it matches
    every name, and the text that is left."""
    if not left:
        raise wrong("a pattern is missing")
    first = left[0]
    if first == "/":
        if (match := _REGEX.match(left)) is None:
            raise wrong("the regular expression has no end")
        regex = _compiled(match[1], flags, wrong)
        return lambda name: regex.search(name) is not None, False, left[match.end() :]
    if first in '"`':
        if (match := _QUOTED.match(left)) is None:
            raise wrong("the quoted name has no end")
        expression = re.escape(match[0][1:-1].replace(first * 2, first))
        left = left[match.end() :]
    else:
        expression = ""
        while left and left[0] != ".":
            part, left = _read_wildcard(left, wrong)
            expression += part
    try:
        pattern = re.compile(expression, flags | re.DOTALL)
    except re.error as error:
        raise wrong(f"the pattern cannot be read: {error}") from None
    return lambda name: pattern.fullmatch(name) is not None, expression == ".*", left


def _read_wildcard(left: str, wrong: _Wrong) -> tuple[str, str]:
    """Read one character, wildcard or range. Returns its regular expression and the text that is
    left."""
    first, second = left[0], left[1:2]
    if first == "[":
        if (match := _RANGE.match(left)) is None:
            raise wrong("the range [ has no end")
        inner = match[2]
        inner = "\\" + inner if inner.startswith("^") else inner
        negated = "^" if match[1] else ""
        return f"[{negated}{inner.replace('[', chr(92) + '[')}]", left[match.end() :]
    if first == "\\":
        if not second or (second.isascii() and second.isalnum()):
            raise wrong(f"\\{second} is no escape")
        return re.escape(second), left[2:]
    if first in "*?":
        return ".*" if first == "*" else ".", left[1:]
    if not _PLAIN.match(first):
        raise wrong(f"{first!r} must stand in quotes or behind a backslash")
    return re.escape(first), left[1:]


def read_regex(text: str) -> re.Pattern[str]:
    """A regular expression of Go. Raises ConfigError."""
    return _compiled(text, re.NOFLAG, _refusal("regular expression", text))


def _compiled(text: str, flags: re.RegexFlag, wrong: _Wrong) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # [[:alpha:]] means something else here
        try:
            return re.compile(_as_python(text), flags)
        except (re.error, FutureWarning) as error:
            raise wrong(f"the regular expression cannot be read: {error}") from None


_GO_CLASSES = {r"\d": "0-9", r"\w": "0-9A-Za-z_", r"\s": r"\t\n\f\r "}
_GO_PLACES = {r"\b": r"(?a:\b)", r"\B": r"(?a:\B)", r"\z": r"\Z"}


def _as_python(pattern: str) -> str:
    r"""Translate a Go regular expression: Go's \d, \w, \s and \b are ASCII only, with their
    opposites, and its \z is Python's \Z; the rest means the same."""
    out, at, in_class = "", 0, False
    while at < len(pattern):
        pair = pattern[at : at + 2]
        if pair[0] == "\\":
            inner = _GO_CLASSES.get(pair.lower())
            if inner is None:
                out += pair if in_class else _GO_PLACES.get(pair, pair)
            elif not in_class:
                out += f"[{'^' if pair[1].isupper() else ''}{inner}]"
            elif pair[1].islower():
                out += inner
            else:
                raise re.error(f"{pair} in brackets")
            at += 2
            continue
        in_class = pair[0] == "[" or (in_class and pair[0] != "]")
        out += pair[0]
        at += 1
    return out
