"""Row blocks as a decoder makes them, from rows that a test writes down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from coordination.model import TableName
from streaming.apply.row_block import RowBlock
from streaming.protocols.contract import (
    DATA,
    ERROR_CLASS,
    ERROR_MESSAGE,
    OLD,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    ROW_FIELDS,
    Block,
    Cells,
    Kind,
    Order,
    ipc,
    wire_metadata,
)

A = TableName("shop", "a")
Text = Mapping[str, str | None]
OPS = {"DELETE": OP_DELETE, "INSERT": OP_INSERT, "UPDATE": OP_UPDATE}


@dataclass(frozen=True, kw_only=True)
class Row:
    """As in a message. ``old`` where the key may have changed."""

    op: str
    ts: int
    data: Text
    old: Text | None = None
    part: str = "shop/0"
    position: int = 0
    index: int = 0
    error: tuple[str, str] | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    key: Sequence[str] | None = ("id",)


def block_of(rows: Sequence[Row], name: TableName = A, order: Order = Order.NET) -> Block:
    """Rows of one shape and part."""
    first = rows[0]
    names = list(first.data)
    assert all(list(row.data) == names for row in rows)
    arrays = {
        "op": [OPS[row.op] for row in rows],
        "commit_ts": [row.ts for row in rows],
        "position": [row.position for row in rows],
        "index": [row.index for row in rows],
    }
    columns = [pa.array(arrays[each.name], each.type) for each in ROW_FIELDS]
    fields = list(ROW_FIELDS)
    text = pa.struct([(each, pa.string()) for each in names])
    columns.append(pa.array([row.data for row in rows], text))
    fields.append(pa.field(DATA, text))
    if any(row.old is not None for row in rows):
        old_names = list(dict.fromkeys(each for row in rows for each in row.old or ()))
        old = pa.struct([(each, pa.string()) for each in old_names])
        columns.append(pa.array([row.old for row in rows], old))
        fields.append(pa.field(OLD, old))
    if any(row.error for row in rows):
        for number, each in enumerate((ERROR_CLASS, ERROR_MESSAGE)):
            texts = [row.error[number] if row.error else None for row in rows]
            columns.append(pa.array(texts, pa.string()))
            fields.append(pa.field(each, pa.string()))
    types = [*(first.types or dict.fromkeys(names, "varchar")).items()]
    metadata = wire_metadata(types, first.key, order=order, cells=Cells.TEXT)
    stamps, positions = [row.ts for row in rows], [row.position for row in rows]
    return Block(
        kind=Kind.ROW,
        part=first.part,
        name=name,
        rows=len(rows),
        min_ts=min(stamps),
        max_ts=max(stamps),
        first=min(positions),
        last=max(positions),
        key_changes=sum(row.old is not None for row in rows),
        body=ipc(_in_batches(pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata)))),
    )


def _in_batches(rows: pa.Table) -> pa.Table:
    """Two of them where there is enough: a body may have any number."""
    middle = len(rows) // 3
    return pa.concat_tables([rows.slice(0, middle), rows.slice(middle)]) if middle else rows


def blocks_of(rows: Iterable[Row], name: TableName = A, order: Order = Order.NET) -> list[RowBlock]:
    """One block per part and shape, as one decoded chunk makes them."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        shape = (row.part, *row.data, "|", *row.types.items())
        groups.setdefault(shape, []).append(row)
    return [RowBlock.of(block_of(group, name, order)) for group in groups.values()]
