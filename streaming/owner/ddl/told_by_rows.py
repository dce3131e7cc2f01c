"""What tables are whose CREATE TABLE was not read, as their newest whole rows tell. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from coordination.model import TableName, Ts
from streaming.apply.newest_whole_row import NewestWholeRow
from streaming.apply.row_block import RowBlock
from streaming.changefeed.schema_from_rows import Untold, WholeRow
from streaming.owner.ddl.told_schemas import SchemaAwaited, ToldSchemas
from streaming.protocols.contract import Kind, tables_told
from streaming.stream.read import Read


def told_by_rows(
    reads: Iterable[Read],
    names: Sequence[TableName],
    limit: Ts,
    defined: Container[TableName],
    *,
    of: TableName | None = None,
) -> dict[TableName, WholeRow | Untold]:
    """``defined``: tables that the schema file has. ``of``: rows of this upstream table alone.
    Raises SchemaAwaited where rows name a version of a schema that was not told."""
    newest, schemas = {name: NewestWholeRow(limit) for name in names}, ToldSchemas()
    for read in reads:
        for block in read.blocks:
            is_ours = of is None or block.origin == of
            if is_ours and block.kind is Kind.ROW and block.body is not None:
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
