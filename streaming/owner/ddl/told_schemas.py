"""Tables whose rows tell a version of a schema that no message has told yet.

Such rows wait as rows wait for a watermark: everything goes on below the first of them. TiCDC tells
each table's schema at its first row, and again every so often (``BOOTSTRAP``); DDLs tell the
schemas before and after them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from streaming.changefeed.schema_from_rows import WholeRow
from streaming.protocols.contract import ToldTable
from streaming.source.positions import Positions
from streaming.stream.lasting_warnings import SAYS_AFTER_S, LastingWarnings
from streaming.stream.role_context import RoleContext

PATIENCE_S: Final = SAYS_AFTER_S
_WAY_OUT: Final = (
    "give its CREATE TABLE with --schema-file, or leave it out with [filter] rules. (TiCDC tells "
    "schemas every send-bootstrap-interval-in-sec, 120 s if nobody sets it)"
)


class SchemaAwaited(Exception):
    """``versions``: of each table's rows, which nothing that was read has told."""

    def __init__(self, versions: Mapping[TableName, int]) -> None:
        super().__init__(str(versions))
        self.versions = versions


class ToldSchemas:
    """The schemas that messages have told."""

    def __init__(self) -> None:
        self._found: dict[tuple[TableName, int], str] = {}

    def look(self, tables: Iterable[ToldTable], names: Mapping[TableName, object]) -> None:
        """``names``: of the tables that are asked for."""
        for table in tables:
            if table.name in names:
                self._found[table.name, table.version] = table.definition

    def whole(self, name: TableName, row: WholeRow) -> WholeRow | None:
        """The row with what its version says; None where that is not told."""
        if row.version is None:
            return row
        definition = self._found.get((name, row.version))
        return None if definition is None else row.defined(definition)


@dataclass(frozen=True, slots=True)
class _Wait:
    version: int
    first_ts: Ts
    since_s: float


class AwaitedSchemas:
    """For the thread of the owner's reader."""

    def __init__(self, concerns: LastingWarnings) -> None:
        self._concerns = concerns
        self._waits: dict[TableName, _Wait] = {}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def add(self, name: TableName, version: int, first_ts: Ts) -> None:
        """``first_ts``: of the table's first row."""
        since_s = time.monotonic()
        if name in self._waits:
            since_s = self._waits[name].since_s
        self._waits[name] = _Wait(version, first_ts, since_s)

    def look(self, tables: Iterable[ToldTable]) -> None:
        """At the tables that a read has told."""
        for table in tables:
            wait = self._waits.get(table.name)
            if wait is not None and wait.version == table.version:
                del self._waits[table.name]
                self._concerns.say(_about(table.name), None)

    def below(self, position: Ts) -> Ts:
        """Up to where what was read can be used."""
        for name, wait in self._waits.items():
            if time.monotonic() - wait.since_s > PATIENCE_S:
                self._concerns.say(
                    _about(name), f"{_says(name, wait)}; all tables wait: {_WAY_OUT}"
                )
        return Ts(min([position, *(wait.first_ts - 1 for wait in self._waits.values())]))

    def refuse_at_the_end(self, context: RoleContext, here: Positions) -> None:
        """Raises TidelakeError if a table waits, and nothing more comes behind ``here``."""
        for name, wait in self._waits.items():
            with closing(context.new_source()) as source:
                if source.has_end and all(
                    here.get(part, 0) >= at for part, at in source.ends(here).items()
                ):
                    raise TidelakeError(f"{_says(name, wait)}, and the source ends: {_WAY_OUT}")

    def close(self) -> None:
        for name in self._waits:
            self._concerns.withdraw(_about(name))


def _says(name: TableName, wait: _Wait) -> str:
    return (
        f"rows of table {name} from commit-ts {wait.first_ts} on have schema version "
        f"{wait.version}, and no BOOTSTRAP or DDL message has told that version"
    )


def _about(name: TableName) -> str:
    return f"schema of {name}"
