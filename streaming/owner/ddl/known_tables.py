"""The tables of a changefeed when DDLs are planned, and those that a DDL makes: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from coordination.model import TableName, Ts
from sinks.ddl.effects import CreateTable, CreateTableLike, DropTable, Statement
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Shards
from streaming.changefeed.schema_file import Definitions
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.ddl.steps import DdlEvent, is_about_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    event: DdlEvent
    table: CreateTable | CreateTableLike


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTables:
    """The tables of a changefeed when DDLs are planned. ``schemas``: of existing tables, None for
    one without a key. ``last_ddls``: the last DDL that has run on each of them, and on dropped
    ones. ``shaped``: the DDL that gave a table its shape, which is newer after a rewind.
    ``defined``: the schema file's definitions of tables that do not exist yet. ``unmade``: where
    the rows begin of tables that nobody has defined. ``forms``: how each is written. ``reached``:
    up to where each is. ``shards``: the upstream tables of targets, and ``unlike``: how one of them
    differs from its target. ``comes_again``: a DDL may come once more, with another commit-ts.
    ``lacking``: tables whose rows of before nobody has: their shape is no matter."""

    schemas: Mapping[TableName, TableSchema | None]
    last_ddls: Mapping[TableName, Ts]
    shaped: Mapping[TableName, Ts]
    defined: Definitions
    unmade: Mapping[TableName, Ts]
    forms: WriteModes
    reached: Mapping[TableName, Ts] = field(default_factory=dict)
    shards: Mapping[TableName, Shards] = field(default_factory=dict)
    unlike: Mapping[TableName, str] = field(default_factory=dict)
    comes_again: bool = False
    lacking: frozenset[TableName] = frozenset()

    @classmethod
    def of(
        cls,
        spans: TableRegistry,
        rows_from: Mapping[TableName, Ts],
        *,
        has_routes: bool,
        unlike: Mapping[TableName, str],
        comes_again: bool,
    ) -> KnownTables:
        """``rows_from``: where whole rows begin of tables that nobody has made. Where each
        partition is numbered by itself, those of a dropped table may be late, and make none."""
        ended = spans.ended if comes_again else {}
        return cls(
            schemas=spans.schemas(),
            last_ddls=spans.last_ddls(),
            shaped={name: table.shape_ts for name, table in spans.items()},
            defined=spans.defined,
            unmade={n: ts for n, ts in rows_from.items() if n not in spans and n not in ended},
            forms=spans.forms,
            reached={name: table.checkpoint for name, table in spans.items()},
            shards={n: each.shards for n, each in spans.items()} if has_routes else {},
            unlike=unlike,
            comes_again=comes_again,
            lacking=frozenset(name for name, table in spans.items() if table.lacks),
        )

    def passes(self, event: DdlEvent, statement: Statement) -> bool:
        """Whether it changes nothing but the shape of a table that lacks its rows: one that has got
        a key lacks them as before."""
        drops = any(isinstance(each, DropTable) for each in statement.effects)
        return event.name in self.lacking and not drops and is_about_one(event, statement)


def with_defined(
    known: Mapping[TableName, TableSchema | None],
    ddls: Iterable[DdlEvent],
    defined: Definitions,
    forms: WriteModes,
) -> dict[TableName, TableSchema | None]:
    """The known schemas, and those of the schema file, by the names of the file and of the DDLs."""
    names = [*(each.name for each in defined.values()), *(event.name for event in ddls)]
    found = {name: schema for name in names if (schema := defined.schema(name)) is not None}
    return {**{name: forms.of(name).keyed(each) for name, each in found.items()}, **known}


def schema_of(
    table: CreateTable | CreateTableLike,
    known: Mapping[TableName, TableSchema | None],
    defined: Definitions,
) -> TableSchema | None:
    """The schema of a table that is made; None for a LIKE of a table that was never read."""
    if isinstance(table, CreateTable):
        return table.schema
    return known.get(table.source) or defined.schema(table.source)


def definition(
    creation: Creation, known: Mapping[TableName, TableSchema | None], defined: Definitions
) -> TableSchema:
    """The schema of the table that is made."""
    schema = schema_of(creation.table, known, defined)
    assert schema is not None, "the plan has seen it"
    return replace(schema, by_id=creation.event.by_id)
