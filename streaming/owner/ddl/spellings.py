"""One spelling of names, where a server keeps them in lower case (`lower_case_table_names` 1 or 2).

Its rows have the names in lower case. Its DDLs come as somebody has typed them: Canal, Debezium and
Maxwell take the names from the statement. The source URI says which server it is
(`lower-case-names`); else DDLs and rows tell::

    a DDL of `Orders`, rows of `orders`, no name in rows has capitals ──► all DDLs in lower case
    ... and some name in rows has                                     ──► two tables, and a warning
    a CREATE TABLE of `Orders` has run, then rows of `orders` come    ──► nobody can know: it stops
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from conf.sources.source_uri import SourceSettings, is_at_least_once
from coordination.errors import ConfigError
from coordination.model import TableName
from streaming.changefeed.routes import Routes
from streaming.owner.ddl.due import statement_of
from streaming.owner.ddl.steps import ROWS, DdlEvent, dropped_names, old_names
from streaming.protocols.contract import NO_TABLE, Block, Kind

logger = logging.getLogger(__name__)

_WAYS = (
    "set lower-case-names=true in --source-uri if the server keeps names in lower case "
    "(lower_case_table_names is 1 or 2), and lower-case-names=false if these are two tables"
)


@dataclass(slots=True, kw_only=True)
class Spellings:
    """``told``: the source URI's answer; None: it is learned. ``say``: reports a concern about a
    subject; None: it is over. All names are upstream tables'."""

    is_used: bool
    told: bool | None
    routes: Routes
    say: Callable[[str, str | None], None]
    is_lower: bool = False
    _in_rows: set[TableName] = field(default_factory=set)
    _made: set[TableName] = field(default_factory=set)  # by DDLs that were read here
    _warned: dict[TableName, str] = field(default_factory=dict)  # and about what

    @classmethod
    def of(
        cls, source: SourceSettings, routes: Routes, say: Callable[[str, str | None], None]
    ) -> Spellings:
        told: bool | None = getattr(source, "lower_names", None)
        is_used = is_at_least_once(source)
        return cls(is_used=is_used, told=told, routes=routes, say=say, is_lower=bool(told))

    def look(self, blocks: Iterable[Block]) -> None:
        """At the names that rows have."""
        for block in blocks if self.is_used and self.told is not False else ():
            if block.kind is Kind.ROW and block.name.table:
                name = block.name if block.origin == NO_TABLE else block.origin
                self._in_rows.add(name)
                if name in self._warned:
                    self.say(self._warned.pop(name), None)

    def learn(self, ddls: Iterable[DdlEvent], tables: Iterable[TableName]) -> bool:
        """Whether it is news that names are in lower case. ``tables``: that are there, if these
        have their upstream's names. Raises ConfigError where nobody can know."""
        if self.told:
            self._refuse_capitals()
        if not self.is_used or self.told is not None:
            return False
        tables = set(tables)
        known = self._in_rows | (tables - self._made)
        self._refuse_twins(tables)
        if self.is_lower:
            return False
        lower = {each for each in known if each == in_lower_case(each)}
        for event in ddls:
            for name in _names_of(event) - known:
                low = in_lower_case(name)
                if low == name or not _is_among(low, lower):
                    continue
                if len(lower) == len(known):
                    self.is_lower = True
                    logger.warning(
                        "a DDL names %s, and rows have the name in lower case: from now on the "
                        "names in DDLs are taken for those in lower case. If these are two tables, "
                        "set lower-case-names to false in --source-uri",
                        name,
                    )
                    return True
                self._warn(name, f"a DDL of {name} is not taken for one of {low}: {_WAYS}")
        return False

    def spelled(self, event: DdlEvent) -> DdlEvent:
        if not self.is_lower or event.is_lower or event.ddl_type == ROWS:
            return event
        name, routes = in_lower_case(event.upstream), self.routes
        target = routes.of(name).target if routes.filter.selects(name) else name
        return replace(event, name=target, origin=name if routes else None, is_lower=True)

    def made(self, name: TableName) -> None:
        """A DDL has made the table."""
        self._made.add(name)

    def close(self) -> None:
        for about in self._warned.values():
            self.say(about, None)

    def _refuse_capitals(self) -> None:
        for name in self._in_rows:
            if in_lower_case(name) != name:
                raise ConfigError(
                    f"rows of {name} have come, and with lower-case-names=true names of rows are "
                    "in lower case: leave it out of --source-uri"
                )

    def _refuse_twins(self, tables: set[TableName]) -> None:
        """A table that has no rows, where rows of its name in lower case come."""
        for name in tables - self._in_rows:
            low = in_lower_case(name)
            if low == name or low not in self._in_rows or low in tables:
                continue
            if name in self._made:
                raise ConfigError(
                    f"the CREATE TABLE of {name} was read, and now rows of {low}: {_WAYS}. Move "
                    f"the folder of {name} away before the next start"
                )
            self._warn(name, f"rows of {low} are not taken for those of {name}: {_WAYS}")

    def _warn(self, name: TableName, what: str) -> None:
        if name not in self._warned:
            self._warned[name] = f"spelling of {name}"
            self.say(self._warned[name], what)


def in_lower_case(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())


def _names_of(event: DdlEvent) -> set[TableName]:
    if event.ddl_type == ROWS:
        return set()
    statement = statement_of(event)
    return {event.upstream, *old_names(statement), *dropped_names(statement)}


def _is_among(name: TableName, tables: Iterable[TableName]) -> bool:
    """A DDL of a database has no table's name."""
    return any(name.schema == each.schema and name.table in ("", each.table) for each in tables)
