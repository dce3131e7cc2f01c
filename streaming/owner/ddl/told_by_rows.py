"""What tables are whose CREATE TABLE was not read, as their newest whole rows tell. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from coordination.model import SEALED_TS, TableName, Ts
from sinks.types.table_schema import TableSchema
from streaming.apply.newest_whole_row import NewestWholeRow
from streaming.apply.row_block import RowBlock
from streaming.changefeed.schema_from_rows import Untold, WholeRow, schema_of_row
from streaming.owner.ddl.shards import difference
from streaming.owner.ddl.steps import DdlEvent
from streaming.owner.ddl.told_schemas import SchemaAwaited, ToldSchemas
from streaming.protocols.contract import Kind, tables_told
from streaming.stream.read import Read


def told_by_rows(
    reads: Iterable[Read], newest: Mapping[TableName, NewestWholeRow], defined: Container[TableName]
) -> dict[TableName, WholeRow | Untold]:
    """``newest``: empty, by table; they are filled. ``defined``: tables that the schema file has.
    Raises SchemaAwaited where rows name a version of a schema that was not told."""
    schemas = ToldSchemas()
    for read in reads:
        for block in read.blocks:
            if block.kind is Kind.ROW and block.body is not None:
                newest[block.name].look(RowBlock.of(block))
            schemas.look(tables_told(block), newest)
    found, lacking = dict[TableName, WholeRow | Untold](), dict[TableName, int]()
    for name, each in newest.items():
        told = each.told()
        whole = schemas.whole(name, told) if isinstance(told, WholeRow) else told
        if whole is None and isinstance(told, WholeRow) and told.version is not None:
            lacking[name] = told.version
        found[name] = whole or Untold.NOT_WRITTEN
    if lacking := {name: version for name, version in lacking.items() if name not in defined}:
        raise SchemaAwaited(lacking)
    return found


def unlike_targets(
    reads: Iterable[Read],
    newcomers: Iterable[DdlEvent],
    ddls: Iterable[DdlEvent],
    targets: Mapping[TableName, TableSchema],
    limit: Ts,
) -> dict[TableName, str]:
    """How upstream tables differ from their targets, as their rows below their next DDL tell; ""
    where they do not, or no whole row tells (and of the protocol `simple`: no message that was read
    tells the version of its schema). ``ddls``: all at or below ``limit``; what lies above
    may lack some, and rows of there tell nothing."""
    by_origin = {each.upstream: each for each in newcomers}
    next_ts: dict[TableName, int] = {}
    for ddl in ddls:
        event = by_origin.get(ddl.upstream)
        if event is not None and ddl.commit_ts > event.commit_ts:
            next_ts[ddl.upstream] = min(ddl.commit_ts, next_ts.get(ddl.upstream, SEALED_TS))
    newest = {
        origin: NewestWholeRow(Ts(min(next_ts.get(origin, SEALED_TS) - 1, limit)))
        for origin in by_origin
    }
    schemas, names = ToldSchemas(), {event.name: None for event in by_origin.values()}
    for read in reads:
        for block in read.blocks:
            schemas.look(tables_told(block), names)
            if block.origin in newest and block.kind is Kind.ROW and block.body is not None:
                newest[block.origin].look(RowBlock.of(block))
    found = {}
    for origin, event in by_origin.items():
        told = newest[origin].told()
        whole = schemas.whole(event.name, told) if isinstance(told, WholeRow) else None
        schema = None if whole is None else schema_of_row(origin, whole)
        found[origin] = "" if schema is None else difference(schema, targets[event.name], event)
    return found
